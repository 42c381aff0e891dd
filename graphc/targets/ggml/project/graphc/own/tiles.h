#pragma once

// Vectors, and tiles: a few rows times a panel of columns, summed up in registers. For compilers with vectors of their own.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "turns.h"

#if defined(__AVX512F__)
enum { WIDTH = 16, ROWS = 12 };
#elif defined(__AVX__)
enum { WIDTH = 8, ROWS = 6 };
#else
enum { WIDTH = 4, ROWS = 8 };
#endif
enum { VECTORS = 2, PANEL = WIDTH * VECTORS, HALF = WIDTH / 2 };

typedef float vector __attribute__((vector_size(WIDTH * 4)));
typedef float unaligned __attribute__((vector_size(WIDTH * 4), aligned(4)));

typedef int32_t integers __attribute__((vector_size(WIDTH * 4)));

static inline vector choose(integers where, vector a, vector b) { return (vector) ((where & (integers) a) | (~where & (integers) b)); }

/// The larger or the smaller one of each two elements; of a pair with NaN, the second vector's.
#if defined(__AVX__)
static inline vector larger(vector a, vector b) {
    __asm__("vmaxps %2, %1, %0" : "=v"(a) : "v"(a), "v"(b));
    return a;
}
static inline vector smaller(vector a, vector b) {
    __asm__("vminps %2, %1, %0" : "=v"(a) : "v"(a), "v"(b));
    return a;
}
#else
static inline vector larger(vector a, vector b) { return choose(a > b, a, b); }
static inline vector smaller(vector a, vector b) { return choose(a < b, a, b); }
#endif

static inline vector all(float x) { return x - (vector){0}; }

#if !defined(__clang__) && __GNUC__ < 12
#define INTERLEAVE(a, b, ...) __builtin_shuffle(a, b, (integers){__VA_ARGS__})
#else
#define INTERLEAVE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif

