// Products of small integers by vectors: an instruction adds the products of two vectors of words to sums of 32 bits, which wrap around.
// A word holds parts that follow one another in a sum: four bytes where the processor multiplies unsigned by signed ones, else two
// numbers of 16 bits.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "squares.h"

#if defined(__AVX512BW__)
enum { GRAPHC_LANES = 16, GRAPHC_TALL = 8 };
#elif defined(__AVX2__)
enum { GRAPHC_LANES = 8, GRAPHC_TALL = 6 };
#else
enum { GRAPHC_LANES = 4, GRAPHC_TALL = 4 };
#endif

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_MATMUL_INT8)
#define GRAPHC_MULTIPLIES_BYTES
typedef uint8_t graphc_part;
#else
typedef int16_t graphc_part;
#endif

// Columns of a tile, and parts of a word.
enum { GRAPHC_PANEL = 2 * GRAPHC_LANES, GRAPHC_PARTS = 4 / sizeof(graphc_part) };

typedef int32_t graphc_words __attribute__((vector_size(GRAPHC_LANES * 4), may_alias));
typedef graphc_words graphc_loose_words __attribute__((aligned(4)));
typedef int32_t graphc_word __attribute__((may_alias));

#if defined(__AVX512BW__)
#define GRAPHC_FIRST(a, b) GRAPHC_MIX(graphc_words, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define GRAPHC_LAST(a, b) GRAPHC_MIX(graphc_words, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif defined(__AVX2__)
#define GRAPHC_FIRST(a, b) GRAPHC_MIX(graphc_words, a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define GRAPHC_LAST(a, b) GRAPHC_MIX(graphc_words, a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define GRAPHC_FIRST(a, b) GRAPHC_MIX(graphc_words, a, b, 0, 4, 1, 5)
#define GRAPHC_LAST(a, b) GRAPHC_MIX(graphc_words, a, b, 2, 6, 3, 7)
#endif

// Words of as many rows as there are lanes, `step` parts apart, as the columns of a panel, whose rows are `to`, `to + 2`, ...
static inline void graphc_transpose(const graphc_part * rows, int64_t step, graphc_words * to) {
    graphc_words words[GRAPHC_LANES];
#pragma GCC unroll 16
    for (int i = 0; i < GRAPHC_LANES; i++) words[i] = *(const graphc_words *) (rows + i * step);
    GRAPHC_TURN(graphc_words, GRAPHC_LANES, words, GRAPHC_FIRST, GRAPHC_LAST);
#pragma GCC unroll 16
    for (int i = 0; i < GRAPHC_LANES; i++) to[2 * i] = words[i];
}

// The sums plus the products of words; of bytes, `a` has unsigned ones and `b` signed ones.
static inline graphc_words graphc_add_products(graphc_words sums, graphc_words a, graphc_words b) {
#if defined(__AVX512VNNI__)
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
    return sums;
#elif defined(__AVXVNNI__)
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(a), "x"(b));
    return sums;
#elif defined(__ARM_FEATURE_MATMUL_INT8)
    __asm__("usdot %0.4s, %1.16b, %2.16b" : "+w"(sums) : "w"(a), "w"(b));
    return sums;
#elif defined(__AVX2__)
    graphc_words products;
    __asm__("vpmaddwd %2, %1, %0" : "=v"(products) : "v"(a), "v"(b));
    return sums + products;
#elif defined(__SSE2__)
    __asm__("pmaddwd %1, %0" : "+x"(a) : "x"(b));
    return sums + a;
#else
    return sums + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

// The product of two rows, which are filled up to whole vectors.
static inline int32_t graphc_dot(bool swapped, const graphc_part * a, const graphc_part * b, int64_t words) {
    graphc_words sums = {0};
    for (int64_t k = 0; k < words; k += GRAPHC_LANES, a += GRAPHC_LANES * GRAPHC_PARTS, b += GRAPHC_LANES * GRAPHC_PARTS) {
        const graphc_words left = *(const graphc_words *) a, right = *(const graphc_words *) b;
        sums = swapped ? graphc_add_products(sums, right, left) : graphc_add_products(sums, left, right);
    }
    int32_t found = 0;
    for (int i = 0; i < GRAPHC_LANES; i++) found += sums[i];
    return found;
}

// c[tall][GRAPHC_PANEL] = rows[tall][words] times panel[words][GRAPHC_PANEL], or that added to c if `more`. Rows are `step` parts apart,
// those of the panel and of c so many vectors. `tall` is a constant where this is called, and so is `swapped`: true if the rows have the
// signed bytes.
static inline __attribute__((always_inline)) void graphc_dots(bool swapped, int tall, const graphc_part * rows, int64_t step,
                                                              const graphc_loose_words * panel, int64_t panel_step, int64_t words,
                                                              bool more, graphc_words * c, int64_t c_step) {
    graphc_words sums[GRAPHC_TALL][2];
#pragma GCC unroll 8
    for (int i = 0; i < tall; i++) {
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) sums[i][j] = more ? c[i * c_step + j] : (graphc_words) {0};
    }
    for (int64_t k = 0; k < words; k++, panel += panel_step, rows += GRAPHC_PARTS) {
        const graphc_words columns[2] = {panel[0], panel[1]};
#pragma GCC unroll 8
        for (int i = 0; i < tall; i++) {
            const graphc_words row = (graphc_words) {0} + *(const graphc_word *) (rows + i * step);
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                sums[i][j] = swapped ? graphc_add_products(sums[i][j], columns[j], row) : graphc_add_products(sums[i][j], row, columns[j]);
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < tall; i++) {
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) c[i * c_step + j] = sums[i][j];
    }
}
