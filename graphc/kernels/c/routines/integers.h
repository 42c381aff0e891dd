// Products of bytes less their zero points, summed in 32 bits, which wrap around: convolutions, and matrix products as
// convolutions without places. A tile of 4 x 4 dot products is a loop that compilers turn into dot products of bytes where the
// processor has them; elsewhere the numbers are widened while they are packed.
#include "types.h"

#if defined(__GNUC__) && !defined(__clang__) && (defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_MATMUL_INT8))
typedef T graphc_left_T;
typedef I graphc_right_T;
#else
typedef int16_t graphc_left_T;
typedef int16_t graphc_right_T;
#endif

// A block of the result, and how many products of each of its sums are packed at once.
enum { GRAPHC_PLACES_T = 64, GRAPHC_CHANNELS_T = 128, GRAPHC_COLUMNS_T = 16, GRAPHC_DEPTH_T = 1024, GRAPHC_STEP_T = 64 };

// The image is x[batch][height][width][group][channels], the kernels w[group][out][kernel height][kernel width][channels], or
// that for each batch. The result is y[batch][group][out][place], or y[batch][place][out] if `last`.
struct graphc_window_T {
    int64_t batches, groups, channels, out, height, width, kernel_height, kernel_width, places_high, places_wide,
        stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x, kernels, last, x_zeros, w_zeros, biases;
};

// `count` elements of the row of `x` that a place of the result meets, from element `from` on; outside of x is `zero`.
// Returns their sum; what is missing up to a multiple of the step is 0.
static inline int32_t graphc_window_row_T(const T * restrict x, const struct graphc_window_T * s, int64_t place, int64_t from,
                                          int64_t count, T zero, graphc_left_T * restrict row) {
    const int64_t pixel = s->groups * s->channels;
    const int64_t top = place / s->places_wide * s->stride_y - s->pad_y, left = place % s->places_wide * s->stride_x - s->pad_x;
    int64_t tap = from / s->channels, channel = from % s->channels;
    int32_t sum = 0;
    for (int64_t done = 0; done < count; tap++, channel = 0) {
        const int64_t run = s->channels - channel < count - done ? s->channels - channel : count - done;
        const int64_t iy = top + tap / s->kernel_width * s->dilation_y, ix = left + tap % s->kernel_width * s->dilation_x;
        if (iy < 0 || iy >= s->height || ix < 0 || ix >= s->width) {
            for (int64_t i = 0; i < run; i++) row[done + i] = zero;
            sum += (int32_t) run * zero;
        } else {
            const T * restrict from_x = x + (iy * s->width + ix) * pixel + channel;
            for (int64_t i = 0; i < run; i++) row[done + i] = from_x[i];
            for (int64_t i = 0; i < run; i++) sum += from_x[i];
        }
        done += run;
    }
    for (; count % GRAPHC_STEP_T; count++) row[count] = 0;
    return sum;
}

// The same for a row of kernels.
static inline int32_t graphc_kernel_row_T(const I * restrict w, int64_t count, graphc_right_T * restrict row) {
    int32_t sum = 0;
    for (int64_t i = 0; i < count; i++) row[i] = w[i];
    for (int64_t i = 0; i < count; i++) sum += w[i];
    for (; count % GRAPHC_STEP_T; count++) row[count] = 0;
    return sum;
}

// c[4][4] = a[4][depth] times b[4][depth] transposed; rows are GRAPHC_DEPTH_T apart.
static inline void graphc_dots_T(const graphc_left_T * restrict a, const graphc_right_T * restrict b,
                                                    int64_t depth, int32_t * restrict c) {
    const graphc_left_T * a1 = a + GRAPHC_DEPTH_T, * a2 = a1 + GRAPHC_DEPTH_T, * a3 = a2 + GRAPHC_DEPTH_T;
    const graphc_right_T * b1 = b + GRAPHC_DEPTH_T, * b2 = b1 + GRAPHC_DEPTH_T, * b3 = b2 + GRAPHC_DEPTH_T;
    int32_t c00 = 0, c01 = 0, c02 = 0, c03 = 0, c10 = 0, c11 = 0, c12 = 0, c13 = 0;
    int32_t c20 = 0, c21 = 0, c22 = 0, c23 = 0, c30 = 0, c31 = 0, c32 = 0, c33 = 0;
    for (int64_t k = 0; k < depth; k++) {
        c00 += a[k] * b[k], c01 += a[k] * b1[k], c02 += a[k] * b2[k], c03 += a[k] * b3[k];
        c10 += a1[k] * b[k], c11 += a1[k] * b1[k], c12 += a1[k] * b2[k], c13 += a1[k] * b3[k];
        c20 += a2[k] * b[k], c21 += a2[k] * b1[k], c22 += a2[k] * b2[k], c23 += a2[k] * b3[k];
        c30 += a3[k] * b[k], c31 += a3[k] * b1[k], c32 += a3[k] * b2[k], c33 += a3[k] * b3[k];
    }
    const int32_t sums[16] = {c00, c01, c02, c03, c10, c11, c12, c13, c20, c21, c22, c23, c30, c31, c32, c33};
    memcpy(c, sums, sizeof(sums));
}

