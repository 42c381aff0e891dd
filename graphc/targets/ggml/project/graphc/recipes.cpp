#include "graphc/recipes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

namespace graphc {

namespace {

constexpr int64_t version = 1;

/// Elements that a result may have, whatever the sizes of parameters are.
constexpr size_t room = size_t{1} << 20;

const std::map<std::string, ggml_type> types = {
    {"float32", GGML_TYPE_F32}, {"float16", GGML_TYPE_F16}, {"bfloat16", GGML_TYPE_BF16}, {"float64", GGML_TYPE_F64},
    {"int64", GGML_TYPE_I64}, {"int32", GGML_TYPE_I32}, {"int16", GGML_TYPE_I16}, {"int8", GGML_TYPE_I8},
    {"uint8", GGML_TYPE_I8}, {"bool", GGML_TYPE_I8},
};

Parameter declared(const Json & document) {
    const auto type = types.find(document["dtype"].string());
    if (type == types.end()) throw Error("is damaged: it has a parameter of an unknown type");
    const Json * name = document.find("name");
    Parameter found{name == nullptr ? "" : name->string(), type->second, document["shape"].integers()};
    element_count(found.shape, ggml_type_size(found.type));
    return found;
}

std::vector<std::byte> base64(const std::string & text) {
    static const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::vector<std::byte> bytes;
    uint32_t bits = 0;
    int count = 0;
    for (char letter : text.substr(0, text.find('='))) {
        const size_t value = letters.find(letter);
        if (value == std::string::npos) throw Error("is damaged: a constant is not in base64");
        bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xFFFFFF;
        if ((count += 6) < 8) continue;
        count -= 8;
        bytes.push_back(static_cast<std::byte>(bits >> count & 0xFF));
    }
    return bytes;
}

/// The elements of a constant; a document has one where all are the same.
Values constant(const Parameter & declared, const Json & document, size_t most) {
    const std::vector<std::byte> given = base64(document["data"].string());
    const size_t size = ggml_type_size(declared.type), count = element_count(declared.shape, 1);
    if (count > most) throw Error("is damaged: a constant is too large");
    if (given.size() != count * size && given.size() != size) throw Error("is damaged: a constant has too few or too many bytes");
    auto [found, bytes] = new_values(declared.type, declared.shape);
    for (size_t i = 0; i < count; ++i) std::memcpy(bytes + i * size, given.data() + (given.size() == size ? 0 : i * size), size);
    return found;
}

using Inputs = std::vector<Values>;

/// The inputs that an operator has.
const Inputs & expect(const Inputs & inputs, size_t count) {
    if (inputs.size() != count) throw Error("is damaged: an operator of a recipe has too few or too many inputs");
    return inputs;
}

using Compute = std::function<Values(const Json & attributes, const Inputs & inputs, size_t most)>;

/// What only moves elements.
const std::map<std::string, Compute> movements = {
    {"Identity", [](const Json &, const Inputs & in, size_t) { return expect(in, 1)[0]; }},
    {"Reshape", [](const Json & a, const Inputs & in, size_t) { return reshaped(expect(in, 1)[0], a["shape"].integers()); }},
    {"Transpose", [](const Json & a, const Inputs & in, size_t) { return transposed(expect(in, 1)[0], a["perm"].integers()); }},
    {"Slice",
     [](const Json & a, const Inputs & in, size_t) {
         return sliced(expect(in, 1)[0], a["starts"].integers(), a["sizes"].integers(), a["steps"].integers());
     }},
    {"Concat", [](const Json & a, const Inputs & in, size_t most) { return concatenated(in, a["axis"].integer(), most); }},
    {"Gather",
     [](const Json & a, const Inputs & in, size_t most) { return rows_of(expect(in, 2)[0], in[1], a["axis"].integer(), most); }},
    {"Cast",  // to float32, which holds every number that the input may have
     [](const Json & a, const Inputs & in, size_t) {
         if (a["dtype"]["dtype"].string() != "float32") throw Error("has a recipe that rounds, which C++ does not compute; use graphc refit");
         return expect(in, 1)[0];
     }},
};

template <class F> Compute of_one(F function) {
    return [function](const Json &, const Inputs & in, size_t) { return unary(expect(in, 1)[0], function); };
}

template <class F> Compute of_two(F function) {
    return [function](const Json &, const Inputs & in, size_t most) { return binary(expect(in, 2)[0], in[1], function, most); };
}

/// Functions of numbers.
const std::map<std::string, Compute> functions = {
    {"Sqrt", of_one([](float x) { return std::sqrt(x); })},
    {"Neg", of_one([](float x) { return -x; })},
    {"Add", of_two([](float a, float b) { return a + b; })},
    {"Sub", of_two([](float a, float b) { return a - b; })},
    {"Mul", of_two([](float a, float b) { return a * b; })},
    {"Div", of_two([](float a, float b) { return a / b; })},
};

}  // namespace

Recipes::Recipes(const std::string & engine, std::string_view document, size_t weights) : engine_(engine) {
    try {
        read(Json::parse(document));
        if (weights_.size() != weights) throw Error("is damaged: its recipes are those of other weights");
    } catch (const Error & error) {
        throw Error(engine_ + " " + error.what());
    }
}

void Recipes::read(const Json & document) {
    if (document["version"].integer() != version) throw Error("has recipes of another format; compile it again");
    most_ = room;
    for (const Json & each : document["parameters"].list()) {
        parameters_.push_back(declared(each));
        most_ += 4 * element_count(parameters_.back().shape, ggml_type_size(parameters_.back().type));
    }
    for (const Json & each : document["pinned"].list()) {
        const Parameter parameter = declared(each);
        pinned_.emplace_back(parameter, constant(parameter, each, most_));
    }
    for (const Json & each : document["constants"].list()) constants_.push_back(constant(declared(each), each, most_));
    for (const Json & each : document["nodes"].list()) {
        Node node{each["operator"].string(), each["attributes"], {}};
        if (node.name == "Unary" || node.name == "Binary") node.name = node.attributes["function"]["text"].string();
        for (const Json & input : each["inputs"].list()) node.inputs.push_back(reference(input, nodes_.size()));
        nodes_.push_back(std::move(node));
    }
    for (const Json & each : document["weights"].list()) {
        weights_.push_back(each.is_null() ? std::nullopt : std::optional(reference(each, nodes_.size())));
    }
}

/// What a reference of one key stands for, where so many nodes are known.
Recipes::Reference Recipes::reference(const Json & document, size_t nodes) const {
    const std::pair<const char *, size_t> kinds[] = {{"parameter", parameters_.size()}, {"constant", constants_.size()}, {"node", nodes}};
    for (size_t kind = 0; kind < std::size(kinds); ++kind) {
        const Json * place = document.find(kinds[kind].first);
        if (place == nullptr) continue;
        const int64_t number = place->integer();
        if (document.find("result") != nullptr) throw Error("has a recipe with several results, which C++ does not compute; use graphc refit");
        if (number < 0 || static_cast<uint64_t>(number) >= kinds[kind].second) break;
        return {static_cast<Kind>(kind), static_cast<size_t>(number)};
    }
    throw Error("is damaged: a recipe reads what is not there");
}

/// The nodes that a weight is made by, in order.
std::vector<size_t> Recipes::needed(size_t weight) const {
    std::set<size_t> nodes;
    std::vector<Reference> stack;
    if (weights_[weight]) stack.push_back(*weights_[weight]);
    while (!stack.empty()) {
        const Reference top = stack.back();
        stack.pop_back();
        if (top.kind != Kind::node || !nodes.insert(top.place).second) continue;
        const std::vector<Reference> & inputs = nodes_[top.place].inputs;
        stack.insert(stack.end(), inputs.begin(), inputs.end());
    }
    return {nodes.begin(), nodes.end()};
}

std::set<size_t> Recipes::reads(size_t weight) const {
    std::set<size_t> found;
    const auto add = [&](const Reference & each) {
        if (each.kind == Kind::parameter) found.insert(each.place);
    };
    if (weights_[weight]) add(*weights_[weight]);
    for (size_t node : needed(weight)) std::for_each(nodes_[node].inputs.begin(), nodes_[node].inputs.end(), add);
    return found;
}

bool Recipes::moves(size_t weight) const {
    const std::vector<size_t> nodes = needed(weight);
    return weights_[weight] && std::all_of(nodes.begin(), nodes.end(), [&](size_t node) { return movements.count(nodes_[node].name) != 0; });
}

std::optional<std::vector<Slice>> Recipes::slices(size_t weight) const {
    std::vector<Slice> found;
    std::optional<Reference> at = weights_[weight];
    while (at && at->kind == Kind::node) {
        const Node & node = nodes_[at->place];
        if (node.name != "Slice" || node.inputs.size() != 1) return std::nullopt;
        const Json & a = node.attributes;
        found.insert(found.begin(), {a["starts"].integers(), a["sizes"].integers(), a["steps"].integers()});
        at = node.inputs[0];
    }
    return at && at->kind == Kind::parameter ? std::optional(found) : std::nullopt;
}

Values Recipes::compute(size_t weight, const std::map<size_t, Values> & parameters) const {
    try {
        return made(weight, parameters);
    } catch (const Error & error) {
        throw Error(engine_ + " " + error.what());
    }
}

Values Recipes::made(size_t weight, const std::map<size_t, Values> & parameters) const {
    for (size_t each : reads(weight)) {
        if (parameters_[each].type != GGML_TYPE_F32 && !moves(weight)) {
            throw Error("has a recipe that computes in another type than float32, which C++ does not; use graphc refit");
        }
    }
    std::map<size_t, Values> results;
    const auto value = [&](const Reference & each) -> const Values & {
        if (each.kind == Kind::constant) return constants_[each.place];
        return (each.kind == Kind::parameter ? parameters : results).at(each.place);
    };
    for (size_t number : needed(weight)) {
        std::vector<Values> inputs;
        for (const Reference & each : nodes_[number].inputs) inputs.push_back(value(each));
        results[number] = result(nodes_[number], inputs);
    }
    return value(weights_[weight].value());
}

Values Recipes::result(const Node & node, const std::vector<Values> & inputs) const {
    const auto movement = movements.find(node.name);
    const auto function = functions.find(node.name);
    if (movement == movements.end() && function == functions.end()) {
        throw Error("has a recipe with " + node.name + ", which C++ does not compute; use graphc refit");
    }
    return (movement == movements.end() ? function : movement)->second(node.attributes, inputs, most_);
}

}  // namespace graphc
