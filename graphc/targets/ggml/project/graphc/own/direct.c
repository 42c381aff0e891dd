// Convolutions by a matrix unit, where operands may be rounded to bfloat16. All channels of a pixel are made one piece, and there are zeros
// between lines, and above and below them. So what a place of the kernel meets at pixels that follow one another follows one another too,
// and a tile's rows are read where they lie. The pixels between lines are computed too, and nobody reads them. The products of some
// channels with all places are added up before those of the next, so that their part of the kernel stays in the first cache.
//
// Of an image in which each pixel is there twice along each line, and each line twice, a window of 3 x 3 meets but 2 x 2 pixels: those of an
// even pixel are the one before and its own, whose two places of the kernel are one; those of an odd one its own and the one behind. So a
// kernel of 3 x 3 becomes four of 2 x 2, its phases, and the image is read as it was before it was doubled.

#include "direct.h"

#include "activate.h"
#include "blocks.h"
#include "minimal.h"
#include "normalized.h"
#include "parts.h"
#include "tiles.h"

#include <string.h>

enum {
    LEAST_CHANNELS_OF_DIRECT = 16,                 // of the image
    CHANNELS_AT_ONCE = 2 * STEP,                   // of all places, with a panel of the kernel
    CHANNELS_OF_ONE_PLACE = 16 * STEP,             // of which sums would be short
    MOST_PLACES_OF_DIRECT = 25,                    // of the kernel
    PIXELS_OF_UNIT = 1024,                         // and those between lines
    MOST_OF_LINE = 2 * PIXELS_OF_UNIT,             // of the result
    PANELS_OF_UNIT = 8,
    PHASES = 2, PLACES_OF_PHASES = 16              // along a side, and of all of them
};

/// The channels from one on that are summed up at once, and the words that a panel has of those before.
static inline int64_t channels_from(int64_t places, int64_t channels, int64_t channel) {
    return min_of(channels - channel, places == 1 ? CHANNELS_OF_ONE_PLACE : CHANNELS_AT_ONCE);
}
static inline int64_t words_before(int64_t places, int64_t channel) { return places * part_rows(ONE_PART, channel) * PANEL; }

/// Sizes of the image, the kernel and the result, of which each phase has `across` pixels of `down` lines, and where they lie in words: pixels
/// `pixel` words apart, lines `line` pixels, images `image` words; panels of the kernel `panel` words, with `places` of a window, of all phases.
struct plan_direct {
    bool last;
    int64_t channels, width, height, kw, kh, columns, across, down, images, phases;
    int64_t pixel, line, image, places, panel, kernel;
    int64_t lines;  // of a unit
};

static struct plan_direct plan_direct_of(const struct ggml_tensor * kernel, const struct ggml_tensor * image, bool last,
                                         const struct graphc_conv_2d_settings * s) {
    const int64_t * ne = image->ne;
    struct plan_direct p = {last, last ? ne[0] : ne[2], last ? ne[1] : ne[0], last ? ne[2] : ne[1], kernel->ne[0], kernel->ne[1], kernel->ne[3]};
    p.phases = s->doubled ? PHASES : 1, p.across = s->width / p.phases, p.down = s->height / p.phases, p.images = ne[3];
    const int64_t behind = p.across + p.kw - 1 - s->p0 - p.width, between = behind > s->p0 ? behind : s->p0;
    p.pixel = steps_in(p.channels) * TILE_PAIRS, p.line = p.width + (between > 0 ? between : 0);
    const int64_t pixels = (p.down + p.kh - 1) * p.line + s->p0 + MOST_TILE_ROWS + p.kw;  // tiles may read beyond the last line
    p.image = pixels * p.pixel;
    p.places = s->doubled ? PLACES_OF_PHASES : p.kw * p.kh;
    p.panel = words_before(p.places, p.channels), p.kernel = s->panels != NULL ? 0 : parts_of(p.columns, PANEL) * p.panel;
    p.lines = p.phases * p.line >= PIXELS_OF_UNIT ? 1 : min_of(p.down, PIXELS_OF_UNIT / (p.phases * p.line));
    return p;
}

