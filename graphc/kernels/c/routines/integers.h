// Products of bytes less their zero points, summed in 32 bits, which wrap around: convolutions, and matrix products as
// convolutions without places. The rows of one matrix, which are read as they lie, meet those of another, which become the columns
// of panels: of a convolution the kernels meet what each place sees of the image, of a product the places meet the kernels.
#include "types.h"
#include "byte_tiles.h"
#include "dots.h"

// How many columns are packed at once, how many products of each of their sums, for how many rows it is not worth it, what is copied at once of
// short lines, also if it is more, and how many bytes may be written behind rows.
enum {
    GRAPHC_COLUMNS_T = 128, GRAPHC_DEPTH_T = 512, GRAPHC_WORDS_T = GRAPHC_DEPTH_T / GRAPHC_PARTS, GRAPHC_FEW_T = 4, GRAPHC_SHORT_T = 32,
    GRAPHC_BEHIND_T = 64
};

// The image is x[batch][height][width][group][channels], the kernels w[group][out][kernel height][kernel width][channels], or
// that for each batch. The result is y[batch][group][out][place], or y[batch][place][out] if `last`.
struct graphc_window_T {
    int64_t batches, groups, channels, out, height, width, kernel_height, kernel_width, places_high, places_wide,
        stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x, kernels, last, x_zeros, w_zeros, biases;
};

// A block of the result: places and channels from the first of each on, and where its first element is.
struct graphc_integer_block_T {
    const T * x;
    const I * w;
    const T * x_zero;
    const I * w_zero;
    const int32_t * bias;
    int32_t * y;
    int64_t place, places, channels, step;  // `step`: how far rows of the result lie apart
};

// Fills up a row to whole vectors; of bytes, where no parts are, to whole words. May write up to GRAPHC_BEHIND_T bytes behind.
static inline void graphc_whole_row_T(void * row, bool bytes, int64_t count) {
    const int64_t size = bytes ? 1 : sizeof(graphc_part), unit = bytes && sizeof(graphc_part) > 1 ? 4 : GRAPHC_LANES * GRAPHC_PARTS;
    if (count % unit != 0) memset((uint8_t *) row + count * size, 0, (size_t) (unit * size));
}

// Copies bytes, plus `shift`, which is 0 or turns their highest bit.
static inline void graphc_shifted_bytes_T(const void * restrict from, int64_t count, int32_t shift, uint8_t * restrict to) {
    const uint8_t * restrict const bytes = (const uint8_t *) from;
    if (shift == 0) memcpy(to, bytes, (size_t) count);
    for (int64_t i = 0; i < count && shift != 0; i++) to[i] = bytes[i] ^ 0x80;
}

