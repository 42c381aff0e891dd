// Convolutions of bytes less their zero points whose kernels have one channel each, summed in 32 bits: images have their channels last
// before and after. What is done with a sum is done on the way out, as in `panels.h`.
#include "types.h"
#include "byte_sums.h"
#include "twos.h"

// Pixels whose sums are finished at once, and computed at once, the most places of a kernel, and bytes of an image that stay in a cache.
enum { GRAPHC_RUN_T = 64, GRAPHC_PIXELS_T = 4, GRAPHC_MOST_TAPS_T = 64, GRAPHC_NEAR_T = 65536 };

// The image is x[batch][height][width][channels], of 16 channels or more, the kernels w[kernel height][kernel width][channels], the result
// y[batch][place][channels].
struct graphc_depthwise_T {
    int64_t batches, channels, height, width, kernel_height, kernel_width, places_high, places_wide, stride_y, stride_x, dilation_y,
        dilation_x, pad_y, pad_x, w_zeros, biases, factors, lowest;
};

// Where the places of a kernel are, from its first one on.
struct graphc_taps_T {
    int64_t down[GRAPHC_MOST_TAPS_T], across[GRAPHC_MOST_TAPS_T], offset[GRAPHC_MOST_TAPS_T];
};

// 32 channels of the kernels, or all if there are fewer, as two groups of 16 that may overlap: a group's places by twos, with the numbers of both
// for each channel, what they sum up to, and where the second group begins, or 0 without one.
struct graphc_channels_T {
    graphc_wide_shorts twos[2][GRAPHC_MOST_TAPS_T / 2][2];
    graphc_wide_words totals[2][2];
    int64_t first, count, second;
};

static inline void graphc_channels_of_T(const struct graphc_depthwise_T * s, const I * w, const I * w_zero, int64_t first, struct graphc_channels_T * c) {
    const int64_t taps = s->kernel_height * s->kernel_width;
    c->count = s->channels < GRAPHC_PACKED ? s->channels : GRAPHC_PACKED;
    c->first = first + c->count < s->channels ? first : s->channels - c->count;
    c->second = c->count - GRAPHC_BYTES;
    for (int group = 0; group < 2; group++) {
        const int64_t from = c->first + (group == 0 ? 0 : c->second);
        graphc_wide_words * const totals = c->totals[group];
        I zeros[GRAPHC_BYTES];
        for (int i = 0; i < GRAPHC_BYTES; i++) zeros[i] = w_zero[s->w_zeros > 1 ? from + i : 0];
        totals[0] = totals[1] = (graphc_wide_words) {0};
        for (int64_t tap = 0; tap < taps; tap += 2) {
            graphc_wide_shorts * const twos = c->twos[group][tap / 2];
            const I * const one = w + tap * s->channels + from, * const two = tap + 1 < taps ? one + s->channels : zeros;
            graphc_widen_twos((I) -1 < 0, one, two, twos);
            const graphc_wide_shorts ones = (graphc_wide_shorts) {0} + 1;
            graphc_wide_shorts less[2];
            graphc_widen_twos((I) -1 < 0, zeros, zeros, less);
            for (int i = 0; i < 2; i++) {
                twos[i] -= less[i];
                graphc_add_twos(totals + i, twos + i, &ones);
            }
        }
    }
}