/// Of two vectors: the first halves by turns, the last halves; every second element, from the first or the second on; and the first one's
/// without its first, followed by the other's.
#if defined(__AVX512F__)
static inline vector interleave_first(vector a, vector b) { return INTERLEAVE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23); }
static inline vector interleave_last(vector a, vector b) { return INTERLEAVE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31); }
static inline vector even_elements(vector a, vector b) { return INTERLEAVE(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30); }
static inline vector odd_elements(vector a, vector b) { return INTERLEAVE(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31); }
static inline vector one_later(vector a, vector b) { return INTERLEAVE(a, b, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16); }
#elif defined(__AVX__)
static inline vector interleave_first(vector a, vector b) { return INTERLEAVE(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
static inline vector interleave_last(vector a, vector b) { return INTERLEAVE(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
static inline vector even_elements(vector a, vector b) { return INTERLEAVE(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
static inline vector odd_elements(vector a, vector b) { return INTERLEAVE(a, b, 1, 3, 5, 7, 9, 11, 13, 15); }
static inline vector one_later(vector a, vector b) { return INTERLEAVE(a, b, 1, 2, 3, 4, 5, 6, 7, 8); }
#else
static inline vector interleave_first(vector a, vector b) { return INTERLEAVE(a, b, 0, 4, 1, 5); }
static inline vector interleave_last(vector a, vector b) { return INTERLEAVE(a, b, 2, 6, 3, 7); }
static inline vector even_elements(vector a, vector b) { return INTERLEAVE(a, b, 0, 2, 4, 6); }
static inline vector odd_elements(vector a, vector b) { return INTERLEAVE(a, b, 1, 3, 5, 7); }
static inline vector one_later(vector a, vector b) { return INTERLEAVE(a, b, 1, 2, 3, 4); }
#endif

typedef float half __attribute__((vector_size(HALF * 4), aligned(4)));

/// Every second of the 2 * WIDTH - 1 elements from there on.
static inline vector every_second(const float * from) {
    const unaligned a = *(const unaligned *) from, b = *(const unaligned *) (from + WIDTH - 1);
#if defined(__AVX512F__)
    return INTERLEAVE(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
#elif defined(__AVX__)
    return INTERLEAVE(a, b, 0, 2, 4, 6, 9, 11, 13, 15);
#else
    return INTERLEAVE(a, b, 0, 2, 5, 7);
#endif
}

/// Copies `count` elements, `stride` apart, without reading or writing others.
static inline void copy(const float * from, int64_t stride, int64_t count, float * to) {
    if (stride == 1 && count >= WIDTH) {
        for (int64_t i = 0; i < count - WIDTH; i += WIDTH) *(unaligned *) (to + i) = *(const unaligned *) (from + i);
        *(unaligned *) (to + count - WIDTH) = *(const unaligned *) (from + count - WIDTH);
    } else if (stride == 1 && count >= HALF) {
        *(half *) to = *(const half *) from;
        *(half *) (to + count - HALF) = *(const half *) (from + count - HALF);
    } else if (stride == 2 && count >= WIDTH) {
        for (int64_t i = 0; i < count - WIDTH; i += WIDTH) *(unaligned *) (to + i) = every_second(from + 2 * i);
        *(unaligned *) (to + count - WIDTH) = every_second(from + 2 * (count - WIDTH));
    } else {
        for (int64_t i = 0; i < count; ++i) to[i] = from[i * stride];
    }
}

/// Rows of `from` as columns of `to`: a square of WIDTH elements. Rows are so many elements apart.
static inline void transpose_square(const float * from, int64_t step, float * to, int64_t to_step) {
    vector rows[WIDTH], mixed[WIDTH];
#pragma GCC unroll 16
    for (int i = 0; i < WIDTH; ++i) rows[i] = *(const unaligned *) (from + i * step);
#pragma GCC unroll 4
    for (int turn = 1; turn < WIDTH; turn *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < WIDTH / 2; ++i) {
            mixed[2 * i] = interleave_first(rows[i], rows[i + WIDTH / 2]);
            mixed[2 * i + 1] = interleave_last(rows[i], rows[i + WIDTH / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < WIDTH; ++i) rows[i] = mixed[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < WIDTH; ++i) *(unaligned *) (to + i * to_step) = rows[i];
}

/// Rows of `from`, `step` elements apart, as columns of a panel: a square of WIDTH elements.
static inline void transpose(const float * from, int64_t step, float * panel) { transpose_square(from, step, panel, PANEL); }

/// The sums of the lanes of as many vectors as there are lanes.
static inline vector sums_of(const vector * totals) {
    vector x[WIDTH];
#pragma GCC unroll 16
    for (int i = 0; i < WIDTH; ++i) x[i] = totals[i];
#pragma GCC unroll 4
    for (int turn = WIDTH / 2; turn > 0; turn /= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < turn; ++i) x[i] = interleave_first(x[i], x[i + turn]) + interleave_last(x[i], x[i + turn]);
    }
    return x[0];
}

/// What comes behind the last element of a tensor that lies in memory as its steps say.
static inline const float * end_of(const struct ggml_tensor * t) {
    size_t last = 0;
    for (int axis = 0; axis < 4; ++axis) last += t->ne[axis] > 1 ? (size_t) (t->ne[axis] - 1) * t->nb[axis] : 0;
    return (const float *) ((const char *) t->data + last) + 1;
}

/// `there` elements, as many as a vector has at most, and `otherwise` behind them. Memory is not read from `end` on.
static inline vector first_of(const float * x, int64_t there, const float * end, float otherwise) {
    if (there >= WIDTH) return *(const unaligned *) x;
    vector found = all(otherwise);
    if (x + WIDTH <= end) {
        integers lanes;
        for (int lane = 0; lane < WIDTH; ++lane) lanes[lane] = lane;
        return choose(lanes < (int32_t) there, *(const unaligned *) x, found);
    }
    for (int i = 0; i < there; ++i) found[i] = x[i];
    return found;
}

/// A vector of the elements from there on, of which there may be fewer than it has: the others are 0, and no memory of theirs is read.
static inline vector some_of(const float * from, int64_t count) {
    if (count >= WIDTH) return *(const unaligned *) from;
#if defined(__AVX512F__)
    vector some;
    __asm__("vmovups %1, %0%{%2%}%{z%}" : "=v"(some) : "m"(*(const unaligned *) from), "Yk"((uint16_t) ((1u << count) - 1)));
    return some;
#else
    vector some = all(0);
    for (int64_t i = 0; i < count; ++i) some[i] = from[i];
    return some;
#endif
}

/// 2^x for x from -127 on, by a polynomial of its fraction, whose factors come from the highest power on.
static inline __attribute__((always_inline)) vector power_by(vector x, int count, const float * factors) {
    const vector shifter = all(12582912.0f + 127);  // 1.5 * 2^23 + 127: a sum with it ends in the bits of a rounded exponent
    x = larger(all(-127), x);
    const vector shifted = x + shifter, r = x - (shifted - shifter);
    vector p = all(factors[0]);
#pragma GCC unroll 8
    for (int i = 1; i < count; ++i) p = p * r + factors[i];
    return p * (vector) ((integers) shifted << 23);
}

/// 2^x for x <= 0, to a unit in the last place; 0 below 2^-126.5.
static inline vector power_of_two(vector x) {
    return power_by(x, 7, (const float[]){1.5353362e-4f, 1.3398875e-3f, 9.6184369e-3f, 5.5503324e-2f, 2.4022648e-1f, 6.9314718e-1f, 1.0f});
}

/// 2^x for x from -127 to 127, to an error of 2^-13.7, a sixteenth of what it is rounded by when it becomes a bfloat16.
static inline vector roughly_power_of_two(vector x) { return power_by(x, 4, (const float[]){5.5171669e-2f, 2.4261112e-1f, 6.9326099e-1f, 9.9992807e-1f}); }

/// 1 / x, to an error of 2^-14.
static inline vector rough_inverse(vector x) {
#if defined(__AVX512F__)
    vector found;
    __asm__("vrcp14ps %1, %0" : "=v"(found) : "v"(x));
    return found;
#else
    return 1.0f / x;
#endif
}

/// x between two numbers; NaN stays.
static inline vector between(vector x, float low, float high) { return smaller(all(high), larger(all(low), x)); }

/// x min(max(x + 3, 0), 6) / 6.
static inline vector hard_swish(vector x) { return between(x + 3.0f, 0, 6) * (x * (1 / 6.0f)); }

/// An activation of few instructions, which sums have before they leave their registers: none, two numbers between which they are kept, or
/// a hard swish.
struct simple_activation {
    enum { IDENTITY, CLAMP, HARD_SWISH } function;
    float low, high;
};

static inline __attribute__((always_inline)) vector simply_activated(struct simple_activation s, vector x) {
    return s.function == CLAMP ? between(x, s.low, s.high) : s.function == HARD_SWISH ? hard_swish(x) : x;
}

/// exp(x) for x from -87.3 to 88.8, to a unit in the last place; from 88.73 on, infinity.
static inline vector power_of_e(vector x) {
    const vector shifter = all(12582912.0f + 127);  // 1.5 * 2^23 + 127: a sum with it ends in the bits of a rounded exponent
    const vector shifted = x * 1.44269504f + shifter, n = shifted - shifter;
    const vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    vector p = all(1.9875691e-4f);
    p = p * r + 1.3981999e-3f;
    p = p * r + 8.3334519e-3f;
    p = p * r + 4.1665796e-2f;
    p = p * r + 1.6666666e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    return p * (vector) ((integers) shifted << 23);
}

/// exp(x) for x <= 0; 0 for what is below the smallest normal number.
static inline vector exponential(vector x) { return choose(x < -87.33654f, all(0), power_of_e(x)); }

/// 1 / (1 + exp(-x)).
static inline vector sigmoid(vector x) { return 1.0f / (1.0f + power_of_e(between(-x, -87.0f, 88.8f))); }

// Pairs: two numbers that follow one another in a sum, rounded to bfloat16, in a word: the first in its lower half. They lie where a
// float32 would, and are moved as such.

typedef uint32_t word __attribute__((may_alias));
typedef uint32_t words_of __attribute__((vector_size(WIDTH * 4), may_alias));
typedef uint32_t words_anywhere __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));

static inline int64_t pairs_in(int64_t count) { return (count + 1) / 2; }

#if defined(__AVX512BF16__)
enum { HAS_PAIRS = true };

/// A sum and the products of two pairs, in float32.
static inline vector add_products(vector sum, words_of a, words_of b) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

/// The pairs of the numbers of two vectors that lie one after the other.
static inline words_of in_pairs(vector first, vector second) {
    words_of found;
    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(found) : "v"(first), "v"(second));
    return found;
}
#else
#if defined(GRAPHC_EMULATED_MATRIX_UNIT)
enum { HAS_PAIRS = true };
#else
enum { HAS_PAIRS = false };  // so that nothing asks for them, for this takes longer than products of float32
#endif

static inline vector add_products(vector sum, words_of a, words_of b) {
    return sum + (vector) (a << 16) * (vector) (b << 16) + (vector) (a & 0xffff0000) * (vector) (b & 0xffff0000);
}

/// Numbers rounded to bfloat16, ties to even, in the upper halves of words. The lower halves hold anything.
static inline words_of rounded(vector x) {
    const words_of bits = (words_of) x;
    return (words_of) choose(x == x, (vector) (bits + 0x7fff + (bits >> 16 & 1)), (vector) (bits | 0x400000));
}

static inline words_of in_pairs(vector first, vector second) {
    float both[2 * WIDTH];
    *(unaligned *) both = first, *(unaligned *) (both + WIDTH) = second;
    return rounded(every_second(both)) >> 16 | (rounded(every_second(both + 1)) & 0xffff0000);
}
#endif

/// The pairs of the numbers of two vectors, element by element.
static inline words_of paired(vector first, vector second) { return in_pairs(interleave_first(first, second), interleave_last(first, second)); }

/// `count` numbers that lie one after the other as pairs, the last one with a 0 where they are odd.
static inline void pair_row(const float * from, int64_t count, float * to) {
    int64_t i = 0;
    for (; i + 2 * WIDTH <= count; i += 2 * WIDTH) {
        *(words_anywhere *) (to + i / 2) = in_pairs(*(const unaligned *) (from + i), *(const unaligned *) (from + i + WIDTH));
    }
    for (; i < count; i += 2) *(word *) (to + i / 2) = in_pairs((vector){from[i], i + 1 < count ? from[i + 1] : 0}, all(0))[0];
}

/// Rows of a panel as rows of pairs, in half as many; the last one is paired with zeros where they are odd.
static inline void pair_panel(const float * from, int64_t rows, float * to) {
    for (int64_t k = 0; k < rows; k += 2) {
        for (int j = 0; j < PANEL; j += WIDTH) {
            const vector even = *(const vector *) (from + k * PANEL + j);
            const vector odd = k + 1 < rows ? *(const vector *) (from + (k + 1) * PANEL + j) : all(0);
            *(words_of *) (to + k / 2 * PANEL + j) = paired(even, odd);
        }
    }
}

enum { LINE = 64, LINES = 8, BEAT = 4, SPREAD = 4096 };

/// Memory that is read soon: LINES rows, `step` bytes apart, each as long as the rows of the tile that fetches them meanwhile; if `step` is 0,
/// as much of what lies together. Two lines of the cache for each BEAT columns: fewer come too late where a product has few rows, and more
/// keep back what is needed now.
struct ahead {
    const void * at;
    int64_t step;
};

/// Has so many bytes come to the first cache.
static inline void fetch(const char * at, int64_t bytes) {
    for (int64_t line = 0; line < bytes; line += LINE) __builtin_prefetch(at + line, 0, 3);
}

/// Rows of a matrix that are read soon. Where they are a multiple of SPREAD bytes apart, they would drive one another from the cache.
static inline struct ahead rows_ahead(const void * at, int64_t step) { return (struct ahead){at, step % SPREAD == 0 ? 0 : step}; }

enum { ADDENDS = 2 };  // tensors that a tile adds

/// Numbers that are added to a tile: `down` elements from row to row, one for each column (`along`) or one for all of a row.
struct addend {
    const float * from;
    int64_t down;
    bool along;
};

struct graphc_activation;
typedef void activate_function(const struct graphc_activation *, const float *, const float *, int64_t, float *);

/// What becomes of a tile's sums: they are added to what is there, if `added`; then come `others`, up to the first that is not there;
/// then comes an activation: a simple one, or what `activate` computes.
struct ends {
    bool added;
    struct simple_activation simple;
    struct addend others[ADDENDS];
    activate_function * activate;
    const struct graphc_activation * activation;
};

static const struct ends as_they_are = {.added = false}, added_up __attribute__((unused)) = {.added = true};

/// Has tiles end as others do, but from a row and a column of these on. What changes from tile to tile is written alone: a processor
/// that reads it together with what lies beside it would wait until all is written that was before.
static inline void move_ends(struct ends * ends, const struct ends * first, int64_t row, int64_t column) {
    for (int each = 0; each < ADDENDS && first->others[each].from != NULL; ++each) {
        const struct addend * other = &first->others[each];
        ends->others[each].from = other->from + row * other->down + (other->along ? column : 0);
    }
}

/// A vector of the numbers that are added to a tile.
static inline vector added_at(const struct addend * a, int row, int column) {
    const float * from = a->from + row * a->down;
    return a->along ? *(const unaligned *) (from + column) : all(*from);
}

/// A tile's sums, of so many vectors from row to row, as they become the result.
static inline __attribute__((always_inline)) void end_sums(float * sums, int rows, int vectors, const struct ends * ends, float * c,
                                                           int64_t ldc) {
    const struct simple_activation simple = ends->simple;
    float * to = ends->activate == NULL ? c : sums;
    const int64_t step = ends->activate == NULL ? ldc : vectors * WIDTH;
    for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < vectors * WIDTH; j += WIDTH) {
            vector sum = *(const vector *) (sums + i * vectors * WIDTH + j);
            if (ends->added) sum += *(const unaligned *) (c + i * ldc + j);
            if (ends->others[0].from != NULL) sum += added_at(&ends->others[0], i, j);
            if (ends->others[1].from != NULL) sum += added_at(&ends->others[1], i, j);
            *(unaligned *) (to + i * step + j) = simply_activated(simple, sum);
        }
    }
    if (ends->activate == NULL) return;
    ends->activate(ends->activation, sums, NULL, (int64_t) rows * vectors * WIDTH, sums);
    for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < vectors; ++j) *(unaligned *) (c + i * ldc + j * WIDTH) = ((const vector *) sums)[i * vectors + j];
    }
}

static __attribute__((noinline, unused)) void end_tile(float * sums, int rows, int vectors, const struct ends * ends, float * c,
                                                       int64_t ldc) {
    if (vectors == VECTORS) end_sums(sums, rows, VECTORS, ends, c, ldc);
    else end_sums(sums, rows, 1, ends, c, ldc);
}

/// What is summed up: `depth` elements of each of so many lines, `leap` columns of `a` from the end of one to where the next begins.
struct terms {
    int depth, lines;
    int64_t leap;
};

static inline struct terms one_line(int64_t depth) { return (struct terms){(int) depth, 1, 0}; }

/// A sum and a product. Where there is an instruction for both, it is named: compilers would multiply for many sums first, and run out of
/// registers.
static inline vector multiply_add(vector sum, vector a, vector b) {
#if defined(__FMA__)
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
#else
    return sum + a * b;
#endif
}

/// Rows of a tile's `a`, from some column on: one after the other, `lda` elements apart, or `turned`, the columns so. With an address for
/// each row there are too few registers: every third has one.
struct left {
    bool turned;
    int rows;
    int64_t lda;
    const float * thirds[(ROWS + 2) / 3];
};

/// Some columns further.
static inline __attribute__((always_inline)) void move_right(struct left * a, int64_t columns) {
    const int64_t elements = a->turned ? columns * a->lda : columns;
#pragma GCC unroll 16
    for (int i = 0; i < (a->turned ? 1 : a->rows); i += 3) a->thirds[i / 3] += elements;
}

/// Adds the products of a column of `a`, so many behind where it stands, and a row of a panel.
static inline __attribute__((always_inline)) void add_column(bool pairs, int vectors, const struct left * a, int behind, const float * panel,
                                                             vector sums[ROWS][VECTORS]) {
    vector column[VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) column[j] = *(const vector *) (panel + j * WIDTH);
#pragma GCC unroll 16
    for (int i = 0; i < a->rows; ++i) {
        const float * element = a->turned ? &a->thirds[0][i] : &a->thirds[i / 3][i % 3 * a->lda + behind];
        const vector factor = all(*element);
#pragma GCC unroll 4
        for (int j = 0; j < vectors; ++j) {
            if (pairs) sums[i][j] = add_products(sums[i][j], (words_of){0} + *(const word *) element, (words_of) column[j]);
            else sums[i][j] = multiply_add(sums[i][j], factor, column[j]);
        }
    }
}

/// c[rows][PANEL] (+)= a[rows][terms] * panel[terms][PANEL], of so many `vectors` of the panel; rows of `a` are `lda` elements apart, or,
/// `turned`, its columns are. `pairs`, `turned`, `rows`, and `vectors` are constants where this is called; with `pairs`, an element stands
/// for two numbers.
static inline __attribute__((always_inline)) void tile(bool pairs, bool turned, int rows, int vectors, const float * from, int64_t lda, const float * panel,
                                                       float * c, int64_t ldc, struct terms terms, const struct ends * ends, struct ahead ahead) {
    vector sums[ROWS][VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; ++j) sums[i][j] = (vector){0};
    }
    struct left a = {.turned = turned, .rows = rows, .lda = lda};
#pragma GCC unroll 16
    for (int i = 0; i < rows; i += 3) a.thirds[i / 3] = from + i * lda;
    const char * soon = (const char *) ahead.at;
    const int64_t beats = terms.depth / BEAT * BEAT, row = terms.depth / (LINES * BEAT) * BEAT;
    const bool together = ahead.step == 0 || ahead.step == terms.depth * (int64_t) sizeof(float);
    const int64_t some = together ? beats : row > BEAT ? row : BEAT;
    for (int line = 0; line < terms.lines; ++line) {
        int64_t k = 0;
        for (; k < beats; soon += ahead.step) {
            const char * next = soon;
            for (const int64_t stop = k + some < beats ? k + some : beats; k < stop; k += BEAT) {
                __builtin_prefetch(next, 0, 2);
                __builtin_prefetch(next + LINE, 0, 2);
                next += 2 * LINE;
#pragma GCC unroll 4
                for (int beat = 0; beat < BEAT; ++beat) {
                    add_column(pairs, vectors, &a, turned ? 0 : beat, panel + beat * PANEL, sums);
                    if (turned) move_right(&a, 1);
                }
                if (!turned) move_right(&a, BEAT);
                panel += BEAT * PANEL;
            }
        }
        for (; k < terms.depth; ++k, panel += PANEL) {
            add_column(pairs, vectors, &a, 0, panel, sums);
            move_right(&a, 1);
        }
        move_right(&a, terms.leap);
    }
    const struct addend * other = ends->others;
    const bool vector_alone = other->from != NULL && other->along && other->down == 0 && other[1].from == NULL && !ends->added;
    if (vector_alone && ends->activate == NULL) {  // in registers
        const struct simple_activation simple = ends->simple;
        vector each[VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; ++j) each[j] = *(const unaligned *) (other->from + j * WIDTH);
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
            for (int j = 0; j < vectors; ++j) {
                *(unaligned *) (c + i * ldc + j * WIDTH) = simply_activated(simple, sums[i][j] + each[j]);
            }
        }
        return;
    }
    if (ends->others->from != NULL || ends->simple.function != IDENTITY || ends->activate != NULL) {
        float workspace[ROWS * PANEL] __attribute__((aligned(64)));
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
            for (int j = 0; j < vectors; ++j) ((vector *) workspace)[i * vectors + j] = sums[i][j];
        }
        end_tile(workspace, rows, vectors, ends, c, ldc);
        return;
    }
    const bool add = ends->added;
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; ++j) {
            unaligned * target = (unaligned *) (c + i * ldc + j * WIDTH);
            *target = add ? sums[i][j] + *target : sums[i][j];
        }
    }
}

