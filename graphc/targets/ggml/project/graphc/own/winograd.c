// Convolutions with kernels of 3 x 3, 3 x 1 and 1 x 3 by Winograd's minimal filtering (Lavin and Gray, 2015). A tile of 2 x 2 pixels of the result is
// sums over the channels of 16 products instead of 36, F(2 x 2, 3 x 3); one of 4 x 4 pixels is of 36 instead of 144, F(4 x 4, 3 x 3).
// Kernels of 3 x 1 and 1 x 3 have tiles along their axis alone: 4 products instead of 6, and 6 instead of 12. Of volumes, the channels
// are those of each plane of the kernel, and the tiles those of all planes; a kernel along the planes alone is one of 3 x 1, for which
// each plane is a line. Panels of such tiles, of all images, are transformed, multiplied with the transformed kernel, and transformed
// back. A large image's kernel is transformed once, by an operator before; where there are few tiles, that would take more memory and
// time than the products, and each part of the kernel is transformed when it is needed.
//
// The transforms of large tiles evaluate polynomials at 0, +-sqrt(1/2), +-sqrt(2) and infinity, which rounds less than whole numbers do,
// and their sums are short: what they lose is what a sum of all products in a row loses.

#include "winograd.h"

#include "activate.h"
#include "minimal.h"
#include "parts.h"
#include "readers.h"
#include "tiles.h"

#include <string.h>

enum {
    GROUP = 2,               // panels that are multiplied together
    GROUP_OF_LINES = 8,      // where tiles lie along one axis,
    MOST_OF_LINES = 1 << 18, // if no more than so much of them is transformed
    GROUP_OF_PARTS = 1024,   // channels of all panels of parts that are multiplied together
    FEWEST_OF_PARTS = 8,     // panels of a plane that are multiplied as parts: with fewer, a kernel's parts take longer to come from memory
    MANY = 64,               // panels of such tiles, of which each thread transforms its own
    FEW = 4,                 // panels that a small image has at most
    FEW_GROUP = 8,           // panels of small images that are multiplied together
    CHANNELS = 8 * ROWS,     // of the result that are computed together
    FEW_CHANNELS = 2 * ROWS, // of the result that are computed together with so few panels that they stay in the cache
    DEEP = 64,               // channels of a partial sum, or pairs of them
    AT_ONCE = 4 * DEEP * FEW_CHANNELS,  // of the kernel, transformed when it is needed: with all its places it fits a cache
    FEWEST = 2,              // panels that stay in the cache
    TRANSFORMED = 32,        // channels or rows of the kernel that a thread transforms before it takes others
    LEAST_CHANNELS = 32,     // of the image with each plane of the kernel, for tiles as wide as tall
    LEAST_ALONG = 16,        // the same for tiles along one axis
    MOST_WEIGHTS = 32 << 20, // transformed, 128 MiB
    MOST_PIXELS = 2 << 20    // of images, transformed, which all threads share
};

/// What is computed how: sizes, and where in the workspace everything lies.
struct plan {
    const struct graphc_conv_2d_settings * s;
    const struct ggml_tensor * kernel, * image;
    int64_t wide, tall, places;  // pixels of the result that a tile has across and down, 1 where the kernel has; numbers of a transformed tile
    struct graphc_planes planes;
    int64_t channels, rows;  // channels with each plane of the kernel
    int64_t kw, kh, width, height, left, top;  // of a plane of the kernel, of one of the image, and of what is beside it
    int64_t result_width, result_height;
    int64_t across, of_plane, tiles, panels;  // tiles of a line, of a plane of the result, and of an image; panels of all images
    bool pairs;     // operands are pairs of channels, or
    int parts;      // they have so many parts, and the kernel lies in tiles
    int64_t depth;  // of a sum: channels, or pairs of them
    bool few;     // tiles: each part of the kernel is transformed when it is needed, else all of it before
    bool shared;  // the images are transformed before, else by each thread for itself
    int64_t group, together;  // panels and channels of the result that are computed together
    int64_t deep;  // of a part of the kernel that is transformed when it is needed
    int64_t plane, part, panel, product;  // elements from place to place: of the kernel, of a part of it, of a panel, and of products
    int64_t weights, images, each;  // elements: the kernel, the images, and what each thread needs for itself
};

/// True if each plane of the kernel has one element, and there are three.
static bool along_planes(const struct ggml_tensor * kernel, const struct graphc_conv_2d_settings * s) {
    return planes_of(s).kernel == 3 && kernel->ne[0] == 1 && kernel->ne[1] == 3;
}

