#include "graphc/model.h"

#include "graphc/builder.h"

#include <cmath>
#include <numeric>

namespace graphc {

namespace {

/// What does not fit, all of it in one message.
class Problems {
  public:
    void add(const std::string & problem) { text_ += "\n  " + problem; }
    void raise() const {
        if (!text_.empty()) throw Error("the inputs do not fit the model:" + text_);
    }

  private:
    std::string text_;
};

std::string names(const std::vector<InputInfo> & inputs) {
    std::string text;
    for (const InputInfo & each : inputs) text += (text.empty() ? "" : ", ") + each.name;
    return text.empty() ? "none" : text;
}

void check_declarations(const std::vector<InputInfo> & infos, const std::vector<const Array *> & inputs, Problems & problems) {
    for (size_t i = 0; i < infos.size(); ++i) {
        const InputInfo & info = infos[i];
        if (inputs[i] == nullptr || inputs[i]->empty()) {
            problems.add(info.name + ": missing");
            continue;
        }
        const Array & array = *inputs[i];
        if (array.dtype() != info.dtype) {
            problems.add(info.name + ": dtype " + dtype_name(array.dtype()) + ", must be " + dtype_name(info.dtype));
        }
        if (array.shape().size() != info.rank) {
            problems.add(info.name + ": " + std::to_string(array.shape().size()) + " axes " + to_string(array.shape()) +
                         ", must be " + std::to_string(info.rank) + " " + info.shape);
        }
    }
}

/// What the code knows about its model, for an engine that may have more rows in a table.
const ModelInfo & grown(ModelInfo & info, const Engine & engine) {
    const Growth growth = engine.growth_of(info.program_sha256);
    if (growth.rows != 0 && growth.input < info.inputs.size()) info.inputs[growth.input].high += growth.rows;
    return info;
}

/// The kernels of a model that was compiled for GPUs. They are for the tables that the program had.
std::unique_ptr<const DeviceKernels> kernels_of(const ModelInfo & info, const Engine & engine, const Backends & backends) {
    if (info.gpu.code.empty()) return nullptr;
    if (engine.growth_of(info.program_sha256).rows != 0) {
        throw Error(engine.path() + " has more tokens than this code has kernels for; compile it again without --gpu");
    }
    return std::make_unique<DeviceKernels>(engine, info.gpu, backends);
}

/// The whole model as one graph, which depends on all of its sizes.
PartInfo whole(const ModelInfo & info) {
    PartInfo part{info.tensor_count, info.inputs, info.outputs, std::vector<size_t>(info.symbols.size())};
    std::iota(part.sizes.begin(), part.sizes.end(), size_t{0});
    return part;
}

void require_finite(float strength) {
    if (!std::isfinite(strength)) throw Error("the strength of a LoRA is a finite number");
}

/// How many runs there may be at once. Servers answer one at a time, and within limits of memory one graph has some.
size_t most_runs(int wanted, const Backends & backends, const Memory & memory) {
    if (memory.bounded() || backends.servers() != 0) return 1;
    if (wanted > 0) return static_cast<size_t>(wanted);
    return backends.accelerated() ? 1 : static_cast<size_t>(backends.threads());
}

}  // namespace

Model::Model(ModelInfo info, Engine engine, const Options & options)
    : info_(std::move(info)), engine_(std::move(engine)),
      backends_(options.device, options.threads, options.fast, options.ways.empty() ? "" : read_choices(options.ways)),
      device_kernels_(kernels_of(info_, engine_, backends_)), memory_(backends_, options.memory), whole_(*this, &Model::build, whole(grown(info_, engine_))), options_(options) {}

void Model::load(std::vector<WeightSlot> slots, const std::vector<std::vector<size_t>> & together) {
    const Growth growth = engine_.growth_of(info_.program_sha256);
    if (growth.rows != 0) {
        const bool known = growth.weight < slots.size() && growth.input < info_.inputs.size();
        if (!known || (slots[growth.weight].ne[1] += growth.rows) != info_.inputs[growth.input].high) {
            throw Error(engine_.path() + " is damaged: the table that grew is not one that an input numbers");
        }
    }
    std::vector<std::optional<Values>> given(slots.size());
    if (!options_.weights.empty()) {
        Refitted found = refitted(Recipes(engine_.path(), engine_.recipes(), slots.size()), slots, options_.weights, true);
        given = std::move(found.weights);
        base_.parameters = std::move(found.parameters);
    }
    memory_.load(engine_, slots, together, given);
    slots_ = std::move(slots);
    contexts_ = std::make_unique<Contexts>(memory_, backends_, most_runs(options_.contexts, backends_, memory_));
}

/// Have the weights that a base and LoRAs make, which `change` changes. On an error everything stays.
void Model::change(const std::function<void(const Recipes & recipes, Base & base, Loras & loras)> & change) {
    const std::lock_guard<std::mutex> lock(changing_);
    const Recipes recipes(engine_.path(), engine_.recipes(), slots_.size());
    Base base = base_;
    Loras loras = loras_;
    std::vector<std::optional<Values>> values(slots_.size());
    try {
        for (size_t i = base.weights.size(); i < slots_.size(); ++i) base.weights.push_back(memory_.weights().stored(i));
        change(recipes, base, loras);
        const Changed wanted = with_loras(base, loras, recipes, slots_);
        if (device_kernels_ != nullptr && !wanted.beside.empty()) {
            throw Error("a LoRA beside quantized weights is not possible in a model that was compiled with --gpu");
        }
        for (size_t i = 0; i < slots_.size(); ++i) {
            if (wanted.weights[i].data != memory_.weights().stored(i).data) values[i] = wanted.weights[i];
        }
        contexts_->change([&] { memory_.replace(values, wanted.beside); });
    } catch (const std::bad_alloc &) {
        throw Error("not enough memory for other weights");
    }
    base_ = std::move(base);
    loras_ = std::move(loras);
}

void Model::load_weights(const Checkpoint & checkpoint, bool strict) {
    change([&](const Recipes & recipes, Base & base, Loras &) {
        Refitted found = refitted(recipes, slots_, checkpoint, strict);
        for (size_t i = 0; i < slots_.size(); ++i) {
            if (found.weights[i]) base.weights[i] = std::move(*found.weights[i]);
        }
        for (auto & [number, values] : found.parameters) base.parameters[number] = std::move(values);
    });
}

std::vector<std::string> Model::load_lora(const std::string & name, const Checkpoint & file, float strength) {
    require_finite(strength);
    std::vector<std::string> unmatched;
    change([&](const Recipes & recipes, Base &, Loras & loras) {
        if (loras.count(name) != 0) throw Error("a LoRA is loaded as '" + name + "' already");
        Lora & lora = loras[name] = read_lora(file, recipes);
        lora.strength = strength;
        unmatched = lora.unmatched;
    });
    return unmatched;
}

void Model::set_lora(const std::string & name, float strength) {
    require_finite(strength);
    change([&](const Recipes &, Base &, Loras & loras) {
        if (loras.count(name) == 0) throw Error("no LoRA is loaded as '" + name + "'");
        loras[name].strength = strength;
    });
}

void Model::unload_lora(const std::string & name) {
    change([&](const Recipes &, Base &, Loras & loras) {
        if (loras.erase(name) == 0) throw Error("no LoRA is loaded as '" + name + "'");
    });
}

std::string Model::device_name() const {
    std::string names;
    for (ggml_backend_t each : backends_.list()) {
        if (each != backends_.list().back() || !backends_.accelerated() || backends_.spill()) names += (names.empty() ? "" : ", ") + graphc::device_name(each);
    }
    return names;
}

std::map<std::string, Array> Model::run(const std::map<std::string, Array> & inputs) const {
    Problems problems;
    std::map<std::string, const Array *> given;
    for (const auto & [name, array] : inputs) given[name] = &array;
    std::vector<const Array *> ordered;
    for (const InputInfo & each : info_.inputs) {
        const auto found = given.find(each.name);
        ordered.push_back(found == given.end() ? nullptr : found->second);
        if (found != given.end()) given.erase(found);
    }
    for (const auto & each : given) {
        problems.add(each.first + ": the model has no such input (it has " + names(info_.inputs) + ")");
    }
    check_declarations(info_.inputs, ordered, problems);
    problems.raise();
    std::vector<Array> results = run_in_order(ordered);
    std::map<std::string, Array> outputs;
    for (size_t i = 0; i < results.size(); ++i) outputs[info_.outputs[i].name] = std::move(results[i]);
    return outputs;
}

std::vector<Array> Model::run_in_order(const std::vector<const Array *> & inputs) const {
    std::vector<Array> found(info_.outputs.size());
    std::vector<Array *> outputs;
    for (Array & each : found) outputs.push_back(&each);
    run_into(inputs, outputs);
    return found;
}

void Model::run_into(const std::vector<const Array *> & inputs, const std::vector<Array *> & outputs) const {
    if (inputs.size() != info_.inputs.size()) {
        throw Error(std::to_string(inputs.size()) + " inputs for a model of " + std::to_string(info_.inputs.size()));
    }
    Problems problems;
    check_declarations(info_.inputs, inputs, problems);
    problems.raise();
    const std::vector<int64_t> sizes = checked_sizes(inputs);
    contexts_->with([&](Context & context) { compute(context, sizes, inputs, outputs); });
}

std::vector<int64_t> Model::checked_sizes(const std::vector<const Array *> & inputs) const {
    Problems problems;
    std::vector<int64_t> sizes;
    try {
        const InputSizes given(info_.inputs, inputs);
        sizes = bind(given);
        const std::vector<Shape> shapes = input_shapes(sizes);
        for (size_t i = 0; i < shapes.size(); ++i) given.expect(i, shapes[i]);
        check(sizes);
    } catch (const Error & error) {
        problems.add(error.what());
    }
    problems.raise();
    return sizes;
}

std::vector<GraphOutput> Model::build(const Builder &, Kernels &, const std::vector<int64_t> &,
                                      const std::vector<ggml_tensor *> &) const {
    return {};
}

void Model::compute(Context & context, const std::vector<int64_t> & sizes, const std::vector<const Array *> & inputs,
                    const std::vector<Array *> & outputs) const {
    whole_.run(context, sizes, inputs, outputs);
}

}  // namespace graphc
