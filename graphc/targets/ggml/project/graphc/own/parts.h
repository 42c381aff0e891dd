#pragma once

// Products by a processor's matrix unit (Intel's AMX), which multiplies tiles of bfloat16 and adds up float32, ten times as fast as vectors do.
// A float32 is the sum of three bfloat16, its parts, and of the nine products of two numbers' parts six count: what is left out is as small
// as what a product of float32 is rounded by. Where numbers may be rounded, they have one part.

#include "tiles.h"

/// Parts of a float32, and of a number that is rounded. Without a matrix unit nothing has parts.
enum { ALL_PARTS = 3, ONE_PART = 1, NO_PARTS = 0 };

/// Elements of a sum that tiles of two operands have, rows of a tile and pairs in each, and words of a tile. A result is computed by four
/// tiles, so it has so many rows at most.
enum { STEP = 32, TILE_ROWS = 16, TILE_PAIRS = STEP / 2, TILE_WORDS = TILE_ROWS * TILE_PAIRS, MOST_TILE_ROWS = 2 * TILE_ROWS };

static inline int64_t steps_in(int64_t depth) { return parts_of(depth, STEP); }

/// Rows of a panel that so many elements of a sum are, and words of a row of tiles.
static inline int64_t part_rows(int parts, int64_t depth) { return steps_in(depth) * parts * TILE_PAIRS; }
static inline int64_t words_of_tiles(int parts, int64_t depth) { return steps_in(depth) * parts * TILE_WORDS; }

/// The row of a panel where the first part of an element and the next one begins; the others follow TILE_PAIRS rows apart.
static inline int64_t row_of_pair(int parts, int64_t element) { return element / STEP * parts * TILE_PAIRS + element % STEP / 2; }

/// Elements of a partial sum of parts: whole steps, or blocks of narrower types, as many as may be, or fewer that are alike.
enum { DEPTH_OF_PARTS = 384, MOST_OF_BLOCK = 256 };

static inline int64_t depth_of_parts(int parts, int64_t depth) {
    const int64_t most = parts == ONE_PART ? 2 * DEPTH_OF_PARTS : DEPTH_OF_PARTS, unit = depth % MOST_OF_BLOCK == 0 ? MOST_OF_BLOCK : STEP;
    return even_split(parts_of(depth, unit), most / unit) * unit;
}

// The unit's instructions, of tiles by their numbers: all zeros, what is in memory in rows some bytes apart, the way back, and `c` plus
// the product of `a` and `b`. The tests have them emulated; elsewhere nothing calls them.

#if defined(GRAPHC_EMULATED_MATRIX_UNIT) && defined(__AVX512F__)
#include <string.h>

static __thread word emulated_tiles[8][TILE_ROWS][TILE_PAIRS];
static __thread int rows_of_tiles[8];

static void emulate_load(int tile, const void * from, int64_t step) {
    for (int i = 0; i < rows_of_tiles[tile]; ++i) memcpy(emulated_tiles[tile][i], (const char *) from + i * step, sizeof *emulated_tiles[tile]);
}

static void emulate_store(int tile, void * to, int64_t step) {
    for (int i = 0; i < rows_of_tiles[tile]; ++i) memcpy((char *) to + i * step, emulated_tiles[tile][i], sizeof *emulated_tiles[tile]);
}

static float as_float(word bits) { return (union { word bits; float value; }){bits}.value; }

static void emulate_products(int c, int a, int b) {
    for (int i = 0; i < rows_of_tiles[c]; ++i) {
        for (int j = 0; j < TILE_PAIRS; ++j) {
            float even = 0, odd = 0;
            for (int k = 0; k < TILE_PAIRS; ++k) {
                const word x = emulated_tiles[a][i][k], y = emulated_tiles[b][k][j];
                even += as_float(x << 16) * as_float(y << 16), odd += as_float(x & 0xffff0000) * as_float(y & 0xffff0000);
            }
            const float sum = as_float(emulated_tiles[c][i][j]) + (even + odd);
            emulated_tiles[c][i][j] = (union { float value; word bits; }){sum}.bits;
        }
    }
}

enum { MAY_HAVE_TILES = true };

