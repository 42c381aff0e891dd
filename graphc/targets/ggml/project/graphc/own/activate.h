#pragma once

// The functions of `activations.h`, of vectors and rows.

#include "activations.h"

#include "tiles.h"

#include <math.h>

static inline vector polynomial(vector x, const float * coefficients, int count) {
    vector sum = all(coefficients[0]);
    for (int i = 1; i < count; ++i) sum = sum * x + coefficients[i];
    return sum;
}

/// erf(x), to five units in the last place, by a rational function. Source of the coefficients: the Eigen library.
static inline vector error_function(vector x) {
    static const float above[] = {2.2905065861350646e-4f, 3.4082910107109506e-3f, 5.0955695062380861e-2f, 1.8520832239976145e-1f, 1.128379143519084f};
    static const float below[] = {-1.1791602954361697e-7f, 2.3547966471313185e-5f, 1.0179625278914885e-3f, 1.4070470171167667e-2f,
                                  1.1098505178285362e-1f,  4.9746925110067538e-1f, 1.0f};
    const vector near = between(x, -3.832506856900711f, 3.832506856900711f), square = near * near;  // farther off, it is 1
    return near * polynomial(square, above, 5) / polynomial(square, below, 7);
}

/// Two numbers between which results are kept, if the activation does no more than that.
struct bounds {
    bool kept;
    float low, high;
};

static inline struct bounds bounds_of(const struct graphc_activation * activation) {
    const bool relu = activation->function == GRAPHC_RELU, clip = activation->function == GRAPHC_CLIP;
    return (struct bounds){relu || clip, clip ? activation->a : 0, clip ? activation->b : INFINITY};
}

/// One of the functions; which one is a constant where this is called.
static inline __attribute__((always_inline)) vector activated(int function, vector x, float a, float b) {
    switch (function) {
        case GRAPHC_RELU: return choose(x < all(0), all(0), x);
        case GRAPHC_GELU: return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
        case GRAPHC_SWISH: return x * sigmoid(x * a);
        case GRAPHC_GATE: return x * sigmoid(x * (a + b * x * x));
        case GRAPHC_SIGMOID: return sigmoid(x);
        case GRAPHC_HARD_SWISH: return x * between((x + 3.0f) / 6.0f, 0, 1);
        case GRAPHC_CLIP: return between(x, a, b);
        case GRAPHC_LEAKY_RELU: return choose(x < all(0), x * a, x);
        default: return x;
    }
}

/// A function of `count` numbers, times those of `other` if there are.
static inline __attribute__((always_inline)) void activate_by(int function, const struct graphc_activation * s, const float * from,
                                                              const float * other, int64_t count, float * to) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) {
        const vector found = activated(function, *(const unaligned *) (from + i), s->a, s->b);
        *(unaligned *) (to + i) = other == NULL ? found : found * *(const unaligned *) (other + i);
    }
    if (i == count) return;
    vector last = all(0);
    for (int64_t k = i; k < count; ++k) last[k - i] = from[k];
    last = activated(function, last, s->a, s->b);
    for (int64_t k = i; k < count; ++k) to[k] = last[k - i] * (other == NULL ? 1 : other[k]);
}

/// The same; `from` may be `to`.
static __attribute__((noinline, unused)) void activate(const struct graphc_activation * s, const float * from, const float * other, int64_t count,
                                                       float * to) {
    switch (s->function) {
        case GRAPHC_RELU: activate_by(GRAPHC_RELU, s, from, other, count, to); break;
        case GRAPHC_GELU: activate_by(GRAPHC_GELU, s, from, other, count, to); break;
        case GRAPHC_SWISH: activate_by(GRAPHC_SWISH, s, from, other, count, to); break;
        case GRAPHC_GATE: activate_by(GRAPHC_GATE, s, from, other, count, to); break;
        case GRAPHC_SIGMOID: activate_by(GRAPHC_SIGMOID, s, from, other, count, to); break;
        case GRAPHC_HARD_SWISH: activate_by(GRAPHC_HARD_SWISH, s, from, other, count, to); break;
        case GRAPHC_CLIP: activate_by(GRAPHC_CLIP, s, from, other, count, to); break;
        case GRAPHC_LEAKY_RELU: activate_by(GRAPHC_LEAKY_RELU, s, from, other, count, to); break;
        default: break;
    }
}