// `count` elements of what a place of the result meets, from element `from` on, plus `shift`, as bytes or as parts; outside of x is the
// zero point. May write up to GRAPHC_BEHIND_T bytes behind the row, whose numbers are none. `bytes` and `shift` are constants where this is called.
static inline __attribute__((always_inline)) void graphc_window_row_T(const struct graphc_integer_block_T * b, const struct graphc_window_T * s,
                                                                      int64_t number, int64_t from, int64_t count, bool bytes, int32_t shift,
                                                                      void * row) {
    uint8_t * const as_bytes = (uint8_t *) row;
    graphc_part * restrict const as_parts = (graphc_part *) row;
    const int64_t pixel = s->groups * s->channels, place = b->place + number;
    const int64_t top = place / s->places_wide * s->stride_y - s->pad_y, left = place % s->places_wide * s->stride_x - s->pad_x;
    const T zero = b->x_zero[s->x_zeros > 1 ? place : 0];
    const int64_t size = s->groups == 1 ? s->height * s->width * pixel : 0;  // of an image of which nothing lies before b->x
    const bool together = s->groups == 1 && s->dilation_x == 1;  // taps of a line of the kernel meet what lies together
    const int64_t line = s->kernel_width * s->channels, last = top + (s->kernel_height - 1) * s->dilation_y;
    const bool inside = top >= 0 && left >= 0 && last < s->height && left + s->kernel_width <= s->width;
    if (bytes && together && inside && line <= GRAPHC_SHORT_T && from == 0 && count == line * s->kernel_height &&
        (last * s->width + left) * pixel + GRAPHC_SHORT_T <= size) {  // all of a small kernel
        const T * at = b->x + (top * s->width + left) * pixel;
        for (int64_t y = 0; y < s->kernel_height; y++, at += s->dilation_y * s->width * pixel) {
            graphc_shifted_bytes_T(at, GRAPHC_SHORT_T, shift, as_bytes + y * line);
        }
        graphc_whole_row_T(row, bytes, count);
        return;
    }
    int64_t channel = from % s->channels, y = from / s->channels / s->kernel_width, x = from / s->channels % s->kernel_width;
    for (int64_t done = 0, taps; done < count; channel = 0) {
        const int64_t iy = top + y * s->dilation_y, ix = left + x * s->dilation_x, rest = s->kernel_width - x;
        taps = together && ix >= 0 && ix + rest <= s->width ? rest : 1;
        const int64_t run = taps * s->channels - channel < count - done ? taps * s->channels - channel : count - done;
        if (iy < 0 || iy >= s->height || ix < 0 || ix >= s->width) {
            if (bytes) memset(as_bytes + done, (uint8_t) (zero + shift), (size_t) run);
            for (int64_t i = 0; i < run && !bytes; i++) as_parts[done + i] = (graphc_part) zero;
        } else {
            const int64_t at = (iy * s->width + ix) * pixel + channel;
            const T * restrict from_x = b->x + at;
            const bool copied = bytes && run <= GRAPHC_SHORT_T && at + GRAPHC_SHORT_T <= size;
            if (copied) graphc_shifted_bytes_T(from_x, GRAPHC_SHORT_T, shift, as_bytes + done);
            else if (bytes) graphc_shifted_bytes_T(from_x, run, shift, as_bytes + done);
            for (int64_t i = 0; i < run && !bytes; i++) as_parts[done + i] = (graphc_part) from_x[i];
        }
        done += run;
        x += taps;
        if (x == s->kernel_width) x = 0, y++;
    }
    graphc_whole_row_T(row, bytes, count);
}

// The same. Returns their sum.
static inline __attribute__((always_inline)) int32_t graphc_summed_row_T(const struct graphc_integer_block_T * b, const struct graphc_window_T * s,
                                                                         int64_t number, int64_t from, int64_t count, bool bytes,
                                                                         int32_t shift, void * row) {
    graphc_window_row_T(b, s, number, from, count, bytes, shift, row);
    int32_t sum = (int32_t) count * shift;
    for (int64_t i = 0; i < count; i++) sum += bytes ? (T) (((const uint8_t *) row)[i] - shift) : ((const graphc_part *) row)[i];
    return sum;
}

// The same of a kernel.
static inline int32_t graphc_kernel_row_T(const struct graphc_integer_block_T * b, int64_t all, int64_t number, int64_t from, int64_t count,
                                      graphc_part * restrict row) {
    const I * restrict w = b->w + number * all + from;
    int32_t sum = 0;
    for (int64_t i = 0; i < count; i++) row[i] = (graphc_part) w[i];
    for (int64_t i = 0; i < count; i++) sum += w[i];
    graphc_whole_row_T(row, sizeof(graphc_part) == 1, count);
    return sum;
}

// Puts sums of a row's products with columns from the j-th on, `from` elements behind the first, into the result.
static inline void graphc_integer_sums_T(const struct graphc_integer_block_T * b, const struct graphc_window_T * s, int64_t i, int64_t j,
                                         int64_t count, int64_t from, const graphc_word * restrict sums, int32_t row_sum,
                                         const int32_t * restrict column_sums, const int32_t * restrict column_zeros) {
    const int32_t zero = s->last ? b->x_zero[s->x_zeros > 1 ? b->place + i : 0] : b->w_zero[s->w_zeros > 1 ? i : 0];
    const int32_t row_bias = s->last ? 0 : b->bias[s->biases > 1 ? i : 0];
    int32_t * restrict const y = b->y + i * b->step + j;
    for (int64_t q = 0; q < count; q++) {
        const int32_t before = from > 0 ? y[q] : s->last ? b->bias[s->biases > 1 ? j + q : 0] : row_bias;
        y[q] = before + sums[q] - zero * column_sums[q] - column_zeros[q] * row_sum;
    }
}

