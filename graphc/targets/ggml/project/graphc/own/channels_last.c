// Images whose channels lie one after the other: vectors are of channels, and so are full however small the image is.

#include "channels_last.h"

#include "activate.h"
#include "blocks.h"
#include "tiles.h"

enum {
    MOST_OF_RUN = 6,              // pixels that are computed together
    WIDEST_KNOWN = 7,             // of a kernel whose width is known here
    MOST_VECTORS = 4,             // vectors of channels of a unit
    MOST_OF_KERNEL = 128,         // elements of a channel's kernel
    MOST_AT_ONCE = 1 << 16,       // elements of the image that the lines of a unit read, if they are several
    EXPANDED = 1 << 16,           // elements of a wide image that are made at once
    LEAST_EXPANDED = 4,           // lines of it that a line of the result's needs not alone
};

/// Pixels beside one another, and what they read: `step` elements from a pixel of the image to the next, and `below` from one row of the kernel to
/// the next. The last of the vectors of channels begins at `last`, for it may share channels with the one before. The first pixel that is
/// read is the one at `from`; those before `inside` and from `outside` on are beside the image.
struct pixels {
    const float * from, * kernel, * first;
    int64_t step, below, line;
    int rows, vectors, inside, outside;
    int64_t last;
    float * to;
    int64_t down;
    struct simple_activation simple;
};

/// So many vectors of sums as they become the result, of channels from one on.
static inline __attribute__((always_inline)) void end_run(int count, const vector * sums, int64_t channel, const struct pixels * p) {
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
        *(unaligned *) (p->to + i * p->down + channel) = simply_activated(p->simple, sums[i]);
    }
}

/// Some pixels, all channels of a vector after those before: what a row of the kernel meets is read once for all of them. All but the pixels are
/// constants where this is called; with `edge`, some of what is read is beside the image.
static inline __attribute__((always_inline)) void run_of(int count, int columns, int stride, bool edge, const struct pixels * p) {
    static const float nothing[WIDTH];
    for (int v = 0; v < p->vectors; ++v) {
        const int64_t channel = v + 1 < p->vectors ? v * WIDTH : p->last;
        vector sums[MOST_OF_RUN], weights[WIDEST_KNOWN];
#pragma GCC unroll 8
        for (int i = 0; i < count; ++i) sums[i] = p->first == NULL ? all(0) : *(const unaligned *) (p->first + channel);
        for (int y = 0; y < p->rows; ++y) {
            const float * from = p->from + y * p->below + channel, * kernel = p->kernel + y * p->line + v * WIDTH;
#pragma GCC unroll 8
            for (int x = 0; x < columns; ++x) weights[x] = *(const vector *) (kernel + x * MOST_VECTORS * WIDTH);
#pragma GCC unroll 32
            for (int pixel = 0; pixel < (count - 1) * stride + columns; ++pixel, from += p->step) {
                const float * at = edge && (pixel < p->inside || pixel >= p->outside) ? nothing : from;
                const vector met = *(const unaligned *) at;
#pragma GCC unroll 8
                for (int x = 0; x < columns; ++x) {
                    const int i = (pixel - x) / stride;
                    if (pixel >= x && i < count && i * stride == pixel - x) sums[i] = multiply_add(sums[i], weights[x], met);
                }
            }
        }
        end_run(count, sums, channel, p);
    }
}

/// The same of a kernel of any width, of whose columns some are met, `right` elements from one to the next; the pixels read what is `apart`.
static inline __attribute__((always_inline)) void any_of(int count, const struct pixels * p, int columns, int64_t right, int64_t apart) {
    for (int v = 0; v < p->vectors; ++v) {
        const int64_t channel = v + 1 < p->vectors ? v * WIDTH : p->last;
        vector sums[MOST_OF_RUN];
#pragma GCC unroll 8
        for (int i = 0; i < count; ++i) sums[i] = p->first == NULL ? all(0) : *(const unaligned *) (p->first + channel);
        for (int y = 0; y < p->rows; ++y) {
            const float * from = p->from + y * p->below + channel, * kernel = p->kernel + y * p->line + v * WIDTH;
            for (int x = 0; x < columns; ++x, from += right, kernel += MOST_VECTORS * WIDTH) {
                const vector weight = *(const vector *) kernel;
#pragma GCC unroll 8
                for (int i = 0; i < count; ++i) sums[i] = multiply_add(sums[i], weight, *(const unaligned *) (from + i * apart));
            }
        }
        end_run(count, sums, channel, p);
    }
}

static __attribute__((noinline)) void any_pixel(const struct pixels * p, int columns, int64_t right) { any_of(1, p, columns, right, 0); }

static __attribute__((noinline)) void any_pixels(const struct pixels * p, int columns, int64_t right, int64_t apart) {
    any_of(MOST_OF_RUN, p, columns, right, apart);
}

typedef void (*run_function)(const struct pixels *);

#define RUN(count, columns, stride) \
    static __attribute__((noinline)) void run_##count##_##columns##_##stride(const struct pixels * p) { run_of(count, columns, stride, false, p); } \
    static __attribute__((noinline)) void edge_##count##_##columns##_##stride(const struct pixels * p) { run_of(count, columns, stride, true, p); }
#define RUNS(columns, stride) \
    RUN(1, columns, stride) RUN(2, columns, stride) RUN(3, columns, stride) RUN(4, columns, stride) RUN(5, columns, stride) RUN(6, columns, stride)