// The sums of so many pixels, a constant where this is called: what each place of the kernel meets is at `from` of one pixel, or an offset from
// `base` on, and for the next pixel `step` elements further on.
static inline __attribute__((always_inline)) void graphc_depthwise_pixels_T(int pixels, const struct graphc_channels_T * c, const T * const * from,
                                                                            const T * base, const int64_t * offsets, int64_t step,
                                                                            int64_t twos, int32_t * sums) {
    for (int group = 0; group < (c->second > 0 ? 2 : 1); group++) {
        const int64_t at = group == 0 ? 0 : c->second;
        graphc_wide_words low[GRAPHC_PIXELS_T] = {0}, high[GRAPHC_PIXELS_T] = {0};
        for (int64_t k = 0; k < twos; k++) {
            const T * const one = (offsets != NULL ? base + offsets[2 * k] : from[2 * k]) + at;
            const T * const two = (offsets != NULL ? base + offsets[2 * k + 1] : from[2 * k + 1]) + at;
            const graphc_wide_shorts first = c->twos[group][k][0], last = c->twos[group][k][1];
#pragma GCC unroll 4
            for (int i = 0; i < pixels; i++) {
                graphc_wide_shorts twos_of_x[2];
                graphc_widen_twos((T) -1 < 0, one + i * step, two + i * step, twos_of_x);
                graphc_add_twos(low + i, twos_of_x, &first);
                graphc_add_twos(high + i, twos_of_x + 1, &last);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < pixels; i++) {
            *(graphc_wide_words *) (sums + i * GRAPHC_PACKED + at) = low[i];
            *(graphc_wide_words *) (sums + i * GRAPHC_PACKED + at + GRAPHC_BYTES / 2) = high[i];
        }
    }
}

// The sums of so many pixels of a line, from one on; outside of the image is the zero point, which `zeros` has as often as there are channels.
static inline void graphc_depthwise_run_T(const struct graphc_depthwise_T * s, const struct graphc_channels_T * c, const T * x, const T * zeros,
                                          const struct graphc_taps_T * t, int64_t line, int64_t column, int64_t count, int32_t * sums) {
    const int64_t twos = (s->kernel_height * s->kernel_width + 1) / 2, top = line * s->stride_y - s->pad_y, step = s->stride_x * s->channels;
    const int64_t wide = (s->kernel_width - 1) * s->dilation_x, high = (s->kernel_height - 1) * s->dilation_y;
    const bool within = top >= 0 && top + high < s->height;
    for (int64_t i = 0, some; i < count; i += some, sums += some * GRAPHC_PACKED) {
        const int64_t left = (column + i) * s->stride_x - s->pad_x;
        const int64_t last = left + (GRAPHC_PIXELS_T - 1) * s->stride_x;
        const T * const base = x + (top * s->width + left) * s->channels + c->first;
        if (within && left >= 0 && last + wide < s->width && count - i >= GRAPHC_PIXELS_T) {
            some = GRAPHC_PIXELS_T;
            graphc_depthwise_pixels_T(GRAPHC_PIXELS_T, c, NULL, base, t->offset, step, twos, sums);
            continue;
        }
        const T * from[GRAPHC_MOST_TAPS_T];
        for (int64_t tap = 0; tap < 2 * twos; tap++) {
            const int64_t y = top + t->down[tap], at = left + t->across[tap];
            const bool inside = y >= 0 && y < s->height && at >= 0 && at < s->width;
            from[tap] = inside ? base + t->offset[tap] : zeros;
        }
        some = 1;
        graphc_depthwise_pixels_T(1, c, from, NULL, NULL, 0, twos, sums);
    }
}

// y: what the products of x - x_zero with w - w_zero sum up to, and the bias, finished. x_zero is one number.
static inline void graphc_depthwise_T(const T * x, const I * w, const T * x_zero, const I * w_zero, const struct graphc_finish * f, uint8_t * y,
                                      const int64_t * sizes, int ith, int nth) {
    struct graphc_depthwise_T s;
    memcpy(&s, sizes, sizeof(s));
    struct graphc_channels_T channels;
    struct graphc_columns columns;
    _Alignas(64) int32_t sums[GRAPHC_RUN_T * GRAPHC_PACKED];
    struct graphc_taps_T t;
    T zeros[GRAPHC_PACKED];
    const int64_t taps = s.kernel_height * s.kernel_width, size = f->zero != NULL ? 1 : sizeof(int32_t);
    for (int64_t tap = 0; tap < (taps + 1) / 2 * 2; tap++) {  // one more than there are may meet what the first does: its numbers are 0
        t.down[tap] = tap < taps ? tap / s.kernel_width * s.dilation_y : 0;
        t.across[tap] = tap < taps ? tap % s.kernel_width * s.dilation_x : 0;
        t.offset[tap] = (t.down[tap] * s.width + t.across[tap]) * s.channels;
    }
    for (int i = 0; i < GRAPHC_PACKED; i++) zeros[i] = x_zero[0];
    for (int i = 0; i < GRAPHC_RUN_T * GRAPHC_PACKED; i++) sums[i] = 0;
    int64_t lines = GRAPHC_NEAR_T / (s.width * s.channels + 1) + 1, units = (s.places_high + lines - 1) / lines;
    while (lines > 1 && s.batches * units < 4 * nth) lines = (lines + 1) / 2, units = (s.places_high + lines - 1) / lines;
    for (int64_t unit = s.batches * units * ith / nth; unit < s.batches * units * (ith + 1) / nth; unit++) {
        const int64_t batch = unit / units, top = unit % units * lines, bottom = top + lines < s.places_high ? top + lines : s.places_high;
        const T * const image = x + batch * s.height * s.width * s.channels;
        for (int64_t first = 0; first < s.channels; first += GRAPHC_PACKED) {
            graphc_channels_of_T(&s, w, w_zero, first, &channels);
            for (int64_t q = 0; q < GRAPHC_PACKED; q++) {
                const int64_t at = channels.first + (q < channels.count ? q : 0);
                const int64_t group = q < GRAPHC_BYTES ? 0 : 1, within = group == 0 ? q : q - channels.second;
                const int32_t total = q < channels.count ? channels.totals[group][within / 8][within % 8] : 0;
                columns.zero[q] = 0;
                columns.offset[q] = f->bias[s.biases > 1 ? at : 0] - x_zero[0] * total;
                columns.factor[q] = f->factor != NULL ? f->factor[s.factors > 1 ? at : 0] : 0;
            }
            for (int64_t line = top; line < bottom; line++) {
                for (int64_t column = 0, count; column < s.places_wide; column += count) {
                    count = s.places_wide - column < GRAPHC_RUN_T ? s.places_wide - column : GRAPHC_RUN_T;
                    graphc_depthwise_run_T(&s, &channels, image, zeros, &t, line, column, count, sums);
                    uint8_t * const to = y + (((batch * s.places_high + line) * s.places_wide + column) * s.channels + channels.first) * size;
                    graphc_finish_panel(f, &columns, 0, count, sums, NULL, (int32_t) s.lowest, to, s.channels, channels.count);
                }
            }
        }
    }
}

// As int32.
static inline void graphc_depthwise_sums_T(const T * x, const I * w, const T * x_zero, const I * w_zero, const int32_t * bias, int32_t * y,
                                           const int64_t * sizes, int ith, int nth) {
    const struct graphc_finish finish = {bias, NULL, NULL, NULL};
    graphc_depthwise_T(x, w, x_zero, w_zero, &finish, (uint8_t *) y, sizes, ith, nth);
}

// Times a factor, or one for each channel.
static inline void graphc_depthwise_floats_T(const T * x, const I * w, const T * x_zero, const I * w_zero, const int32_t * bias,
                                             const float * factor, float * y, const int64_t * sizes, int ith, int nth) {
    const struct graphc_finish finish = {bias, NULL, factor, NULL};
    graphc_depthwise_T(x, w, x_zero, w_zero, &finish, (uint8_t *) y, sizes, ith, nth);
}

// The same as bytes, rounded, plus a zero point.
static inline void graphc_depthwise_bytes_T(const T * x, const I * w, const T * x_zero, const I * w_zero, const int32_t * bias,
                                            const float * factor, const void * zero, void * y, const int64_t * sizes, int ith, int nth) {
    const struct graphc_finish finish = {bias, NULL, factor, (const uint8_t *) zero};
    graphc_depthwise_T(x, w, x_zero, w_zero, &finish, (uint8_t *) y, sizes, ith, nth);
}
