// Convolutions with kernels of 3 x 3 by Winograd's minimal filtering (see `winograd.c`), of images whose channels lie one after the other:
// tiles are transformed by vectors of channels. For each of the 36 places of a transformed tile there is a product, of all tiles by some
// channels of the result, of which each part of the kernel is transformed when it is needed. A kernel with dilations meets pixels that are
// as far apart: those of each phase of the image are an image of their own, whose tiles are among all others.

#include "winograd_last.h"

#include "activate.h"
#include "blocks.h"
#include "minimal.h"
#include "tiles.h"

enum {
    TILES_TOGETHER = 60,         // tiles that are multiplied with what is transformed of the kernel, at most
    CHANNELS_OF_PART = 64,       // channels of a partial sum
    CHANNELS_TURNED = 16,        // channels of a kernel that are transposed at once
    LEAST_CHANNELS_LAST = 16,    // of the image and of the result
    MOST_PIXELS_LAST = 1 << 12   // of a result's image
};

/// What lies where in the workspace: tiles as [places][tiles][across], a part of the kernel as [places][channels][PANEL], and products as
/// [places][tiles][PANEL].
struct plan_last {
    int64_t channels, width, height;
    int64_t wide, phase, tiles, all;                    // tiles of a line, of a phase, of an image and of all images
    int64_t across, plane, part, product;               // elements from one to the next: tiles, and places of all three
    int64_t group;                                      // tiles that are multiplied together
    int64_t images, each;                               // elements of the images, and of what each thread needs for itself
};

static struct plan_last plan_last_of(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    struct plan_last p = {.channels = kernel->ne[2], .width = image->ne[1], .height = image->ne[2], .wide = parts_of(parts_of(s->width, s->d0), SIDE_4)};
    p.phase = p.wide * parts_of(parts_of(s->height, s->d1), SIDE_4), p.tiles = p.phase * s->d0 * s->d1, p.all = p.tiles * image->ne[3];
    p.across = odd_vectors(p.channels), p.plane = odd_vectors(p.all * p.across);
    p.group = even_split(p.all, TILES_TOGETHER);
    p.part = odd_vectors(CHANNELS_OF_PART * PANEL), p.product = odd_vectors(p.group * PANEL);
    p.images = MOST_PLACES * p.plane, p.each = MOST_PLACES * (p.part + p.product);
    return p;
}

/// The first pixel of the result's that a tile of an image is, along a line and down.
static inline int64_t left_of(const struct plan_last * p, const struct graphc_conv_2d_settings * s, int64_t tile) {
    return tile / p->phase % s->d0 + tile % p->wide * SIDE_4 * s->d0;
}

static inline int64_t top_of(const struct plan_last * p, const struct graphc_conv_2d_settings * s, int64_t tile) {
    return tile / p->phase / s->d0 + tile % p->phase / p->wide * SIDE_4 * s->d1;
}

bool graphc_takes_winograd_last(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    const bool numbers = kernel->type == GGML_TYPE_F32 || s->types->blck_size == 1, three = kernel->ne[0] == 3 && kernel->ne[1] == 3;
    const bool plain = s->s0 == 1 && s->s1 == 1 && !s->pairs, some = kernel->ne[2] >= LEAST_CHANNELS_LAST && kernel->ne[3] >= LEAST_CHANNELS_LAST;
    const bool whole = kernel->ne[2] == image->ne[0] && s->width * s->height <= MOST_PIXELS_LAST;
    const bool fewer = MOST_PLACES * plan_last_of(kernel, image, s).tiles <= kernel->ne[0] * kernel->ne[1] * s->width * s->height;  // products
    return three && plain && some && whole && fewer && is_weight(kernel, s->types) && numbers && is_dense(image);
}

int64_t graphc_winograd_last_size(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s,
                                  int threads) {
    const struct plan_last p = plan_last_of(kernel, image, s);
    return p.images + threads * p.each + WIDTH;
}

