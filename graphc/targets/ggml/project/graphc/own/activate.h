#pragma once

// The functions of `activations.h`, of vectors and rows.

#include "activations.h"

#include "tiles.h"

static inline vector polynomial(vector x, const float * coefficients, int count) {
    vector sum = all(coefficients[0]);
    for (int i = 1; i < count; ++i) sum = sum * x + coefficients[i];
    return sum;
}

/// erf(x), to two units in the last place. Source of the coefficients: the Cephes library's erff and erfcf.
static inline vector error_function(vector x) {
    static const float inner[] = {7.853861353153693e-5f, -8.010193625184903e-4f, 5.188327685732524e-3f, -2.685381193529856e-2f,
                                  1.128358514861418e-1f, -3.761262582423300e-1f, 1.128379165726710e+0f};
    static const float middle[] = {2.326819970068386e-2f,  -1.387039388740657e-1f, 3.687424674597105e-1f,
                                   -5.824733027278666e-1f, 6.210004621745983e-1f,  -4.944515323274145e-1f,
                                   3.404879937665872e-1f,  -2.741127028184656e-1f, 5.638259427386472e-1f};
    static const float outer[] = {-1.047766399936249e+1f, 1.297719955372516e+1f,  -7.495518717768503e+0f, 2.921019019210786e+0f,
                                  -1.015265279202700e+0f, 4.218463358204948e-1f, -2.820767439740514e-1f, 5.641895067754075e-1f};
    const vector size = choose(x < all(0), -x, x), square = x * x, inverse = 1.0f / size, z = inverse * inverse;
    const vector far = choose(size < all(2), polynomial(z, middle, 9), polynomial(z, outer, 8));
    const vector left = 1.0f - exponential(-square) * inverse * far;
    const vector tail = choose(x < all(0), -left, left);
    return choose(size < all(1), x * polynomial(square, inner, 7), choose(x == x, tail, x));
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