// Columns of a block: what their elements sum up to less their zero points, and these. If they are `alike`, all have one zero point, and each adds
// an offset to its sums of products, whatever the row.
struct graphc_integer_columns_T {
    int32_t sums[GRAPHC_COLUMNS_T], zeros[GRAPHC_COLUMNS_T], offset[GRAPHC_COLUMNS_T];
    bool alike;
};

// The j-th column of a block, of `deep` elements from one on, as a line.
static inline void graphc_integer_column_T(const struct graphc_integer_block_T * b, const struct graphc_window_T * s, int64_t all, int64_t from,
                                           int64_t deep, int64_t j, graphc_part * line, struct graphc_integer_columns_T * c) {
    const bool bytes = sizeof(graphc_part) == 1;
    c->zeros[j] = s->last ? b->w_zero[s->w_zeros > 1 ? j : 0] : b->x_zero[0];
    c->sums[j] = s->last ? graphc_kernel_row_T(b, all, j, from, deep, line) : graphc_summed_row_T(b, s, j, from, deep, bytes, 0, line);
    c->sums[j] -= (int32_t) deep * c->zeros[j];
}

// All columns as panels.
static inline void graphc_integer_panels_T(const struct graphc_integer_block_T * b, const struct graphc_window_T * s, int64_t all, int64_t from,
                                           int64_t deep, graphc_words * panels, struct graphc_integer_columns_T * c) {
    _Alignas(64) graphc_part lines[GRAPHC_LANES * GRAPHC_DEPTH_T + GRAPHC_BEHIND_T];
    const int64_t wide = s->last ? b->channels : b->places, words = (deep + GRAPHC_PARTS - 1) / GRAPHC_PARTS;
    int32_t differ = 0;
    for (int64_t j = 0; j < wide; j++) {
        graphc_integer_column_T(b, s, all, from, deep, j, lines + j % GRAPHC_LANES * GRAPHC_DEPTH_T, c);
        differ |= c->zeros[j] ^ c->zeros[0];
        if ((j + 1) % GRAPHC_LANES != 0 && j + 1 != wide) continue;
        graphc_words * const half = panels + j / GRAPHC_PANEL * 2 * GRAPHC_WORDS_T + j % GRAPHC_PANEL / GRAPHC_LANES;
        for (int64_t k = 0; k < words; k += GRAPHC_LANES) graphc_transpose(lines + k * GRAPHC_PARTS, GRAPHC_DEPTH_T, half + 2 * k);
    }
    c->alike = s->last && s->x_zeros == 1 && differ == 0;
    for (int64_t j = 0; j < wide && c->alike; j++) {
        c->offset[j] = (from > 0 ? 0 : b->bias[s->biases > 1 ? j : 0]) - b->x_zero[0] * c->sums[j];
    }
}

// Puts a row's sums of products with columns that are alike into the result.
static inline void graphc_integer_row_T(const struct graphc_integer_block_T * b, int64_t i, int64_t j, int64_t count, int64_t from,
                                        const graphc_word * restrict sums, int32_t row_sum, const struct graphc_integer_columns_T * c) {
    int32_t * restrict const y = b->y + i * b->step + j;
    const int32_t * restrict const offset = c->offset + j;
    const int32_t less = c->zeros[0] * row_sum;
    if (from > 0) for (int64_t q = 0; q < count; q++) y[q] += sums[q] + offset[q] - less;
    else for (int64_t q = 0; q < count; q++) y[q] = sums[q] + offset[q] - less;
}

// A row of a block, and what its elements sum up to, or 0 if no column has a zero point.
static inline int32_t graphc_integer_line_T(const struct graphc_integer_block_T * b, const struct graphc_window_T * s, int64_t i, int64_t from,
                                            int64_t deep, const struct graphc_integer_columns_T * c, void * row) {
    const bool bytes = sizeof(graphc_part) == 1;
    if (!c->alike || c->zeros[0] != 0) return graphc_summed_row_T(b, s, i, from, deep, bytes, 0, row);
    graphc_window_row_T(b, s, i, from, deep, bytes, 0, row);
    return 0;
}