#define TILE(n) \
    static __attribute__((noinline)) void tile_##n(const float * a, int64_t lda, const float * panel, float * c, int64_t ldc, \
                                                   struct terms terms, const struct ends * ends, struct ahead ahead) { \
        tile(false, false, n, VECTORS, a, lda, panel, c, ldc, terms, ends, ahead); \
    } \
    static __attribute__((noinline)) void transposed_##n(const float * a, int64_t lda, const float * panel, float * c, int64_t ldc, \
                                                     struct terms terms, const struct ends * ends, struct ahead ahead) { \
        tile(false, true, n, VECTORS, a, lda, panel, c, ldc, terms, ends, ahead); \
    } \
    static __attribute__((noinline)) void paired_##n(const float * a, int64_t lda, const float * panel, float * c, int64_t ldc, \
                                                     struct terms terms, const struct ends * ends, struct ahead ahead) { \
        tile(true, false, n, VECTORS, a, lda, panel, c, ldc, terms, ends, ahead); \
    } \
    static __attribute__((noinline)) void transposed_pairs_##n(const float * a, int64_t lda, const float * panel, float * c, int64_t ldc, \
                                                               struct terms terms, const struct ends * ends, struct ahead ahead) { \
        tile(true, true, n, VECTORS, a, lda, panel, c, ldc, terms, ends, ahead); \
    } \
    static __attribute__((noinline)) void narrow_##n(const float * a, int64_t lda, const float * panel, float * c, int64_t ldc, \
                                                 struct terms terms, const struct ends * ends, struct ahead ahead) { \
        tile(false, false, n, 1, a, lda, panel, c, ldc, terms, ends, ahead); \
    } \
    static __attribute__((noinline)) void narrow_pairs_##n(const float * a, int64_t lda, const float * panel, float * c, int64_t ldc, \
                                                       struct terms terms, const struct ends * ends, struct ahead ahead) { \
        tile(true, false, n, 1, a, lda, panel, c, ldc, terms, ends, ahead); \
    }
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
#if defined(__AVX512F__)
TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)
#elif !defined(__AVX__)
TILE(7) TILE(8)
#endif

