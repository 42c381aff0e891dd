// Images whose channels lie one after the other: vectors are of channels, and so are full however small the image is.

#include "channels_last.h"

#include "activate.h"
#include "tiles.h"

enum {
    SIDE = WIDTH == 16 ? 4 : 2,  // pixels that are computed together
    MOST_VECTORS = 4,             // vectors of channels that are
    MOST_OF_KERNEL = 128,         // elements of a channel's kernel
    MOST_AT_ONCE = 1 << 16,       // elements of the image that the lines of a unit read, if they are several
    PARTIAL = 32,                 // rows of a partial sum
};

/// Pixels beside one another, and what they read: `across` elements from one to the next, and `below` and `right` from one element of the
/// kernel to the next. The last vector of channels begins at `last`, for it may share channels with the one before.
struct pixels {
    const float * from, * kernel, * first;
    int64_t across, below, right, line;
    int rows, columns;
    int64_t last;
    float * to;
    int64_t down;
    struct bounds bounds;
};

/// The sums of so many pixels and vectors of channels: both are constants where this is called.
static inline __attribute__((always_inline)) void window(int count, int vectors, const struct pixels * p) {
    vector sums[SIDE][MOST_VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
        const vector first = p->first == NULL ? all(0) : *(const unaligned *) (p->first + (v + 1 < vectors ? v * WIDTH : p->last));
#pragma GCC unroll 4
        for (int i = 0; i < count; ++i) sums[i][v] = first;
    }
    for (int y = 0; y < p->rows; ++y) {
        const float * from = p->from + y * p->below, * kernel = p->kernel + y * p->line;
        for (int x = 0; x < p->columns; ++x, from += p->right, kernel += MOST_VECTORS * WIDTH) {
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) {
                const vector weight = *(const vector *) (kernel + v * WIDTH);
                const float * at = from + (v + 1 < vectors ? v * WIDTH : p->last);
#pragma GCC unroll 4
                for (int i = 0; i < count; ++i) sums[i][v] += weight * *(const unaligned *) (at + i * p->across);
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < count; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
            float * to = p->to + i * p->down + (v + 1 < vectors ? v * WIDTH : p->last);
            *(unaligned *) to = p->bounds.kept ? between(sums[i][v], p->bounds.low, p->bounds.high) : sums[i][v];
        }
    }
}

#define WINDOW(vectors) \
    static __attribute__((noinline)) void window_of_one_##vectors(const struct pixels * p) { window(1, vectors, p); } \
    static __attribute__((noinline)) void window_of_some_##vectors(const struct pixels * p) { window(SIDE, vectors, p); }
WINDOW(1) WINDOW(2) WINDOW(3) WINDOW(4)

typedef void (*window_function)(const struct pixels *);

/// By the number of vectors: of one pixel, and of SIDE pixels.
static const window_function windows_of_one[MOST_VECTORS + 1] = {NULL, window_of_one_1, window_of_one_2, window_of_one_3, window_of_one_4};
static const window_function windows_of_some[MOST_VECTORS + 1] = {NULL, window_of_some_1, window_of_some_2, window_of_some_3, window_of_some_4};

bool graphc_takes_conv_2d_dw_last(const struct ggml_tensor * kernel, const struct ggml_tensor * image) {
    return is_dense(kernel) && is_dense(image) && image->ne[0] >= WIDTH && kernel->ne[0] * kernel->ne[1] <= MOST_OF_KERNEL;
}

/// The first place of a kernel, its elements `dilation` apart, that meets an axis of so many elements if it begins at `from`; or the first
/// behind those that do.
static inline int64_t first_place(int64_t from, int64_t dilation, int64_t places) {
    return from < 0 ? min_of(parts_of(-from, dilation), places) : 0;
}

static inline int64_t behind_places(int64_t from, int64_t dilation, int64_t places, int64_t size) {
    return from < size ? min_of(parts_of(size - from, dilation), places) : 0;
}

