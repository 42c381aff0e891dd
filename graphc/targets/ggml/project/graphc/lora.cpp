#include "graphc/lora.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <regex>

namespace graphc {

namespace {

/// How names begin, and which component of a pipeline they are for; "" where that is not said. Beginnings may follow one another.
const std::vector<std::pair<std::string, std::string>> beginnings = {
    {"base_model.model.", ""}, {"model.diffusion_model.", "denoiser"}, {"diffusion_model.", "denoiser"},
    {"unet.", "denoiser"}, {"transformer.", "denoiser"}, {"lora_unet_", "denoiser"}, {"lora_transformer_", "denoiser"},
    {"text_encoder.", "text_encoder"}, {"text_encoder_2.", "text_encoder_2"}, {"text_encoder_3.", "text_encoder_3"},
    {"lora_te_", "text_encoder"}, {"lora_te1_", "text_encoder"}, {"lora_te2_", "text_encoder_2"}, {"lora_te3_", "text_encoder_3"},
};

/// How names end, and which factor that is.
const std::vector<std::pair<std::string, std::string>> endings = {
    {".lora_down.weight", "down"}, {".lora_up.weight", "up"}, {".lora.down.weight", "down"}, {".lora.up.weight", "up"},
    {".lora_linear_layer.down.weight", "down"}, {".lora_linear_layer.up.weight", "up"},
    {".lora_A.weight", "down"}, {".lora_B.weight", "up"}, {".alpha", "alpha"},
};

/// Names of PEFT's that say which of several adapters they are of.
const std::regex adapter(R"(\.(lora_[AB])\.(?!weight$)\w+\.weight$)");

/// Modules around the one that is meant, which a model or a file may lack.
const std::regex outer(R"(^((text_model|unet|transformer|model|module)_)+)");

bool starts(const std::string & text, const std::string & with) { return text.compare(0, with.size(), with) == 0; }

bool ends(const std::string & text, const std::string & with) {
    return text.size() > with.size() && text.compare(text.size() - with.size(), with.size(), with) == 0;
}

/// A module's name as kohya writes it, without modules around.
std::string plain(std::string name) {
    std::replace(name.begin(), name.end(), '.', '_');
    return std::regex_replace(name, outer, "");
}

/// The tensors of one module, by what they are.
using Group = std::map<std::string, Values>;

/// The groups of each component, by module. Throws Error for a tensor of another kind.
std::map<std::string, std::map<std::string, Group>> groups_of(const Checkpoint & file) {
    std::map<std::string, std::map<std::string, Group>> found;
    for (const auto & [key, values] : file.tensors()) {
        std::string component, name = std::regex_replace(key, adapter, ".$1.weight");
        for (bool more = true; more && component.empty();) {
            more = false;
            for (const auto & [beginning, meant] : beginnings) {
                if (!starts(name, beginning)) continue;
                component = meant;
                name = name.substr(beginning.size());
                more = true;
                break;
            }
        }
        const auto ending = std::find_if(endings.begin(), endings.end(), [&](const auto & each) { return ends(name, each.first); });
        if (ending == endings.end()) {
            throw Error(file.path() + " is not a LoRA of a kind that C++ knows (" + key + "); Python may put it into an engine");
        }
        found[component][name.substr(0, name.size() - ending->first.size())][ending->second] = float32(values);
    }
    return found;
}

int64_t rows_of(const Values & values) { return values.shape.empty() ? 1 : values.shape[0]; }

/// As a matrix: the first axis, and the others together.
Values matrix(const Values & values) {
    const int64_t rows = rows_of(values);
    return reshaped(values, {rows, rows == 0 ? 0 : static_cast<int64_t>(values.count()) / rows});
}

bool finite(const Values & values) {
    return std::all_of(values.floats(), values.floats() + values.count(), [](float each) { return std::isfinite(each); });
}

/// The factors of a module for a parameter. Throws Error if they do not fit it.
LoraFactors factors(const std::string & module, const Group & group, const Parameter & parameter) {
    const auto up = group.find("up"), down = group.find("down"), alpha = group.find("alpha");
    if (up == group.end() || down == group.end()) throw Error(module + ": one of its two factors is missing");
    LoraFactors found{matrix(up->second), matrix(down->second), 1};
    const int64_t rank = found.up.shape[1], rows = parameter.shape.empty() ? 1 : parameter.shape[0];
    const auto columns = static_cast<int64_t>(element_count(parameter.shape, 1)) / std::max<int64_t>(rows, 1);
    if (rank < 1 || found.down.shape != Shape{rank, columns} || found.up.shape[0] != rows) {
        throw Error(module + ": factors of " + to_string(up->second.shape) + " and " + to_string(down->second.shape) + " do not make " +
                    parameter.name + " of " + to_string(parameter.shape));
    }
    if (alpha != group.end()) {
        if (alpha->second.count() != 1) throw Error(module + ": its alpha is not one number");
        found.scale = alpha->second.floats()[0] / static_cast<double>(rank);
    }
    if (!finite(found.up) || !finite(found.down) || !std::isfinite(found.scale)) {
        throw Error(module + ": it has elements that are not numbers");
    }
    return found;
}

/// A change's first factor, `times` over.
Values scaled_up(const LoraFactors & change, float times) {
    auto [scaled, bytes] = new_values(GGML_TYPE_F32, change.up.shape);
    float * to = reinterpret_cast<float *>(bytes);
    const float factor = static_cast<float>(times * change.scale);
    for (size_t i = 0; i < scaled.count(); ++i) to[i] = change.up.floats()[i] * factor;
    return scaled;
}

/// Adds a change to numbers, `times` over.
void add(float * to, const LoraFactors & change, float times) {
    const Values up = scaled_up(change, times);
    const size_t rows = static_cast<size_t>(change.up.shape[0]), rank = static_cast<size_t>(change.up.shape[1]);
    const size_t columns = static_cast<size_t>(change.down.shape[1]);
    std::vector<float> sums(columns);
    for (size_t row = 0; row < rows; ++row) {
        std::fill(sums.begin(), sums.end(), 0.0f);
        for (size_t k = 0; k < rank; ++k) {
            const float factor = up.floats()[row * rank + k];
            const float * from = change.down.floats() + k * columns;
            for (size_t i = 0; i < columns; ++i) sums[i] += factor * from[i];
        }
        for (size_t i = 0; i < columns; ++i) to[row * columns + i] += sums[i];
    }
}

/// A copy as float32, or zeros of the same shape.
std::pair<Values, float *> fresh(const Values & values, bool zeros) {
    auto [copy, bytes] = new_values(GGML_TYPE_F32, values.shape);
    if (zeros) {
        std::memset(bytes, 0, copy.nbytes());
    } else {
        std::memcpy(bytes, float32(values).data, copy.nbytes());
    }
    return {copy, reinterpret_cast<float *>(bytes)};
}

/// True if a weight keeps its numbers, and changes go beside it. Of what was given in other numbers than blocks it is made anew. Throws
/// Error for a weight in blocks where neither can be.
bool goes_beside(size_t index, const Base & base, const Recipes & recipes, const WeightSlot & slot) {
    if (!ggml_is_quantized(slot.type)) return false;
    const std::set<size_t> reads = recipes.reads(index);
    const auto told = [&](size_t each) {
        const auto given = base.parameters.find(each);
        return given != base.parameters.end() && !ggml_is_quantized(given->second.type);
    };
    if (std::all_of(reads.begin(), reads.end(), told)) return false;
    if (slot.use == Use::products && recipes.slices(index)) return true;
    throw Error("a LoRA changes '" + std::string(slot.name) + "', which is stored in " + ggml_type_name(slot.type) +
                " and is not only multiplied with: load the checkpoint that it is from, not quantized, first");
}

[[noreturn]] void misfit(const WeightSlot & slot) { throw Error("weight '" + std::string(slot.name) + "': its recipe makes another shape"); }

/// What goes beside a weight: the changes of its parameter by all LoRAs, one below the other, and of these its part.
Beside beside(size_t index, const std::map<std::string, Lora> & loras, const Recipes & recipes, const WeightSlot & slot) {
    const size_t parameter = *recipes.reads(index).begin();
    std::vector<Values> downs, ups;
    for (const auto & [name, lora] : loras) {
        const auto change = lora.changes.find(parameter);
        if (change == lora.changes.end()) continue;
        downs.push_back(change->second.down);
        ups.push_back(scaled_up(change->second, lora.strength));
    }
    constexpr size_t all = std::numeric_limits<size_t>::max();
    Values down = concatenated(downs, 0, all), up = concatenated(ups, 1, all);
    const int64_t rank = down.shape[0];
    const std::vector<Slice> cuts = recipes.slices(index).value();
    for (const Slice & cut : cuts) {
        if (cut.starts.size() != 2 || cut.sizes.size() != 2 || cut.steps.size() != 2) misfit(slot);
        up = sliced(up, {cut.starts[0], 0}, {cut.sizes[0], rank}, {cut.steps[0], 1});
        down = sliced(down, {0, cut.starts[1]}, {rank, cut.sizes[1]}, {1, cut.steps[1]});
    }
    if (up.shape[0] != slot.ne[1] || down.shape[1] != slot.ne[0]) misfit(slot);
    return {index, down, up};
}

/// A weight with all changes of its parameters.
Values changed(size_t index, const Base & base, const std::map<std::string, Lora> & loras, const Recipes & recipes, const WeightSlot & slot) {
    const std::set<size_t> reads = recipes.reads(index);
    const bool known = std::all_of(reads.begin(), reads.end(), [&](size_t each) { return base.parameters.count(each) != 0; });
    if (!known && !recipes.moves(index)) {
        throw Error("a LoRA changes '" + std::string(slot.name) + "', which is computed of parameters: load a checkpoint that has them first");
    }
    // What only moves does the same to a sum as to its parts; so zeros stand for parameters that are not known.
    std::map<size_t, Values> parameters;
    for (size_t each : reads) {
        const Parameter & declared = recipes.parameters()[each];
        Values values{declared.type, declared.shape, nullptr, nullptr};
        if (known) values = base.parameters.at(each);
        auto [copy, numbers] = fresh(values, !known);
        for (const auto & [name, lora] : loras) {
            const auto change = lora.changes.find(each);
            if (change != lora.changes.end()) add(numbers, change->second, lora.strength);
        }
        parameters[each] = copy;
    }
    const Values made = recipes.compute(index, parameters);
    if (known) return stored(made, slot);
    auto [sum, numbers] = fresh(base.weights[index], false);
    const Values delta = float32(made);
    if (delta.count() != sum.count()) throw Error("weight '" + std::string(slot.name) + "': its recipe makes " + to_string(made.shape));
    for (size_t i = 0; i < sum.count(); ++i) numbers[i] += delta.floats()[i];
    return stored(sum, slot);
}

}  // namespace

Lora read_lora(const Checkpoint & file, const Recipes & recipes) {
    std::map<std::string, size_t> names;
    const std::string ending = ".weight";
    for (size_t i = 0; i < recipes.parameters().size(); ++i) {
        const std::string & name = recipes.parameters()[i].name;
        if (ends(name, ending)) names[plain(name.substr(0, name.size() - ending.size()))] = i;
    }
    std::set<std::string> pinned;
    for (const auto & each : recipes.pinned()) pinned.insert(plain(each.first.name.substr(0, each.first.name.rfind('.'))));
    Lora best;
    try {
        for (const auto & [component, modules] : groups_of(file)) {
            Lora found;
            for (const auto & [module, group] : modules) {
                const auto parameter = names.find(plain(module));
                if (pinned.count(plain(module)) != 0) throw Error(module + ": the program relies on its numbers; compile the model with the LoRA in its weights");
                if (parameter == names.end()) {
                    found.unmatched.push_back(module);
                } else {
                    found.changes[parameter->second] = factors(module, group, recipes.parameters()[parameter->second]);
                }
            }
            if (found.changes.size() > best.changes.size()) best = std::move(found);
        }
    } catch (const Error & error) {
        throw Error(file.path() + " does not fit the model: " + error.what());
    }
    if (best.changes.empty()) throw Error(file.path() + " is not a LoRA, or one of another base or component: it names no module of the model");
    return best;
}

Changed with_loras(const Base & base, const std::map<std::string, Lora> & loras, const Recipes & recipes,
                   const std::vector<WeightSlot> & slots) {
    Changed found{base.weights, {}};
    for (size_t i = 0; i < slots.size(); ++i) {
        const std::set<size_t> reads = recipes.reads(i);
        bool known = false, counts = false;
        for (const auto & [name, lora] : loras) {
            const bool changes = std::any_of(reads.begin(), reads.end(), [&, &of = lora](size_t each) { return of.changes.count(each) != 0; });
            known = known || changes;
            counts = counts || (changes && lora.strength != 0);
        }
        if (known && goes_beside(i, base, recipes, slots[i])) {
            found.beside.push_back(beside(i, loras, recipes, slots[i]));
        } else if (counts) {
            found.weights[i] = changed(i, base, loras, recipes, slots[i]);
        }
    }
    return found;
}

}  // namespace graphc