typedef void (*tile_function)(const float *, int64_t, const float *, float *, int64_t, struct terms, const struct ends *, struct ahead);

#if defined(__AVX512F__)
#define ALL_TILES(kind) {NULL, kind##_1, kind##_2, kind##_3, kind##_4, kind##_5, kind##_6, kind##_7, kind##_8, kind##_9, kind##_10, kind##_11, kind##_12}
#elif defined(__AVX__)
#define ALL_TILES(kind) {NULL, kind##_1, kind##_2, kind##_3, kind##_4, kind##_5, kind##_6}
#else
#define ALL_TILES(kind) {NULL, kind##_1, kind##_2, kind##_3, kind##_4, kind##_5, kind##_6, kind##_7, kind##_8}
#endif

/// By the number of rows: tiles of a matrix whose rows lie one after the other, and of one whose columns do. Narrow ones have one vector.
static const tile_function tiles[ROWS + 1] __attribute__((unused)) = ALL_TILES(tile);
static const tile_function paired_tiles[ROWS + 1] __attribute__((unused)) = ALL_TILES(paired);
static const tile_function transposed_paired_tiles[ROWS + 1] __attribute__((unused)) = ALL_TILES(transposed_pairs);
static const tile_function narrow_tiles[ROWS + 1] __attribute__((unused)) = ALL_TILES(narrow);
static const tile_function narrow_paired_tiles[ROWS + 1] __attribute__((unused)) = ALL_TILES(narrow_pairs);
static const tile_function transposed_tiles[ROWS + 1] __attribute__((unused)) = ALL_TILES(transposed);