bool graphc_takes_direct(const struct ggml_tensor * kernel, const struct ggml_tensor * image, bool last, const struct graphc_conv_2d_settings * s) {
    if (parts_for(s->pairs) != ONE_PART || s->planes.kernel != 0 || s->s0 != 1 || s->s1 != 1 || s->d0 != 1 || s->d1 != 1) return false;
    const bool numbers = kernel->type == GGML_TYPE_F32 || s->types->blck_size == 1, together = kernel->ne[2] == (last ? image->ne[0] : image->ne[2]);
    if (!is_weight(kernel, s->types) || !is_dense(image) || !numbers || !together) return false;
    const struct plan_direct p = plan_direct_of(kernel, image, last, s);
    const bool windows = (p.kw * p.kh > 1 || !last) && p.kw * p.kh <= MOST_PLACES_OF_DIRECT && p.channels >= LEAST_CHANNELS_OF_DIRECT;
    if (s->doubled && (p.kw != 3 || p.kh != 3 || s->p0 != 1 || s->p1 != 1 || s->width != PHASES * p.width || s->height != PHASES * p.height)) return false;
    return windows && p.phases * p.line <= MOST_OF_LINE && p.across <= p.line && s->p0 < p.kw && s->p1 < p.kh && s->p0 >= 0 && s->p1 >= 0;
}

int64_t graphc_direct_size(const struct ggml_tensor * kernel, const struct ggml_tensor * image, bool last, const struct graphc_conv_2d_settings * s) {
    const struct plan_direct p = plan_direct_of(kernel, image, last, s);
    return p.images * p.image + p.kernel + WIDTH;
}

/// Some channels of pixels of a line, [channels][pixels] with planes so many elements apart, as pieces of all channels: many pixels of two planes
/// after the other, for planes are far apart.
static void turn_pixels(const float * from, int64_t plane, int64_t channels, int64_t count, const struct norm_terms * terms, bool silu, word * to,
                        int64_t pixel) {
    enum { PIXELS = 32 * WIDTH, NEXT = PIXELS + WIDTH };
    word pairs[TILE_PAIRS * NEXT] __attribute__((aligned(64))), square[WIDTH * WIDTH] __attribute__((aligned(64)));
    if (channels < STEP) memset(pairs, 0, sizeof pairs);
    for (int64_t x = 0; x < count; x += PIXELS) {
        const int64_t there = min_of(count - x, PIXELS);
        for (int64_t c = 0; c < channels; c += 2) {
            const float * first = from + c * plane + x;
            for (int64_t i = 0; i < there; i += WIDTH) {
                vector even = some_of(first + i, there - i), odd = c + 1 < channels ? some_of(first + plane + i, there - i) : all(0);
                if (terms != NULL) even = roughly_normalized(even, terms + c, silu);
                if (terms != NULL && c + 1 < channels) odd = roughly_normalized(odd, terms + c + 1, silu);
                *(words_of *) (pairs + c / 2 * NEXT + i) = paired(even, odd);
            }
        }
        for (int64_t i = 0; i < there; i += WIDTH) {
            word * piece = to + (x + i) * pixel;
            if (there - i >= WIDTH) {
                transpose_square((const float *) pairs + i, NEXT, (float *) piece, pixel);
                continue;
            }
            transpose_square((const float *) pairs + i, NEXT, (float *) square, WIDTH);
            for (int64_t each = 0; each < there - i; ++each) *(words_of *) (piece + each * pixel) = *(const words_of *) (square + each * WIDTH);
        }
    }
}

/// A line of an image, normalized if there are terms, and what is between it and the next; all zeros if there is no such line.
static void round_line(const struct plan_direct * p, const float * image, const struct norm_terms * terms, bool silu, int64_t y, word * to) {
    const int64_t words = p->line * p->pixel;
    if (y < 0 || y >= p->height) {
        memset(to, 0, (size_t) words * sizeof *to);
        return;
    }
    const int64_t pairs = pairs_in(p->channels);
    for (int64_t x = 0; x < p->width && p->last; ++x) {
        pair_row(image + (y * p->width + x) * p->channels, p->channels, (float *) to + x * p->pixel);
        for (int64_t i = pairs; i < p->pixel; ++i) to[x * p->pixel + i] = 0;
    }
    const int64_t plane = p->width * p->height;
    for (int64_t c = 0; c < p->channels && !p->last; c += STEP) {
        const struct norm_terms * some = terms == NULL ? NULL : terms + c;
        turn_pixels(image + c * plane + y * p->width, plane, min_of(p->channels - c, STEP), p->width, some, silu, to + c / 2, p->pixel);
    }
    memset(to + p->width * p->pixel, 0, (size_t) (words - p->width * p->pixel) * sizeof *to);
}

