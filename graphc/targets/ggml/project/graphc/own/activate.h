#pragma once

// The functions of `activations.h`, of vectors and rows.

#include "activations.h"

#include "functions.h"
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

/// A number as an exponent of 2 and what is left: exp(x) is (1 + above) * 2^power. It must be less than 2^21 in size.
struct exponent {
    vector above;
    integers power;
};

static inline struct exponent exponent_of(vector x) {
    static const float coefficients[] = {1.9875691e-4f, 1.3981999e-3f, 8.3334519e-3f, 4.1665796e-2f, 1.6666666e-1f, 0.5f};
    const vector shifter = all(12582912.0f), shifted = x * 1.44269504f + shifter, n = shifted - shifter;  // 1.5 * 2^23: sums are whole
    const vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    return (struct exponent){polynomial(r, coefficients, 6) * r * r + r, (integers) shifted - (integers) shifter};
}

/// 2^power, of a normal number.
static inline vector two_to_the(integers power) { return (vector) ((power + 127) << 23); }

/// exp(x), to a unit in the last place: by two powers, of which neither is too large where x is.
static inline vector exponential_of_any(vector x) {
    const struct exponent e = exponent_of(between(x, -104, 89));
    const integers half = e.power >> 1;
    return (e.above + 1.0f) * two_to_the(half) * two_to_the(e.power - half);
}

/// exp(x) - 1 for x <= 0, to a unit in the last place, also where x is small.
static inline vector exponential_minus_one(vector x) {
    const struct exponent e = exponent_of(larger(all(-87), x));
    const vector power = two_to_the(e.power);
    return e.above * power + (power - 1.0f);
}

/// tanh(x), to three units in the last place: by a polynomial near 0, where 1 minus something would cancel. Source of the coefficients: the
/// Cephes library.
static inline vector hyperbolic_tangent(vector x) {
    static const float coefficients[] = {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f};
    const vector square = x * x, far = 1.0f - 2.0f / (1.0f + power_of_e(between(2.0f * x, -87, 88)));
    return choose(square < 0.390625f, polynomial(square, coefficients, 5) * square * x + x, far);
}

/// x tanh(log(1 + exp(x))), as a fraction of powers: tanh(log(y)) is (y^2 - 1) / (y^2 + 1).
static inline vector mish(vector x) {
    const vector power = power_of_e(between(x, -87, 20)), above = power * (power + 2.0f);  // far above 0, it is x
    return x * (above / (above + 2.0f));
}

/// Numbers up to which `wave` is exact: a quarter turn times what they have of it is a sum of exact products.
#define MOST_TURNED 8192.0f

/// sin(x), or cos(x), to two units in the last place, for numbers up to MOST_TURNED. Source of the coefficients: the Cephes library.
static inline __attribute__((always_inline)) vector wave(vector x, bool cosine) {
    static const float sine[] = {-1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f};
    static const float other[] = {2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f};
    const vector shifter = all(12582912.0f), shifted = x * 0.636619772f + shifter, n = shifted - shifter;
    const integers quarters = (integers) shifted + (int) cosine;
    const vector r = ((x - n * 1.5703125f) - n * 4.837512969970703125e-4f) - n * 7.54978995489188216e-8f, square = r * r;
    const vector s = polynomial(square, sine, 3) * square * r + r, c = polynomial(square, other, 3) * square * square + (1.0f - 0.5f * square);
    return (vector) ((integers) choose((quarters & 1) != 0, c, s) ^ (quarters & 2) << 30);
}

/// The simple activation that one is; IDENTITY for all others, of which `is_simple` is false.
static inline struct simple_activation simple_of(const struct graphc_activation * activation) {
    switch (activation->function) {
        case GRAPHC_RELU: return (struct simple_activation){CLAMP, 0, INFINITY};
        case GRAPHC_CLIP: return (struct simple_activation){CLAMP, activation->a, activation->b};
        case GRAPHC_HARD_SWISH: return (struct simple_activation){HARD_SWISH, 0, 0};
        default: return (struct simple_activation){IDENTITY, 0, 0};
    }
}

static inline bool is_simple(const struct graphc_activation * activation) {
    return activation->function == GRAPHC_NO_ACTIVATION || simple_of(activation).function != IDENTITY;
}

/// One of the functions; which one is a constant where this is called.
static inline __attribute__((always_inline)) vector activated(int function, vector x, float a, float b) {
    switch (function) {
        case GRAPHC_RELU: return choose(x < all(0), all(0), x);
        case GRAPHC_GELU: return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
        case GRAPHC_SWISH: return x * sigmoid(x * a);
        case GRAPHC_GATE: return x * sigmoid(x * (a + b * x * x));
        case GRAPHC_SIGMOID: return sigmoid(x);
        case GRAPHC_HARD_SWISH: return hard_swish(x);
        case GRAPHC_CLIP: return between(x, a, b);
        case GRAPHC_LEAKY_RELU: return choose(x < all(0), x * a, x);
        case GRAPHC_TANH: return hyperbolic_tangent(x);
        case GRAPHC_ELU: return choose(x < all(0), exponential_minus_one(x), x);
        case GRAPHC_EXP: return exponential_of_any(x);
        case GRAPHC_SIN: return wave(x, false);
        case GRAPHC_COS: return wave(x, true);
        case GRAPHC_MISH: return mish(x);
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

/// sin(x), or cos(x), of any numbers, times those of `other` if there are: by vectors where none is too far from 0.
static inline __attribute__((always_inline)) void activate_waves(int function, const struct graphc_activation * s, const float * from,
                                                                 const float * other, int64_t count, float * to) {
    enum { AT_ONCE = 512 };
    for (int64_t first = 0; first < count; first += AT_ONCE) {
        const int64_t some = min_of(count - first, AT_ONCE);
        int far = 0;
        for (int64_t i = first; i < first + some; ++i) far |= fabsf(from[i]) > MOST_TURNED;
        if (!far) activate_by(function, s, from + first, other == NULL ? NULL : other + first, some, to + first);
        for (int64_t i = first; far && i < first + some; ++i) {
            to[i] = (function == GRAPHC_SIN ? sinf(from[i]) : cosf(from[i])) * (other == NULL ? 1 : other[i]);
        }
    }
}

/// log(x), or the root, of numbers by themselves: loops of which compilers make vectors.
static inline void activate_simply(int function, const float * from, int64_t count, float * to) {
    if (function == GRAPHC_LOG) for (int64_t i = 0; i < count; ++i) to[i] = graphc_logf(from[i]);
    else for (int64_t i = 0; i < count; ++i) to[i] = sqrtf(from[i]);
}

/// Any of the functions; `from` may be `to`.
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
        case GRAPHC_TANH: activate_by(GRAPHC_TANH, s, from, other, count, to); break;
        case GRAPHC_ELU: activate_by(GRAPHC_ELU, s, from, other, count, to); break;
        case GRAPHC_EXP: activate_by(GRAPHC_EXP, s, from, other, count, to); break;
        case GRAPHC_SIN: activate_waves(GRAPHC_SIN, s, from, other, count, to); break;
        case GRAPHC_COS: activate_waves(GRAPHC_COS, s, from, other, count, to); break;
        case GRAPHC_MISH: activate_by(GRAPHC_MISH, s, from, other, count, to); break;
        case GRAPHC_LOG: activate_simply(GRAPHC_LOG, from, count, to); break;
        case GRAPHC_SQRT: activate_simply(GRAPHC_SQRT, from, count, to); break;
        default: break;
    }
}
