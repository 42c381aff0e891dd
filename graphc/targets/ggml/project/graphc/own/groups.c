// Convolutions in groups, of images whose channels lie one after the other. A tile of some pixels and a panel's channels is summed up in
// registers: a row of the panel meets, in the lanes of each group, one of the group's channels. Pixels whose windows reach over the image's
// edge in the same way are computed together, those along a side too.

#include "groups.h"

#include "activate.h"
#include "blocks.h"
#include "tiles.h"

enum {
    PIXELS = 6,                 // of a tile
    MOST_READ_LAST = 48 << 10,  // elements of an image that a unit reads, for they are read again for each panel
    FEW_LINES = 4,              // of a result, for which a unit has all channels if it may
    FEWEST_CHANNELS = 256,      // that lie together and are read so: memory is slower with fewer
    FEWEST_PIXELS = 8 * PIXELS, // of a line's piece
};

/// Where a vector's groups lie: all lanes of a panel are in one group, those of each vector are, or groups are narrower than a vector.
enum spread { ONE_GROUP, GROUP_OF_VECTOR, NARROW_GROUPS };

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

/// Pixels, and what they read: `across` elements from one to the next, and `below` and `right` from one place of the kernel to the next, of
/// which they meet some `rows` and `columns`; a row of places takes `line` elements of the panel. The second vector's group begins `apart`
/// elements behind the first one's, and the vector itself, in the result and in `first`, `beside`; if that is 0, the first one stays. Sums begin
/// with `first`, or, where that is not there, with what the result holds.
struct group_pixels {
    const float * from, * panel, * first;
    int64_t across, below, right, line, apart, beside;
    int rows, columns, channels;
    float * to;
    int64_t down;
    struct simple_activation simple;
};

/// Adds the products of a group's channel at all pixels, the first three of which are read at `at`, the others at `later`, and a row of a panel.
static inline __attribute__((always_inline)) void add_channel(int count, enum spread spread, int each, int number, const struct group_pixels * p,
                                                              const float * at, const float * later, const float * panel, vector sums[PIXELS][VECTORS]) {
    const vector first = *(const vector *) panel, second = *(const vector *) (panel + WIDTH);
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
        const float * pixel = (i < 3 ? at : later) + i % 3 * p->across;
        const vector met = spread == NARROW_GROUPS ? of_groups(*(const unaligned *) pixel, each, number) : all(pixel[number]);
        sums[i][0] = multiply_add(sums[i][0], met, first);
        if (spread == ONE_GROUP) sums[i][1] = multiply_add(sums[i][1], met, second);
        else if (spread == GROUP_OF_VECTOR) sums[i][1] = multiply_add(sums[i][1], all(pixel[number + p->apart]), second);
        else sums[i][1] = multiply_add(sums[i][1], of_groups(*(const unaligned *) (pixel + p->apart), each, number), second);
    }
}

