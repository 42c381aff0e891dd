// Products of bytes less their zero points with matrices or kernels that were packed when they were stored, summed in 32 bits, which wrap
// around: of convolutions, whose images have their channels last before and after, and of matrices as convolutions without places. What
// is done with a sum is done on the way out: it is scaled, and becomes a byte.
#include "types.h"
#include "byte_dots.h"
#include "byte_sums.h"
#include "byte_tiles.h"
#include "integers.h"

// How many places are computed at once.
enum { GRAPHC_HIGH_T = 128 / GRAPHC_BYTE_TALL * GRAPHC_BYTE_TALL };

// Of how many rows a matrix unit multiplies, and of how many the words are sorted by whether their pairs have room.
enum { GRAPHC_LEAST_TALL_T = 8, GRAPHC_SORTED_T = 4 };

// Kernels as panels[out / 32][kernel height * kernel width * channels / 4][32][4], filled up with zeros. The image is
// x[batch][height][width][channels], the result y[batch][place][out].
struct graphc_packed_T {
    struct graphc_window_T window;
    int64_t factors, lowest;
};

// Adds products of rows with the first `count` columns of a panel of `words` words to sums[high][GRAPHC_PACKED], and perhaps with others.
// `largest` are the rows' largest bytes, or NULL; `shaped` is what a matrix unit's tiles are shaped for, 0 if for nothing.
static inline void graphc_panel_part_T(int64_t high, int64_t count, const uint8_t * rows, int64_t step, const uint8_t * panel, int64_t words, bool more,
                                       const uint8_t * largest, int32_t * sums, int * shaped) {
    enum { across = GRAPHC_PACKED / GRAPHC_LANES };
    const bool swapped = (T) -1 < 0;
#if defined(GRAPHC_HAS_TILES)
    if (high >= GRAPHC_LEAST_TALL_T && words > 0 && graphc_has_tiles()) {
        const struct graphc_pieces one = graphc_one_piece(rows, step, words);
        graphc_multiply_by_tiles(swapped, high, &one, panel, more, sums, shaped);
        return;
    }
#else
    (void) shaped;
#endif
    for (int j = 0; j < across && j * GRAPHC_LANES < count; j += 2) {
        const graphc_loose_words * const columns = (const graphc_loose_words *) panel + j;
        const struct graphc_order * order = NULL;
#if defined(GRAPHC_ADDS_PAIRS_OF_BYTES)
        struct graphc_order sorted;
        if (largest != NULL) graphc_sort_words(swapped, largest, columns, across, words, &sorted), order = &sorted;
#else
        (void) largest;
#endif
        for (int64_t i = 0, tall; i < high; i += tall) {
            graphc_words * const to = (graphc_words *) (sums + i * GRAPHC_PACKED) + j;
            const uint8_t * const from = rows + i * step;
            const int64_t rest = high - i;
            if (rest >= GRAPHC_BYTE_TALL) graphc_byte_dots(swapped, tall = GRAPHC_BYTE_TALL, from, step, columns, across, order, words, more, to, across);
            else if (rest >= 4) graphc_byte_dots(swapped, tall = 4, from, step, columns, across, order, words, more, to, across);
            else if (rest >= 2) graphc_byte_dots(swapped, tall = 2, from, step, columns, across, order, words, more, to, across);
            else graphc_byte_dots(swapped, tall = 1, from, step, columns, across, order, words, more, to, across);
        }
    }
}

// The largest byte of all rows, which are `step` bytes apart, at each place of them.
static inline void graphc_largest_bytes_T(int64_t high, const uint8_t * restrict rows, int64_t step, int64_t count, uint8_t * restrict largest) {
    for (int64_t k = 0; k < count; k++) largest[k] = 0;
    for (int64_t i = 0; i < high; i++, rows += step) {
        for (int64_t k = 0; k < count; k++) largest[k] = rows[k] > largest[k] ? rows[k] : largest[k];
    }
}