#define TILE_ZERO(tile) memset(emulated_tiles[tile], 0, sizeof emulated_tiles[tile])
#define TILE_LOAD(tile, from, step) emulate_load(tile, from, step)
#define TILE_STORE(tile, to, step) emulate_store(tile, to, step)
#define TILE_PRODUCTS(c, a, b) emulate_products(c, a, b)
#define BY_MATRIX_UNIT

static void begin_tiles(int64_t high) {
    for (int i = 0; i < 8; ++i) {
        const bool lower = i == 2 || i == 3 || i == 5, upper = i == 0 || i == 1 || i == 4;
        rows_of_tiles[i] = lower && high > TILE_ROWS ? (int) high - TILE_ROWS : upper && high < TILE_ROWS ? (int) high : TILE_ROWS;
    }
}

static inline void end_tiles(void) {}
static inline bool has_matrix_unit(void) { return true; }

#elif defined(__AVX512BF16__) && defined(__x86_64__) && defined(__linux__) && (defined(__clang__) || __GNUC__ > 10)
enum { MAY_HAVE_TILES = true };  // a processor that this code is for

#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile :)
#define TILE_LOAD(tile, from, step) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"((int64_t) (step)) : "memory")
#define TILE_STORE(tile, to, step) __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(to), "r"((int64_t) (step)) : "memory")
#define TILE_PRODUCTS(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c :)
#define BY_MATRIX_UNIT __attribute__((target("amx-tile,amx-bf16")))