#define ALL_RUNS(kind, columns, stride) \
    {NULL, kind##_1_##columns##_##stride, kind##_2_##columns##_##stride, kind##_3_##columns##_##stride, kind##_4_##columns##_##stride, \
     kind##_5_##columns##_##stride, kind##_6_##columns##_##stride}
#define RUNS_OF(columns) [columns] = {{ALL_RUNS(run, columns, 1), ALL_RUNS(edge, columns, 1)}, {ALL_RUNS(run, columns, 2), ALL_RUNS(edge, columns, 2)}}
RUNS(3, 1) RUNS(3, 2) RUNS(5, 1) RUNS(5, 2) RUNS(7, 1) RUNS(7, 2)

/// By the kernel's columns, the stride less 1, whether some of what is read is beside the image, and the number of pixels: there are none
/// for others.
static const run_function runs[WIDEST_KNOWN + 1][2][2][MOST_OF_RUN + 1] = {RUNS_OF(3), RUNS_OF(5), RUNS_OF(7)};

bool graphc_takes_conv_2d_dw_last(const struct ggml_tensor * kernel, const struct ggml_tensor * image) {
    const bool single = kernel->ne[2] == 1 && kernel->ne[3] == image->ne[0];
    return single && is_dense(kernel) && is_dense(image) && image->ne[0] >= WIDTH && kernel->ne[0] * kernel->ne[1] <= MOST_OF_KERNEL;
}

/// Kernels of `there` channels, and how they go over an image of `width` and `height`, of which lines are there from `top` on.
struct windows_of_channels {
    const struct graphc_conv_2d_settings * s;
    float packed[MOST_OF_KERNEL * MOST_VECTORS * WIDTH] __attribute__((aligned(64)));
    int64_t kw, kh, width, height, top, there;
    struct pixels pixels;
};

/// The kernels of `there` channels from `start` on, for an image whose pixels are `step` elements apart, and a result's.
static void pack_each(struct windows_of_channels * w, const struct graphc_conv_2d_settings * s, const struct ggml_tensor * kernel,
                      const struct ggml_tensor * bias, int64_t start, int64_t there, int64_t step, int64_t down) {
    const int64_t some = parts_of(there, WIDTH), places = kernel->ne[0] * kernel->ne[1];
    w->s = s, w->kw = kernel->ne[0], w->kh = kernel->ne[1], w->there = there;
    w->pixels = (struct pixels){.step = step, .below = s->d1 * w->width * step, .down = down, .vectors = (int) some};
    w->pixels.line = w->kw * MOST_VECTORS * WIDTH, w->pixels.last = there - WIDTH, w->pixels.simple = simple_of(&s->activation);
    w->pixels.first = bias == NULL ? NULL : (const float *) bias->data + start;
    float turned[MOST_OF_KERNEL * WIDTH] __attribute__((aligned(64)));
    for (int64_t v = 0; v < some; ++v) {
        const float * from = (const float *) kernel->data + (start + (v + 1 < some ? v * WIDTH : there - WIDTH)) * places;
        turn_rows(from, places, WIDTH, places, turned);
        for (int64_t t = 0; t < places; ++t) *(vector *) (w->packed + (t * MOST_VECTORS + v) * WIDTH) = *(const vector *) (turned + t * WIDTH);
    }
}

/// A line of the result, of an image whose lines from `top` on lie at `data`.
static void convolve_line(const struct windows_of_channels * w, int64_t y, const float * data, float * result) {
    const struct graphc_conv_2d_settings * s = w->s;
    const int64_t top = y * s->s1 - s->p1, upper = first_inside(top, s->d1, w->kh), lower = behind_inside(top, s->d1, w->kh, w->height);
    const bool known = s->d0 == 1 && s->s0 <= 2 && w->kw <= WIDEST_KNOWN && runs[w->kw][0][0][1] != NULL;
    const int64_t high = known ? even_split(s->width, MOST_OF_RUN) : MOST_OF_RUN, reach = (w->kw - 1) * s->d0;
    const float * line = data + (top + upper * s->d1 - w->top) * w->width * w->pixels.step;
    struct pixels p = w->pixels;
    p.rows = (int) (lower - upper);
    for (int64_t x = 0, count; x < s->width; x += count) {
        const int64_t left = x * s->s0 - s->p0;
        count = min_of(high, s->width - x);
        p.kernel = w->packed + upper * w->pixels.line, p.to = result + x * p.down, p.from = line + left * p.step;
        if (known) {
            const int64_t right = left + (count - 1) * s->s0 + w->kw;  // behind all that is read
            const bool edge = left < 0 || right > w->width;
            p.inside = (int) -left, p.outside = (int) min_of(w->width - left, INT32_MAX);
            runs[w->kw][s->s0 - 1][edge][count](&p);
        } else if (count == MOST_OF_RUN && left >= 0 && left + (count - 1) * s->s0 + reach < w->width) {
            any_pixels(&p, (int) w->kw, s->d0 * p.step, s->s0 * p.step);
        } else {
            count = 1;
            const int64_t first = first_inside(left, s->d0, w->kw), behind = behind_inside(left, s->d0, w->kw, w->width);
            p.kernel += first * MOST_VECTORS * WIDTH, p.from += first * s->d0 * p.step;
            any_pixel(&p, (int) (behind - first), s->d0 * p.step);
        }
        if (is_simple(&s->activation)) continue;
        for (int64_t i = 0; i < count; ++i) activate(&s->activation, p.to + i * p.down, NULL, w->there, p.to + i * p.down);
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