// The places and channels of a block: pointers to the first of each, and how many there are.
struct graphc_integer_block_T {
    const T * x;
    const I * w;
    const T * x_zero;
    const I * w_zero;
    const int32_t * bias;
    int32_t * y;
    int64_t place, places, channels, beside, below;  // `beside` and `below`: how far places and channels of y lie apart
};

static inline void graphc_integer_block_T(const struct graphc_integer_block_T * b, const struct graphc_window_T * s) {
    _Alignas(64) graphc_left_T rows[GRAPHC_PLACES_T * GRAPHC_DEPTH_T];
    _Alignas(64) graphc_right_T columns[GRAPHC_COLUMNS_T * GRAPHC_DEPTH_T];
    int32_t row_sums[GRAPHC_PLACES_T], column_sums[GRAPHC_COLUMNS_T], column_zeros[GRAPHC_COLUMNS_T], c[16];
    const int64_t all = s->kernel_height * s->kernel_width * s->channels;
    for (int64_t k = 0; k == 0 || k < all; k += GRAPHC_DEPTH_T) {
        const int64_t deep = all - k < GRAPHC_DEPTH_T ? all - k : GRAPHC_DEPTH_T;
        const int64_t padded = (deep + GRAPHC_STEP_T - 1) / GRAPHC_STEP_T * GRAPHC_STEP_T;
        for (int64_t i = 0; i < b->places; i++) {
            const T zero = b->x_zero[s->x_zeros > 1 ? b->place + i : 0];
            row_sums[i] = graphc_window_row_T(b->x, s, b->place + i, k, deep, zero, rows + i * GRAPHC_DEPTH_T);
        }
        for (int64_t j = 0; j < b->channels; j += GRAPHC_COLUMNS_T) {
            const int64_t wide = b->channels - j < GRAPHC_COLUMNS_T ? b->channels - j : GRAPHC_COLUMNS_T;
            for (int64_t n = 0; n < wide; n++) {
                column_zeros[n] = b->w_zero[s->w_zeros > 1 ? j + n : 0];
                column_sums[n] = graphc_kernel_row_T(b->w + (j + n) * all + k, deep, columns + n * GRAPHC_DEPTH_T)
                    - (int32_t) deep * column_zeros[n];
            }
            for (int64_t i = 0; i < b->places; i += 4) {
                for (int64_t n = 0; n < wide; n += 4) {  // at the edges, rows of the last block: their sums are not kept
                    graphc_dots_T(rows + i * GRAPHC_DEPTH_T, columns + n * GRAPHC_DEPTH_T, padded, c);
                    const int64_t high = b->places - i < 4 ? b->places - i : 4, across = wide - n < 4 ? wide - n : 4;
                    for (int64_t p = 0; p < high; p++) {
                        const int32_t x_zero = b->x_zero[s->x_zeros > 1 ? b->place + i + p : 0], sum = row_sums[i + p];
                        int32_t * const y = b->y + (i + p) * b->beside + (j + n) * b->below;
                        for (int64_t q = 0; q < across; q++) {
                            const int32_t total = c[4 * p + q] - x_zero * column_sums[n + q] - column_zeros[n + q] * sum;
                            y[q * b->below] = total + (k > 0 ? y[q * b->below] : b->bias[s->biases > 1 ? j + n + q : 0]);
                        }
                    }
                }
            }
        }
    }
}

// y: what the products of x - x_zero with w - w_zero sum up to, and the bias. x_zero is one number, or one for each place; w_zero
// and the bias are one, or one for each channel.
static inline void graphc_integers_T(const T * restrict x, const I * restrict w, const T * restrict x_zero,
                                     const I * restrict w_zero, const int32_t * restrict bias, int32_t * restrict y,
                                     const int64_t * sizes, int ith, int nth) {
    struct graphc_window_T s;
    memcpy(&s, sizes, sizeof(s));
    const int64_t places = s.places_high * s.places_wide, all = s.kernel_height * s.kernel_width * s.channels;
    const int64_t down = (places + GRAPHC_PLACES_T - 1) / GRAPHC_PLACES_T, sets = s.batches * s.groups * down;
    int64_t wide = GRAPHC_CHANNELS_T;
    while (wide > GRAPHC_COLUMNS_T && sets * (s.out / wide) < 4 * nth) wide /= 2;
    const int64_t across = (s.out + wide - 1) / wide;
    for (int64_t unit = ith; unit < sets * across; unit += nth) {
        const int64_t channel = unit % across * wide, place = unit / across % down * GRAPHC_PLACES_T;
        const int64_t group = unit / across / down % s.groups, batch = unit / across / down / s.groups;
        const int64_t first = group * s.out + channel, below = s.last ? 1 : places, beside = s.last ? s.groups * s.out : 1;
        const struct graphc_integer_block_T block = {
            x + (batch * s.height * s.width * s.groups + group) * s.channels,
            w + ((s.kernels > 1 ? batch * s.groups * s.out : 0) + first) * all,
            x_zero, w_zero + (s.w_zeros > 1 ? first : 0), bias + (s.biases > 1 ? first : 0),
            y + batch * s.groups * s.out * places + first * below + place * beside,
            place, places - place < GRAPHC_PLACES_T ? places - place : GRAPHC_PLACES_T,
            s.out - channel < wide ? s.out - channel : wide, beside, below,
        };
        graphc_integer_block_T(&block, &s);
    }
}