/// The tiles for a panel of so many columns, by the number of rows. Those of pairs are not compiled where nothing asks for them.
static inline const tile_function * tiles_for(bool pairs, int64_t columns) {
    if (columns <= WIDTH) return HAS_PAIRS && pairs ? narrow_paired_tiles : narrow_tiles;
    return HAS_PAIRS && pairs ? paired_tiles : tiles;
}

/// How many parts of a size cover so many.
static inline int64_t parts_of(int64_t count, int64_t part) { return (count + part - 1) / part; }

/// The size of parts, `most` at most, of which as few as possible cover so many, as alike as possible.
static inline int64_t even_split(int64_t count, int64_t most) { return parts_of(count, parts_of(count, most)); }

/// The height of tiles that cover so many rows.
static inline int64_t tile_rows(int64_t rows) { return even_split(rows, ROWS); }

static inline int64_t elements(const struct ggml_tensor * t) { return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; }

static inline int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }

/// How many steps it takes from 0 to a distance or beyond; none if that is not above 0.
static inline int64_t steps_to(int64_t distance, int64_t step) { return distance <= 0 ? 0 : step == 1 ? distance : parts_of(distance, step); }

/// Of `count` places, `step` apart from `from` on: the first that is one of an axis of `size` elements; or the first behind those that are.
static inline int64_t first_inside(int64_t from, int64_t step, int64_t count) { return min_of(steps_to(-from, step), count); }

