// Numbers as bytes, by vectors: rounded, half to even, plus a zero point, at the ends of the range where they exceed it.
#pragma once

#include <stdint.h>

#include "squares.h"

#if defined(__AVX2__)  // compilers find no instructions for narrower numbers
#define GRAPHC_ROUNDS_VECTORS

// How many numbers are a vector, and how many become bytes at once.
#if defined(__AVX512BW__)
enum { GRAPHC_NUMBERS = 16 };
#else
enum { GRAPHC_NUMBERS = 8 };
#endif
enum { GRAPHC_ROUNDED = 32 };

typedef float graphc_numbers __attribute__((vector_size(4 * GRAPHC_NUMBERS)));
typedef int32_t graphc_wholes __attribute__((vector_size(4 * GRAPHC_NUMBERS), may_alias));
typedef graphc_wholes graphc_loose_wholes __attribute__((aligned(4)));

// GRAPHC_ROUNDED numbers; `middle` is the zero point, `lowest` the least byte. What is no number becomes the least whole one, and so the lowest;
// narrower numbers stay at the ends of their range.
static inline __attribute__((always_inline)) void graphc_round_bytes(const graphc_numbers * numbers, int32_t lowest, int32_t middle, uint8_t * bytes) {
    const graphc_numbers most = (graphc_numbers) {0} + 65536.0f;  // whole numbers of 32 bits have no room for the largest
    const graphc_wholes middles = (graphc_wholes) {0} + (int32_t) ((uint32_t) (uint16_t) middle * 0x10001u);  // two of 16 bits
    graphc_wholes whole[GRAPHC_ROUNDED / GRAPHC_NUMBERS], all;
#pragma GCC unroll 4
    for (int i = 0; i < GRAPHC_ROUNDED / GRAPHC_NUMBERS; i++) {
        graphc_numbers within;
        __asm__("vminps %2, %1, %0" : "=v"(within) : "v"(most), "v"(numbers[i]));  // the second if it is no number
        __asm__("vcvtps2dq %1, %0" : "=v"(whole[i]) : "v"(within));                // half to even
    }
#if defined(__AVX512BW__)
    static const int32_t order[16] __attribute__((aligned(64))) = {0, 4, 8, 12, 1, 5, 9, 13};
    __asm__("vpackssdw %2, %1, %0" : "=v"(all) : "v"(whole[0]), "v"(whole[1]));
    __asm__("vpaddsw %2, %1, %0" : "=v"(all) : "v"(all), "v"(middles));
    if (lowest < 0) __asm__("vpacksswb %1, %1, %0" : "=v"(all) : "v"(all));
    else __asm__("vpackuswb %1, %1, %0" : "=v"(all) : "v"(all));
    __asm__("vpermd %1, %2, %0" : "=v"(all) : "v"(all), "v"(*(const graphc_wholes *) order));
    __asm__("vmovdqu8 %t1, %0" : "=m"(*(uint8_t (*)[GRAPHC_ROUNDED]) bytes) : "v"(all));
#else
    typedef uint8_t thirty_two __attribute__((vector_size(32), may_alias, aligned(1)));
    graphc_wholes some, others;
    __asm__("vpackssdw %2, %1, %0" : "=x"(some) : "x"(whole[0]), "x"(whole[1]));
    __asm__("vpackssdw %2, %1, %0" : "=x"(others) : "x"(whole[2]), "x"(whole[3]));
    __asm__("vpaddsw %2, %1, %0" : "=x"(some) : "x"(some), "x"(middles));
    __asm__("vpaddsw %2, %1, %0" : "=x"(others) : "x"(others), "x"(middles));
    if (lowest < 0) __asm__("vpacksswb %2, %1, %0" : "=x"(all) : "x"(some), "x"(others));
    else __asm__("vpackuswb %2, %1, %0" : "=x"(all) : "x"(some), "x"(others));
    *(thirty_two *) bytes = (thirty_two) GRAPHC_MIX(graphc_wholes, all, all, 0, 4, 1, 5, 2, 6, 3, 7);
#endif
}

// As many bytes as a vector has numbers.
static inline graphc_numbers graphc_some_numbers(int is_signed, const void * bytes) {
    graphc_wholes words;
    if (is_signed) __asm__("vpmovsxbd %1, %0" : "=v"(words) : "m"(*(const uint8_t (*)[GRAPHC_NUMBERS]) bytes));
    else __asm__("vpmovzxbd %1, %0" : "=v"(words) : "m"(*(const uint8_t (*)[GRAPHC_NUMBERS]) bytes));
    return __builtin_convertvector(words, graphc_numbers);
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
