// Bytes by vectors: squares of them, and sums of products of each two.

#include <stdbool.h>
#include <stdint.h>

#include "squares.h"

enum { GRAPHC_BYTES = 16 };

typedef uint8_t graphc_bytes __attribute__((vector_size(GRAPHC_BYTES), aligned(1), may_alias));
typedef uint8_t graphc_byte_vector __attribute__((vector_size(GRAPHC_BYTES)));

#define GRAPHC_FIRST_BYTES(a, b) GRAPHC_MIX(graphc_byte_vector, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define GRAPHC_LAST_BYTES(a, b) GRAPHC_MIX(graphc_byte_vector, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

// Rows of GRAPHC_BYTES bytes, as many, as columns; rows lie `step` bytes apart, columns `across`.
static inline void graphc_transpose_bytes(const uint8_t * from, int64_t step, uint8_t * to, int64_t across) {
    graphc_byte_vector rows[GRAPHC_BYTES];
#pragma GCC unroll 16
    for (int i = 0; i < GRAPHC_BYTES; i++) rows[i] = *(const graphc_bytes *) (from + i * step);
    GRAPHC_TURN(graphc_byte_vector, GRAPHC_BYTES, rows, GRAPHC_FIRST_BYTES, GRAPHC_LAST_BYTES);
#pragma GCC unroll 16
    for (int i = 0; i < GRAPHC_BYTES; i++) *(graphc_bytes *) (to + i * across) = rows[i];
}

typedef int8_t graphc_signed_byte_vector __attribute__((vector_size(GRAPHC_BYTES)));
typedef int16_t graphc_wide_shorts __attribute__((vector_size(2 * GRAPHC_BYTES), may_alias));
typedef int32_t graphc_wide_words __attribute__((vector_size(2 * GRAPHC_BYTES), aligned(4), may_alias));

// As numbers of 16 bits.
static inline graphc_wide_shorts graphc_widened(bool is_signed, graphc_byte_vector bytes) {
#if defined(__AVX2__)  // GCC takes several instructions
    graphc_wide_shorts wide;
    if (is_signed) __asm__("vpmovsxbw %1, %0" : "=v"(wide) : "v"(bytes));
    else __asm__("vpmovzxbw %1, %0" : "=v"(wide) : "v"(bytes));
    return wide;
#endif
    if (is_signed) return __builtin_convertvector((graphc_signed_byte_vector) bytes, graphc_wide_shorts);
    return __builtin_convertvector(bytes, graphc_wide_shorts);
}

// Each two bytes, of one row and of another, as numbers of 16 bits.
static inline __attribute__((always_inline)) void graphc_widened_twos(bool is_signed, const void * one, const void * two, graphc_wide_shorts * twos) {
    const graphc_byte_vector a = *(const graphc_bytes *) one, b = *(const graphc_bytes *) two;
    twos[0] = graphc_widened(is_signed, GRAPHC_FIRST_BYTES(a, b));
    twos[1] = graphc_widened(is_signed, GRAPHC_LAST_BYTES(a, b));
}

// The sums plus those of each two products.
static inline graphc_wide_words graphc_add_twos(graphc_wide_words sums, graphc_wide_shorts a, graphc_wide_shorts b) {
#if defined(__AVX2__)
    graphc_wide_words products;
    __asm__("vpmaddwd %2, %1, %0" : "=v"(products) : "v"(a), "v"(b));
    return sums + products;
#else
    const graphc_wide_words x = (graphc_wide_words) a, y = (graphc_wide_words) b;
    return sums + (x << 16 >> 16) * (y << 16 >> 16) + (x >> 16) * (y >> 16);
#endif
}
