#pragma once

#include "graphc/array.h"
#include "graphc/sizes.h"

namespace graphc {

/// Numbers for trying a model out: the same on every machine for a seed and the position of the input in the model.
/// Floating-point numbers are uniform from -1 to 1; integers are uniform in the input's range, 0 or 1 where it has none;
/// so are the bits of narrow types.
Array random_array(const InputInfo & info, const Shape & shape, uint64_t seed, size_t position);

}  // namespace graphc