/// Panels of parts that are multiplied together: as many as bring a kernel from memory less often, and as a cache has room for.
static inline int64_t group_of_parts(int64_t channels) {
    int64_t group = GROUP;
    while (group < FEW_GROUP && 2 * group * channels <= GROUP_OF_PARTS) group *= 2;
    return group;
}

/// Words of so many rows of the kernel at one place: whole tiles, where they lie in tiles.
static inline int64_t words_of_rows(const struct plan * p, int64_t rows) {
    return p->parts == NO_PARTS ? rows * p->depth : parts_of(rows, TILE_ROWS) * words_of_tiles(p->parts, p->depth);
}

static struct plan plan_with(int64_t side, const struct ggml_tensor * kernel, const struct ggml_tensor * image,
                             const struct graphc_conv_2d_settings * s) {
    struct plan p = {.s = s, .kernel = kernel, .image = image, .planes = planes_of(s), .rows = kernel->ne[3]};
    p.channels = kernel->ne[2] * p.planes.kernel;
    p.kw = kernel->ne[0], p.kh = kernel->ne[1] / p.planes.kernel;
    p.width = image->ne[0], p.height = image->ne[1] / p.planes.volume, p.left = s->p0, p.top = s->p1;
    if (along_planes(kernel, s)) {
        p.channels = kernel->ne[2], p.kh = p.planes.kernel;
        p.width = image->ne[0] * p.height, p.height = p.planes.volume, p.top = p.planes.pad;
        p.planes = (struct graphc_planes){1, 0, 1, 1, 1, 1};
    }
    p.result_width = p.width + 2 * p.left - (p.kw - 1), p.result_height = p.height + 2 * p.top - (p.kh - 1);
    p.wide = p.kw == 3 ? side : 1, p.tall = p.kh == 3 ? side : 1;
    p.places = (p.wide + p.kw - 1) * (p.tall + p.kh - 1);
    p.across = parts_of(p.result_width, p.wide);
    p.of_plane = p.across * parts_of(p.result_height, p.tall);
    p.tiles = p.of_plane * p.planes.result;
    p.panels = parts_of(p.tiles * image->ne[3], PANEL);
    p.few = p.tiles <= FEW * PANEL;
    const bool many = p.of_plane >= FEWEST_OF_PARTS * PANEL && p.wide == p.tall;
    p.parts = MAY_HAVE_TILES && many ? parts_for(s->pairs) : NO_PARTS, p.pairs = s->pairs && p.parts == NO_PARTS;
    p.depth = p.pairs ? pairs_in(p.channels) : p.channels;
    p.panel = odd_vectors((p.parts == NO_PARTS ? p.depth : part_rows(p.parts, p.depth)) * PANEL);
    p.images = p.panels * p.places * p.panel;
    p.shared = p.few || (p.images <= MOST_PIXELS && (p.wide == p.tall || p.panels < MANY));
    p.group = p.few ? min_of(p.panels, FEW_GROUP) : p.parts == NO_PARTS ? GROUP : group_of_parts(p.channels);
    if (!p.few && p.wide != p.tall) p.group = min_of(min_of(p.panels, GROUP_OF_LINES), MOST_OF_LINES / (p.places * p.panel) + 1);
    p.together = even_split(p.rows, p.few && p.panels <= FEWEST ? FEW_CHANNELS : CHANNELS);
    if (p.parts != NO_PARTS) p.together = parts_of(p.together, TILE_ROWS) * TILE_ROWS;
    p.deep = AT_ONCE / p.together / DEEP * DEEP;
    p.plane = p.few ? 0 : odd_vectors(words_of_rows(&p, p.rows));
    p.part = p.few ? odd_vectors(p.together * p.deep) : 0;
    p.product = odd_vectors(p.together * PANEL);
    p.weights = p.places * p.plane;
    p.each = p.places * (p.group * p.product + p.part + (p.shared ? 0 : p.group * p.panel)) + WIDTH;  // whole vectors are read of products
    if (!p.shared) p.images = 0;
    return p;
}

/// Vectors of products of each channel with each row of the kernel, for one image: with how many others it is computed decides nothing, so
/// that its numbers are the same. Transforming the kernel takes about as long as the products of half a vector.
static int64_t products_of(const struct plan * p) { return p->places * (2 * parts_of(p->tiles, WIDTH) + 1) / 2; }

/// With the tiles that take fewer products; small ones of pairs, which large ones would round too much.
static struct plan plan_of(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    const struct plan small = plan_with(SIDE_2, kernel, image, s), large = plan_with(SIDE_4, kernel, image, s);
    return !s->pairs && large.weights <= MOST_WEIGHTS && products_of(&large) < products_of(&small) ? large : small;
}