static inline int64_t behind_inside(int64_t from, int64_t step, int64_t count, int64_t size) {
    return min_of(steps_to(size - from, step), count);
}

/// True if all elements lie one after the other, in blocks of the type.
static inline bool is_packed(const struct ggml_tensor * t, int64_t block, size_t size) {
    if (t->ne[0] % block != 0 || t->nb[0] != size) return false;
    size_t step = t->ne[0] / block * size;
    for (int i = 1; i < 4; step *= t->ne[i], ++i) {
        if (t->ne[i] != 1 && t->nb[i] != step) return false;
    }
    return true;
}

/// True if the elements are float32 and lie one after the other.
static inline bool is_dense(const struct ggml_tensor * t) { return t->type == GGML_TYPE_F32 && is_packed(t, 1, sizeof(float)); }

/// True if a float32 image [N, H, W, C] lies in planes, as [N, C, H, W].
static inline bool has_planes(const struct ggml_tensor * t) {
    struct ggml_tensor planes = *t;
    for (int i = 0; i < 3; ++i) planes.ne[i] = t->ne[(i + 1) % 3], planes.nb[i] = t->nb[(i + 1) % 3];
    return is_dense(&planes);
}

/// True if the elements can be read as float32 and lie one after the other.
static inline bool is_weight(const struct ggml_tensor * t, const struct ggml_type_traits * types) {
    return (t->type == GGML_TYPE_F32 || types->to_float != NULL) && is_packed(t, types->blck_size, types->type_size);
}