// What is known of the columns of so many panels, of which the first `wide` from one on are there. Returns 0 if none has a zero point.
static inline int32_t graphc_columns_of_T(const struct graphc_packed_T * p, const struct graphc_integer_block_T * b, const struct graphc_finish * f,
                                          int64_t first, int64_t wide, int64_t panels, struct graphc_columns * c) {
    const struct graphc_window_T * const s = &p->window;
    const int32_t row_shift = graphc_row_shift((T) -1 < 0), panel_shift = graphc_panel_shift((T) -1 < 0);
    const int32_t all = (int32_t) (s->kernel_height * s->kernel_width * s->channels);
    int32_t zeros = 0;
    for (int64_t q = 0; q < panels * GRAPHC_PACKED; q++) {
        const int64_t at = first + (q < wide ? q : 0);
        c->zero[q] = b->w_zero[s->w_zeros > 1 ? at : 0] + panel_shift;
        const int32_t total = f->sums[at] + all * (panel_shift - c->zero[q]);
        c->offset[q] = f->bias[s->biases > 1 ? at : 0] - (b->x_zero[0] + row_shift) * total;
        c->factor[q] = f->factor != NULL ? f->factor[p->factors > 1 ? at : 0] : 0;
        zeros |= c->zero[q];
    }
    return zeros;
}

// A block of the result: so many panels from the j-th on; the rest as of `graphc_window_row_T`.
static inline void graphc_panel_block_T(const struct graphc_packed_T * p, const struct graphc_integer_block_T * b, const struct graphc_finish * f,
                                        int64_t j, int64_t panels, uint8_t * y, int * shaped) {
    _Alignas(64) int32_t sums[GRAPHC_BROAD * GRAPHC_HIGH_T * GRAPHC_PACKED];
    _Alignas(64) uint8_t rows[GRAPHC_HIGH_T * GRAPHC_DEPTH_T + GRAPHC_BEHIND_T];
    struct graphc_columns columns;
    int32_t row_sums[GRAPHC_HIGH_T] = {0};
    const struct graphc_window_T * const s = &p->window;
    const int64_t taps = s->kernel_height * s->kernel_width, all = taps * s->channels, quads = (all + GRAPHC_QUAD - 1) / GRAPHC_QUAD;
    const int64_t first = j * GRAPHC_PACKED, wide = s->out - first < panels * GRAPHC_PACKED ? s->out - first : panels * GRAPHC_PACKED;
    const int32_t row_shift = graphc_row_shift((T) -1 < 0);
    const int32_t zeros = graphc_columns_of_T(p, b, f, first, wide, panels, &columns);
    const bool lies = taps == 1 && s->stride_y == 1 && s->stride_x == 1 && s->pad_y == 0 && s->pad_x == 0;
    const bool same = s->places_high == s->height && s->places_wide == s->width;
    const bool direct = lies && same && row_shift == 0 && s->channels % GRAPHC_QUAD == 0 && zeros == 0;
    const int64_t parts = all > 0 ? (all + GRAPHC_DEPTH_T - 1) / GRAPHC_DEPTH_T : 1, each = ((all + parts - 1) / parts + 63) / 64 * 64;
    const int64_t size = f->zero != NULL ? 1 : sizeof(int32_t);
#if defined(GRAPHC_ADDS_PAIRS_OF_BYTES)
    _Alignas(64) uint8_t room[GRAPHC_DEPTH_T];
    uint8_t * const largest = b->places >= GRAPHC_SORTED_T ? room : NULL;
#else
    uint8_t * const largest = NULL;
#endif
    for (int64_t part = 0; part < parts; part++) {
        const int64_t k = part * each, deep = all - k < each ? all - k : each, words = (deep + GRAPHC_QUAD - 1) / GRAPHC_QUAD;
        const int64_t step = direct ? s->channels : (deep + 63) / 64 * 64;
        for (int64_t i = 0; i < b->places && !direct; i++) {
            uint8_t * const row = rows + i * step;
            if (zeros == 0) graphc_window_row_T(b, s, i, k, deep, true, row_shift, row);
            else row_sums[i] += graphc_summed_row_T(b, s, i, k, deep, true, row_shift, row);
        }
        const uint8_t * const from = direct ? (const uint8_t *) (b->x + b->place * s->channels + k) : rows;
        if (largest != NULL) graphc_largest_bytes_T(b->places, from, step, words * GRAPHC_QUAD, largest);
        for (int64_t q = 0; q < panels; q++) {
            const uint8_t * const panel = (const uint8_t *) b->w + ((j + q) * quads + k / GRAPHC_QUAD) * GRAPHC_PACKED * GRAPHC_QUAD;
            int32_t * const found = sums + (parts > 1 ? q * GRAPHC_HIGH_T * GRAPHC_PACKED : 0);
            const int64_t left = wide - q * GRAPHC_PACKED, count = left < GRAPHC_PACKED ? left : GRAPHC_PACKED;
            graphc_panel_part_T(b->places, count, from, step, panel, words, part > 0, largest, found, shaped);
            if (part + 1 < parts) continue;
            uint8_t * const to = y + q * GRAPHC_PACKED * size;
            graphc_finish_panel(f, &columns, q, b->places, found, zeros == 0 ? NULL : row_sums, (int32_t) p->lowest, to, s->out, count);
        }
    }
}

