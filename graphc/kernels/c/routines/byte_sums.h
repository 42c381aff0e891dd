// What becomes of sums of products of bytes: they themselves, times a factor, or bytes again.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "rounding.h"

// How many columns of the result are finished at once, and how many such groups a unit has.
enum { GRAPHC_PACKED = 32, GRAPHC_BROAD = 4 };

// What is done with sums.
struct graphc_finish {
    const int32_t * bias;
    const int32_t * sums;   // of each kernel
    const float * factor;   // NULL: nothing
    const uint8_t * zero;   // NULL: the result stays a float
};

// Columns of a unit, beside their sums of products.
struct graphc_columns {
    int32_t offset[GRAPHC_BROAD * GRAPHC_PACKED], zero[GRAPHC_BROAD * GRAPHC_PACKED];
    float factor[GRAPHC_BROAD * GRAPHC_PACKED];
};

#if defined(GRAPHC_ROUNDS_VECTORS)
// The same of one row as bytes, without sums of rows.
static inline void graphc_rounded_row(const int32_t * sums, const int32_t * offset, const float * factor, int32_t lowest, int32_t middle,
                                      uint8_t * bytes) {
    graphc_numbers scaled[GRAPHC_PACKED / GRAPHC_NUMBERS];
#pragma GCC unroll 4
    for (int i = 0; i < GRAPHC_PACKED / GRAPHC_NUMBERS; i++) {
        const graphc_wholes total = ((const graphc_loose_wholes *) sums)[i] + ((const graphc_loose_wholes *) offset)[i];
        scaled[i] = __builtin_convertvector(total, graphc_numbers) * (graphc_numbers) ((const graphc_loose_wholes *) factor)[i];
    }
    graphc_round_bytes(scaled, lowest, middle, bytes);
}
#endif

// A panel's sums[high][GRAPHC_PACKED] as the result has them, of which the first `count` of each row are kept; rows of the result are
// `step` elements apart. `row_sums` are those of the image's bytes, which `summed` says to heed. `made` is how far the result is from
// sums: 0 they themselves, 1 scaled, 2 bytes; a constant where this is called.
static inline __attribute__((always_inline)) void graphc_finish_rows(const struct graphc_finish * f, const struct graphc_columns * c,
                                                                     int64_t panel, int64_t high, const int32_t * restrict sums,
                                                                     bool summed, const int32_t * restrict row_sums, int made,
                                                                     int32_t lowest, uint8_t * restrict y, int64_t step, int64_t count) {
    const int32_t * restrict const offset = c->offset + panel * GRAPHC_PACKED;
    const int32_t * restrict const zero = c->zero + panel * GRAPHC_PACKED;
    const float * restrict const factor = c->factor + panel * GRAPHC_PACKED;
    // Between the ends, which are whole numbers, adding 1.5 * 2**23 rounds, half to even, and leaves the number in the low bits.
    const int32_t middle = made < 2 ? 0 : lowest < 0 ? (int8_t) *f->zero : *f->zero;
    const float low = (float) (lowest - middle), highest = (float) (lowest + 255 - middle);
    for (int64_t i = 0; i < high; i++, sums += GRAPHC_PACKED) {
        int32_t totals[GRAPHC_PACKED];
        float scaled[GRAPHC_PACKED];
        uint8_t bytes[GRAPHC_PACKED];
#if defined(GRAPHC_ROUNDS_VECTORS)
        if (made == 2 && !summed) {
            graphc_rounded_row(sums, offset, factor, lowest, middle, count == GRAPHC_PACKED ? y + i * step : bytes);
            if (count != GRAPHC_PACKED) memcpy(y + i * step, bytes, (size_t) count);
            continue;
        }
#endif
        for (int q = 0; q < GRAPHC_PACKED; q++) {
            totals[q] = sums[q] + offset[q] - (summed ? zero[q] * row_sums[i] : 0);
            scaled[q] = (float) totals[q] * factor[q];
            const float least = scaled[q] > low ? scaled[q] : low, within = least < highest ? least : highest;
            bytes[q] = (uint8_t) ((union { float from; int32_t to; }) { .from = within + 12582912.0f }.to + middle);
        }
        const void * const found = made == 0 ? (void *) totals : made == 1 ? (void *) scaled : bytes;
        const int64_t size = made == 2 ? 1 : 4;
        if (count == GRAPHC_PACKED) memcpy(y + i * step * size, found, (size_t) (GRAPHC_PACKED * size));
        else memcpy(y + i * step * size, found, (size_t) (count * size));
    }
}

// The same for what is known when the model is run.
static inline void graphc_finish_panel(const struct graphc_finish * f, const struct graphc_columns * c, int64_t panel, int64_t high,
                                       const int32_t * sums, const int32_t * row_sums, int32_t lowest, uint8_t * y, int64_t step,
                                       int64_t count) {
    const bool summed = row_sums != NULL;
    if (f->factor == NULL) graphc_finish_rows(f, c, panel, high, sums, summed, row_sums, 0, lowest, y, step, count);
    else if (f->zero == NULL) graphc_finish_rows(f, c, panel, high, sums, summed, row_sums, 1, lowest, y, step, count);
    else if (summed) graphc_finish_rows(f, c, panel, high, sums, true, row_sums, 2, lowest, y, step, count);
    else if (count == GRAPHC_PACKED) graphc_finish_rows(f, c, panel, high, sums, false, NULL, 2, lowest, y, step, GRAPHC_PACKED);
    else graphc_finish_rows(f, c, panel, high, sums, false, NULL, 2, lowest, y, step, count);
}
