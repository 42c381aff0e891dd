// Numbers as bytes, by vectors: rounded, half to even, plus a zero point, at the ends of the range where they exceed it.
#pragma once

#include <stdint.h>

#include "squares.h"

#if defined(__AVX2__)  // compilers find no instructions for the larger, the smaller, and narrower numbers
#define GRAPHC_ROUNDS_VECTORS

typedef float graphc_eight_floats __attribute__((vector_size(32)));
typedef int32_t graphc_eight_words __attribute__((vector_size(32), may_alias));
typedef graphc_eight_words graphc_loose_eight __attribute__((aligned(4)));
typedef uint8_t graphc_thirty_two __attribute__((vector_size(32), may_alias, aligned(1)));

// 32 numbers; `middle` is the zero point, `lowest` the least byte. Between the ends, which are whole numbers, adding 1.5 * 2**23 rounds, half to
// even, and leaves the number in the low bits.
static inline __attribute__((always_inline)) void graphc_round_bytes(const graphc_eight_floats * numbers, int32_t lowest, int32_t middle,
                                                                     uint8_t * bytes) {
    const graphc_eight_floats low = (graphc_eight_floats) {0} + (float) (lowest - middle), highest = low + 255.0f;
    const int32_t shift = middle - (union { float from; int32_t to; }) { .from = 12582912.0f }.to;
    graphc_eight_words whole[4], some, others, all;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        graphc_eight_floats within;
        __asm__("vmaxps %2, %1, %0" : "=x"(within) : "x"(numbers[i]), "x"(low));  // the lowest if it is no number
        __asm__("vminps %2, %1, %0" : "=x"(within) : "x"(within), "x"(highest));
        whole[i] = (graphc_eight_words) (within + 12582912.0f) + shift;
    }
    __asm__("vpackssdw %2, %1, %0" : "=x"(some) : "x"(whole[0]), "x"(whole[1]));
    __asm__("vpackssdw %2, %1, %0" : "=x"(others) : "x"(whole[2]), "x"(whole[3]));
    if (lowest < 0) __asm__("vpacksswb %2, %1, %0" : "=x"(all) : "x"(some), "x"(others));
    else __asm__("vpackuswb %2, %1, %0" : "=x"(all) : "x"(some), "x"(others));
    *(graphc_thirty_two *) bytes = (graphc_thirty_two) GRAPHC_MIX(graphc_eight_words, all, all, 0, 4, 1, 5, 2, 6, 3, 7);
}

// Eight bytes as numbers.
static inline graphc_eight_floats graphc_eight_numbers(int is_signed, const void * bytes) {
    graphc_eight_words words;
    if (is_signed) __asm__("vpmovsxbd %1, %0" : "=x"(words) : "m"(*(const uint8_t (*)[8]) bytes));
    else __asm__("vpmovzxbd %1, %0" : "=x"(words) : "m"(*(const uint8_t (*)[8]) bytes));
    return __builtin_convertvector(words, graphc_eight_floats);
}
#endif

// One number.
static inline uint8_t graphc_round_byte(float number, int32_t lowest, int32_t middle) {
    const float low = (float) (lowest - middle), highest = low + 255.0f, least = number > low ? number : low;
    const float within = least < highest ? least : highest;
    return (uint8_t) ((union { float from; int32_t to; }) { .from = within + 12582912.0f }.to + middle);
}

// A zero point, as its type is said by the least byte.
static inline int32_t graphc_middle(const void * zero, int64_t lowest) { return lowest < 0 ? *(const int8_t *) zero : *(const uint8_t *) zero; }
