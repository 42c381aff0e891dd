// Products of rows of bytes with panels of bytes, four of which are a word. One operand has signed bytes and the other unsigned ones, and
// where no instruction multiplies such bytes they are shifted by 128 to what there is one for.
#pragma once

#include <stddef.h>

#include "dots.h"

enum { GRAPHC_QUAD = 4 };  // bytes of a word

#if defined(GRAPHC_MULTIPLIES_BYTES)
enum { GRAPHC_SIGNED_ROWS = -1 };  // as the operands are
#elif defined(__ARM_FEATURE_DOTPROD)
#define GRAPHC_MULTIPLIES_SIGNED_BYTES
enum { GRAPHC_SIGNED_ROWS = 1 };
#else
enum { GRAPHC_SIGNED_ROWS = 0 };
#endif

#if !defined(GRAPHC_MULTIPLIES_BYTES) && (defined(__SSSE3__) || defined(__AVX2__))
#define GRAPHC_ADDS_PAIRS_OF_BYTES  // in 16 bits, to the largest number that has room
#endif

// Rows of a tile.
#if defined(GRAPHC_ADDS_PAIRS_OF_BYTES) && !defined(__AVX512BW__)
enum { GRAPHC_BYTE_TALL = 4 };
#else
enum { GRAPHC_BYTE_TALL = GRAPHC_TALL };
#endif

// What is added to the bytes of rows, if they are the signed ones (`swapped`) or not, and to those of panels.
static inline int32_t graphc_row_shift(bool swapped) {
    return GRAPHC_SIGNED_ROWS < 0 || swapped == (GRAPHC_SIGNED_ROWS > 0) ? 0 : swapped ? 128 : -128;
}

static inline int32_t graphc_panel_shift(bool swapped) { return GRAPHC_SIGNED_ROWS >= 0 && swapped ? -128 : 0; }

typedef int16_t graphc_shorts __attribute__((vector_size(GRAPHC_LANES * 4), may_alias));
typedef int8_t graphc_chars __attribute__((vector_size(GRAPHC_LANES * 4), may_alias));
typedef uint16_t graphc_unsigned_shorts __attribute__((vector_size(GRAPHC_LANES * 4), may_alias));

// A vector of a panel's bytes, shifted.
static inline graphc_words graphc_column(bool swapped, const graphc_loose_words * panel) {
    const int32_t tops = (int32_t) (graphc_panel_shift(swapped) == 0 ? 0 : 0x80808080u);
    return *panel ^ ((graphc_words) {0} + tops);
}

#if defined(GRAPHC_MULTIPLIES_BYTES) || defined(GRAPHC_MULTIPLIES_SIGNED_BYTES)
// The sums plus the products of words of rows and columns, as they are shifted.
static inline graphc_words graphc_add_bytes(bool swapped, graphc_words sums, graphc_words row, graphc_words column) {
#if defined(GRAPHC_MULTIPLIES_BYTES)
    return swapped ? graphc_add_products(sums, column, row) : graphc_add_products(sums, row, column);
#else
    (void) swapped;
    __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(sums) : "w"(row), "w"(column));
    return sums;
#endif
}
#endif

// The words of two vectors of columns, by how their products with some rows are added up: so that those of four bytes have room in 16
// bits, the words of each two at once; those of two bytes; and the others, whose bytes become numbers of 16 bits.
enum { GRAPHC_MOST_WORDS = 128 };

struct graphc_order {
    uint16_t twos[GRAPHC_MOST_WORDS / 2], ones[GRAPHC_MOST_WORDS], others[GRAPHC_MOST_WORDS];
    int64_t two, one, other;
};

#if defined(GRAPHC_ADDS_PAIRS_OF_BYTES)
// Products of unsigned and signed bytes, added in pairs as numbers of 16 bits, of which those too large become the largest.
static inline graphc_shorts graphc_pairs(graphc_words a, graphc_words b) {
#if defined(__AVX2__)
    graphc_shorts pairs;
    __asm__("vpmaddubsw %2, %1, %0" : "=v"(pairs) : "v"(a), "v"(b));
    return pairs;
#else
    __asm__("pmaddubsw %1, %0" : "+x"(a) : "x"(b));
    return (graphc_shorts) a;
#endif
}

// The sums plus pairs, of which two are added.
static inline graphc_words graphc_add_pairs(graphc_words sums, graphc_shorts pairs) {
    return graphc_add_products(sums, (graphc_words) pairs, (graphc_words) ((graphc_shorts) {0} + 1));
}

static inline bool graphc_any(graphc_shorts masks) {
#if defined(__AVX512BW__)
    bool any;
    __asm__("vptestmd %1, %1, %%k1\n\tkortestw %%k1, %%k1" : "=@ccnz"(any) : "v"(masks) : "k1");
    return any;
#elif defined(__AVX2__)
    bool any;
    __asm__("vptest %1, %1" : "=@ccnz"(any) : "x"(masks));
    return any;
#else
    const graphc_words words = (graphc_words) masks;
    return (words[0] | words[1] | words[2] | words[3]) != 0;
#endif
}