/// A thread's workspace to work.
struct work {
    struct plan plan;
    struct ggml_tensor * dst;
    const float * panel;  // [panels][places][panel] of [depth][PANEL]
    float * workspace;         // for panels that are not shared
    float * products;     // [panels][places][product] of [together][PANEL]
    float * part;         // of the kernel, where there are few tiles: [places][part] of [together][deep]
};

bool graphc_takes_winograd(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    const struct graphc_planes planes = planes_of(s);
    const int64_t kw = kernel->ne[0], kh = kernel->ne[1] / planes.kernel;
    const bool in_planes = (kw == 3 || kw == 1) && (kh == 3 || kh == 1) && kw * kh > 1;
    const bool through_planes = along_planes(kernel, s) && s->p0 == 0 && s->p1 == 0 && planes.stride == 1 && planes.dilation == 1;
    const bool steps = s->s0 == 1 && s->s1 == 1 && s->d0 == 1 && s->d1 == 1, whole = kernel->ne[2] == image->ne[2];
    const bool taken = is_weight(kernel, s->types) && is_dense(image) && (in_planes || through_planes) && steps && whole;
    return taken && plan_of(kernel, image, s).weights <= MOST_WEIGHTS;
}

/// True if tiles along one axis take less time than `graphc_conv_2d`. What is beside the products is counted in vectors of them that take as
/// long, as was measured.
static bool lines_pay(const struct plan * p, int64_t pixels) {
    enum { READ = 18, WRITTEN = 30, FILTERED = 6, PACKED = 15 };
    const int64_t vectors = p->places * parts_of(p->tiles, WIDTH), rows = p->few ? p->rows * 7 / 5 : p->rows;
    const int64_t here = vectors * (p->channels * (rows + READ) + p->rows * WRITTEN) + p->channels * p->rows * FILTERED;
    const int64_t direct = 3 * parts_of(pixels, WIDTH) * p->channels * (p->rows * 3 / 2 + PACKED);
    return here < direct - direct / 10;
}

bool graphc_prefers_winograd(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    const struct plan p = plan_of(kernel, image, s);
    const int64_t pixels = p.result_width * p.result_height * p.planes.result;
    const bool square = p.wide == p.tall;
    const bool many = p.channels >= (square ? LEAST_CHANNELS : LEAST_ALONG) && !has_few_results(kernel, image->ne[2], s);
    if (!many || parts_for(s->pairs) == ONE_PART) return false;
    return square ? products_of(&p) < 9 * parts_of(pixels, WIDTH) : lines_pay(&p, pixels);
}

int64_t graphc_winograd_size(const struct ggml_tensor * kernel, const struct ggml_tensor * image,
                             const struct graphc_conv_2d_settings * s, int threads) {
    const struct plan p = plan_of(kernel, image, s);
    return p.weights + p.images + threads * p.each + WIDTH;
}

/// So many elements in whole vectors.
static inline int64_t whole_vectors(int64_t count) { return parts_of(count, WIDTH) * WIDTH; }

/// Along an axis of the image on which a tile has `side` pixels of the result, or 1 if the kernel leaves it alone: elements of the kernel,
/// and numbers of a transformed tile.
static inline int taps_along(int side) { return side == 1 ? 1 : 3; }
static inline int places_along(int side) { return side == 1 ? 1 : side + 2; }

/// Calls a function with a tile's width and height, which are constants there.
#define WITH_TILES(p, function, ...) \
    do { \
        if ((p)->wide == SIDE_2 && (p)->tall == SIDE_2) function(SIDE_2, SIDE_2, __VA_ARGS__); \
        else if ((p)->wide == SIDE_4 && (p)->tall == SIDE_4) function(SIDE_4, SIDE_4, __VA_ARGS__); \
        else if ((p)->wide == SIDE_2) function(SIDE_2, 1, __VA_ARGS__); \
        else if ((p)->wide == SIDE_4) function(SIDE_4, 1, __VA_ARGS__); \
        else if ((p)->tall == SIDE_2) function(1, SIDE_2, __VA_ARGS__); \
        else function(1, SIDE_4, __VA_ARGS__); \
    } while (0)

