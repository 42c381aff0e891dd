// Convolutions with kernels of 3 x 3 by Winograd's minimal filtering (see `winograd.c`), of images whose channels lie one after the other:
// tiles are transformed by vectors of channels. For each of the 36 places of a transformed tile there is a product, of some tiles by some
// channels of the result. Of few tiles, all are transformed before, and each part of the kernel when it is needed; of many, the kernel is
// transformed before, and each thread transforms some tiles for itself, which it multiplies with all of the kernel. A kernel with
// dilations meets pixels that are as far apart: those of each phase of the image are an image of their own, whose tiles are among all others.

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
    MOST_FEW_TILES = 320,        // of all images
    LEAST_GROUPS = 16,           // of many tiles
    MOST_KERNEL_LAST = 1 << 25   // elements of a transformed kernel
};

/// What lies where in the workspace: tiles as [places][tiles][across], the kernel, or a part of it, as [places][panels][channels][PANEL], and
/// products as [places][panels][tiles][PANEL].
struct plan_last {
    int64_t channels, width, height;
    int64_t wide, phase, tiles, all;                    // tiles of a line, of a phase, of an image and of all images
    int64_t panels;                                     // of the kernel: some of its results each
    bool many;                                          // tiles
    int64_t across, plane, part, product;               // elements from one to the next: tiles, and places of all three
    int64_t group;                                      // tiles that are multiplied together
    int64_t before, each;                               // elements of what is transformed before, and of what each thread needs for itself
};

static struct plan_last plan_last_of(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    struct plan_last p = {.channels = kernel->ne[2], .width = image->ne[1], .height = image->ne[2], .wide = parts_of(parts_of(s->width, s->d0), SIDE_4)};
    p.phase = p.wide * parts_of(parts_of(s->height, s->d1), SIDE_4), p.tiles = p.phase * s->d0 * s->d1, p.all = p.tiles * image->ne[3];
    p.panels = parts_of(kernel->ne[3], PANEL), p.across = odd_vectors(p.channels);
    const int64_t whole = odd_vectors(p.panels * p.channels * PANEL);
    p.many = p.all > MOST_FEW_TILES && MOST_PLACES * whole <= MOST_KERNEL_LAST;
    p.part = p.many ? whole : odd_vectors(CHANNELS_OF_PART * PANEL);
    p.group = even_split(p.all, p.many ? min_of(TILES_TOGETHER, parts_of(p.all, LEAST_GROUPS)) : TILES_TOGETHER);
    p.plane = odd_vectors((p.many ? p.group : p.all) * p.across), p.product = odd_vectors(p.group * PANEL * (p.many ? p.panels : 1));
    p.before = MOST_PLACES * (p.many ? p.part : p.plane);
    p.each = MOST_PLACES * ((p.many ? p.plane : p.part) + p.product);
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
    const bool whole = kernel->ne[2] == image->ne[0];
    const bool fewer = MOST_PLACES * plan_last_of(kernel, image, s).tiles <= kernel->ne[0] * kernel->ne[1] * s->width * s->height;  // products
    return three && plain && some && whole && fewer && is_weight(kernel, s->types) && numbers && is_dense(image);
}

int64_t graphc_winograd_last_size(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s,
                                  int threads) {
    const struct plan_last p = plan_last_of(kernel, image, s);
    return p.before + threads * p.each + WIDTH;
}

