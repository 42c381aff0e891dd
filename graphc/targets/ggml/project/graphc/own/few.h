#pragma once

// Convolutions of planes with few results, as the last of a network that makes colours, depths or masks, or with large kernels. What is packed for
// tiles would meet so few rows that packing is most of the work: here some vectors of a line's pixels are multiplied where they lie, for a few
// results at a time.

#include "blocks.h"
#include "convolution.h"

enum {
    MOST_VECTORS_OF_FEW = 8,
    LINES_OF_FEW = 8,               // of a unit, at most
    ROOM_OF_WINDOWS = MOST_LINES_OF_FEW * (MOST_REACH_OF_FEW + MOST_VECTORS_OF_FEW * WIDTH),  // elements
#if defined(__AVX512F__)
    SUMS_OF_FEW = 24                // vectors in registers
#else
    SUMS_OF_FEW = 12
#endif
};

/// Vectors of a line's pixels that are computed together.
static inline int vectors_of_few(int results) {
    const int most = SUMS_OF_FEW / results;
    return most < MOST_VECTORS_OF_FEW ? most / 2 * 2 : MOST_VECTORS_OF_FEW;
}

/// What some channels of an image, or of windows that were copied, and of the kernel add to a result: `line` elements from one line that is
/// met to the next, and `channel` from a channel's first one to the next one's; of each the kernel meets `kw` pixels, `apart`, of `lines`. The
/// kernel's elements for a channel are `each` apart, those for a result `deep`.
struct few_terms {
    const float * from, * kernel;
    int64_t line, channel, apart, kw, lines, channels, each, deep;
};