/// `channels` of a row of the kernel, [channels][kh][kw], from one on, as [places][channels], `plane` elements from place to place.
INLINE void filter_channels(int wide, int tall, const struct plan * p, int64_t row, int64_t channel, int64_t channels, float * to, int64_t plane) {
    const struct ggml_tensor * kernel = p->kernel;
    const int side = wide > tall ? wide : tall, kw = taps_along(wide), kh = taps_along(tall);
    const int taps = kw * kh, read = (WIDTH - 1) * taps + (int) parts_of(taps, WIDTH) * WIDTH;  // elements that `transpose` reads
    const int64_t size = (int64_t) kernel->nb[0];
    float workspace[WIDTH * 10] = {0}, transposed[16 * PANEL] __attribute__((aligned(64)));
    for (int64_t c = 0; c < channels; c += WIDTH) {
        const int64_t count = min_of(channels - c, WIDTH);
        const char * data = (const char *) kernel->data + row * kernel->nb[3] + (channel + c) * taps * size;
        const float * from = (const float *) data;
        if (kernel->type != GGML_TYPE_F32 || (channel + c) * taps + read > p->channels * taps) {
            widen(kernel->type, p->s->types, data, count * taps, workspace);
            from = workspace;
        }
        for (int64_t line = 0; line < count * taps * size; line += LINE) __builtin_prefetch(data + kernel->nb[3] + line);  // the next row's
        vector mixed[3][SIDE_4 + 2], places[SIDE_4 + 2];
        for (int x = 0; x < taps; x += WIDTH) transpose(from + x, taps, transposed + x * PANEL);
#pragma GCC unroll 3
        for (int x = 0; x < kw; ++x) {
            const vector * g = (const vector *) (transposed + x * PANEL);
            if (tall > 1) filter(side, g[0], g[kw * VECTORS], g[2 * kw * VECTORS], mixed[x]);
            else mixed[x][0] = g[0];
        }
        float * place = to + c;
#pragma GCC unroll 6
        for (int y = 0; y < places_along(tall); ++y) {
            if (wide > 1) filter(side, mixed[0][y], mixed[1][y], mixed[2][y], places);
            else places[0] = mixed[0][y];
#pragma GCC unroll 6
            for (int x = 0; x < places_along(wide); ++x, place += plane) {
                if (count == WIDTH) *(unaligned *) place = places[x];
                else copy((const float *) &places[x], 1, count, place);
            }
        }
    }
}

static void transform_channels(const struct plan * p, int64_t row, int64_t channel, int64_t channels, float * to, int64_t plane) {
    WITH_TILES(p, filter_channels, p, row, channel, channels, to, plane);
}

/// Rows of the kernel from `row` on as tiles: [places][tiles of rows][steps][parts][TILE_WORDS].
static __attribute__((noinline)) void transform_tiles(const struct plan * p, int64_t row, int64_t count, float * to) {
    float wide[MOST_PLACES * TILE_ROWS * STEP] __attribute__((aligned(64)));
    for (int64_t i = 0; i < count; i += TILE_ROWS, to += words_of_tiles(p->parts, p->depth)) {
        const int64_t there = min_of(count - i, TILE_ROWS);
        for (int64_t c = 0; c < p->depth; c += STEP) {
            const int64_t channels = min_of(p->depth - c, STEP);
            for (int64_t x = 0; x < there; ++x) transform_channels(p, row + i + x, c, channels, wide + x * STEP, TILE_ROWS * STEP);
            for (int64_t place = 0; place < p->places; ++place) {
                word * tile = (word *) to + place * p->plane + words_of_tiles(p->parts, c);
                split_rows(p->parts, wide + place * TILE_ROWS * STEP, STEP, there, channels, tile);
            }
        }
    }
}

/// `depth` channels of a row of the kernel, or pairs of them, from one on, as [places][depth], `plane` elements from place to place.
static void transform_row(const struct plan * p, int64_t row, int64_t from, int64_t depth, float * to, int64_t plane) {
    enum { SOME = 2 * WIDTH };
    if (!p->pairs) {
        transform_channels(p, row, from, depth, to, plane);
        return;
    }
    float wide[MOST_PLACES * SOME];
    const int64_t channels = min_of(2 * depth, p->channels - 2 * from);
    for (int64_t c = 0; c < channels; c += SOME) {
        const int64_t count = min_of(channels - c, SOME);
        transform_channels(p, row, 2 * from + c, count, wide, SOME);
        for (int place = 0; place < p->places; ++place) pair_row(wide + place * SOME, count, to + place * plane + c / 2);
    }
}

/// The plane that a channel meets at one of the result: NULL where there is none.
static inline const float * plane_at(const struct plan * p, int64_t batch, int64_t channel, int64_t plane) {
    const struct graphc_planes * planes = &p->planes;
    const int64_t place = plane * planes->stride - planes->pad + channel % planes->kernel * planes->dilation;
    if (place < 0 || place >= planes->volume) return NULL;
    const int64_t planes_before = (batch * p->image->ne[2] + channel / planes->kernel) * planes->volume + place;
    return (const float *) p->image->data + planes_before * p->height * p->width;
}