#if defined(GRAPHC_HAS_TILES)
// The products of rows with panels by a matrix unit, for columns that are alike.
static inline void graphc_integer_tiles_T(const struct graphc_integer_block_T * b, const struct graphc_window_T * s, int64_t from, int64_t deep,
                                          const graphc_words * panels, const struct graphc_integer_columns_T * c) {
    enum { most = 4 * GRAPHC_TILE };
    _Alignas(64) uint8_t rows[most * GRAPHC_DEPTH_T + GRAPHC_BEHIND_T];
    _Alignas(64) int32_t sums[most * GRAPHC_PANEL];
    int32_t row_sums[most];
    const int64_t step = (deep + 63) / 64 * 64;
    int shaped = 0;
    for (int64_t top = 0; top < b->places; top += most) {
        const int64_t tall = b->places - top < most ? b->places - top : most;
        for (int64_t n = 0; n < tall; n++) row_sums[n] = graphc_integer_line_T(b, s, top + n, from, deep, c, rows + n * step);
        const struct graphc_pieces pieces = graphc_one_piece(rows, step, (deep + GRAPHC_PARTS - 1) / GRAPHC_PARTS);
        for (int64_t j = 0; j < b->channels; j += GRAPHC_PANEL) {
            const int64_t across = b->channels - j < GRAPHC_PANEL ? b->channels - j : GRAPHC_PANEL;
            const uint8_t * const panel = (const uint8_t *) (panels + j / GRAPHC_PANEL * 2 * GRAPHC_WORDS_T);
            graphc_multiply_by_tiles((T) -1 < 0, tall, &pieces, panel, false, sums, &shaped);
            for (int64_t n = 0; n < tall; n++) graphc_integer_row_T(b, top + n, j, across, from, sums + n * GRAPHC_PANEL, row_sums[n], c);
        }
    }
    if (shaped != 0) graphc_leave_tiles();
}
#endif

// Adds the products of rows and columns, of `deep` elements, to a block of the result, of which they are the first if `from` is 0.
static inline void graphc_integer_part_T(const struct graphc_integer_block_T * b, const struct graphc_window_T * s, int64_t all, int64_t from,
                                         int64_t deep) {
    _Alignas(64) graphc_words panels[GRAPHC_COLUMNS_T / GRAPHC_LANES * GRAPHC_WORDS_T];
    _Alignas(64) graphc_part rows[GRAPHC_TALL * GRAPHC_DEPTH_T + GRAPHC_BEHIND_T], line[GRAPHC_DEPTH_T + GRAPHC_BEHIND_T];
    _Alignas(64) graphc_words found[2 * GRAPHC_TALL];
    int32_t row_sums[GRAPHC_TALL];
    struct graphc_integer_columns_T columns;
    const int64_t words = (deep + GRAPHC_PARTS - 1) / GRAPHC_PARTS;
    const int64_t high = s->last ? b->places : b->channels, wide = s->last ? b->channels : b->places;
    const bool swapped = s->last ? (T) -1 < 0 : (I) -1 < 0, few = high <= GRAPHC_FEW_T;
    columns.alike = false;
    if (!few) graphc_integer_panels_T(b, s, all, from, deep, panels, &columns);
#if defined(GRAPHC_HAS_TILES)
    if (!few && columns.alike && high >= GRAPHC_TILE && deep > 0 && graphc_has_tiles()) {
        graphc_integer_tiles_T(b, s, from, deep, panels, &columns);
        return;
    }
#endif
    for (int64_t top = 0; top < high; top += GRAPHC_TALL) {
        const int64_t tall = high - top < GRAPHC_TALL ? high - top : GRAPHC_TALL;
        for (int64_t n = 0; n < tall; n++) {
            graphc_part * const row = rows + n * GRAPHC_DEPTH_T;
            row_sums[n] = s->last ? graphc_integer_line_T(b, s, top + n, from, deep, &columns, row) : graphc_kernel_row_T(b, all, top + n, from, deep, row);
        }
        for (int64_t j = 0; j < wide && few; j++) {
            graphc_integer_column_T(b, s, all, from, deep, j, line, &columns);
            for (int64_t n = 0; n < tall; n++) {
                const int32_t sum = graphc_dot(swapped, rows + n * GRAPHC_DEPTH_T, line, words);
                graphc_integer_sums_T(b, s, n, j, 1, from, &sum, row_sums[n], columns.sums + j, columns.zeros + j);
            }
        }
        for (int64_t j = 0; j < wide && !few; j += GRAPHC_PANEL) {
            const graphc_loose_words * panel = (const graphc_loose_words *) (panels + j / GRAPHC_PANEL * 2 * GRAPHC_WORDS_T);
            const int64_t across = wide - j < GRAPHC_PANEL ? wide - j : GRAPHC_PANEL;
            if (swapped) graphc_dots(true, GRAPHC_TALL, rows, GRAPHC_DEPTH_T, panel, 2, words, false, found, 2);
            else graphc_dots(false, GRAPHC_TALL, rows, GRAPHC_DEPTH_T, panel, 2, words, false, found, 2);
            for (int64_t n = 0; n < tall; n++) {  // what was there before lies beyond the last row and column: its sums are not kept
                const graphc_word * const sums = (const graphc_word *) (found + 2 * n);
                if (columns.alike) graphc_integer_row_T(b, top + n, j, across, from, sums, row_sums[n], &columns);
                else graphc_integer_sums_T(b, s, top + n, j, across, from, sums, row_sums[n], columns.sums + j, columns.zeros + j);
            }
        }
    }
}