/// A kernel in rows [channels][places], which are the columns of products; it may be of `doubled` images.
struct kernels {
    struct matrix rows;
    int64_t columns, channels, places;
    bool doubled;
};

static inline struct kernels kernels_of(const struct ggml_tensor * t, const struct graphc_conv_2d_settings * s) {
    const struct matrix rows = {.data = (const char *) t->data, .step = t->nb[3], .type = t->type, .types = s->types};
    return (struct kernels){rows, t->ne[3], t->ne[2], t->ne[0] * t->ne[1], s->doubled};
}

/// The sums of the places of a kernel of 3 x 3 that a phase's place stands for, of so many rows of panels each.
static void add_places(const float * kernel, int64_t rows, int phase_y, int phase_x, int y, int x, float * to) {
    const int top = y == 0 ? 0 : 1 + phase_y, bottom = y == 0 ? 1 + phase_y : 3, left = x == 0 ? 0 : 1 + phase_x, right = x == 0 ? 1 + phase_x : 3;
    for (int64_t i = 0; i < rows * PANEL; i += WIDTH) {
        vector sum = all(0);
        for (int kx = left; kx < right; ++kx) {
            vector column = all(0);
            for (int ky = top; ky < bottom; ++ky) column += *(const vector *) (kernel + (ky * 3 + kx) * rows * PANEL + i);
            sum += column;
        }
        *(vector *) (to + i) = sum;
    }
}

/// Some channels, from one on, of the panel at a column: [phases][places][steps][TILE_PAIRS][PANEL].
static void round_piece(const struct kernels * k, int64_t column, int64_t channel, word * to) {
    const int64_t channels = channels_from(k->places, k->channels, channel), whole = steps_in(channels) * STEP;
    float wide[MOST_PLACES_OF_DIRECT * CHANNELS_AT_ONCE * PANEL] __attribute__((aligned(64))), summed[CHANNELS_AT_ONCE * PANEL] __attribute__((aligned(64)));
    if (whole != channels) memset(wide, 0, (size_t) (k->places * whole * PANEL) * sizeof *wide);
    struct matrix part = k->rows;
    part.data = element(&k->rows, 0, channel * k->places);
    pack_panel_of_places(&part, column, min_of(k->columns - column, PANEL), channels, k->places, whole, wide);
    if (!k->doubled) return split_panel(ONE_PART, wide, k->places * whole, to);
    for (int i = 0; i < PLACES_OF_PHASES; ++i, to += part_rows(ONE_PART, whole) * PANEL) {
        add_places(wide, whole, i / 8, i / 4 % 2, i / 2 % 2, i % 2, summed);
        split_panel(ONE_PART, summed, whole, to);
    }
}

/// The panel at a column, a piece after the other.
static void round_panel(const struct kernels * k, int64_t column, word * to) {
    const int64_t places = k->doubled ? PLACES_OF_PHASES : k->places;
    for (int64_t channel = 0; channel < k->channels; channel += channels_from(k->places, k->channels, channel)) {
        round_piece(k, column, channel, to + words_before(places, channel));
    }
}

/// Where the panel at a column stays, if it does.
static inline word * kept_panel(const struct graphc_panels * p, int64_t column) { return (word *) p->values + column * p->rows; }

static void round_kept_panel(const struct graphc_panels * p, int64_t column) {
    const struct kernels k = {packed_matrix(p), p->columns, p->depth / p->places, p->places, false};
    round_panel(&k, column, kept_panel(p, column));
}

static void round_kept_panel_of_doubled(const struct graphc_panels * p, int64_t column) {
    const struct kernels k = {packed_matrix(p), p->columns, p->depth / p->places, p->places, true};
    round_panel(&k, column, kept_panel(p, column));
}

struct graphc_panels * graphc_hold_panels_of_direct(const struct ggml_tensor * kernel, const struct graphc_conv_2d_settings * s) {
    const struct kernels k = kernels_of(kernel, s);
    struct graphc_panels like = {.data = kernel->data, .type = kernel->type, .types = s->types, .columns = k.columns, .places = k.places, .parts = ONE_PART};
    like.depth = like.part = k.channels * k.places, like.rows = (k.doubled ? PLACES_OF_PHASES : k.places) * part_rows(ONE_PART, k.channels);
    like.pack = k.doubled ? round_kept_panel_of_doubled : round_kept_panel;
    return graphc_hold_panels_like(&like);
}