/// `count` elements of a line of a plane from `x` on, with zeros beside it, and behind them to `room`: what lies there by chance could be
/// numbers that are too small for a processor to be fast with.
INLINE void read_line(const struct plan * p, const float * plane, int64_t x, int64_t y, int64_t count, int64_t room, float * to) {
    const int64_t width = p->width, left = min_of(x < 0 ? -x : 0, count), right = min_of(width - x, count);
    const bool whole = y >= 0 && y < p->height && left == 0 && right == count;
    for (int64_t i = whole ? count : 0; i < room; i += WIDTH) *(unaligned *) (to + i) = all(0);
    if (y >= 0 && y < p->height && left < right) copy(plane + y * width + x + left, 1, right - left, to + left);
}

/// The same as whole vectors: where they lie, or a copy in `room`.
INLINE const float * vectors_of_line(const struct plan * p, const float * plane, int64_t x, int64_t y, int64_t count, float * room) {
    if (y >= 0 && y < p->height && x >= 0 && x + count <= p->width && count % WIDTH == 0) return plane + y * p->width + x;
    read_line(p, plane, x, y, count, whole_vectors(count), room);
    return room;
}

/// The pixels of a line that WIDTH tiles beside one another begin with, then those after them, to the side + 2 that a tile has.
INLINE void columns_of(int side, const float * line, vector * to) {
    if (side == SIDE_2) {
        for (int i = 0; i < 4; ++i) to[i] = every_second(line + i);
    } else {
        for (int i = 0; i < 2; ++i) {
            const vector first = every_second(line + i), last = every_second(line + 2 * WIDTH + i);
            to[i] = even_elements(first, last), to[i + 2] = odd_elements(first, last);
            to[i + 4] = one_later(to[i], all(line[4 * WIDTH + i]));
        }
    }
}

/// Tiles beside one another, the first at (x, y): their pixels, transformed, as [places] rows that are `stride` apart. There may be
/// written as much as `free` elements of a row.
INLINE void spread_tiles(int wide, int tall, const struct plan * p, const float * plane, int64_t x, int64_t y, int64_t count, float * to,
                         int64_t stride, int64_t free) {
    enum { MOST = SIDE_4 + 2 };
    float lines[MOST][SIDE_4 * PANEL + 2 * WIDTH];
    const int side = wide > tall ? wide : tall, columns = places_along(wide), rows = places_along(tall);
    const float * from[MOST];
    for (int i = 0; i < rows; ++i) {
        const int64_t above = tall * y - p->top + i;
        if (wide > 1) read_line(p, plane, side * x - p->left, above, side * count + 2, side * whole_vectors(count) + 2, lines[i]);
        from[i] = wide > 1 ? lines[i] : vectors_of_line(p, plane, x - p->left, above, count, lines[i]);
    }
    for (int64_t t = 0; t < count; t += WIDTH) {
        vector tile[MOST * MOST];
#pragma GCC unroll 6
        for (int i = 0; i < rows; ++i) {
            if (wide > 1) columns_of(side, from[i] + side * t, tile + i * columns);
            else tile[i] = *(const unaligned *) (from[i] + t);
        }
#pragma GCC unroll 6
        for (int i = 0; i < columns && tall > 1; ++i) spread(side, tile + i, columns, tile + i);
        float * row = to + t;
#pragma GCC unroll 6
        for (int i = 0; i < rows; ++i) {
            if (wide > 1) spread(side, tile + i * columns, 1, tile + i * columns);
#pragma GCC unroll 6
            for (int j = 0; j < columns; ++j, row += stride) {
                if (t + WIDTH <= free) *(unaligned *) row = tile[i * columns + j];
                else copy((const float *) &tile[i * columns + j], 1, count - t, row);
            }
        }
    }
}