/// The next unit of work: of the thread's own range, else of another's. Where there is none left, the last of `threads` makes the
/// turns ready for the next run.
static inline int64_t take(struct graphc_turns * turns, int64_t units, int thread, int threads) {
    const int ranges = threads < GRAPHC_RANGES ? threads : GRAPHC_RANGES;
    for (int each = 0; each < ranges; ++each) {
        const int range = (thread + each) % ranges;
        const int64_t first = units * range / ranges, end = units * (range + 1) / ranges;
        int * next = &turns->ranges[range].next;
        if (first + __atomic_load_n(next, __ATOMIC_RELAXED) >= end) continue;
        const int64_t unit = first + __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
        if (unit < end) return unit;
    }
    if (__atomic_add_fetch(&turns->finished, 1, __ATOMIC_ACQ_REL) == threads) {
        for (int range = 0; range < ranges; ++range) turns->ranges[range].next = 0;
        turns->finished = 0;
    }
    return units;
}

/// Elements from one to the next along an axis; 0 where one serves the whole axis of a result.
static inline int64_t step(const struct ggml_tensor * t, int axis) { return t->ne[axis] == 1 ? 0 : (int64_t) (t->nb[axis] / sizeof(float)); }

/// Elements from one to the next over all axes before one, which lie one after the other; 0 where one serves them all.
static inline int64_t step_before(const struct ggml_tensor * t, int axis) {
    int64_t count = 1;
    for (int i = 0; i < axis; ++i) count *= t->ne[i];
    return count > 1;
}

/// Adds `count` elements, `step` apart, 0 or 1.
static inline void add_row(const float * from, int64_t step, int64_t count, float * to) {
    const float one = *from;
    if (step == 0) {
        for (int64_t j = 0; j < count; ++j) to[j] += one;
    } else {
        for (int64_t j = 0; j < count; ++j) to[j] += from[j];
    }
}

/// True if rows of float32 lie anywhere, their elements one after the other.
static inline bool is_float_rows(const struct ggml_tensor * t) {
    return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float) && t->nb[1] % sizeof(float) == 0;
}
