// Images whose channels lie one after the other: vectors are of channels, and so are full however small the image is.

#include "channels_last.h"

#include "activate.h"
#include "blocks.h"
#include "tiles.h"

enum {
    SIDE = WIDTH == 16 ? 4 : 2,  // pixels that are computed together
    MOST_VECTORS = 4,             // vectors of channels that are
    MOST_OF_GROUP = WIDTH / 2,    // channels
    MOST_OF_KERNEL = 128,         // elements of a channel's kernel
    MOST_AT_ONCE = 1 << 16,       // elements of the image that the lines of a unit read, if they are several
    EXPANDED = 1 << 16,           // elements of a wide image that are made at once
    LEAST_EXPANDED = 4,           // lines of it that a line of the result's needs not alone
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

/// Of each group of `each` lanes, the one of this number in all of them. Both are constants where this is called.
#define OF_GROUP(lane, each, number) (lane) / (each) * (each) + (number)
#if defined(__AVX512F__)
#define OF_GROUPS(x, each, n) INTERLEAVE(x, x, OF_GROUP(0, each, n), OF_GROUP(1, each, n), OF_GROUP(2, each, n), OF_GROUP(3, each, n), OF_GROUP(4, each, n), \
    OF_GROUP(5, each, n), OF_GROUP(6, each, n), OF_GROUP(7, each, n), OF_GROUP(8, each, n), OF_GROUP(9, each, n), OF_GROUP(10, each, n), \
    OF_GROUP(11, each, n), OF_GROUP(12, each, n), OF_GROUP(13, each, n), OF_GROUP(14, each, n), OF_GROUP(15, each, n))
#elif defined(__AVX__)
#define OF_GROUPS(x, each, n) INTERLEAVE(x, x, OF_GROUP(0, each, n), OF_GROUP(1, each, n), OF_GROUP(2, each, n), OF_GROUP(3, each, n), OF_GROUP(4, each, n), \
    OF_GROUP(5, each, n), OF_GROUP(6, each, n), OF_GROUP(7, each, n))
#else
#define OF_GROUPS(x, each, n) INTERLEAVE(x, x, OF_GROUP(0, each, n), OF_GROUP(1, each, n), OF_GROUP(2, each, n), OF_GROUP(3, each, n))
#endif
#define GROUPS_CASE(each, n) case 8 * (each) + (n): return OF_GROUPS(x, each, n);
static inline __attribute__((always_inline)) vector of_groups(vector x, int each, int number) {
    switch (8 * each + number) {
        GROUPS_CASE(2, 0) GROUPS_CASE(2, 1)
#if defined(__AVX__)
        GROUPS_CASE(4, 0) GROUPS_CASE(4, 1) GROUPS_CASE(4, 2) GROUPS_CASE(4, 3)
#endif
#if defined(__AVX512F__)
        GROUPS_CASE(8, 0) GROUPS_CASE(8, 1) GROUPS_CASE(8, 2) GROUPS_CASE(8, 3)
        GROUPS_CASE(8, 4) GROUPS_CASE(8, 5) GROUPS_CASE(8, 6) GROUPS_CASE(8, 7)
#endif
        default: return x;
    }
}