/// The products of one channel of a panel's tiles, [places] rows that are `stride` apart, as lines of pixels. Whole vectors are read and
/// written.
INLINE void gather_tiles(int wide, int tall, const float * from, int64_t stride, int64_t count, float lines[SIDE_4][SIDE_4 * PANEL]) {
    enum { MOST = SIDE_4 + 2 };
    const int side = wide > tall ? wide : tall, columns = places_along(wide), rows = places_along(tall);
    for (int64_t t = 0; t < count; t += WIDTH) {
        vector sums[MOST * MOST], mixed[SIDE_4 * MOST], pixels[SIDE_4];
#pragma GCC unroll 36
        for (int i = 0; i < rows * columns; ++i) sums[i] = *(const unaligned *) (from + i * stride + t);
#pragma GCC unroll 6
        for (int x = 0; x < columns && tall > 1; ++x) gather(side, sums + x, columns, mixed + x, columns);
#pragma GCC unroll 4
        for (int y = 0; y < tall; ++y) {
            const vector * of_line = (tall > 1 ? mixed : sums) + y * columns;
            unaligned * line = (unaligned *) (lines[y] + wide * t);
            if (wide == 1) {
                line[0] = of_line[0];
                continue;
            }
            gather(side, of_line, 1, pixels, 1);
            if (side == SIDE_2) {
                line[0] = interleave_first(pixels[0], pixels[1]), line[1] = interleave_last(pixels[0], pixels[1]);
                continue;
            }
            const vector even[2] = {interleave_first(pixels[0], pixels[2]), interleave_last(pixels[0], pixels[2])};
            const vector odd[2] = {interleave_first(pixels[1], pixels[3]), interleave_last(pixels[1], pixels[3])};
            for (int i = 0; i < 2; ++i) line[2 * i] = interleave_first(even[i], odd[i]), line[2 * i + 1] = interleave_last(even[i], odd[i]);
        }
    }
}

/// The transforms subtract pixels: of an infinity, or of numbers whose sum is none, they make what is not a number, in pixels too that meet
/// none of it. In such places of a line from (x, y) on there comes the sum of products itself.
static __attribute__((noinline)) void mend_line(const struct plan * p, int64_t batch, int64_t channel, int64_t x, int64_t y, int64_t plane,
                                                int64_t count, float * line) {
    float sums[SIDE_4 * PANEL] = {0}, pixels[SIDE_4 * PANEL + 2 * WIDTH], kernel[9];
    for (int64_t c = 0; c < p->channels; ++c) {
        const float * image = plane_at(p, batch, c, plane);
        const int64_t taps = p->kw * p->kh, place = channel * p->kernel->nb[3] + c * taps * p->kernel->nb[0];
        widen(p->kernel->type, p->s->types, (const char *) p->kernel->data + place, taps, kernel);
        for (int64_t ky = 0; ky < p->kh && image != NULL; ++ky) {
            read_line(p, image, x - p->left, y - p->top + ky, count + p->kw - 1, count + p->kw - 1, pixels);
            for (int64_t kx = 0; kx < p->kw; ++kx) {
                for (int64_t i = 0; i < count; ++i) sums[i] += kernel[p->kw * ky + kx] * pixels[i + kx];
            }
        }
    }
    for (int64_t i = 0; i < count; ++i) line[i] = some_are_not_finite(line + i, 1) ? sums[i] : line[i];
}

/// Transforms the tiles of a panel in a channel's planes, from the tile `first` of all images on, as [places] rows that are `stride` apart.
static void read_panel(const struct plan * p, int64_t channel, int64_t first, float * to, int64_t stride) {
    const int64_t end = min_of(first + PANEL, p->tiles * p->image->ne[3]);
    for (int64_t t = first, along; t < end; t += along) {
        const int64_t lane = t - first, tile = t % p->of_plane;
        const float * pixels = plane_at(p, t / p->tiles, channel, t % p->tiles / p->of_plane);
        along = min_of(p->across - tile % p->across, end - t);
        for (int64_t place = 0; pixels == NULL && place < p->places; ++place) memset(to + place * stride + lane, 0, along * sizeof *to);
        if (pixels != NULL) WITH_TILES(p, spread_tiles, p, pixels, tile % p->across, tile / p->across, along, to + lane, stride, PANEL - lane);
    }
    const int64_t lanes = end - first, rest = whole_vectors(lanes) - lanes;
    for (int64_t place = 0; rest > 0 && place < p->places; ++place) memset(to + place * stride + lanes, 0, rest * sizeof *to);
}