// Sorts words by the largest bytes of the rows, each of whose products is at most that with the size of the column's.
static inline void graphc_sort_words(bool swapped, const uint8_t * largest, const graphc_loose_words * panel, int64_t step, int64_t words,
                                     struct graphc_order * order) {
    const graphc_shorts most = (graphc_shorts) {0} + (INT16_MAX - 2 * UINT8_MAX), half = most - 2 * UINT8_MAX;  // sizes may be too small by 1
    order->two = order->one = order->other = 0;
    for (int64_t k = 0; k < words; k += 2) {
        const int count = words - k < 2 ? 1 : 2;
        graphc_shorts sizes[2][2] = {0};
        for (int i = 0; i < count; i++) {
            const graphc_words row = (graphc_words) {0} + ((const graphc_word *) largest)[k + i];
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                const graphc_chars column = (graphc_chars) graphc_column(swapped, panel + (k + i) * step + j);
                sizes[i][j] = graphc_pairs(row, (graphc_words) (column ^ (column < 0)));
            }
        }
        if (count == 2 && !graphc_any((sizes[0][0] > half - sizes[1][0]) | (sizes[0][1] > half - sizes[1][1]))) {
            order->twos[order->two++] = (uint16_t) k;
            continue;
        }
        for (int i = 0; i < count; i++) {
            if (graphc_any((sizes[i][0] > most) | (sizes[i][1] > most))) order->others[order->other++] = (uint16_t) (k + i);
            else order->ones[order->one++] = (uint16_t) (k + i);
        }
    }
}
#endif

// The word of a row.
static inline graphc_words graphc_row_word(const uint8_t * row, int64_t k) {
    return (graphc_words) {0} + *(const graphc_word *) (row + k * GRAPHC_QUAD);
}

// c[tall][GRAPHC_PANEL] = rows[tall][words] times panel[words][GRAPHC_PANEL], or that added to c if `more`. Rows are `step` bytes apart, those of
// the panel and of c so many vectors. Without an order, words are added as its others. `tall` and `swapped` are constants where this is called.
static inline __attribute__((always_inline)) void graphc_byte_dots(bool swapped, int tall, const uint8_t * rows, int64_t step,
                                                                   const graphc_loose_words * panel, int64_t panel_step,
                                                                   const struct graphc_order * order, int64_t words, bool more,
                                                                   graphc_words * c, int64_t c_step) {
    graphc_words sums[GRAPHC_BYTE_TALL][2];
#pragma GCC unroll 8
    for (int i = 0; i < tall; i++) {
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) sums[i][j] = more ? c[i * c_step + j] : (graphc_words) {0};
    }
#if defined(GRAPHC_ADDS_PAIRS_OF_BYTES)
    for (int64_t n = 0; order != NULL && n < order->two; n++) {
        const int64_t k = order->twos[n];
        graphc_words columns[2][2];
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            columns[0][j] = graphc_column(swapped, panel + k * panel_step + j);
            columns[1][j] = graphc_column(swapped, panel + (k + 1) * panel_step + j);
        }
#pragma GCC unroll 8
        for (int i = 0; i < tall; i++) {
            const graphc_words first = graphc_row_word(rows + i * step, k), second = graphc_row_word(rows + i * step, k + 1);
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                sums[i][j] = graphc_add_pairs(sums[i][j], graphc_pairs(first, columns[0][j]) + graphc_pairs(second, columns[1][j]));
            }
        }
    }
    for (int64_t n = 0; order != NULL && n < order->one; n++) {
        const int64_t k = order->ones[n];
        const graphc_words columns[2] = {graphc_column(swapped, panel + k * panel_step), graphc_column(swapped, panel + k * panel_step + 1)};
#pragma GCC unroll 8
        for (int i = 0; i < tall; i++) {
            const graphc_words row = graphc_row_word(rows + i * step, k);
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) sums[i][j] = graphc_add_pairs(sums[i][j], graphc_pairs(row, columns[j]));
        }
    }
#endif
    const int64_t others = order != NULL ? order->other : words;
    for (int64_t n = 0; n < others; n++) {
        const int64_t k = order != NULL ? order->others[n] : n;
        const graphc_words columns[2] = {graphc_column(swapped, panel + k * panel_step), graphc_column(swapped, panel + k * panel_step + 1)};
#if defined(GRAPHC_MULTIPLIES_BYTES) || defined(GRAPHC_MULTIPLIES_SIGNED_BYTES)
#pragma GCC unroll 8
        for (int i = 0; i < tall; i++) {
            const graphc_words row = graphc_row_word(rows + i * step, k);
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) sums[i][j] = graphc_add_bytes(swapped, sums[i][j], row, columns[j]);
        }
#else
        graphc_words even[2], odd[2];
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            const graphc_shorts column = (graphc_shorts) columns[j];
            even[j] = (graphc_words) (column << 8 >> 8), odd[j] = (graphc_words) (column >> 8);
        }
#pragma GCC unroll 8
        for (int i = 0; i < tall; i++) {
            const graphc_words row = graphc_row_word(rows + i * step, k);
            const graphc_words first = row & ((graphc_words) {0} + 0x00ff00ff), last = (graphc_words) ((graphc_unsigned_shorts) row >> 8);
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) sums[i][j] = graphc_add_products(graphc_add_products(sums[i][j], first, even[j]), last, odd[j]);
        }
#endif
    }
#pragma GCC unroll 8
    for (int i = 0; i < tall; i++) {
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) c[i * c_step + j] = sums[i][j];
    }
}