#if defined(GRAPHC_HAS_TILES)
enum { GRAPHC_IMAGE_T = GRAPHC_HIGH_T * GRAPHC_DEPTH_T, GRAPHC_MOST_PLACES_T = 64, GRAPHC_LEAST_CHANNELS_T = 32 };

// Lines of the result that are made together of a part of the image with what is around it, where each place of the kernel reads what it meets where
// it lies: 0 if windows are copied instead. Places that follow one another are rows, also those between two lines, whose sums are none.
static inline int64_t graphc_lines_T(const struct graphc_packed_T * p, const I * w_zero) {
    const struct graphc_window_T * const s = &p->window;
    const int64_t taps = s->kernel_height * s->kernel_width, wide = s->places_wide + s->kernel_width - 1, line = wide * s->channels;
    if (taps < 2 || taps > GRAPHC_MOST_PLACES_T || s->channels % GRAPHC_QUAD != 0 || s->channels < GRAPHC_LEAST_CHANNELS_T || s->stride_x != 1 ||
        s->stride_y != 1 || s->dilation_x != 1 || s->dilation_y != 1 || !graphc_has_tiles()) return 0;
    for (int64_t q = 0; q < (s->w_zeros > 1 ? s->out : 1); q++) {
        if (w_zero[q] != 0) return 0;
    }
    const int64_t room = GRAPHC_IMAGE_T / line - (s->kernel_height - 1), most = (GRAPHC_HIGH_T + s->kernel_width - 1) / wide;
    const int64_t lines = room < most ? room : most;
    return lines < 0 ? 0 : lines < s->places_high ? lines : s->places_high;
}

// A part of the image, so many lines from one on, with zero points around it.
static inline void graphc_framed_T(const struct graphc_integer_block_T * b, const struct graphc_window_T * s, int64_t top, int64_t lines, int64_t wide,
                                   uint8_t * to) {
    const int64_t c = s->channels, before = s->pad_x < wide ? s->pad_x : wide, most = wide - before, inside = s->width < most ? s->width : most;
    for (int64_t i = 0; i < lines; i++, to += wide * c) {
        const int64_t y = top + i - s->pad_y;
        if (y < 0 || y >= s->height) {
            memset(to, (uint8_t) b->x_zero[0], (size_t) (wide * c));
            continue;
        }
        memset(to, (uint8_t) b->x_zero[0], (size_t) (before * c));
        memcpy(to + before * c, b->x + y * s->width * c, (size_t) (inside * c));
        memset(to + (before + inside) * c, (uint8_t) b->x_zero[0], (size_t) ((most - inside) * c));
    }
}

