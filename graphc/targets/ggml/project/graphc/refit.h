#pragma once

#include "graphc/checkpoint.h"
#include "graphc/engine.h"
#include "graphc/recipes.h"
#include "graphc/weights.h"

#include <optional>
#include <vector>

namespace graphc {

/// A weight as a slot stores it, for its numbers. Throws Error for what its type has nothing like.
Values stored(const Values & made, const WeightSlot & slot);

/// The weights that a checkpoint gives, one for each slot, and its parameters, which they are made of.
struct Refitted {
    std::vector<std::optional<Values>> weights;
    std::map<size_t, Values> parameters;
};

/// A model's weights as a checkpoint has them: the same bits as those of an engine that `graphc refit` makes. Where it has a weight as
/// the model stores it, aligned, it is used where it lies; a weight that is made of no parameter has no value here, and stays.
///
/// If not `strict`, tensors that the model does not have are passed over, and weights stay as they are if the checkpoint has none of their
/// parameters. Throws Error with all that does not fit: missing, too much, of another shape or type, unlike a pinned parameter.
Refitted refitted(const Recipes & recipes, const std::vector<WeightSlot> & slots, const Checkpoint & checkpoint, bool strict);

}  // namespace graphc