/// Transforms a tile of all images; its places are `p->plane` elements apart.
static void spread_tile(const struct plan_last * p, const struct graphc_conv_2d_settings * s, const struct ggml_tensor * image, int64_t t, float * to) {
    enum { SIDE_OF_READ = SIDE_4 + 2 };
    const int64_t tile = t % p->tiles, left = left_of(p, s, tile) - s->p0, top = top_of(p, s, tile) - s->p1;
    const float * pixels = (const float *) image->data + t / p->tiles * p->height * p->width * p->channels;
    for (int64_t c = 0; c < p->channels; c += WIDTH) {
        vector d[MOST_PLACES];
        for (int i = 0; i < SIDE_OF_READ; ++i) {
            for (int j = 0; j < SIDE_OF_READ; ++j) {
                const int64_t y = top + i * s->d1, x = left + j * s->d0;
                const bool inside = y >= 0 && y < p->height && x >= 0 && x < p->width;
                const float * from = pixels + (y * p->width + x) * p->channels + c;
                d[i * SIDE_OF_READ + j] = inside ? some_of(from, p->channels - c) : all(0);
            }
        }
#pragma GCC unroll 6
        for (int x = 0; x < SIDE_OF_READ; ++x) spread(SIDE_4, d + x, SIDE_OF_READ, d + x);
        float * place = to + c;
#pragma GCC unroll 6
        for (int y = 0; y < SIDE_OF_READ; ++y) {
            vector line[SIDE_OF_READ];
            spread(SIDE_4, d + y * SIDE_OF_READ, 1, line);
#pragma GCC unroll 6
            for (int x = 0; x < SIDE_OF_READ; ++x, place += p->plane) *(vector *) place = line[x];
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

static inline struct matrix rows_of_kernel(const struct ggml_tensor * kernel, const struct graphc_conv_2d_settings * s) {
    return (struct matrix){.data = kernel->data, .step = kernel->nb[3], .type = kernel->type, .types = s->types};
}

void graphc_winograd_last_operands(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_conv_2d_settings * s = userdata;
    const struct ggml_tensor * kernel = dst->src[0], * image = dst->src[1];
    const struct plan_last p = plan_last_of(kernel, image, s);
    const struct matrix kernels = rows_of_kernel(kernel, s);
    const int64_t parts = parts_of(p.channels, CHANNELS_OF_PART), units = p.many ? p.panels * parts : parts_of(p.all, p.wide);
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        if (p.many) {
            const int64_t panel = unit / parts, c = unit % parts * CHANNELS_OF_PART;
            filter_panel(&p, &kernels, panel * PANEL, min_of(kernel->ne[3] - panel * PANEL, PANEL), c, min_of(p.channels - c, CHANNELS_OF_PART),
                         room_of(dst) + (panel * p.channels + c) * PANEL);
        } else {
            for (int64_t t = unit * p.wide; t < (unit + 1) * p.wide; ++t) spread_tile(&p, s, image, t, room_of(dst) + t * p.across);
        }
    }
}

/// Products of some tiles, from the channel c on, with a part of the kernel at one place.
static void multiply_place(const struct plan_last * p, const float * images, int64_t tiles, int64_t c, int64_t columns, const float * part, float * products) {
    const int64_t high = tile_rows(tiles);
    const tile_function * with = tiles_for(false, columns);
    for (int64_t i = 0; i < tiles; i += high) {
        const float * a = images + i * p->across + c;
        with[min_of(tiles - i, high)](a, p->across, part, products + i * PANEL, PANEL, one_line(min_of(p->channels - c, CHANNELS_OF_PART)),
                                      c == 0 ? &as_they_are : &added_up, rows_ahead(a + p->plane, p->across * (int64_t) sizeof(float)));
    }
}

void graphc_winograd_last(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_conv_2d_settings * s = userdata;
    const struct ggml_tensor * kernel = dst->src[2], * image = dst->src[0];
    const struct plan_last p = plan_last_of(kernel, image, s);
    const struct matrix kernels = rows_of_kernel(kernel, s);
    float * before = room_of(dst->src[1]), * own = before + p.before + ith * p.each, * products = own + p.each - MOST_PLACES * p.product;
    const int64_t together = p.many ? p.panels : 1, units = parts_of(p.all, p.group) * (p.panels / together);
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        const int64_t group = unit / (p.panels / together), first = group * p.group, tiles = min_of(p.all - first, p.group);
        const int64_t panel = unit % (p.panels / together) * PANEL, end = min_of(panel + together * PANEL, dst->ne[0]);
        if (p.many) {
            for (int64_t i = 0; i < tiles; ++i) spread_tile(&p, s, image, first + i, own + i * p.across);
            for (int64_t place = 0; place < MOST_PLACES; ++place) {
                for (int64_t row = 0; row < end; row += PANEL) {
                    for (int64_t c = 0; c < p.channels; c += CHANNELS_OF_PART) {
                        multiply_place(&p, own + place * p.plane, tiles, c, min_of(end - row, PANEL), before + place * p.part + row * p.channels + c * PANEL,
                                       products + place * p.product + row * p.group);
                    }
                }
            }
        } else {
            for (int64_t c = 0; c < p.channels; c += CHANNELS_OF_PART) {
                filter_panel(&p, &kernels, panel, end - panel, c, min_of(p.channels - c, CHANNELS_OF_PART), own);
                for (int64_t place = 0; place < MOST_PLACES; ++place) {
                    multiply_place(&p, before + first * p.across + place * p.plane, tiles, c, end - panel, own + place * p.part, products + place * p.product);
                }
            }
        }
        for (int64_t i = 0; i < tiles; ++i) {
            for (int64_t row = panel; row < end; row += WIDTH) {
                const int64_t at = (row - panel) / PANEL * PANEL;
                write_tile(&p, dst, s, &kernels, products + at * p.group + i * PANEL + (row - panel - at), first + i, row, min_of(end - row, WIDTH));
            }
        }
    }
}