// So many lines of the result from one on, and panels from the j-th on.
static inline void graphc_lines_block_T(const struct graphc_packed_T * p, const struct graphc_integer_block_T * b, const struct graphc_finish * f,
                                        int64_t top, int64_t lines, int64_t j, int64_t panels, uint8_t * y, int * shaped) {
    _Alignas(64) int32_t sums[GRAPHC_HIGH_T * GRAPHC_PACKED];
    _Alignas(64) uint8_t image[GRAPHC_IMAGE_T];
    struct graphc_columns columns;
    int64_t offsets[GRAPHC_MOST_PLACES_T];
    const struct graphc_window_T * const s = &p->window;
    const int64_t taps = s->kernel_height * s->kernel_width, wide = s->places_wide + s->kernel_width - 1, words = s->channels / GRAPHC_QUAD;
    const int64_t first = j * GRAPHC_PACKED, there = s->out - first < panels * GRAPHC_PACKED ? s->out - first : panels * GRAPHC_PACKED;
    const int64_t size = f->zero != NULL ? 1 : sizeof(int32_t), high = lines * wide - (s->kernel_width - 1);
    graphc_columns_of_T(p, b, f, first, there, panels, &columns);
    graphc_framed_T(b, s, top, lines + s->kernel_height - 1, wide, image);
    for (int64_t tap = 0; tap < taps; tap++) offsets[tap] = (tap / s->kernel_width * wide + tap % s->kernel_width) * s->channels;
    const struct graphc_pieces pieces = {image, s->channels, words, taps, offsets};
    for (int64_t q = 0; q < panels; q++) {
        const uint8_t * const panel = (const uint8_t *) b->w + (j + q) * taps * words * GRAPHC_PACKED * GRAPHC_QUAD;
        const int64_t left = there - q * GRAPHC_PACKED, count = left < GRAPHC_PACKED ? left : GRAPHC_PACKED;
        graphc_multiply_by_tiles((T) -1 < 0, high, &pieces, panel, false, sums, shaped);
        for (int64_t i = 0; i < lines; i++) {
            uint8_t * const to = y + (i * s->places_wide * s->out + q * GRAPHC_PACKED) * size;
            graphc_finish_panel(f, &columns, q, s->places_wide, sums + i * wide * GRAPHC_PACKED, NULL, (int32_t) p->lowest, to, s->out, count);
        }
    }
}

// The result of `graphc_panels_T`, so many lines at a time.
static inline void graphc_by_lines_T(const struct graphc_packed_T * p, const T * x, const I * w, const T * x_zero, const I * w_zero,
                                     const struct graphc_finish * f, uint8_t * y, int64_t lines, int ith, int nth) {
    const struct graphc_window_T * const s = &p->window;
    const int64_t panels = (s->out + GRAPHC_PACKED - 1) / GRAPHC_PACKED, size = f->zero != NULL ? 1 : sizeof(int32_t);
    int64_t broad = GRAPHC_BROAD;
    while (broad > 1 && s->batches * ((s->places_high + lines - 1) / lines) * ((panels + broad - 1) / broad) < 4 * nth) broad /= 2;
    const int64_t across = (panels + broad - 1) / broad;
    while (lines > 1 && s->batches * ((s->places_high + lines - 1) / lines) * across < 2 * nth) lines = (lines + 1) / 2;
    const int64_t down = (s->places_high + lines - 1) / lines, units = s->batches * down * across;
    int shaped = 0;
    const bool many = s->places_high * s->places_wide > s->out;  // then lines lie in the cache while columns pass by
    for (int64_t unit = units * ith / nth; unit < units * (ith + 1) / nth; unit++) {
        const int64_t within = unit % (across * down), batch = unit / (across * down);
        const int64_t row = many ? within / across : within % down, panel = (many ? within % across : within / down) * broad;
        const int64_t top = s->places_high * row / down, end = s->places_high * (row + 1) / down;
        const struct graphc_integer_block_T block = {
            .x = x + batch * s->height * s->width * s->channels, .w = w, .x_zero = x_zero, .w_zero = w_zero,
        };
        uint8_t * const to = y + ((batch * s->places_high + top) * s->places_wide * s->out + panel * GRAPHC_PACKED) * size;
        graphc_lines_block_T(p, &block, f, top, end - top, panel, panels - panel < broad ? panels - panel : broad, to, &shaped);
    }
    if (shaped != 0) graphc_leave_tiles();
}
#endif