/// The sums of so many pixels and vectors of channels, in groups of `each`: all are constants where this is called.
static inline __attribute__((always_inline)) void window(int count, int vectors, int each, const struct pixels * p) {
    vector sums[SIDE][MOST_VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
        const vector first = p->first == NULL ? all(0) : *(const unaligned *) (p->first + (v + 1 < vectors ? v * WIDTH : p->last));
#pragma GCC unroll 4
        for (int i = 0; i < count; ++i) sums[i][v] = first;
    }
    for (int y = 0; y < p->rows; ++y) {
        const float * from = p->from + y * p->below, * kernel = p->kernel + y * p->line;
        for (int x = 0; x < p->columns; ++x, from += p->right, kernel += each * MOST_VECTORS * WIDTH) {
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) {
                const float * at = from + (v + 1 < vectors ? v * WIDTH : p->last);
#pragma GCC unroll 8
                for (int n = 0; n < each; ++n) {
                    const vector weight = *(const vector *) (kernel + (n * MOST_VECTORS + v) * WIDTH);
#pragma GCC unroll 4
                    for (int i = 0; i < count; ++i) sums[i][v] += weight * of_groups(*(const unaligned *) (at + i * p->across), each, n);
                }
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

#define WINDOW(vectors, each) \
    static __attribute__((noinline)) void window_of_one_##vectors##_##each(const struct pixels * p) { window(1, vectors, each, p); } \
    static __attribute__((noinline)) void window_of_some_##vectors##_##each(const struct pixels * p) { window(SIDE, vectors, each, p); }
#define WINDOWS(each) WINDOW(1, each) WINDOW(2, each) WINDOW(3, each) WINDOW(4, each)
#define ALL_WINDOWS(count, each) \
    {NULL, window_of_##count##_1_##each, window_of_##count##_2_##each, window_of_##count##_3_##each, window_of_##count##_4_##each}

typedef void (*window_function)(const struct pixels *);

/// Of one pixel, and of SIDE pixels, by the number of vectors.
struct window_functions {
    window_function of_one[MOST_VECTORS + 1], of_some[MOST_VECTORS + 1];
};

#define FUNCTIONS_OF(each) [each] = {ALL_WINDOWS(one, each), ALL_WINDOWS(some, each)}
WINDOWS(1) WINDOWS(2)
#if defined(__AVX__)
WINDOWS(4)
#endif
#if defined(__AVX512F__)
WINDOWS(8)
#endif

/// By the channels of a group: there are none for other numbers.
static const struct window_functions windows_of_group[MOST_OF_GROUP + 1] = {
    FUNCTIONS_OF(1), FUNCTIONS_OF(2),
#if defined(__AVX__)
    FUNCTIONS_OF(4),
#endif
#if defined(__AVX512F__)
    FUNCTIONS_OF(8),
#endif
};

bool graphc_takes_conv_2d_dw_last(const struct ggml_tensor * kernel, const struct ggml_tensor * image) {
    const int64_t each = kernel->ne[2];
    const bool known = each <= MOST_OF_GROUP && windows_of_group[each].of_one[1] != NULL && kernel->ne[3] == image->ne[0];
    return known && is_dense(kernel) && is_dense(image) && image->ne[0] >= WIDTH && kernel->ne[0] * kernel->ne[1] * each <= MOST_OF_KERNEL;
}

/// Kernels of `there` channels, in groups of `each`, and how they go over an image of `width` and `height`, of which lines are there from
/// `top` on. Pixels of a result's line from `begin` to `end` meet all columns of the kernel.
struct windows_of_channels {
    const struct graphc_conv_2d_settings * s;
    float packed[MOST_OF_KERNEL * MOST_VECTORS * WIDTH] __attribute__((aligned(64)));
    int64_t kw, kh, each, width, height, top, begin, end, there;
    struct pixels pixels;
};

/// The kernels of `there` channels from `start` on, for an image whose pixels are `step` elements apart, and a result's.
static void pack_each(struct windows_of_channels * w, const struct graphc_conv_2d_settings * s, const struct ggml_tensor * kernel,
                      const struct ggml_tensor * bias, int64_t start, int64_t there, int64_t step, int64_t down) {
    const int64_t some = parts_of(there, WIDTH), places = kernel->ne[0] * kernel->ne[1], each = kernel->ne[2], size = places * each;
    const int64_t within = w->width - 1 + s->p0 - (kernel->ne[0] - 1) * s->d0;
    w->s = s, w->kw = kernel->ne[0], w->kh = kernel->ne[1], w->each = each, w->there = there;
    w->begin = min_of(parts_of(s->p0, s->s0), s->width), w->end = within < 0 ? 0 : min_of(within / s->s0 + 1, s->width);
    w->pixels = (struct pixels){.across = s->s0 * step, .below = s->d1 * w->width * step, .right = s->d0 * step, .down = down};
    w->pixels.line = w->kw * each * MOST_VECTORS * WIDTH, w->pixels.last = there - WIDTH, w->pixels.bounds = bounds_of(&s->activation);
    w->pixels.first = bias == NULL ? NULL : (const float *) bias->data + start;
    for (int64_t v = 0; v < some; ++v) {
        const float * from = (const float *) kernel->data + (start + (v + 1 < some ? v * WIDTH : there - WIDTH)) * size;
        for (int64_t t = 0; t < size; ++t) {  // [places][each]
            for (int i = 0; i < WIDTH; ++i) w->packed[(t * MOST_VECTORS + v) * WIDTH + i] = from[i * size + t % each * places + t / each];
        }
    }
}

/// A line of the result, of an image whose lines from `top` on lie at `data`.
static void convolve_line(const struct windows_of_channels * w, int64_t y, const float * data, float * result) {
    const struct graphc_conv_2d_settings * s = w->s;
    const int64_t top = y * s->s1 - s->p1, upper = first_inside(top, s->d1, w->kh);
    const int64_t lower = behind_inside(top, s->d1, w->kh, w->height), vectors = parts_of(w->there, WIDTH), step = w->pixels.right / s->d0;
    const struct window_functions * functions = &windows_of_group[w->each];
    struct pixels p = w->pixels;
    p.rows = (int) (lower - upper);
    for (int64_t x = 0, run; x < s->width; x += run) {
        const bool inside = x >= w->begin && x + SIDE <= w->end;
        const int64_t left = x * s->s0 - s->p0, first = first_inside(left, s->d0, w->kw);
        const int64_t behind = behind_inside(left, s->d0, w->kw, w->width);
        run = inside ? SIDE : 1;
        p.columns = (int) (behind - first);
        p.from = data + ((top + upper * s->d1 - w->top) * w->width + left + first * s->d0) * step;
        p.kernel = w->packed + (upper * w->kw + first) * w->each * MOST_VECTORS * WIDTH;
        p.to = result + x * p.down;
        (inside ? functions->of_some : functions->of_one)[vectors](&p);
        if (p.bounds.kept || s->activation.function == GRAPHC_NO_ACTIVATION) continue;
        for (int64_t i = 0; i < run; ++i) activate(&s->activation, p.to + i * p.down, NULL, w->there, p.to + i * p.down);
    }
}

void graphc_conv_2d_dw_last(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_conv_2d_settings * s = userdata;
    const struct ggml_tensor * kernel = dst->src[0], * image = dst->src[1], * bias = dst->src[2];
    const int64_t channels = dst->ne[0], width = dst->ne[1], height = dst->ne[2];
    const int64_t vectors = parts_of(channels, WIDTH), ranges = parts_of(vectors, MOST_VECTORS);
    const int64_t each = image->ne[1] * channels * s->s1;  // elements that a line reads which others do not
    const int64_t most = each < MOST_AT_ONCE ? MOST_AT_ONCE / each : 1;
    const int64_t lines = min_of(even_split(height, most), parts_of(height, parts_of(4 * nth, ranges * dst->ne[3])));
    const int64_t bands = parts_of(height, lines), units = dst->ne[3] * bands * ranges;
    const bool tall = image->ne[1] * image->ne[2] > channels;  // a thread meets what it made itself, as a product is cut
    struct windows_of_channels w;
    w.width = image->ne[1], w.height = image->ne[2], w.top = 0;
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        const int64_t batch = unit / ranges / bands, range = tall ? unit % ranges : unit / bands % ranges;
        const int64_t band = tall ? unit / ranges % bands : unit % bands;
        const int64_t start = vectors * range / ranges * WIDTH, there = min_of(vectors * (range + 1) / ranges * WIDTH, channels) - start;
        const float * data = (const float *) image->data + batch * image->ne[2] * image->ne[1] * channels + start;
        pack_each(&w, s, kernel, bias, start, there, channels, channels);
        for (int64_t y = band * lines; y < min_of((band + 1) * lines, height); ++y) {
            convolve_line(&w, y, data, (float *) dst->data + (batch * height + y) * width * channels + start);
        }
    }
}

/// Columns of a unit's part of the wide image: as many as let enough of its lines stay in the cache; 0 if none do.
static int64_t expanded_vectors(const struct ggml_tensor * kernel, int64_t width, int64_t dilation) {
    for (int64_t vectors = MOST_VECTORS; vectors > 0; --vectors) {
        if (width * ((kernel->ne[1] - 1) * dilation + LEAST_EXPANDED) * vectors * WIDTH <= EXPANDED) return vectors;
    }
    return 0;
}

bool graphc_takes_expanded_conv_2d(const struct ggml_tensor * weight, const struct ggml_tensor * image,
                                   const struct ggml_tensor * kernel, const struct graphc_conv_2d_settings * s) {
    const bool dense = is_dense(kernel) && is_dense(image) && is_dense(weight), each = kernel->ne[2] == 1 && kernel->ne[3] >= WIDTH;
    const bool small = image->ne[0] <= DEPTH && kernel->ne[0] * kernel->ne[1] <= MOST_OF_KERNEL;
    const bool worth = 5 * image->ne[1] * image->ne[2] >= 12 * image->ne[0];  // measured: the weight is packed for each image
    return dense && each && small && worth && expanded_vectors(kernel, image->ne[1], s->d1) > 0;
}

/// Some channels of lines of a wide image, from `top` to `end`: those of the image from which a product makes them are at `image`.
struct expanded {
    struct block product;
    const float * image;
    int64_t pixels, depth, channels, top, end;
    float lines[EXPANDED] __attribute__((aligned(64)));
};

/// Has the lines from `upper` to `lower` be there, where some are not, and as many after them as there is room for, up to `last`. Those
/// before `upper` are no longer needed.
static void expand(struct expanded * e, int64_t upper, int64_t lower, int64_t last) {
    const int64_t line = e->pixels * e->channels;
    if (lower <= e->end) return;
    if (upper > e->top) {
        const int64_t kept = upper < e->end ? e->end - upper : 0;
        memmove(e->lines, e->lines + (upper - e->top) * line, kept * line * sizeof *e->lines);
        e->top = upper, e->end = upper + kept;
    }
    const int64_t next = min_of(e->top + EXPANDED / line, last);
    e->product.c = e->lines + (e->end - e->top) * line, e->product.rows = (next - e->end) * e->pixels;
    e->product.a.data = (const char *) (e->image + e->end * e->pixels * e->depth);
    multiply(&e->product);
    e->end = next;
}

void graphc_expanded_conv_2d(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_expanded_conv_2d_settings * settings = userdata;
    struct graphc_conv_2d_settings * s = &settings->convolution;
    const struct ggml_tensor * weight = dst->src[0], * image = dst->src[1], * kernel = dst->src[2];
    const struct ggml_tensor * bias = dst->src[3 + settings->added];
    const int64_t channels = dst->ne[0], width = dst->ne[1], height = dst->ne[2], images = dst->ne[3], lines = image->ne[2];
    const int64_t vectors = parts_of(channels, WIDTH), fewest = parts_of(vectors, expanded_vectors(kernel, image->ne[1], s->d1));
    const int64_t even = parts_of(fewest, nth) * nth;  // as many for each thread
    const int64_t ranges = images % nth != 0 && even * 4 <= fewest * 5 && even <= vectors ? even : fewest;
    int64_t bands = parts_of(2 * nth, ranges * images);
    for (const int64_t most = 2 * bands; bands < most && ranges * bands * images % nth != 0;) ++bands;
    const int64_t high = parts_of(height, bands), down = parts_of(height, high), units = ranges * down * images;
    const struct ggml_tensor wide = {.ne = {channels, image->ne[1], 1, 1}, .src = {NULL, NULL, settings->added ? dst->src[3] : NULL}};
    float packed[MOST_VECTORS * WIDTH * DEPTH] __attribute__((aligned(64)));
    struct windows_of_channels w;
    w.width = image->ne[1], w.height = lines;
    struct expanded e;
    e.pixels = image->ne[1], e.depth = image->ne[0];
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        const int64_t range = unit % ranges, batch = unit / ranges / down, first = unit / ranges % down * high;
        const int64_t start = vectors * range / ranges * WIDTH, behind = min_of(first + high, height);
        const int64_t step = weight->nb[1], last = min_of((behind - 1) * s->s1 - s->p1 + (kernel->ne[1] - 1) * s->d1 + 1, lines);
        const struct matrix columns = {.data = (const char *) weight->data + start * step, .step = step, .type = GGML_TYPE_F32};
        e.channels = min_of(vectors * (range + 1) / ranges * WIDTH, channels) - start;
        e.image = (const float *) image->data + batch * lines * e.pixels * e.depth;
        e.product = (struct block){.dst = &wide, .at = {{start, 0, 0, 0}}, .axis = 1, .packed = packed, .deep = DEPTH, .first = true, .last = true};
        e.product.a = (struct matrix){.step = e.depth * (int64_t) sizeof(float), .type = GGML_TYPE_F32};
        e.product.depth = (int) e.depth, e.product.columns = e.product.ldc = e.channels, e.product.activation = &settings->activation;
        pack_rows(&columns, 0, e.channels, 0, (int) e.depth, false, packed);
        pack_each(&w, s, kernel, bias, start, e.channels, e.channels, channels);
        for (int64_t y = first; y < behind; ++y) {
            const int64_t top = y * s->s1 - s->p1, upper = top < 0 ? 0 : min_of(top, lines);
            if (y == first) e.top = e.end = upper;
            expand(&e, upper, min_of(top + (w.kh - 1) * s->d1 + 1, lines), last);
            w.top = e.top;
            convolve_line(&w, y, e.lines, (float *) dst->data + (batch * height + y) * width * channels + start);
        }
    }
}