/// Has results be of so many rows: those of the lower tiles are left, and all others are whole, TILE_ROWS rows of 64 bytes each.
static BY_MATRIX_UNIT void begin_tiles(int64_t high) {
    struct {
        uint8_t palette, start, unused[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    if (high > TILE_ROWS) shape.rows[2] = shape.rows[3] = shape.rows[5] = (uint8_t) (high - TILE_ROWS);
    else shape.rows[0] = shape.rows[1] = shape.rows[4] = (uint8_t) high;
    __asm__ volatile("ldtilecfg %0" : : "m"(shape));
}

static BY_MATRIX_UNIT void end_tiles(void) { __asm__ volatile("tilerelease" :); }

extern long syscall(long number, ...);

/// True if the processor has the unit, and the system lets this process use it, which it is asked once.
static bool has_matrix_unit(void) {
    enum { UNKNOWN, ABSENT, PRESENT, ARCH_PRCTL = 158, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    static int found = UNKNOWN;
    int known = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (known == UNKNOWN) {
        uint32_t a = 0, b, c = 0, d;
        __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
        bool present = a >= 7;
        a = 7, c = 0;
        __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
        present = present && (d >> 22 & 1) && (d >> 24 & 1);  // AMX-BF16, AMX-TILE
        known = present && syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA) == 0 ? PRESENT : ABSENT;
        __atomic_store_n(&found, known, __ATOMIC_RELAXED);
    }
    return known == PRESENT;
}

#else
enum { MAY_HAVE_TILES = false };  // so that nobody needs memory for them

#define TILE_ZERO(tile) ((void) 0)
#define TILE_LOAD(tile, from, step) ((void) (from), (void) (step))
#define TILE_STORE(tile, to, step) ((void) (to), (void) (step))
#define TILE_PRODUCTS(c, a, b) ((void) 0)
#define BY_MATRIX_UNIT

static inline void begin_tiles(int64_t high) { (void) high; }
static inline void end_tiles(void) {}
static inline bool has_matrix_unit(void) { return false; }
#endif

/// The nearest bfloat16, ties away from 0; of what is infinite, the largest number.
static inline vector nearest_part(vector x) {
    const vector most = all(0x1.fep127f), bounded = larger(smaller(x, most), -most);
    return (vector) (((words_of) bounded + 0x8000) & 0xffff0000);
}

/// The parts of the numbers of two vectors, element by element, as pairs.
static inline void in_parts(vector even, vector odd, words_of to[ALL_PARTS]) {
#pragma GCC unroll 3
    for (int part = 0; part < ALL_PARTS; ++part) {
        const bool last = part == ALL_PARTS - 1;  // what is left then is a bfloat16
        const vector first = last ? even : nearest_part(even), second = last ? odd : nearest_part(odd);
        to[part] = (words_of) first >> 16 | ((words_of) second & 0xffff0000);
        even -= first, odd -= second;
    }
}

/// A number of which there are parts, some words apart, in the upper or the lower half of each.
static inline float from_parts(const word * parts, int64_t apart, bool upper) {
    float found[ALL_PARTS];
    for (int part = 0; part < ALL_PARTS; ++part) {
        const word both = parts[part * apart];
        found[part] = (union { word bits; float value; }){upper ? both & 0xffff0000 : both << 16}.value;
    }
    const bool infinite = found[1] - found[1] != 0 && found[1] == found[1];
    return infinite ? found[1] : found[0] + (found[1] + found[2]);
}

/// Rows of `depth` numbers, `lda` elements apart, as those of tiles [steps][parts][TILE_WORDS].
static inline __attribute__((always_inline)) void split_rows_in(int parts, const float * rows, int64_t lda, int64_t count, int64_t depth, word * to) {
    for (int64_t k = 0; k < depth; k += STEP, to += parts * TILE_WORDS) {
        for (int64_t i = 0; i < count; ++i) {
            const float * from = rows + i * lda + k;
            const vector first = some_of(from, depth - k), second = depth - k > WIDTH ? some_of(from + WIDTH, depth - k - WIDTH) : all(0);
            words_of found[ALL_PARTS];
            if (parts == ONE_PART) *found = in_pairs(first, second);
            else in_parts(even_elements(first, second), odd_elements(first, second), found);
#pragma GCC unroll 3
            for (int part = 0; part < parts; ++part) *(words_of *) (to + part * TILE_WORDS + i * TILE_PAIRS) = found[part];
        }
    }
}

static inline void split_rows(int parts, const float * rows, int64_t lda, int64_t count, int64_t depth, word * to) {
    if (parts == ONE_PART) split_rows_in(ONE_PART, rows, lda, count, depth, to);
    else split_rows_in(ALL_PARTS, rows, lda, count, depth, to);
}

/// Two rows of a panel as those of parts, TILE_PAIRS rows apart. Those that are not there are 0.
static inline __attribute__((always_inline)) void split_two_rows(int parts, const float * from, int64_t there, word * to) {
#pragma GCC unroll 2
    for (int j = 0; j < PANEL; j += WIDTH) {
        const vector even = there > 0 ? *(const vector *) (from + j) : all(0);
        const vector odd = there > 1 ? *(const vector *) (from + PANEL + j) : all(0);
        words_of found[ALL_PARTS];
        if (parts == ONE_PART) *found = paired(even, odd);
        else in_parts(even, odd, found);
#pragma GCC unroll 3
        for (int part = 0; part < parts; ++part) *(words_of *) (to + part * TILE_PAIRS * PANEL + j) = found[part];
    }
}

/// Rows of a panel, `depth` of them, as those of parts: [steps][parts][TILE_PAIRS][PANEL].
static inline __attribute__((always_inline)) void split_panel_in(int parts, const float * from, int64_t depth, word * to) {
    for (int64_t k = 0; k < steps_in(depth) * STEP; k += 2) split_two_rows(parts, from + k * PANEL, depth - k, to + row_of_pair(parts, k) * PANEL);
}

static inline void split_panel(int parts, const float * from, int64_t depth, word * to) {
    if (parts == ONE_PART) split_panel_in(ONE_PART, from, depth, to);
    else split_panel_in(ALL_PARTS, from, depth, to);
}

// Tiles 0 to 3 are a result's, by lines; 4 and 5 are those of rows, 6 and 7 of columns. `high` and `wide`, 1 or 2, are how many there are.

#define LOAD_LEFT(part) \
    TILE_LOAD(4, a + (part) * TILE_WORDS, 64); \
    if (high == 2) TILE_LOAD(5, a + next_tile + (part) * TILE_WORDS, 64)
#define LOAD_RIGHT(part) \
    TILE_LOAD(6, panel + (part) * TILE_PAIRS * PANEL, 4 * PANEL); \
    if (wide == 2) TILE_LOAD(7, panel + (part) * TILE_PAIRS * PANEL + TILE_ROWS, 4 * PANEL)
#define MULTIPLY \
    TILE_PRODUCTS(0, 4, 6); \
    if (wide == 2) TILE_PRODUCTS(1, 4, 7); \
    if (high == 2) TILE_PRODUCTS(2, 5, 6); \
    if (high == 2 && wide == 2) TILE_PRODUCTS(3, 5, 7)
#define ZERO_RESULTS \
    TILE_ZERO(0); \
    TILE_ZERO(1); \
    TILE_ZERO(2); \
    TILE_ZERO(3)
#define FOR_RESULTS(do, ...) \
    do(0, __VA_ARGS__); \
    if (wide == 2) do(1, to + TILE_ROWS, step); \
    if (high == 2) do(2, to + TILE_ROWS * ldc, step); \
    if (high == 2 && wide == 2) do(3, to + TILE_ROWS * ldc + TILE_ROWS, step)

/// Memory that is read soon, and how many lines of it are fetched while a step is multiplied.
struct soon {
    const char * at;
    int lines;
};

static const struct soon nothing_soon __attribute__((unused)) = {NULL, 0};

#define FETCH(share) \
    for (int line = 0; line < soon.lines; line += (share), at += LINE) __builtin_prefetch(at, 0, 2)

/// to[rows][columns] (+)= a[rows][steps] * panel[steps][columns]: rows of tiles, `next_tile` words apart, with a panel. Rows of the result are `ldc`
/// elements apart.
static inline __attribute__((always_inline)) BY_MATRIX_UNIT void multiply_tiles(int parts, int high, int wide, const word * a, int64_t next_tile,
                                                                                    const word * panel, int64_t steps, bool add, float * to, int64_t ldc,
                                                                                    struct soon soon) {
    const int64_t step = ldc * (int64_t) sizeof *to;
    const char * at = soon.at;
    if (add) {
        FOR_RESULTS(TILE_LOAD, to, step);
    } else {
        ZERO_RESULTS;
    }
    for (int64_t i = 0; i < steps; ++i, a += parts * TILE_WORDS, panel += parts * TILE_PAIRS * PANEL) {
        if (parts == ALL_PARTS) {  // the smallest products first
            LOAD_LEFT(2);
            LOAD_RIGHT(0);
            MULTIPLY;
            FETCH(6);
            LOAD_LEFT(1);
            MULTIPLY;
            FETCH(6);
            LOAD_RIGHT(1);
            MULTIPLY;
            FETCH(6);
            LOAD_LEFT(0);
            MULTIPLY;
            FETCH(6);
            LOAD_RIGHT(2);
            MULTIPLY;
            FETCH(6);
            LOAD_RIGHT(0);
            MULTIPLY;
            FETCH(6);
        } else {
            LOAD_LEFT(0);
            LOAD_RIGHT(0);
            MULTIPLY;
            FETCH(1);
        }
    }
    FOR_RESULTS(TILE_STORE, to, step);
}

#define MULTIPLIER(parts, high, wide) \
    static BY_MATRIX_UNIT __attribute__((noinline)) void multiply_##parts##_##high##_##wide( \
        const word * a, int64_t next_tile, const word * panel, int64_t steps, bool add, float * to, int64_t ldc, struct soon soon) { \
        multiply_tiles(parts, high, wide, a, next_tile, panel, steps, add, to, ldc, soon); \
    }
MULTIPLIER(1, 1, 1) MULTIPLIER(1, 1, 2) MULTIPLIER(1, 2, 1) MULTIPLIER(1, 2, 2)
MULTIPLIER(3, 1, 1) MULTIPLIER(3, 1, 2) MULTIPLIER(3, 2, 1) MULTIPLIER(3, 2, 2)

typedef void (*multiplier)(const word *, int64_t, const word *, int64_t, bool, float *, int64_t, struct soon);

/// By parts, rows and columns.
static inline multiplier multiplier_for(int parts, int64_t rows, int64_t columns) {
    static const multiplier all_of_them[2][2][2] = {{{multiply_1_1_1, multiply_1_1_2}, {multiply_1_2_1, multiply_1_2_2}},
                                                    {{multiply_3_1_1, multiply_3_1_2}, {multiply_3_2_1, multiply_3_2_2}}};
    return all_of_them[parts == ALL_PARTS][rows > TILE_ROWS][columns > TILE_ROWS];
}

/// The same with what a kernel of kh lines of kw places meets in one part: at each place, rows of tiles are pixels that follow one another,
/// `pixel` words apart, from (kx, ky) on, and `line` pixels are a line; a panel has the places one after the other.
static inline __attribute__((always_inline)) BY_MATRIX_UNIT void multiply_places_in(int high, int wide, const word * image, int64_t pixel, int64_t line,
                                                                                    int64_t kw, int64_t kh, const word * panel, int64_t steps, bool add,
                                                                                    float * to, int64_t ldc) {
    const int64_t step = ldc * (int64_t) sizeof *to, next = pixel * (int64_t) sizeof *image;
    if (add) {
        FOR_RESULTS(TILE_LOAD, to, step);
    } else {
        ZERO_RESULTS;
    }
    for (int64_t ky = 0; ky < kh; ++ky) {
        for (int64_t kx = 0; kx < kw; ++kx) {
            const word * a = image + (ky * line + kx) * pixel;
            for (int64_t i = 0; i < steps; ++i, a += TILE_PAIRS, panel += TILE_PAIRS * PANEL) {
                TILE_LOAD(4, a, next);
                if (high == 2) TILE_LOAD(5, a + TILE_ROWS * pixel, next);
                LOAD_RIGHT(0);
                MULTIPLY;
            }
        }
    }
    FOR_RESULTS(TILE_STORE, to, step);
}

#define PLACES_MULTIPLIER(high, wide) \
    static BY_MATRIX_UNIT __attribute__((noinline)) void multiply_places_##high##_##wide(const word * image, int64_t pixel, int64_t line, int64_t kw, int64_t kh, \
                                                                                         const word * panel, int64_t steps, bool add, float * to, int64_t ldc) { \
        multiply_places_in(high, wide, image, pixel, line, kw, kh, panel, steps, add, to, ldc); \
    }