// y: what the products of x - x_zero with w - w_zero sum up to, and the bias, finished. x_zero is one number.
static inline void graphc_panels_T(const T * x, const I * w, const T * x_zero, const I * w_zero, const struct graphc_finish * f,
                                   uint8_t * y, const int64_t * sizes, int ith, int nth) {
    struct graphc_packed_T p;
    memcpy(&p, sizes, sizeof(p));
    const struct graphc_window_T * const s = &p.window;
#if defined(GRAPHC_HAS_TILES)
    const int64_t lines = graphc_lines_T(&p, w_zero);
    if (lines > 0) return graphc_by_lines_T(&p, x, w, x_zero, w_zero, f, y, lines, ith, nth);
#endif
    const int64_t places = s->places_high * s->places_wide, panels = (s->out + GRAPHC_PACKED - 1) / GRAPHC_PACKED;
    int64_t wide = GRAPHC_BROAD, down = (places + GRAPHC_HIGH_T - 1) / GRAPHC_HIGH_T;
    while (wide > 1 && s->batches * down * ((panels + wide - 1) / wide) < 4 * nth) wide /= 2;
    const int64_t across = (panels + wide - 1) / wide;
    const int64_t tiles = (places + GRAPHC_BYTE_TALL - 1) / GRAPHC_BYTE_TALL;
    while (down < tiles && s->batches * down * across < 4 * nth) down *= 2;
    if (s->batches * across % nth != 0 && down < tiles) down = (down + nth - 1) / nth * nth;  // each thread has as many
    down = down < tiles ? down : tiles;
    const bool many = places > s->out;  // then places lie in the cache while columns pass by, else columns while places do
    const int64_t units = s->batches * down * across, size = f->zero != NULL ? 1 : sizeof(int32_t);
    int shaped = 0;
    for (int64_t unit = units * ith / nth; unit < units * (ith + 1) / nth; unit++) {
        const int64_t within = unit % (across * down), batch = unit / (across * down);
        const int64_t row = many ? within / across : within % down, panel = (many ? within % across : within / down) * wide;
        const int64_t place = tiles * row / down * GRAPHC_BYTE_TALL, end = tiles * (row + 1) / down * GRAPHC_BYTE_TALL;
        const struct graphc_integer_block_T block = {
            .x = x + batch * s->height * s->width * s->channels, .w = w, .x_zero = x_zero, .w_zero = w_zero,
            .place = place, .places = (end < places ? end : places) - place,
        };
        uint8_t * const to = y + ((batch * places + place) * s->out + panel * GRAPHC_PACKED) * size;
        graphc_panel_block_T(&p, &block, f, panel, panels - panel < wide ? panels - panel : wide, to, &shaped);
    }
#if defined(GRAPHC_HAS_TILES)
    if (shaped != 0) graphc_leave_tiles();
#endif
}

// As int32.
static inline void graphc_packed_sums_T(const T * x, const I * w, const T * x_zero, const I * w_zero, const int32_t * bias,
                                        const int32_t * sums, int32_t * y, const int64_t * sizes, int ith, int nth) {
    const struct graphc_finish finish = {bias, sums, NULL, NULL};
    graphc_panels_T(x, w, x_zero, w_zero, &finish, (uint8_t *) y, sizes, ith, nth);
}

// Times a factor, or one for each kernel.
static inline void graphc_packed_floats_T(const T * x, const I * w, const T * x_zero, const I * w_zero, const int32_t * bias,
                                          const int32_t * sums, const float * factor, float * y, const int64_t * sizes, int ith, int nth) {
    const struct graphc_finish finish = {bias, sums, factor, NULL};
    graphc_panels_T(x, w, x_zero, w_zero, &finish, (uint8_t *) y, sizes, ith, nth);
}

// The same as bytes, rounded, plus a zero point.
static inline void graphc_packed_bytes_T(const T * x, const I * w, const T * x_zero, const I * w_zero, const int32_t * bias,
                                         const int32_t * sums, const float * factor, const void * zero, void * y, const int64_t * sizes,
                                         int ith, int nth) {
    const struct graphc_finish finish = {bias, sums, factor, (const uint8_t *) zero};
    graphc_panels_T(x, w, x_zero, w_zero, &finish, (uint8_t *) y, sizes, ith, nth);
}
