// Sums and products of two tensors of bytes, as bytes.
#include "types.h"
#include "rounding.h"

// Numbers that a thread takes at once.
enum { GRAPHC_TAKEN_T = 2048 };

// Of a[outer][repeats][inner] and b[outer][inner], with their scales and zero points.
struct graphc_bytes_T {
    int64_t outer, repeats, inner, product, lowest;
};

struct graphc_operands_T {
    float a_scale, b_scale, a_zero, b_zero, scale;
};

static inline __attribute__((always_inline)) float graphc_of_two_T(const struct graphc_operands_T * o, int product, float a, float b) {
    const float first = (a - o->a_zero) * o->a_scale, second = (b - o->b_zero) * o->b_scale;
    return (product ? first * second : first + second) / o->scale;
}

static inline __attribute__((always_inline)) void graphc_two_rows_T(const struct graphc_operands_T * o, int product, const T * restrict a,
                                                                    const I * restrict b, uint8_t * restrict y, int64_t count,
                                                                    int32_t lowest, int32_t middle) {
    int64_t i = 0;
#if defined(GRAPHC_ROUNDS_VECTORS)
    for (; i + GRAPHC_ROUNDED <= count; i += GRAPHC_ROUNDED) {
        graphc_numbers numbers[GRAPHC_ROUNDED / GRAPHC_NUMBERS];
#pragma GCC unroll 4
        for (int k = 0; k < GRAPHC_ROUNDED / GRAPHC_NUMBERS; k++) {
            const graphc_numbers first = (graphc_some_numbers((T) -1 < 0, a + i + GRAPHC_NUMBERS * k) - o->a_zero) * o->a_scale;
            const graphc_numbers second = (graphc_some_numbers((I) -1 < 0, b + i + GRAPHC_NUMBERS * k) - o->b_zero) * o->b_scale;
            numbers[k] = (product ? first * second : first + second) / o->scale;
        }
        graphc_round_bytes(numbers, lowest, middle, y + i);
    }
#endif
    for (; i < count; i++) y[i] = graphc_round_byte(graphc_of_two_T(o, product, (float) a[i], (float) b[i]), lowest, middle);
}

// y = round(((a - a_zero) * a_scale + (b - b_zero) * b_scale) / scale) + zero, or that of the product.
static inline void graphc_quantized_binary_T(const T * restrict a, const float * a_scale, const T * a_zero, const I * restrict b,
                                             const float * b_scale, const I * b_zero, const float * scale, const void * zero,
                                             void * restrict result, const int64_t * sizes, int ith, int nth) {
    struct graphc_bytes_T s;
    memcpy(&s, sizes, sizeof(s));
    const struct graphc_operands_T o = {a_scale[0], b_scale[0], (float) a_zero[0], (float) b_zero[0], scale[0]};
    const int32_t middle = graphc_middle(zero, s.lowest), lowest = (int32_t) s.lowest;
    const int64_t pieces = (s.inner + GRAPHC_TAKEN_T - 1) / GRAPHC_TAKEN_T, units = s.outer * s.repeats * pieces;
    for (int64_t unit = units * ith / nth; unit < units * (ith + 1) / nth; unit++) {
        const int64_t row = unit / pieces, first = unit % pieces * GRAPHC_TAKEN_T, rest = s.inner - first;
        const int64_t count = rest < GRAPHC_TAKEN_T ? rest : GRAPHC_TAKEN_T, at = row * s.inner + first;
        const I * const other = b + row / s.repeats * s.inner + first;
        uint8_t * const y = (uint8_t *) result + at;
        if (s.product) graphc_two_rows_T(&o, 1, a + at, other, y, count, lowest, middle);
        else graphc_two_rows_T(&o, 0, a + at, other, y, count, lowest, middle);
    }
}
