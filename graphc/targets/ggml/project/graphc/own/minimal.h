#pragma once

// The transforms of Winograd's minimal filtering along one axis, of vectors, for `winograd.c` and `winograd_last.c`; and what all convolutions
// share that have their operands made before, `direct.c` too.

#include "tiles.h"

enum {
    SIDE_2 = 2, SIDE_4 = 4,  // pixels of the result along a tile's side
    MOST_PLACES = (SIDE_4 + 2) * (SIDE_4 + 2)
};

/// So many elements in an odd number of vectors: places that are so far apart do not drive one another from the cache.
static inline int64_t odd_vectors(int64_t count) { return (parts_of(count, WIDTH) | 1) * WIDTH; }

/// Where the first whole line of a tensor begins.
static inline float * room_of(const struct ggml_tensor * t) {
    const uintptr_t line = sizeof(vector);
    return (float *) (((uintptr_t) t->data + line - 1) / line * line);
}

/// Adds what is added to the products, at `count` pixels of a channel from the place `pixel` of its plane on.
static inline void add_sums(const struct ggml_tensor * dst, int64_t channel, int64_t pixel, int64_t batch, int64_t count, float * line) {
    for (int source = 3; source < GGML_MAX_SRC && dst->src[source] != NULL; ++source) {
        const struct ggml_tensor * t = dst->src[source];
        const int64_t along = step_before(t, 2);
        add_row((const float *) t->data + pixel * along + channel * step(t, 2) + batch * step(t, 3), along, count, line);
    }
}

#define INLINE static inline __attribute__((always_inline))

// A tile's side is a constant where these are called.

static const float INNER = 0.70710678f, OUTER = 1.41421356f;  // the points

/// Three numbers of the kernel.
INLINE void filter(int side, vector g0, vector g1, vector g2, vector * to) {
    if (side == SIDE_2) {
        const vector even = (g0 + g2) * 0.5f, odd = g1 * 0.5f;
        to[0] = g0, to[1] = even + odd, to[2] = even - odd, to[3] = g2;
    } else {
        const vector inner = g0 * (-2 / 3.0f) - g2 * (1 / 3.0f), outer = g0 * (1 / 6.0f) + g2 * (1 / 3.0f);
        const vector odd = g1 * (-2 / 3.0f * INNER), far = g1 * (1 / 6.0f * OUTER);
        to[0] = g0, to[1] = inner + odd, to[2] = inner - odd, to[3] = outer + far, to[4] = outer - far, to[5] = g2;
    }
}

/// side + 2 pixels, `step` vectors apart, here and there.
INLINE void spread(int side, const vector * d, int step, vector * to) {
    const vector a = d[0], b = d[step], c = d[2 * step], e = d[3 * step];
    if (side == SIDE_2) {
        to[0] = a - c, to[step] = b + c, to[2 * step] = c - b, to[3 * step] = b - e;
    } else {
        const vector f = d[4 * step], g = d[5 * step];
        const vector inner = f - 2.0f * c, outer = f - 0.5f * c, odd = (e - 2.0f * b) * INNER, far = (e - 0.5f * b) * OUTER;
        to[0] = (a - 2.5f * c) + f, to[step] = inner + odd, to[2 * step] = inner - odd;
        to[3 * step] = outer + far, to[4 * step] = outer - far, to[5 * step] = (b - 2.5f * e) + g;
    }
}

/// Sums of products as `side` pixels.
INLINE void gather(int side, const vector * m, int step, vector * to, int after) {
    const vector a = m[0], b = m[step], c = m[2 * step], d = m[3 * step];
    if (side == SIDE_2) {
        to[0] = a + b + c, to[after] = b - c - d;
    } else {
        const vector inner = b + c, odd = (b - c) * INNER, outer = d + m[4 * step], far = (d - m[4 * step]) * OUTER;
        to[0] = a + inner + outer, to[after] = odd + far;
        to[2 * after] = 0.5f * inner + 2.0f * outer, to[3 * after] = 0.5f * odd + 2.0f * far + m[5 * step];
    }
}

/// True if some elements are infinite or no numbers.
static inline bool some_are_not_finite(const float * x, int64_t count) {
    const int32_t exponent = 0x7f800000;
    int32_t found = 0;
    for (int64_t i = 0; i < count; ++i) {
        const int32_t bits = (union { float value; int32_t bits; }){x[i]}.bits;
        found |= (bits & exponent) == exponent;
    }
    return found;
}