/// Adds a line's sums, as tiles: [pairs of vectors][results][VECTORS], or [results][1]. Both numbers are constants where this is called.
static inline __attribute__((always_inline)) void add_few(int results, int vectors, const struct few_terms * t, float * sums) {
    const int wide = vectors < VECTORS ? vectors : VECTORS;  // a tile
    vector found[MOST_RESULTS][MOST_VECTORS_OF_FEW];
#pragma GCC unroll 4
    for (int i = 0; i < results; ++i) {
#pragma GCC unroll 8
        for (int j = 0; j < vectors; ++j) found[i][j] = all(0);
    }
    for (int64_t c = 0; c < t->channels; ++c) {
        for (int64_t y = 0; y < t->lines; ++y) {
            const float * pixels = t->from + c * t->channel + y * t->line, * factors = t->kernel + c * t->each + y * t->kw;
            for (int64_t x = 0; x < t->kw; ++x, pixels += t->apart, ++factors) {
                vector factor[MOST_RESULTS];
#pragma GCC unroll 4
                for (int i = 0; i < results; ++i) factor[i] = all(factors[i * t->deep]);
#pragma GCC unroll 8
                for (int j = 0; j < vectors; ++j) {
                    const vector met = *(const unaligned *) (pixels + j * WIDTH);
#pragma GCC unroll 4
                    for (int i = 0; i < results; ++i) found[i][j] = multiply_add(found[i][j], met, factor[i]);
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < results; ++i) {
#pragma GCC unroll 8
        for (int j = 0; j < vectors; ++j) *(vector *) (sums + ((j / wide * results + i) * wide + j % wide) * WIDTH) += found[i][j];
    }
}

typedef void (*few_function)(const struct few_terms *, float *);

#define FEW(results, vectors) \
    static __attribute__((noinline)) void few_##results##_##vectors(const struct few_terms * t, float * sums) { add_few(results, vectors, t, sums); }
#define ALL_FEW(results) FEW(results, 1) FEW(results, 2) FEW(results, 4) FEW(results, 6) FEW(results, 8)
ALL_FEW(1) ALL_FEW(2) ALL_FEW(3) ALL_FEW(4)
#define FEW_OF(results) {[1] = few_##results##_1, [2] = few_##results##_2, [4] = few_##results##_4, [6] = few_##results##_6, [8] = few_##results##_8}

/// By the numbers of results and of vectors.
static const few_function few_functions[MOST_RESULTS + 1][MOST_VECTORS_OF_FEW + 1] = {[1] = FEW_OF(1), [2] = FEW_OF(2), [3] = FEW_OF(3), [4] = FEW_OF(4)};

/// Windows of some pixels from `left` on, as lines with zeros where there is no image: `span` pixels of each line that is met.
static void copy_few_windows(const struct few_terms * t, const float * image, int64_t left, int64_t span, int64_t width, int64_t line, float * to) {
    const int64_t begin = left < 0 ? min_of(-left, span) : 0, end = left + span > width ? width - left : span;
    for (int64_t i = 0; i < t->channels * t->lines; ++i, to += span) {
        const float * from = image + i / t->lines * t->channel + i % t->lines * line + left;
        for (int64_t x = 0; x < begin; ++x) to[x] = 0;
        if (end > begin) copy(from + begin, 1, end - begin, to + begin);
        for (int64_t x = end > begin ? end : begin; x < span; ++x) to[x] = 0;
    }
}

/// A line of the results, of which a block says where it is and what is done at its end.
static void add_line_of_few(struct block * line, const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s,
                            const float * planes, int64_t y) {
    float windows[ROOM_OF_WINDOWS] __attribute__((aligned(64))), sums[SUMS_OF_FEW * WIDTH] __attribute__((aligned(64)));
    const int64_t kw = kernel->ne[0], kh = kernel->ne[1], channels = kernel->ne[2], width = image->ne[0], plane = width * image->ne[1];
    const int64_t top = y * s->s1 - s->p1, upper = first_inside(top, s->d1, kh), lower = behind_inside(top, s->d1, kh, image->ne[1]);
    const int64_t lines = lower > upper ? lower - upper : 0, step = s->d1 * width, most = parts_of(DEPTH, kw * kh);  // channels of a partial sum
    const struct ends first = ends_of(line);
    struct ends ends = first;
    int vectors;
    for (int64_t x = 0; x < line->columns; x += vectors * WIDTH) {
        vectors = vectors_of_few((int) line->rows);
        while (vectors > 1 && x + vectors * WIDTH > line->columns) vectors -= vectors == 2 ? 1 : 2;
        x = min_of(x, line->columns - WIDTH);  // the last vector may begin in the one before
        const int64_t left = x - s->p0, span = (kw - 1) * s->d0 + vectors * WIDTH;
        const bool inside = left >= 0 && left + span <= width;
        const int64_t some = inside ? most : min_of(most, ROOM_OF_WINDOWS / (kh * span));
        memset(sums, 0, line->rows * vectors * WIDTH * sizeof(float));
        for (int64_t channel = 0; channel < channels && lines > 0; channel += some) {
            const float * from = planes + channel * plane + (top + upper * s->d1) * width;
            struct few_terms t = {.kw = kw, .lines = lines, .apart = s->d0, .channels = min_of(some, channels - channel), .channel = plane, .line = step};
            t.kernel = (const float *) kernel->data + ((line->at.axis[2] * channels + channel) * kh + upper) * kw, t.each = kw * kh, t.deep = channels * kw * kh;
            t.from = from + left;
            if (!inside) {
                copy_few_windows(&t, from, left, span, width, step, windows);
                t.from = windows, t.line = span, t.channel = lines * span;
            }
            few_functions[line->rows][vectors](&t, sums);
        }
        for (int j = 0; j < vectors; j += VECTORS) {
            move_ends(&ends, &first, 0, x + j * WIDTH);
            end_tile(sums + j * line->rows * WIDTH, (int) line->rows, (int) min_of(vectors, VECTORS), &ends, line->c + x + j * WIDTH, line->ldc);
        }
    }
    finish(line, 0, line->rows);
}

/// What `graphc_conv_2d` gives for such a convolution.
static void convolve_few(struct ggml_tensor * dst, int ith, int nth, struct graphc_conv_2d_settings * s) {
    const struct ggml_tensor * kernel = dst->src[0], * image = dst->src[1];
    const int64_t pixels = dst->ne[0] * dst->ne[1], lines = even_split(dst->ne[1], min_of(LINES_OF_FEW, parts_of(dst->ne[1], 4 * nth)));
    const int64_t results = kernel->ne[3], each = even_split(results, MOST_RESULTS), groups = parts_of(results, each);
    const int64_t down = parts_of(dst->ne[1], lines), units = groups * down * dst->ne[3];
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        const int64_t batch = unit / groups / down, start = unit / groups % down * lines, result = unit % groups * each;
        const float * planes = (const float *) ((const char *) image->data + batch * image->nb[3]);
        for (int64_t y = start; y < min_of(start + lines, dst->ne[1]); ++y) {
            struct block line = {.dst = dst, .at = {{y * dst->ne[0], 0, result, batch}}, .axis = 2, .ldc = pixels, .activation = &s->activation, .first = true, .last = true};
            line.c = (float *) ((char *) dst->data + batch * dst->nb[3]) + result * pixels + y * dst->ne[0];
            line.rows = min_of(each, results - result), line.columns = dst->ne[0];
            add_line_of_few(&line, kernel, image, s, planes, y);
        }
    }
}