/// Transforms tiles of some channels, the panels from the tile `origin` of all images on. `channel` is even.
static void read_panels(const struct plan * p, int64_t origin, int64_t panels, int64_t channel, int64_t count, float * to) {
    const bool two = p->pairs || p->parts != NO_PARTS;
    const int64_t stride = p->panel, size = p->places * stride, stop = channel + count, step = two ? 2 : 1;
    const int64_t end = p->parts != NO_PARTS && stop == p->channels ? steps_in(stop) * STEP : stop;  // steps are filled up with zeros
    float wide[MOST_PLACES * 2 * PANEL] __attribute__((aligned(64))) = {0};
    for (int64_t c = channel; c < end; c += step) {  // lines of a channel go on from panel to panel
        for (int64_t panel = 0; panel < panels; ++panel) {
            const int64_t first = origin + panel * PANEL, both = c < stop ? min_of(stop - c, 2) : 0;
            float * row = to + panel * size;
            if (!two) read_panel(p, c, first, row + c * PANEL, stride);
            for (int64_t i = 0; two && i < both; ++i) read_panel(p, c + i, first, wide + i * PANEL, 2 * PANEL);
            for (int64_t place = 0; two && place < p->places; ++place, row += stride) {
                const float * rows = wide + place * 2 * PANEL;
                if (p->pairs) pair_panel(rows, both, row + c / 2 * PANEL);
                else split_two_rows(p->parts, rows, both, (word *) row + row_of_pair(p->parts, c) * PANEL);
            }
        }
    }
}

void graphc_winograd_operands(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_conv_2d_settings * s = userdata;
    const struct plan p = plan_of(dst->src[0], dst->src[1], s);
    float * kernel = room_of(dst), * images = kernel + p.weights;
    const int64_t rows = p.few ? 0 : parts_of(p.rows, TRANSFORMED), parts = parts_of(p.channels, TRANSFORMED);
    const int64_t units = rows + (p.shared ? parts * p.panels : 0);
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        const int64_t top = unit * TRANSFORMED, bottom = min_of(top + TRANSFORMED, p.rows);
        if (unit < rows && p.parts != NO_PARTS) transform_tiles(&p, top, bottom - top, kernel + words_of_rows(&p, top));
        for (int64_t row = top; unit < rows && p.parts == NO_PARTS && row < bottom; ++row) {
            transform_row(&p, row, 0, p.depth, kernel + row * p.depth, p.plane);
        }
        if (unit < rows) continue;
        const int64_t panel = (unit - rows) / parts, channel = (unit - rows) % parts * TRANSFORMED;
        read_panels(&p, panel * PANEL, 1, channel, min_of(p.channels - channel, TRANSFORMED), images + panel * p.places * p.panel);
    }
}

/// The products of `count` rows of the transformed kernel's tiles with panels.
static BY_MATRIX_UNIT void multiply_panels_of_parts(const struct work * w, const float * kernel, int64_t count, int64_t origin, int64_t panels) {
    const struct plan * plan = &w->plan;
    const int64_t next_tile = words_of_tiles(plan->parts, plan->depth), tiles_left = plan->tiles * plan->image->ne[3] - origin;
    const int64_t most = depth_of_parts(plan->parts, plan->depth);
    begin_tiles(MOST_TILE_ROWS);
    for (int64_t place = 0; place < plan->places; ++place) {
        for (int64_t k = 0; k < plan->depth; k += most) {
            const int64_t steps = steps_in(min_of(plan->depth - k, most));
            for (int64_t p = 0; p < panels; ++p) {
                const word * panel = (const word *) w->panel + (p * plan->places + place) * plan->panel + part_rows(plan->parts, k) * PANEL;
                float * c = w->products + (p * plan->places + place) * plan->product;
                for (int64_t i = 0; i < count; i += MOST_TILE_ROWS) {
                    const word * a = (const word *) kernel + place * plan->plane + i / TILE_ROWS * next_tile + words_of_tiles(plan->parts, k);
                    const multiplier multiply_by = multiplier_for(plan->parts, count - i, tiles_left - p * PANEL);
                    multiply_by(a, next_tile, panel, steps, k > 0, c + i * PANEL, PANEL, nothing_soon);
                }
            }
        }
    }
    end_tiles();
}

/// The products of `count` rows of the transformed kernel, `stride` elements apart, with some of the panels' depth, from one on.
static void multiply_panels(const struct work * w, const float * kernel, int64_t stride, int64_t plane, int64_t count, int64_t origin, int64_t panels,
                            int64_t from, int64_t depth) {
    const struct plan * plan = &w->plan;
    const int64_t high = tile_rows(count), tiles_left = plan->tiles * plan->image->ne[3] - origin;
    for (int64_t place = 0; place < plan->places; ++place) {
        for (int64_t k = 0; k < depth; k += DEEP) {
            for (int64_t i = 0; i < count; i += high) {
                const float * a = kernel + place * plane + i * stride + k;
                for (int64_t p = 0; p < panels; ++p) {
                    const struct ahead ahead = rows_ahead(a + (high + p % 2 * LINES) * stride, stride * (int64_t) sizeof(float));
                    const tile_function * with = tiles_for(plan->pairs, tiles_left - p * PANEL);
                    const float * panel = w->panel + (p * plan->places + place) * plan->panel + (from + k) * PANEL;
                    float * c = w->products + (p * plan->places + place) * plan->product + i * PANEL;
                    with[min_of(count - i, high)](a, stride, panel, c, PANEL, one_line(min_of(depth - k, DEEP)), from + k == 0 ? &as_they_are : &added_up, ahead);
                }
            }
        }
    }
}