void graphc_winograd_last_operands(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    enum { SIDE_OF_READ = SIDE_4 + 2 };
    struct graphc_conv_2d_settings * s = userdata;
    const struct ggml_tensor * image = dst->src[1];
    const struct plan_last p = plan_last_of(dst->src[0], image, s);
    const int64_t units = parts_of(p.all, p.wide);
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        for (int64_t t = unit * p.wide; t < (unit + 1) * p.wide; ++t) {
            const int64_t tile = t % p.tiles, left = left_of(&p, s, tile) - s->p0, top = top_of(&p, s, tile) - s->p1;
            const float * pixels = (const float *) image->data + t / p.tiles * p.height * p.width * p.channels;
            for (int64_t c = 0; c < p.channels; c += WIDTH) {
                vector d[MOST_PLACES];
                for (int i = 0; i < SIDE_OF_READ; ++i) {
                    for (int j = 0; j < SIDE_OF_READ; ++j) {
                        const int64_t y = top + i * s->d1, x = left + j * s->d0;
                        const bool inside = y >= 0 && y < p.height && x >= 0 && x < p.width;
                        const float * from = pixels + (y * p.width + x) * p.channels + c;
                        d[i * SIDE_OF_READ + j] = inside ? some_of(from, p.channels - c) : all(0);
                    }
                }
#pragma GCC unroll 6
                for (int x = 0; x < SIDE_OF_READ; ++x) spread(SIDE_4, d + x, SIDE_OF_READ, d + x);
                float * to = room_of(dst) + t * p.across + c;
#pragma GCC unroll 6
                for (int y = 0; y < SIDE_OF_READ; ++y) {
                    vector line[SIDE_OF_READ];
                    spread(SIDE_4, d + y * SIDE_OF_READ, 1, line);
#pragma GCC unroll 6
                    for (int x = 0; x < SIDE_OF_READ; ++x, to += p.plane) *(vector *) to = line[x];
                }
            }
        }
    }
}

/// Some channels of `count` kernels, from the row `row` on, transformed, as a panel for each place.
static void filter_panel(const struct plan_last * p, const struct matrix * kernels, int64_t row, int64_t count, int64_t channel, int64_t channels,
                         float * to) {
    enum { NUMBERS = 9 };
    float workspace[WIDTH * DEPTH], turned[CHANNELS_TURNED * NUMBERS * WIDTH] __attribute__((aligned(64)));
    for (int64_t j = 0; j < min_of(count, PANEL); j += WIDTH) {
        const int64_t there = min_of(count - j, WIDTH);
        for (int64_t c = 0; c < channels; c += CHANNELS_TURNED) {
            const int64_t some = min_of(channels - c, CHANNELS_TURNED), depth = some * NUMBERS;
            int64_t step;
            const float * rows = read_rows(kernels, row + j, there, (channel + c) * NUMBERS, (int) depth, workspace, &step);
            for (int64_t i = 0; i < there; ++i) fetch(element(kernels, row + j + i, (channel + c) * NUMBERS + depth), depth * (int64_t) sizeof(float));
            turn_rows(rows, step, there, depth, turned);
            for (int64_t i = 0; i < some; ++i) {
                const vector * g = (const vector *) (turned + i * NUMBERS * WIDTH);
                vector columns[3][SIDE_4 + 2], places[SIDE_4 + 2];
#pragma GCC unroll 3
                for (int x = 0; x < 3; ++x) filter(SIDE_4, g[x], g[3 + x], g[6 + x], columns[x]);
                float * place = to + (c + i) * PANEL + j;
#pragma GCC unroll 6
                for (int y = 0; y < SIDE_4 + 2; ++y) {
                    filter(SIDE_4, columns[0][y], columns[1][y], columns[2][y], places);
#pragma GCC unroll 6
                    for (int x = 0; x < SIDE_4 + 2; ++x, place += p->part) *(vector *) place = places[x];
                }
            }
        }
    }
}

/// The transforms subtract pixels: of an infinity they make what is not a number, in pixels too that meet none of it. In such channels of a
/// pixel there comes the sum of products itself.
static __attribute__((noinline)) void mend_pixel(const struct plan_last * p, const struct graphc_conv_2d_settings * s, const struct matrix * kernels,
                                                 const float * image, int64_t row, int64_t x, int64_t y, int64_t count, float * to) {
    float kernel[9];
    for (int64_t i = 0; i < count; ++i) {
        if (!some_are_not_finite(to + i, 1)) continue;
        float sum = 0;
        for (int64_t c = 0; c < p->channels; ++c) {
            read_row(kernels, row + i, c * 9, 9, kernel);
            for (int64_t k = 0; k < 9; ++k) {
                const int64_t ix = x - s->p0 + k % 3 * s->d0, iy = y - s->p1 + k / 3 * s->d1;
                if (ix < 0 || ix >= p->width || iy < 0 || iy >= p->height) continue;
                sum += kernel[k] * image[(iy * p->width + ix) * p->channels + c];
            }
        }
        to[i] = sum;
    }
}