void graphc_conv_2d_dw_last(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_conv_2d_settings * s = userdata;
    const struct ggml_tensor * kernel = dst->src[0], * image = dst->src[1], * bias = dst->src[2];
    const int64_t channels = dst->ne[0], width = dst->ne[1], height = dst->ne[2], kw = kernel->ne[0], kh = kernel->ne[1];
    const int64_t vectors = parts_of(channels, WIDTH), ranges = parts_of(vectors, MOST_VECTORS);
    const int64_t each = image->ne[1] * channels * s->s1;  // elements that a line reads which others do not
    const int64_t most = each < MOST_AT_ONCE ? MOST_AT_ONCE / each : 1;
    const int64_t lines = min_of(even_split(height, most), parts_of(height, parts_of(4 * nth, ranges * dst->ne[3])));
    const int64_t bands = parts_of(height, lines), units = dst->ne[3] * bands * ranges;
    const bool tall = image->ne[1] * image->ne[2] > channels;  // a thread meets what it made itself, as a product is cut
    const int64_t within = image->ne[1] - 1 + s->p0 - (kw - 1) * s->d0;  // pixels between these two meet all columns of the kernel
    const int64_t begin = min_of(parts_of(s->p0, s->s0), width), end = within < 0 ? 0 : min_of(within / s->s0 + 1, width);
    float packed[MOST_OF_KERNEL * MOST_VECTORS * WIDTH] __attribute__((aligned(64)));
    struct pixels p = {.across = s->s0 * channels, .below = s->d1 * image->ne[1] * channels, .right = s->d0 * channels, .down = channels};
    p.line = kw * MOST_VECTORS * WIDTH;
    p.bounds = bounds_of(&s->activation);
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        const int64_t batch = unit / ranges / bands, range = tall ? unit % ranges : unit / bands % ranges;
        const int64_t band = tall ? unit / ranges % bands : unit % bands;
        const int64_t start = vectors * range / ranges * WIDTH, there = min_of(vectors * (range + 1) / ranges * WIDTH, channels) - start;
        const int64_t some = parts_of(there, WIDTH);
        p.last = there - WIDTH;
        p.first = bias == NULL ? NULL : (const float *) bias->data + start;
        for (int64_t v = 0; v < some; ++v) {
            const float * from = (const float *) kernel->data + (start + (v + 1 < some ? v * WIDTH : p.last)) * kw * kh;
            for (int64_t t = 0; t < kw * kh; ++t) {
                for (int i = 0; i < WIDTH; ++i) packed[(t * MOST_VECTORS + v) * WIDTH + i] = from[i * kw * kh + t];
            }
        }
        const float * data = (const float *) image->data + batch * image->ne[2] * image->ne[1] * channels + start;
        for (int64_t y = band * lines; y < min_of((band + 1) * lines, height); ++y) {
            const int64_t top = y * s->s1 - s->p1, upper = first_place(top, s->d1, kh), lower = behind_places(top, s->d1, kh, image->ne[2]);
            float * result = (float *) dst->data + (batch * height + y) * width * channels + start;
            p.rows = (int) (lower - upper);
            for (int64_t x = 0, run; x < width; x += run) {
                const bool inside = x >= begin && x + SIDE <= end;
                const int64_t left = x * s->s0 - s->p0, first = first_place(left, s->d0, kw), behind = behind_places(left, s->d0, kw, image->ne[1]);
                run = inside ? SIDE : 1;
                p.columns = (int) (behind - first);
                p.from = data + ((top + upper * s->d1) * image->ne[1] + left + first * s->d0) * channels;
                p.kernel = packed + (upper * kw + first) * MOST_VECTORS * WIDTH;
                p.to = result + x * channels;
                (inside ? windows_of_some : windows_of_one)[some](&p);
                if (p.bounds.kept || s->activation.function == GRAPHC_NO_ACTIVATION) continue;
                for (int64_t i = 0; i < run; ++i) activate(&s->activation, p.to + i * channels, NULL, there, p.to + i * channels);
            }
        }
    }
}

bool graphc_takes_mean_over_rows(const struct ggml_tensor * x) { return is_dense(x); }

/// The mean of `count` elements, `step` apart, of as many columns beside one another as a vector has: of partial sums of what follows one
/// another. And of one column.
static inline vector mean_of_columns(const float * x, int64_t step, int64_t count) {
    vector sum = all(0);
    for (int64_t i = 0; i < count;) {
        vector part = all(0);
        for (const int64_t stop = min_of(i + PARTIAL, count); i < stop; ++i) part += *(const unaligned *) (x + i * step);
        sum += part;
    }
    return sum / (float) count;
}

static inline float mean_of_column(const float * x, int64_t step, int64_t count) {
    float sum = 0;
    for (int64_t i = 0; i < count;) {
        float part = 0;
        for (const int64_t stop = min_of(i + PARTIAL, count); i < stop; ++i) part += x[i * step];
        sum += part;
    }
    return sum / (float) count;
}

void graphc_mean_over_rows(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    (void) userdata;
    const struct ggml_tensor * x = dst->src[0];
    const int64_t columns = x->ne[0], rows = x->ne[1], across = parts_of(columns, WIDTH), units = across * x->ne[2] * x->ne[3];
    for (int64_t unit = units * ith / nth; unit < units * (ith + 1) / nth; ++unit) {
        const int64_t batch = unit / across, column = unit % across * WIDTH;
        const float * from = (const float *) x->data + batch * rows * columns + column;
        float * to = (float *) dst->data + batch * columns + column;
        if (column + WIDTH <= columns) {
            *(unaligned *) to = mean_of_columns(from, columns, rows);
            continue;
        }
        for (int64_t i = 0; i < columns - column; ++i) to[i] = mean_of_column(from + i, columns, rows);
    }
}