static void round_operands(struct ggml_tensor * dst, int ith, int nth, struct graphc_conv_2d_settings * s, bool last) {
    const struct ggml_tensor * kernel = dst->src[0], * image = dst->src[1];
    const struct plan_direct p = plan_direct_of(kernel, image, last, s);
    const struct kernels kernels = kernels_of(kernel, s);
    const int64_t panels = s->panels != NULL ? 0 : parts_of(p.columns, PANEL), lines = p.down + p.kh - 1, units = panels + p.images * lines;
    word * images = (word *) room_of(dst), * packed = images + p.images * p.image;
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        if (unit < panels) {
            round_panel(&kernels, unit * PANEL, packed + unit * p.panel);
            continue;
        }
        const int64_t number = (unit - panels) / lines, y = (unit - panels) % lines;
        word * first = images + number * p.image, * to = first + (s->p0 + y * p.line) * p.pixel, * end = first + p.image;
        const float * pixels = (const float *) image->data + number * p.channels * p.width * p.height;
        const struct norm_terms * terms = dst->src[2] == NULL ? NULL : (const struct norm_terms *) dst->src[2]->data + number * p.channels;
        round_line(&p, pixels, terms, s->silu, y - s->p1, to);
        to += p.line * p.pixel;
        if (y == 0) memset(first, 0, (size_t) (s->p0 * p.pixel) * sizeof *first);
        if (y == lines - 1) memset(to, 0, (size_t) (end - to) * sizeof *to);
    }
}

void graphc_direct_operands(struct ggml_tensor * dst, int ith, int nth, void * userdata) { round_operands(dst, ith, nth, userdata, false); }

void graphc_direct_operands_last(struct ggml_tensor * dst, int ith, int nth, void * userdata) { round_operands(dst, ith, nth, userdata, true); }

/// The sums of so many pixels of a phase from one on, and of those between lines, rows `next` elements apart, with the panel at a column; if that
/// is NULL, with the kernel, a piece of which is rounded at a time.
static BY_MATRIX_UNIT void sum_pixels(const struct plan_direct * p, const word * image, int64_t phase, const word * panel, const struct kernels * kernels,
                                      int64_t column, int64_t pixels, float * sums, int64_t next) {
    const int64_t places = p->places / (p->phases * p->phases), kw = p->phases > 1 ? 2 : p->kw, kh = p->phases > 1 ? 2 : p->kh;
    const int64_t there = min_of(p->columns - column, PANEL);
    word piece[MOST_PLACES_OF_DIRECT * CHANNELS_AT_ONCE / 2 * PANEL] __attribute__((aligned(64)));
    begin_tiles(MOST_TILE_ROWS);
    for (int64_t c = 0, channels; c < p->channels; c += channels) {
        channels = channels_from(p->places, p->channels, c);
        const int64_t steps = steps_in(channels);
        if (panel == NULL) round_piece(kernels, column, c, piece);
        const word * right = (panel == NULL ? piece : panel + words_before(p->places, c)) + phase * places * steps * TILE_PAIRS * PANEL;
        for (int64_t i = 0; i < pixels; i += MOST_TILE_ROWS) {
            multiply_places_for(pixels - i, there)(image + i * p->pixel + c / 2, p->pixel, p->line, kw, kh, right, steps, c > 0, sums + i * next, next);
        }
    }
    end_tiles();
}

/// Sums of a line's pixels as that of a result whose channels come last, from a row and a column of the block on.
static void end_line_last(struct block * b, const struct ends * first, int64_t row, int64_t columns, float * sums, int64_t step, struct edge * edge) {
    struct ends ends = *first;
    const struct ahead nothing = {NULL, 0};
    for (int64_t i = 0; i < b->rows; i += MOST_TILE_ROWS) {
        const struct terms rows = {(int) min_of(b->rows - i, MOST_TILE_ROWS), 1, 0};
        float * c = b->c + (row + i) * b->ldc;
        move_ends(&ends, first, row + i, 0);
        if (columns == step) summed_up(sums + i * step, step, NULL, c, b->ldc, rows, &ends, nothing);
        else multiply_edge(edge, summed_up, sums + i * step, step, NULL, c, b->ldc, rows.depth, columns, rows, &ends, nothing);
    }
}

