// Sums of products of bytes by vectors, two products at a time.

#include <stdbool.h>
#include <stdint.h>

#include "bytes.h"

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