/// The sums of so many pixels: the count, and how groups lie, are constants where this is called.
static inline __attribute__((always_inline)) void group_tile(int count, enum spread spread, int each, const struct group_pixels * p) {
    vector sums[PIXELS][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
        const float * begin = p->first != NULL ? p->first : p->to + i * p->down;
        sums[i][0] = *(const unaligned *) begin, sums[i][1] = *(const unaligned *) (begin + p->beside);
    }
    for (int y = 0; y < p->rows; ++y) {
        const float * place = p->from + y * p->below, * panel = p->panel + y * p->line;
        for (int x = 0; x < p->columns; ++x, place += p->right) {
            const float * at = place, * later = place + 3 * p->across;
            if (spread == NARROW_GROUPS) {
#pragma GCC unroll 8
                for (int n = 0; n < each; ++n) add_channel(count, spread, each, n, p, at, later, panel + n * PANEL, sums);
                panel += each * PANEL;
            } else {
#pragma GCC unroll 4
                for (int n = 0; n < p->channels; ++n, ++at, ++later, panel += PANEL) add_channel(count, spread, each, 0, p, at, later, panel, sums);
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
        for (int j = VECTORS - 1; j >= 0; --j) {
            *(unaligned *) (p->to + i * p->down + j * p->beside) = simply_activated(p->simple, sums[i][j]);
        }
    }
}

typedef void (*group_tile_function)(const struct group_pixels *);

#define GROUP_TILE(name, spread, each, count) \
    static __attribute__((noinline)) void name##_of_##count(const struct group_pixels * p) { group_tile(count, spread, each, p); }
#define GROUP_TILES(name, spread, each) \
    GROUP_TILE(name, spread, each, 1) GROUP_TILE(name, spread, each, 2) GROUP_TILE(name, spread, each, 3) \
    GROUP_TILE(name, spread, each, 4) GROUP_TILE(name, spread, each, 5) GROUP_TILE(name, spread, each, 6) \
    static const group_tile_function name##_tiles[PIXELS + 1] = {NULL, name##_of_1, name##_of_2, name##_of_3, name##_of_4, name##_of_5, name##_of_6};

GROUP_TILES(one_group, ONE_GROUP, 0)
GROUP_TILES(group_of_vector, GROUP_OF_VECTOR, 0)
GROUP_TILES(groups_of_2, NARROW_GROUPS, 2)
#if defined(__AVX__)
GROUP_TILES(groups_of_4, NARROW_GROUPS, 4)
#endif
#if defined(__AVX512F__)
GROUP_TILES(groups_of_8, NARROW_GROUPS, 8)
#endif

/// By the channels of a group that is narrower than a vector: there are none for other numbers.
static const group_tile_function * const narrow_group_tiles[WIDTH] = {
    [2] = groups_of_2_tiles,
#if defined(__AVX__)
    [4] = groups_of_4_tiles,
#endif
#if defined(__AVX512F__)
    [8] = groups_of_8_tiles,
#endif
};

/// The fewest channels that are whole groups and whole panels.
static int64_t channels_together(int64_t each) {
    int64_t found = PANEL;
    while (found % each != 0) found += PANEL;
    return found;
}

bool graphc_takes_conv_2d_groups_last(const struct ggml_tensor * kernel, const struct ggml_tensor * image, bool rounded) {
    const int64_t each = kernel->ne[2], depth = kernel->ne[0] * kernel->ne[1] * each, channels = image->ne[0];
    const bool several = each > 1 && each < channels && kernel->ne[3] == channels;
    const bool narrow = each < WIDTH && narrow_group_tiles[each] != NULL && depth <= DEPTH && channels >= WIDTH;
    const bool wide = !rounded && each % WIDTH == 0 && depth <= 2 * DEPTH;
    return several && (narrow || wide) && is_dense(kernel) && is_dense(image);
}

/// How the work is cut: lines of the result, or pieces of so many `pixels` of one, of one of so many ranges of channels. A range has more than
/// one panel, if there are more.
struct group_cut {
    int64_t together, ranges, lines, pixels;
};

/// The first channel of a range.
static int64_t start_of(const struct group_cut * c, int64_t channels, int64_t range) {
    return min_of(parts_of(channels, c->together) * range / c->ranges * c->together, channels);
}

static struct group_cut cut_groups(const struct ggml_tensor * dst, const struct graphc_conv_2d_settings * s, int nth) {
    const struct ggml_tensor * kernel = dst->src[0], * image = dst->src[1];
    const int64_t channels = dst->ne[0], width = image->ne[1], depth = kernel->ne[0] * kernel->ne[1] * kernel->ne[2];
    const int64_t span = (kernel->ne[1] - 1) * s->d1 + 1, line = width * channels;
    struct group_cut c = {channels_together(kernel->ne[2]), 1, s->height, s->width};
    if (((min_of(s->height, FEW_LINES) - 1) * s->s1 + span) * line > MOST_READ_LAST) c.ranges = channels / FEWEST_CHANNELS;
    if (s->width * s->height < 2 * depth && c.ranges < nth) c.ranges = nth;  // so that each thread reads a part of a large kernel
    c.ranges = min_of(c.ranges, parts_of(channels, c.together) / 2);
    if (c.ranges < 1) c.ranges = 1;
    const int64_t most = (MOST_READ_LAST * c.ranges / line - span) / s->s1 + 1, units = parts_of(4 * nth, c.ranges * dst->ne[3]);
    c.lines = min_of(even_split(s->height, most < 1 ? 1 : most), parts_of(s->height, units));
    if (c.lines > 1) return c;
    const int64_t fit = MOST_READ_LAST * c.ranges / (span * channels * s->s0), some = min_of(fit, parts_of(s->width, parts_of(units, s->height)));
    c.pixels = even_split(s->width, some < FEWEST_PIXELS ? FEWEST_PIXELS : some);
    return c;
}

/// Some lines and columns of a result, or of an image, from one to the one behind the last.
struct area {
    int64_t top, bottom, left, right;
};

/// The part of an axis of `size` that so many places of a kernel meet from one pixel of a result to another.
static void met_along(int64_t begin, int64_t end, int64_t stride, int64_t pad, int64_t dilation, int64_t places, int64_t size, int64_t * first, int64_t * behind) {
    const int64_t from = begin * stride - pad, to = (end - 1) * stride - pad + (places - 1) * dilation + 1;
    *first = from < 0 ? 0 : from, *behind = min_of(to, size);
}

/// Has what an area reads of some channels come to the second cache, in the order in which it lies.
static void fetch_area(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s, const struct area * a,
                       const float * from, int64_t start, int64_t behind) {
    const int64_t channels = image->ne[0];
    struct area met;
    met_along(a->top, a->bottom, s->s1, s->p1, s->d1, kernel->ne[1], image->ne[2], &met.top, &met.bottom);
    met_along(a->left, a->right, s->s0, s->p0, s->d0, kernel->ne[0], image->ne[1], &met.left, &met.right);
    const int64_t pixels = behind - start == channels ? met.right - met.left : 1;  // that lie together
    for (int64_t y = met.top; y < met.bottom; ++y) {
        for (int64_t x = met.left; x < met.right; x += pixels) {
            const char * piece = (const char *) (from + (y * image->ne[1] + x) * channels + start);
            for (int64_t at = 0; at < pixels * (behind - start) * (int64_t) sizeof(float); at += LINE) __builtin_prefetch(piece + at, 0, 2);
        }
    }
}

/// Pixels of a line, or lines, that meet the same places of the kernel, along one axis: so many, from `at` on, meet `met` places from the place
/// `place` on, the first of them at `offset`.
struct group_run {
    int64_t at, count, place, met, offset;
};

/// The run that begins with a pixel, of those before `end`: of an axis of `size` pixels and a kernel's `places`.
static struct group_run run_from(int64_t at, int64_t end, int64_t stride, int64_t pad, int64_t dilation, int64_t places, int64_t size) {
    const int64_t left = at * stride - pad, place = first_inside(left, dilation, places), met = behind_inside(left, dilation, places, size) - place;
    struct group_run run = {at, 1, place, met > 0 ? met : 0, left + place * dilation};
    const int64_t room = size - 1 - (places - 1) * dilation - left;  // to the last pixel whose window lies within the image
    if (met == places) run.count = min_of(end - at, room / stride + 1);
    return run;
}

/// So many pixels, `next` elements from one to the next in the image and `down` in the result, as tiles that are alike.
static void convolve_run(const group_tile_function * tiles, struct group_pixels * p, const float * from, int64_t next, float * to, int64_t down, int64_t pixels) {
    const int64_t high = even_split(pixels, PIXELS);
    p->across = next, p->down = down;
    for (int64_t x = 0; x < pixels; x += high, from += high * next, to += high * down) {
        p->from = from, p->to = to;
        tiles[min_of(high, pixels - x)](p);
    }
}

/// An area of a result, of a panel's channels; `from` is the group's first element in the image, `to` the panel's in the result.
static void convolve_area(const group_tile_function * tiles, struct group_pixels * p, const struct ggml_tensor * kernel, const struct ggml_tensor * image,
                          const struct graphc_conv_2d_settings * s, const struct area * a, const float * from, float * to, const float * panel) {
    const int64_t channels = image->ne[0], place = p->channels * PANEL;
    const int64_t across = s->s0 * channels, below = s->s1 * image->ne[1] * channels, line_of_result = s->width * channels;
    struct group_run x, y;
    for (int64_t line = a->top; line < a->bottom; line += y.count) {
        y = run_from(line, a->bottom, s->s1, s->p1, s->d1, kernel->ne[1], image->ne[2]);
        for (int64_t column = a->left; column < a->right; column += x.count) {
            x = run_from(column, a->right, s->s0, s->p0, s->d0, kernel->ne[0], image->ne[1]);
            const float * at = from + (y.offset * image->ne[1] + x.offset) * channels;
            float * result = to + (line * s->width + column) * channels;
            p->panel = panel + (y.place * kernel->ne[0] + x.place) * place, p->rows = (int) y.met, p->columns = (int) x.met;
            if (x.count == 1) {
                convolve_run(tiles, p, at, below, result, line_of_result, y.count);
            } else {
                for (int64_t each = 0; each < y.count; ++each) convolve_run(tiles, p, at + each * below, across, result + each * line_of_result, channels, x.count);
            }
        }
    }
}

/// Packs the kernels of two vectors of channels, or of one, as a panel: a part of their elements.
static void pack_vectors(const struct ggml_tensor * kernel, int64_t channel, int64_t second, int64_t from, int64_t depth, float * packed) {
    const int64_t places = kernel->ne[0] * kernel->ne[1], channels = depth / places;
    const struct matrix part = {.data = (const char *) kernel->data + from * (int64_t) sizeof(float), .step = kernel->nb[3], .type = GGML_TYPE_F32};
    const bool together = second == channel + WIDTH;
    pack_panel_of_places(&part, channel, together ? PANEL : WIDTH, channels, places, channels, packed);
    if (together || second == channel) return;
    float other[PANEL * DEPTH] __attribute__((aligned(64)));
    pack_panel_of_places(&part, second, WIDTH, channels, places, channels, other);
    for (int64_t row = 0; row < depth; ++row) *(vector *) (packed + row * PANEL + WIDTH) = *(const vector *) (other + row * PANEL);
}

void graphc_conv_2d_groups_last(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_conv_2d_settings * s = userdata;
    const struct ggml_tensor * kernel = dst->src[0], * image = dst->src[1], * bias = dst->src[2];
    const int64_t channels = dst->ne[0], each = kernel->ne[2], places = kernel->ne[0] * kernel->ne[1], pixels = s->width * s->height;
    const int64_t depth = places * each, most = places * channels_of_part(each, places, NO_PARTS);
    const struct group_cut c = cut_groups(dst, s, nth);
    const int64_t down = parts_of(s->height, c.lines), across = parts_of(s->width, c.pixels), areas = down * across, units = dst->ne[3] * c.ranges * areas;
    const group_tile_function * tiles = each < WIDTH ? narrow_group_tiles[each] : each % PANEL == 0 ? one_group_tiles : group_of_vector_tiles;
    const struct simple_activation simple = simple_of(&s->activation), none = {IDENTITY, 0, 0};
    static const float nothing[PANEL];
    float packed[PANEL * DEPTH] __attribute__((aligned(64)));
    struct group_pixels p = {.below = s->d1 * image->ne[1] * channels, .right = s->d0 * channels};
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        const int64_t batch = unit / areas / c.ranges, range = unit / areas % c.ranges, top = unit / across % down * c.lines, left = unit % across * c.pixels;
        const struct area a = {top, min_of(top + c.lines, s->height), left, min_of(left + c.pixels, s->width)};
        const int64_t start = start_of(&c, channels, range), behind = start_of(&c, channels, range + 1);
        const float * from = (const float *) image->data + batch * image->ne[1] * image->ne[2] * channels;
        float * to = (float *) dst->data + batch * pixels * channels;
        fetch_area(kernel, image, s, &a, from, start, behind);
        for (int64_t j = start; j < behind; j += PANEL) {
            const int64_t channel = min_of(j, behind - WIDTH), second = j + WIDTH < behind ? min_of(j + WIDTH, behind - WIDTH) : channel;
            const int64_t group = channel / each * each;
            const bool whole = channel == j && (second == channel || second == j + WIDTH), stays = whole && s->panels != NULL && stays_packed(s->panels, j, 1);
            p.beside = second - channel, p.apart = each < WIDTH ? p.beside : second / each * each - group;
            for (int64_t k = 0, deep; k < depth; k += deep) {
                deep = min_of(depth - k, most);
                if (!stays) pack_vectors(kernel, channel, second, k, deep, packed);
                p.first = k > 0 ? NULL : bias == NULL ? nothing : (const float *) bias->data + channel;
                p.channels = (int) (deep / places), p.line = kernel->ne[0] * p.channels * PANEL, p.simple = k + deep == depth ? simple : none;
                convolve_area(tiles, &p, kernel, image, s, &a, from + group + k / places, to + channel, stays ? panels_at(s->panels, j, k) : packed);
            }
        }
        if (is_simple(&s->activation)) continue;
        for (int64_t y = a.top; y < a.bottom; ++y) {
            for (int64_t x = a.left; x < a.right; ++x) {
                float * at = to + (y * s->width + x) * channels + start;
                activate(&s->activation, at, NULL, behind - start, at);
            }
        }
    }
}
