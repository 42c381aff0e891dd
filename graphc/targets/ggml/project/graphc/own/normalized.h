#pragma once

// What a normalization of groups takes from a channel's numbers, multiplies them by and adds, and SiLU of that.

#include "tiles.h"

struct norm_terms {
    float mean, scale, shift;
};

static inline vector normalized(vector x, const struct norm_terms * terms, bool silu) {
    const vector y = (x - terms->mean) * terms->scale + terms->shift;
    return silu ? y * sigmoid(y) : y;
}

/// The same for what is rounded to bfloat16 then, several times as fast.
static inline vector roughly_normalized(vector x, const struct norm_terms * terms, bool silu) {
    const vector y = (x - terms->mean) * terms->scale + terms->shift;
    return silu ? y * rough_inverse(1.0f + roughly_power_of_two(smaller(all(127), y * -1.44269504f))) : y;
}
