#include "graphc/refit.h"

#include <algorithm>
#include <cstring>

namespace graphc {

namespace {

std::string describe(ggml_type type, const Shape & shape) { return std::string(ggml_type_name(type)) + to_string(shape); }

/// True if numbers of a type, where a parameter is of another, are the same numbers.
bool suits(ggml_type given, ggml_type wanted) {
    const bool half = given == GGML_TYPE_F16 || given == GGML_TYPE_BF16 || ggml_is_quantized(given);
    return given == wanted || (half && wanted == GGML_TYPE_F32) || (ggml_is_quantized(given) && (wanted == GGML_TYPE_F16 || wanted == GGML_TYPE_BF16));
}

bool is_float(ggml_type type) {
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F64 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 || ggml_is_quantized(type);
}

/// A checkpoint beside what a model wants.
class Comparison {
  public:
    Comparison(const Recipes & recipes, const Checkpoint & checkpoint) : recipes_(recipes), checkpoint_(checkpoint) {}

    const Values * find(const std::string & name) const {
        const auto found = checkpoint_.tensors().find(name);
        return found == checkpoint_.tensors().end() ? nullptr : &found->second;
    }

    /// What is wrong with a parameter that is needed.
    void need(const Parameter & parameter) {
        const Values * given = find(parameter.name);
        const auto unreadable = checkpoint_.unreadable().find(parameter.name);
        if (given == nullptr && unreadable != checkpoint_.unreadable().end()) {
            add(parameter.name + ": C++ does not read " + unreadable->second + "; use graphc refit");
        } else if (given == nullptr) {
            add(parameter.name + ": missing (" + describe(parameter.type, parameter.shape) + ")");
        } else if (given->shape != parameter.shape) {
            add(parameter.name + ": shape " + to_string(given->shape) + ", must be " + to_string(parameter.shape));
        } else if (!suits(given->type, parameter.type)) {
            add(parameter.name + ": " + ggml_type_name(given->type) + ", must be " + ggml_type_name(parameter.type));
        }
    }

    /// A parameter on whose numbers the program relies may be missing: they are known.
    void match(const Parameter & parameter, const Values & numbers) {
        const Values * given = find(parameter.name);
        if (given == nullptr) return;
        bool same = given->shape == parameter.shape && suits(given->type, parameter.type);
        if (same && is_float(parameter.type) && parameter.type != GGML_TYPE_F64) {
            const Values a = float32(*given), b = float32(numbers);
            same = std::equal(a.floats(), a.floats() + a.count(), b.floats(), [](float x, float y) { return x == y || (x != x && y != y); });
        } else if (same) {
            same = std::memcmp(given->data, numbers.data, numbers.nbytes()) == 0;
        }
        if (!same) add(parameter.name + ": other numbers than those that the program was compiled for; compile it with these");
    }

    /// What the model does not have; whole numbers are no parameters but positions and counts, which are in the program.
    void refuse_surplus() {
        std::set<std::string> known;
        for (const Parameter & each : recipes_.parameters()) known.insert(each.name);
        for (const auto & each : recipes_.pinned()) known.insert(each.first.name);
        for (const auto & [name, given] : checkpoint_.tensors()) {
            if (known.count(name) == 0 && is_float(given.type)) add(name + ": the model has no such parameter");
        }
    }

    /// True if the checkpoint has one of the parameters.
    bool has_any(const std::set<size_t> & parameters) const {
        return std::any_of(parameters.begin(), parameters.end(), [&](size_t each) { return find(recipes_.parameters()[each].name) != nullptr; });
    }

    void add(const std::string & problem) { problems_ += "\n  " + problem; }

    void raise() const {
        if (!problems_.empty()) throw Error(checkpoint_.path() + " does not fit the model:" + problems_);
    }

  private:
    const Recipes & recipes_;
    const Checkpoint & checkpoint_;
    std::string problems_;
};

}  // namespace

Values stored(const Values & made, const WeightSlot & slot) {
    size_t count = 1;
    for (int64_t size : slot.ne) count *= static_cast<size_t>(size);
    if (made.count() != count) throw Error("weight '" + std::string(slot.name) + "': its recipe makes " + to_string(made.shape));
    const bool whole = reinterpret_cast<uintptr_t>(made.data) % Mapping::alignment == 0;
    Values found = made;
    if (made.type != slot.type) {
        try {
            found = narrowed(float32(made), slot.type);
        } catch (const Error & error) {
            throw Error("weight '" + std::string(slot.name) + "': " + error.what());
        }
    } else if (!whole) {
        auto [copy, bytes] = new_values(made.type, made.shape);
        std::memcpy(bytes, made.data, made.nbytes());
        found = copy;
    }
    return found;
}

Refitted refitted(const Recipes & recipes, const std::vector<WeightSlot> & slots, const Checkpoint & checkpoint, bool strict) {
    Comparison comparison(recipes, checkpoint);
    std::vector<size_t> made;
    std::set<size_t> needed;
    for (size_t i = 0; i < slots.size(); ++i) {
        const std::set<size_t> reads = recipes.reads(i);
        if (reads.empty() || (!strict && !comparison.has_any(reads))) continue;
        made.push_back(i);
        needed.insert(reads.begin(), reads.end());
    }
    if (!comparison.has_any(needed)) {
        comparison.add("it has none of the model's parameters; names of other layouts are known to graphc refit");
        comparison.raise();
    }
    for (size_t each : needed) comparison.need(recipes.parameters()[each]);
    for (const auto & [parameter, numbers] : recipes.pinned()) comparison.match(parameter, numbers);
    if (strict) comparison.refuse_surplus();
    comparison.raise();
    Refitted found{std::vector<std::optional<Values>>(slots.size()), {}};
    for (size_t each : needed) found.parameters[each] = *comparison.find(recipes.parameters()[each].name);
    for (size_t i : made) found.weights[i] = stored(recipes.compute(i, found.parameters), slots[i]);
    return found;
}

}  // namespace graphc
