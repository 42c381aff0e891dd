// Sums of products of bytes by vectors, two products at a time.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bytes.h"

typedef int8_t graphc_signed_byte_vector __attribute__((vector_size(GRAPHC_BYTES)));
typedef int16_t graphc_wide_shorts __attribute__((vector_size(2 * GRAPHC_BYTES), may_alias));
typedef int32_t graphc_wide_words __attribute__((vector_size(2 * GRAPHC_BYTES), aligned(4), may_alias));

// Bytes as numbers of 16 bits.
static inline __attribute__((always_inline)) void graphc_widen(bool is_signed, graphc_byte_vector bytes, graphc_wide_shorts * wide) {
#if defined(__AVX2__)  // GCC takes several instructions
    if (is_signed) __asm__("vpmovsxbw %1, %0" : "=v"(*wide) : "v"(bytes));
    else __asm__("vpmovzxbw %1, %0" : "=v"(*wide) : "v"(bytes));
#else
    if (is_signed) *wide = __builtin_convertvector((graphc_signed_byte_vector) bytes, graphc_wide_shorts);
    else *wide = __builtin_convertvector(bytes, graphc_wide_shorts);
#endif
}

// Each two bytes, of one row and of another, as numbers of 16 bits.
static inline __attribute__((always_inline)) void graphc_widen_twos(bool is_signed, const void * one, const void * two, graphc_wide_shorts * twos) {
    const graphc_byte_vector a = *(const graphc_bytes *) one, b = *(const graphc_bytes *) two;
    graphc_widen(is_signed, GRAPHC_FIRST_BYTES(a, b), twos);
    graphc_widen(is_signed, GRAPHC_LAST_BYTES(a, b), twos + 1);
}

// Adds each two products to sums.
static inline __attribute__((always_inline)) void graphc_add_twos(graphc_wide_words * sums, const graphc_wide_shorts * a, const graphc_wide_shorts * b) {
#if defined(__AVX2__)
    graphc_wide_words products;
    __asm__("vpmaddwd %2, %1, %0" : "=v"(products) : "v"(*a), "v"(*b));
    *sums += products;
#else
    const graphc_wide_words x = *(const graphc_wide_words *) a, y = *(const graphc_wide_words *) b;
    *sums += (x << 16 >> 16) * (y << 16 >> 16) + (x >> 16) * (y >> 16);
#endif
}