/// Transforms the products of a tile back to `count` channels of the result.
static void write_tile(const struct plan_last * p, struct ggml_tensor * dst, const struct graphc_conv_2d_settings * s, const struct matrix * kernels,
                       const float * products, int64_t t, int64_t row, int64_t count) {
    enum { PLACES = SIDE_4 + 2 };
    const struct ggml_tensor * image = dst->src[0], * other;
    const struct simple_activation simple = simple_of(&s->activation);
    const int64_t tile = t % p->tiles, batch = t / p->tiles, left = left_of(p, s, tile), top = top_of(p, s, tile);
    const float * pixels_of_image = (const float *) image->data + batch * p->height * p->width * p->channels;
    vector m[MOST_PLACES], pixels[SIDE_4 * SIDE_4], seen = all(0);
    for (int i = 0; i < MOST_PLACES; ++i) m[i] = *(const vector *) (products + i * p->product);
#pragma GCC unroll 6
    for (int x = 0; x < PLACES; ++x) gather(SIDE_4, m + x, PLACES, m + x, PLACES);
#pragma GCC unroll 4
    for (int y = 0; y < SIDE_4; ++y) gather(SIDE_4, m + y * PLACES, 1, pixels + y * SIDE_4, 1);
    for (int i = 0; i < SIDE_4 * SIDE_4; ++i) seen += pixels[i] * 0.0f;
    const bool mended = some_are_not_finite((const float *) &seen, WIDTH);
    for (int64_t i = 0, y = top; i < SIDE_4 && y < dst->ne[2]; ++i, y += s->d1) {
        for (int64_t j = 0, x = left; j < SIDE_4 && x < dst->ne[1]; ++j, x += s->d0) {
            vector * pixel = pixels + i * SIDE_4 + j;
            if (mended) mend_pixel(p, s, kernels, pixels_of_image, row, x, y, count, (float *) pixel);
            const int64_t number = (batch * dst->ne[2] + y) * dst->ne[1] + x;
            for (int source = 3; source < GGML_MAX_SRC && (other = dst->src[source]) != NULL; ++source) {
                *pixel += some_of((const float *) other->data + number * step(other, 1) + row, count);
            }
            *pixel = simply_activated(simple, *pixel);
            float * to = (float *) dst->data + number * dst->ne[0] + row;
            if (count == WIDTH) *(unaligned *) to = *pixel;
            else copy((const float *) pixel, 1, count, to);
            if (!is_simple(&s->activation)) activate(&s->activation, to, NULL, count, to);
        }
    }
}

void graphc_winograd_last(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_conv_2d_settings * s = userdata;
    const struct ggml_tensor * kernel = dst->src[2];
    const struct plan_last p = plan_last_of(kernel, dst->src[0], s);
    const float * images = room_of(dst->src[1]);
    float * part = room_of(dst->src[1]) + p.images + ith * p.each, * products = part + MOST_PLACES * p.part;
    const struct matrix kernels = {.data = kernel->data, .step = kernel->nb[3], .type = kernel->type, .types = s->types};
    const int64_t panels = parts_of(dst->ne[0], PANEL), units = parts_of(p.all, p.group) * panels;
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        const int64_t row = unit % panels * PANEL, first = unit / panels * p.group, tiles = min_of(p.all - first, p.group), high = tile_rows(tiles);
        const int64_t columns = min_of(dst->ne[0] - row, PANEL);
        const tile_function * with = tiles_for(false, columns);
        for (int64_t c = 0; c < p.channels; c += CHANNELS_OF_PART) {
            const int64_t deep = min_of(p.channels - c, CHANNELS_OF_PART);
            filter_panel(&p, &kernels, row, columns, c, deep, part);
            for (int64_t place = 0; place < MOST_PLACES; ++place) {
                for (int64_t i = 0; i < tiles; i += high) {
                    const float * a = images + place * p.plane + (first + i) * p.across + c;
                    const struct ahead ahead = rows_ahead(a + p.plane, p.across * (int64_t) sizeof(float));
                    with[min_of(tiles - i, high)](a, p.across, part + place * p.part, products + place * p.product + i * PANEL, PANEL, one_line(deep),
                                                  c == 0 ? &as_they_are : &added_up, ahead);
                }
            }
        }
        for (int64_t i = 0; i < tiles; ++i) {
            for (int64_t j = 0; j < columns; j += WIDTH) {
                write_tile(&p, dst, s, &kernels, products + i * PANEL + j, first + i, row + j, min_of(columns - j, WIDTH));
            }
        }
    }
}
