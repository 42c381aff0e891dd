// Products of bytes by a processor's matrix unit (Intel's AMX). It has tiles of 16 rows of 64 bytes: tile 0 to 3 are sums of 32 bits, by
// lines, 4 and 5 rows, 6 and 7 columns. The tests have its instructions emulated.
#pragma once

#include "dots.h"

enum { GRAPHC_TILE = 16 };

#if defined(GRAPHC_EMULATED_MATRIX_UNIT) && defined(__AVX512VNNI__)
#include <string.h>

#define GRAPHC_HAS_TILES
#define GRAPHC_BY_TILES

static __thread uint8_t graphc_tiles[8][GRAPHC_TILE][4 * GRAPHC_TILE], graphc_tile_rows[8], graphc_tile_bytes[8];

static inline void graphc_move_tile(int tile, uint8_t * memory, int64_t step, bool load) {
    for (int i = 0; i < graphc_tile_rows[tile]; i++) {
        uint8_t * const row = memory + i * step;
        memcpy(load ? graphc_tiles[tile][i] : row, load ? row : graphc_tiles[tile][i], graphc_tile_bytes[tile]);
    }
}

static inline void graphc_multiply_tiles(bool swapped, int c, int a, int b) {
    for (int i = 0; i < graphc_tile_rows[c]; i++) {
        for (int j = 0; j < GRAPHC_TILE; j++) {
            int32_t sum;
            memcpy(&sum, graphc_tiles[c][i] + 4 * j, sizeof(sum));
            for (int k = 0; k < graphc_tile_bytes[a]; k++) {
                const uint8_t x = graphc_tiles[a][i][k], y = graphc_tiles[b][k / 4][4 * j + k % 4];
                sum += swapped ? (int8_t) x * y : x * (int8_t) y;
            }
            memcpy(graphc_tiles[c][i] + 4 * j, &sum, sizeof(sum));
        }
    }
}

#define GRAPHC_LOAD_TILE(tile, from, step) graphc_move_tile(tile, (uint8_t *) (from), step, true)
#define GRAPHC_STORE_TILE(tile, to, step) graphc_move_tile(tile, (uint8_t *) (to), step, false)
#define GRAPHC_ZERO_TILE(tile) memset(graphc_tiles[tile], 0, sizeof(graphc_tiles[tile]))
#define GRAPHC_MULTIPLY_TILES(swapped, c, a, b) graphc_multiply_tiles(swapped, c, a, b)

static inline void graphc_shape_tiles(const uint8_t * rows, const uint8_t * bytes) {
    memcpy(graphc_tile_rows, rows, sizeof(graphc_tile_rows));
    memcpy(graphc_tile_bytes, bytes, sizeof(graphc_tile_bytes));
}

static inline void graphc_leave_tiles(void) {}
static inline bool graphc_has_tiles(void) { return true; }

#elif defined(__AVX512VNNI__) && defined(__x86_64__) && defined(__linux__) && (defined(__clang__) || __GNUC__ > 10)
#define GRAPHC_HAS_TILES
#define GRAPHC_BY_TILES __attribute__((target("amx-tile,amx-int8")))

#define GRAPHC_LOAD_TILE(tile, from, step) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"((int64_t) (step)) : "memory")
#define GRAPHC_STORE_TILE(tile, to, step) __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(to), "r"((int64_t) (step)) : "memory")
#define GRAPHC_ZERO_TILE(tile) __asm__ volatile("tilezero %%tmm" #tile :)
#define GRAPHC_MULTIPLY_TILES(swapped, c, a, b) \
    if (swapped) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c :); \
    else __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c :)