/// Transforms the products back to `count` channels of the result.
static void write_panels(const struct work * w, int64_t origin, int64_t panels, int64_t channel, int64_t count) {
    const struct plan * p = &w->plan;
    const int64_t width = p->result_width, height = p->result_height;
    for (int64_t i = 0; i < count; ++i) {
        for (int64_t panel = 0; panel < panels; ++panel) {
            const int64_t first = origin + panel * PANEL, end = min_of(first + PANEL, p->tiles * p->image->ne[3]);
            float lines[SIDE_4][SIDE_4 * PANEL];
            WITH_TILES(p, gather_tiles, w->products + panel * p->places * p->product + i * PANEL, p->product, end - first, lines);
            for (int64_t t = first, along; t < end; t += along) {
                const int64_t batch = t / p->tiles, plane = t % p->tiles / p->of_plane, tile = t % p->of_plane;
                const int64_t x = tile % p->across * p->wide, y = tile / p->across * p->tall;
                along = min_of(p->across - tile % p->across, end - t);
                const int64_t pixels = min_of(p->wide * along, width - x);
                float * result = (float *) w->dst->data + (batch * p->rows + channel + i) * w->dst->ne[0] * w->dst->ne[1];
                for (int64_t row = 0; row < min_of(p->tall, height - y); ++row) {
                    float * line = lines[row] + (t - first) * p->wide;
                    const int64_t at = (plane * height + y + row) * width + x;
                    if (some_are_not_finite(line, pixels)) mend_line(p, batch, channel + i, x, y + row, plane, pixels, line);
                    add_sums(w->dst, channel + i, at, batch, pixels, line);
                    if (p->s->activation.function) activate(&p->s->activation, line, NULL, pixels, result + at);
                    else copy(line, 1, pixels, result + at);
                }
            }
        }
    }
}

void graphc_winograd(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_conv_2d_settings * s = userdata;
    const struct ggml_tensor * image = dst->src[0], * operands = dst->src[1];
    const struct plan p = plan_of(dst->src[2], image, s);
    const float * kernel = room_of(operands), * images = kernel + p.weights;
    struct work w = {.plan = p, .dst = dst, .products = room_of(operands) + p.weights + p.images + ith * p.each};
    w.part = w.products + p.places * p.group * p.product;
    w.workspace = w.part + p.places * p.part;
    const int64_t groups = parts_of(p.panels, p.group);
    int64_t rows = p.shared ? p.together : p.rows;  // of a unit: images that each thread transforms are cut as little as possible
    const int64_t whole = p.parts == NO_PARTS ? 1 : TILE_ROWS;
    while (groups * parts_of(p.rows, rows) < 4 * nth && rows >= 2 * FEW_CHANNELS) rows = parts_of(rows / 2, whole) * whole;
    const int64_t parts = parts_of(p.rows, rows), units = groups * parts;
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        const int64_t origin = unit / parts * p.group, panels = min_of(p.group, p.panels - origin);
        const int64_t until = min_of((unit % parts + 1) * rows, p.rows);
        if (!p.shared) read_panels(&p, origin * PANEL, panels, 0, p.channels, w.workspace);
        w.panel = p.shared ? images + origin * p.places * p.panel : w.workspace;
        for (int64_t first = unit % parts * rows; first < until; first += p.together) {
            const int64_t count = min_of(until - first, p.together);
            const float * rows_of_kernel = kernel + words_of_rows(&p, first);
            if (p.parts != NO_PARTS) multiply_panels_of_parts(&w, rows_of_kernel, count, origin * PANEL, panels);
            else if (!p.few) multiply_panels(&w, rows_of_kernel, p.depth, p.plane, count, origin * PANEL, panels, 0, p.depth);
            for (int64_t k = 0; p.few && k < p.depth; k += p.deep) {
                const int64_t depth = min_of(p.depth - k, p.deep);
                for (int64_t i = 0; i < count; ++i) transform_row(&p, first + i, k, depth, w.part + i * p.deep, p.part);
                multiply_panels(&w, w.part, p.deep, p.part, count, origin * PANEL, panels, k, depth);
            }
            write_panels(&w, origin * PANEL, panels, first, count);
        }
    }
}
