// Products of small integers by vectors: an instruction adds the products of two vectors of words to sums of 32 bits, which wrap around.
// A word holds parts that follow one another in a sum: four bytes where the processor multiplies unsigned by signed ones, else two
// numbers of 16 bits.

#include <stdbool.h>
#include <stdint.h>

#include "squares.h"

#if defined(__AVX512BW__)
enum { GRAPHC_LANES = 16, GRAPHC_TALL = 8 };
#elif defined(__AVX2__)
enum { GRAPHC_LANES = 8, GRAPHC_TALL = 4 };
#else
enum { GRAPHC_LANES = 4, GRAPHC_TALL = 4 };
#endif

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_MATMUL_INT8)
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

// A processor's matrix unit (Intel's AMX) has tiles of 16 rows of 64 bytes: tile 0 to 3 are sums of 32 bits, by lines, 4 and 5 rows, 6 and 7
// columns. The tests have its instructions emulated.
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
// sums[high][GRAPHC_PANEL] (+)= rows[high][words] times panel[words][GRAPHC_PANEL], of up to 32 rows, `step` bytes apart. `swapped`, and `low`, true if
// there are more than 16, are constants where this is called.
static inline __attribute__((always_inline)) GRAPHC_BY_TILES void graphc_tiles_part(bool swapped, bool low, int high, const uint8_t * rows, int64_t step,
                                                                                    const uint8_t * panel, int64_t words, bool more, int32_t * sums) {
    enum { line = 4 * GRAPHC_PANEL };
    int32_t * const below = sums + GRAPHC_TILE * GRAPHC_PANEL;
    for (int64_t k = 0, some; k < words; k += some, more = true) {
        some = words - k < GRAPHC_TILE ? words - k : (words - k) / GRAPHC_TILE * GRAPHC_TILE;
        const uint8_t deep = (uint8_t) (some < GRAPHC_TILE ? some : GRAPHC_TILE), first = (uint8_t) (low ? GRAPHC_TILE : high), last = (uint8_t) (low ? high - GRAPHC_TILE : 1);
        const uint8_t shape_rows[8] = {first, first, last, last, first, last, deep, deep};
        const uint8_t shape_bytes[8] = {64, 64, 64, 64, (uint8_t) (4 * deep), (uint8_t) (4 * deep), 64, 64};
        graphc_shape_tiles(shape_rows, shape_bytes);
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
        for (int64_t i = 0; i < some; i += GRAPHC_TILE) {
            const uint8_t * const a = rows + 4 * (k + i), * const b = panel + (k + i) * line;
            GRAPHC_LOAD_TILE(4, a, step);
            GRAPHC_LOAD_TILE(6, b, line);
            GRAPHC_MULTIPLY_TILES(swapped, 0, 4, 6);
            GRAPHC_LOAD_TILE(7, b + 4 * GRAPHC_TILE, line);
            GRAPHC_MULTIPLY_TILES(swapped, 1, 4, 7);
            if (low) {
                GRAPHC_LOAD_TILE(5, a + GRAPHC_TILE * step, step);
                GRAPHC_MULTIPLY_TILES(swapped, 2, 5, 6);
                GRAPHC_MULTIPLY_TILES(swapped, 3, 5, 7);
            }
        }
        GRAPHC_STORE_TILE(0, sums, line);
        GRAPHC_STORE_TILE(1, sums + GRAPHC_TILE, line);
        if (low) GRAPHC_STORE_TILE(2, below, line);
        if (low) GRAPHC_STORE_TILE(3, below + GRAPHC_TILE, line);
    }
}

// The same of any number of rows.
static inline __attribute__((always_inline)) GRAPHC_BY_TILES void graphc_rows_of_tiles(bool swapped, int64_t high, const uint8_t * rows, int64_t step,
                                                                                       const uint8_t * panel, int64_t words, bool more, int32_t * sums) {
    const int64_t blocks = (high + 2 * GRAPHC_TILE - 1) / (2 * GRAPHC_TILE), each = blocks > 0 ? (high + blocks - 1) / blocks : 0;
    for (int64_t i = 0; i < high; i += each) {
        const int count = (int) (high - i < each ? high - i : each);
        const uint8_t * const from = rows + i * step;
        int32_t * const to = sums + i * GRAPHC_PANEL;
        if (count > GRAPHC_TILE) graphc_tiles_part(swapped, true, count, from, step, panel, words, more, to);
        else graphc_tiles_part(swapped, false, count, from, step, panel, words, more, to);
    }
    graphc_leave_tiles();
}

static __attribute__((noinline, unused)) GRAPHC_BY_TILES void graphc_unsigned_tiles(int64_t high, const uint8_t * rows, int64_t step, const uint8_t * panel,
                                                                                     int64_t words, bool more, int32_t * sums) {
    graphc_rows_of_tiles(false, high, rows, step, panel, words, more, sums);
}

static __attribute__((noinline, unused)) GRAPHC_BY_TILES void graphc_signed_tiles(int64_t high, const uint8_t * rows, int64_t step, const uint8_t * panel,
                                                                                   int64_t words, bool more, int32_t * sums) {
    graphc_rows_of_tiles(true, high, rows, step, panel, words, more, sums);
}
#endif