// Has the eight tiles be of so many rows and bytes in each.
static inline GRAPHC_BY_TILES void graphc_shape_tiles(const uint8_t * rows, const uint8_t * bytes) {
    struct {
        uint8_t palette, start, unused[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    for (int i = 0; i < 8; i++) shape.bytes[i] = bytes[i], shape.rows[i] = rows[i];
    __asm__ volatile("ldtilecfg %0" : : "m"(shape));
}

static inline GRAPHC_BY_TILES void graphc_leave_tiles(void) { __asm__ volatile("tilerelease" :); }

extern long syscall(long number, ...);

// True if the processor has the unit, and the system lets this process use it, which it is asked once.
static inline bool graphc_has_tiles(void) {
    static int found;  // 1: no, 2: yes
    int known = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (known == 0) {
        uint32_t a = 0, b, c = 0, d;
        __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
        known = a >= 7;
        a = 7, c = 0;
        __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
        const bool present = known && (d >> 24 & 1) && (d >> 25 & 1);     // AMX-TILE, AMX-INT8
        known = present && syscall(158, 0x1023, 18) == 0 ? 2 : 1;  // arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
        __atomic_store_n(&found, known, __ATOMIC_RELAXED);
    }
    return known == 2;
}
#endif

#if defined(GRAPHC_HAS_TILES)
// Has tiles be of so many words in each row, of up to 32 rows, unless `shaped` says that they are.
static inline GRAPHC_BY_TILES void graphc_shape_for(int high, int deep, int * shaped) {
    const int wanted = high << 8 | deep;
    if (*shaped == wanted) return;
    *shaped = wanted;
    const bool low = high > GRAPHC_TILE;
    const uint8_t first = (uint8_t) (low ? GRAPHC_TILE : high), last = (uint8_t) (low ? high - GRAPHC_TILE : 1);
    const uint8_t rows[8] = {first, first, last, last, first, last, (uint8_t) deep, (uint8_t) deep};
    const uint8_t bytes[8] = {64, 64, 64, 64, (uint8_t) (4 * deep), (uint8_t) (4 * deep), 64, 64};
    graphc_shape_tiles(rows, bytes);
}

// Rows of so many words, `step` bytes apart, in each of several pieces: what a row meets of them lies one after the other in a panel. A matrix has
// one piece; where kernels meet an image, each of their places is one.
struct graphc_pieces {
    const uint8_t * rows;
    int64_t step, words, count;
    const int64_t * offsets;
};

static inline struct graphc_pieces graphc_one_piece(const uint8_t * rows, int64_t step, int64_t words) {
    static const int64_t nothing = 0;
    return (struct graphc_pieces) {rows, step, words, 1, &nothing};
}

// sums[high][GRAPHC_PANEL] (+)= some words of rows from the k-th on, for all pieces, times those of a panel, of up to 32 rows from one on, for which
// tiles are shaped. `swapped`, and `low`, true if there are more than 16 rows, are constants where this is called.
static inline __attribute__((always_inline)) GRAPHC_BY_TILES void graphc_tiles_part(bool swapped, bool low, const struct graphc_pieces * x, int64_t row,
                                                                                    int64_t k, int64_t some, const uint8_t * panel, bool more, int32_t * sums) {
    enum { line = 4 * GRAPHC_PANEL };
    int32_t * const below = sums + GRAPHC_TILE * GRAPHC_PANEL;
    if (more) {
        GRAPHC_LOAD_TILE(0, sums, line);
        GRAPHC_LOAD_TILE(1, sums + GRAPHC_TILE, line);
        if (low) GRAPHC_LOAD_TILE(2, below, line);
        if (low) GRAPHC_LOAD_TILE(3, below + GRAPHC_TILE, line);
    } else {
        GRAPHC_ZERO_TILE(0);
        GRAPHC_ZERO_TILE(1);
        GRAPHC_ZERO_TILE(2);
        GRAPHC_ZERO_TILE(3);
    }
    for (int64_t piece = 0; piece < x->count; piece++) {
        const uint8_t * a = x->rows + x->offsets[piece] + row * x->step + 4 * k, * b = panel + (piece * x->words + k) * line;
        for (int64_t i = 0; i < some; i += GRAPHC_TILE, a += 4 * GRAPHC_TILE, b += GRAPHC_TILE * line) {
            GRAPHC_LOAD_TILE(4, a, x->step);
            GRAPHC_LOAD_TILE(6, b, line);
            GRAPHC_MULTIPLY_TILES(swapped, 0, 4, 6);
            GRAPHC_LOAD_TILE(7, b + 4 * GRAPHC_TILE, line);
            GRAPHC_MULTIPLY_TILES(swapped, 1, 4, 7);
            if (low) {
                GRAPHC_LOAD_TILE(5, a + GRAPHC_TILE * x->step, x->step);
                GRAPHC_MULTIPLY_TILES(swapped, 2, 5, 6);
                GRAPHC_MULTIPLY_TILES(swapped, 3, 5, 7);
            }
        }
    }
    GRAPHC_STORE_TILE(0, sums, line);
    GRAPHC_STORE_TILE(1, sums + GRAPHC_TILE, line);
    if (low) GRAPHC_STORE_TILE(2, below, line);
    if (low) GRAPHC_STORE_TILE(3, below + GRAPHC_TILE, line);
}

// The same of all words and of any number of rows. What is left of the words comes behind, for all rows: to shape tiles anew takes as long as 12 products.
static inline __attribute__((always_inline)) GRAPHC_BY_TILES void graphc_rows_of_tiles(bool swapped, int64_t high, const struct graphc_pieces * x,
                                                                                       const uint8_t * panel, bool more, int32_t * sums, int * shaped) {
    const int64_t blocks = (high + 2 * GRAPHC_TILE - 1) / (2 * GRAPHC_TILE), each = blocks > 0 ? (high + blocks - 1) / blocks : 0;
    for (int64_t k = 0, some; k < x->words; k += some, more = true) {
        some = x->words - k < GRAPHC_TILE ? x->words - k : (x->words - k) / GRAPHC_TILE * GRAPHC_TILE;
        for (int64_t i = 0; i < high; i += each) {
            const int count = (int) (high - i < each ? high - i : each);
            int32_t * const to = sums + i * GRAPHC_PANEL;
            graphc_shape_for(count, (int) (some < GRAPHC_TILE ? some : GRAPHC_TILE), shaped);
            if (count > GRAPHC_TILE) graphc_tiles_part(swapped, true, x, i, k, some, panel, more, to);
            else graphc_tiles_part(swapped, false, x, i, k, some, panel, more, to);
        }
    }
}

static __attribute__((noinline, unused)) GRAPHC_BY_TILES void graphc_unsigned_tiles(int64_t high, const struct graphc_pieces * x, const uint8_t * panel,
                                                                                     bool more, int32_t * sums, int * shaped) {
    graphc_rows_of_tiles(false, high, x, panel, more, sums, shaped);
}

static __attribute__((noinline, unused)) GRAPHC_BY_TILES void graphc_signed_tiles(int64_t high, const struct graphc_pieces * x, const uint8_t * panel,
                                                                                   bool more, int32_t * sums, int * shaped) {
    graphc_rows_of_tiles(true, high, x, panel, more, sums, shaped);
}

// The same, where `swapped` is known when the model is run.
static inline void graphc_multiply_by_tiles(bool swapped, int64_t high, const struct graphc_pieces * x, const uint8_t * panel, bool more, int32_t * sums,
                                            int * shaped) {
    if (swapped) graphc_signed_tiles(high, x, panel, more, sums, shaped);
    else graphc_unsigned_tiles(high, x, panel, more, sums, shaped);
}
#endif