PLACES_MULTIPLIER(1, 1) PLACES_MULTIPLIER(1, 2) PLACES_MULTIPLIER(2, 1) PLACES_MULTIPLIER(2, 2)

typedef void (*places_multiplier)(const word *, int64_t, int64_t, int64_t, int64_t, const word *, int64_t, bool, float *, int64_t);

static inline places_multiplier multiply_places_for(int64_t rows, int64_t columns) {
    static const places_multiplier all_of_them[2][2] = {{multiply_places_1_1, multiply_places_1_2}, {multiply_places_2_1, multiply_places_2_2}};
    return all_of_them[rows > TILE_ROWS][columns > TILE_ROWS];
}

/// A product of parts of one element, as products of float32 make it.
static float whole_product(const word * a, int64_t next_tile, const word * panel, int64_t steps, int64_t row, int64_t column) {
    float sum = 0;
    for (int64_t k = 0; k < steps * STEP; ++k) {
        const word * left = a + row / TILE_ROWS * next_tile + k / STEP * ALL_PARTS * TILE_WORDS + row % TILE_ROWS * TILE_PAIRS + k % STEP / 2;
        const word * right = panel + (k / STEP * ALL_PARTS * TILE_PAIRS + k % STEP / 2) * PANEL + column;
        sum += from_parts(left, TILE_WORDS, k % 2) * from_parts(right, TILE_PAIRS * PANEL, k % 2);
    }
    return sum;
}

/// Makes sums that are not finite anew, in rows of so many: products of the parts of an infinite number are none.
static __attribute__((noinline)) void mend_sums(const word * a, int64_t next_tile, const word * panel, int64_t steps, int64_t rows, int64_t columns,
                                                float * sums, int64_t ldc) {
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
            float * sum = sums + i * ldc + j;
            if (*sum - *sum != 0) *sum = whole_product(a, next_tile, panel, steps, i, j);
        }
    }
}

/// True if some of the numbers, as many as are whole vectors, are infinite or none.
static inline bool not_all_finite(const float * x, int64_t count) {
    integers found = {0};
    for (int64_t i = 0; i < count; i += WIDTH) found |= (*(const integers *) (x + i) & 0x7f800000) == 0x7f800000;
    int32_t any = 0;
    for (int i = 0; i < WIDTH; ++i) any |= found[i];
    return any != 0;
}

/// The parts of what is multiplied: none where vectors do it.
static inline int parts_for(bool rounded) { return !has_matrix_unit() ? NO_PARTS : rounded ? ONE_PART : ALL_PARTS; }
