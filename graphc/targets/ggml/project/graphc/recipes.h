#pragma once

#include "graphc/json.h"
#include "graphc/values.h"

#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

namespace graphc {

/// A parameter of the model that an engine was compiled from, by the name that checkpoints have it under.
struct Parameter {
    std::string name;
    ggml_type type;
    Shape shape;
};

/// A part of an array, along each axis.
struct Slice {
    std::vector<int64_t> starts;
    Shape sizes;
    std::vector<int64_t> steps;
};

/// How each weight of an engine is made of parameters: a document that the engine carries (`graphc/weights/recipes.py`). What recipes
/// of models usually are is computed here: movements, the four kinds of arithmetic, square roots.
class Recipes {
  public:
    /// The document of an engine with so many weights; `engine` is what errors call it. Throws Error if it is damaged.
    Recipes(const std::string & engine, std::string_view document, size_t weights);

    const std::vector<Parameter> & parameters() const { return parameters_; }

    /// Parameters whose numbers decided something about the program: another checkpoint must have the same.
    const std::vector<std::pair<Parameter, Values>> & pinned() const { return pinned_; }

    /// The parameters that a weight is made of; none if it has no recipe.
    std::set<size_t> reads(size_t weight) const;

    /// The slices of a parameter that a weight is, the first cut first; nothing if it is made in another way.
    std::optional<std::vector<Slice>> slices(size_t weight) const;

    /// True if a weight is made of parameters by moving their elements alone.
    bool moves(size_t weight) const;

    /// A weight, for its parameters, in the type that they have where nothing is computed. Throws Error.
    Values compute(size_t weight, const std::map<size_t, Values> & parameters) const;

  private:
    enum class Kind { parameter, constant, node };
    struct Reference {
        Kind kind;
        size_t place;
    };
    struct Node {
        std::string name;  // of the operator, or of its function
        Json attributes;
        std::vector<Reference> inputs;
    };

    void read(const Json & document);
    Reference reference(const Json & document, size_t nodes) const;
    std::vector<size_t> needed(size_t weight) const;
    Values made(size_t weight, const std::map<size_t, Values> & parameters) const;
    Values result(const Node & node, const std::vector<Values> & inputs) const;

    std::string engine_;
    std::vector<Parameter> parameters_;
    std::vector<std::pair<Parameter, Values>> pinned_;
    std::vector<Values> constants_;
    std::vector<Node> nodes_;  // each after those that it reads
    std::vector<std::optional<Reference>> weights_;
    size_t most_ = 0;  // elements that a result may have
};

}  // namespace graphc