// y: what the products of x - x_zero with w - w_zero sum up to, and the bias. x_zero is one number, or one for each place, of a
// product alone; w_zero and the bias are one, or one for each channel.
static inline void graphc_integers_T(const T * restrict x, const I * restrict w, const T * restrict x_zero,
                                     const I * restrict w_zero, const int32_t * restrict bias, int32_t * restrict y,
                                     const int64_t * sizes, int ith, int nth) {
    struct graphc_window_T s;
    memcpy(&s, sizes, sizeof(s));
    const int64_t places = s.places_high * s.places_wide, all = s.kernel_height * s.kernel_width * s.channels;
    const int64_t rows = s.last ? places : s.out, columns = s.last ? s.out : places, sets = s.batches * s.groups;
    int64_t wide = GRAPHC_COLUMNS_T, high = rows;
    while (wide > GRAPHC_PANEL && sets * ((columns + wide - 1) / wide) < 4 * nth) wide /= 2;
    const int64_t across = (columns + wide - 1) / wide;
    while (high > 8 * GRAPHC_TALL && sets * across * ((rows + high - 1) / high) < 4 * nth) high = (high + 1) / 2;
    high = (high + GRAPHC_TALL - 1) / GRAPHC_TALL * GRAPHC_TALL;
    const int64_t down = (rows + high - 1) / high;
    for (int64_t unit = ith; unit < sets * across * down; unit += nth) {
        const int64_t column = unit % across * wide, row = unit / across % down * high;
        const int64_t group = unit / across / down % s.groups, batch = unit / across / down / s.groups;
        const int64_t tall = rows - row < high ? rows - row : high, broad = columns - column < wide ? columns - column : wide;
        const int64_t channel = group * s.out + (s.last ? column : row);
        const int64_t step = s.last ? s.groups * s.out : places;
        int32_t * const target = s.last ? y + (batch * places + row) * step + channel : y + (batch * s.groups * s.out + channel) * places + column;
        const struct graphc_integer_block_T block = {
            x + (batch * s.height * s.width * s.groups + group) * s.channels,
            w + ((s.kernels > 1 ? batch * s.groups * s.out : 0) + channel) * all,
            x_zero, w_zero + (s.w_zeros > 1 ? channel : 0), bias + (s.biases > 1 ? channel : 0), target,
            s.last ? row : column, s.last ? tall : broad, s.last ? broad : tall, step,
        };
        for (int64_t k = 0; k == 0 || k < all; k += GRAPHC_DEPTH_T) {
            graphc_integer_part_T(&block, &s, all, k, all - k < GRAPHC_DEPTH_T ? all - k : GRAPHC_DEPTH_T);
        }
    }
}