/// The same of a result in planes, at the place `at` of each: many pixels of a plane together, for planes are far apart.
static void end_line(struct block * b, const struct graphc_conv_2d_settings * s, int64_t at, int64_t columns, const float * sums, int64_t apart) {
    enum { PIXELS = 8 * WIDTH, NEXT = PIXELS + WIDTH };
    float planes[PANEL * NEXT] __attribute__((aligned(64)));
    for (int64_t x = 0; x < b->rows; x += PIXELS) {
        const int64_t count = min_of(b->rows - x, PIXELS);
        for (int64_t i = 0; i < count; i += WIDTH) {
            for (int64_t j = 0; j < columns; j += WIDTH) transpose_square(sums + (x + i) * apart + j, apart, planes + j * NEXT + i, NEXT);
        }
        for (int64_t j = 0; j < columns; ++j) {
            float * row = planes + j * NEXT, * to = b->c + j * b->ldc + at + x;
            add_sums(b->dst, b->at.axis[2] + j, at + x, b->at.axis[3], count, row);
            if (s->activation.function != GRAPHC_NO_ACTIVATION) activate(&s->activation, row, NULL, count, to);
            else copy(row, 1, count, to);
        }
    }
}

static void convolve(struct ggml_tensor * dst, int ith, int nth, struct graphc_conv_2d_settings * s, bool last) {
    const struct plan_direct p = plan_direct_of(dst->src[2], dst->src[0], last, s);
    const word * images = (const word *) room_of(dst->src[1]), * rounded = images + p.images * p.image;
    const struct kernels kernels = kernels_of(dst->src[2], s);
    float sums[(MOST_OF_LINE + PHASES * MOST_TILE_ROWS) * PANEL] __attribute__((aligned(64)));
    const int64_t panels = parts_of(p.columns, PANEL), across = p.across * p.phases;
    int64_t lines = p.lines, together = min_of(panels, PANELS_OF_UNIT);
    while (parts_of(p.down, lines) * p.images * parts_of(panels, together) < 4 * nth && lines > 1 && lines * p.line >= 8 * MOST_TILE_ROWS) lines = (lines + 1) / 2;
    while (parts_of(p.down, lines) * p.images * parts_of(panels, together) < 4 * nth && together > 1) together = (together + 1) / 2;
    const int64_t strips = parts_of(p.down, lines), groups = parts_of(panels, together), units = groups * strips * p.images;
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        const int64_t top = unit % strips * lines, group = unit / strips % groups, number = unit / strips / groups, count = min_of(p.down - top, lines);
        const word * image = images + number * p.image + top * p.line * p.pixel;
        for (int64_t panel = group * together; panel < min_of((group + 1) * together, panels); ++panel) {
            const int64_t column = panel * PANEL, columns = min_of(p.columns - column, PANEL), step = columns > TILE_ROWS ? PANEL : TILE_ROWS;
            const word * right = s->panels == NULL ? rounded + panel * p.panel : stays_packed(s->panels, column, columns) ? kept_panel(s->panels, column) : NULL;
            struct block b = {.dst = dst, .axis = last ? 1 : 2, .rows = across, .columns = columns, .first = true, .last = true, .between = 1, .activation = &s->activation};
            const int64_t pixels = across * p.down * p.phases;
            b.at = last ? (struct place){{column, number * pixels, 0, 0}} : (struct place){{0, 0, column, number}};
            b.ldc = last ? p.columns : pixels, b.c = (float *) dst->data + number * pixels * p.columns + column * (last ? 1 : pixels);
            const struct ends ends = ends_of(&b);
            struct edge edge;
            if (last && columns != step) prepare_edge(&edge, &ends);
            for (int64_t below = 0; below < p.phases; ++below) {
                for (int64_t behind = 0; behind < p.phases; ++behind) {  // pixels of these take turns
                    sum_pixels(&p, image + (below * p.line + behind) * p.pixel, below * p.phases + behind, right, &kernels, column,
                               (count - 1) * p.line + p.across, sums + behind * step, step * p.phases);
                }
                for (int64_t y = 0; y < count; ++y) {
                    float * from = sums + y * p.line * p.phases * step;
                    const int64_t first = ((top + y) * p.phases + below) * across;
                    if (last) end_line_last(&b, &ends, first, columns, from, step, &edge);
                    else end_line(&b, s, first, columns, from, step);
                }
            }
            if (last) finish(&b, top * p.phases * across, (top + count) * p.phases * across);
        }
    }
}

void graphc_direct(struct ggml_tensor * dst, int ith, int nth, void * userdata) { convolve(dst, ith, nth, userdata, false); }

void graphc_direct_last(struct ggml_tensor * dst, int ith, int nth, void * userdata) { convolve(dst, ith, nth, userdata, true); }
