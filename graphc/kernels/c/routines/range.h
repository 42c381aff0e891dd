// The range of numbers, and what spreads it over all bytes.
#include "types.h"

// Numbers that are compared at once.
enum { GRAPHC_STRETCH_T = 64 };

// y[parts][2]: the least and the largest number of each part of x, or 0 if that is less, or larger. What is no number counts as 0.
static inline void graphc_extremes_T(const T * restrict x, T * restrict y, int64_t count, int64_t parts, int ith, int nth) {
    for (int64_t part = parts * ith / nth; part < parts * (ith + 1) / nth; part++) {
        const int64_t end = count * (part + 1) / parts;
        T low[GRAPHC_STRETCH_T] = {0}, high[GRAPHC_STRETCH_T] = {0};
        int64_t i = count * part / parts;
        for (; i + GRAPHC_STRETCH_T <= end; i += GRAPHC_STRETCH_T) {
            for (int k = 0; k < GRAPHC_STRETCH_T; k++) {
                low[k] = x[i + k] < low[k] ? x[i + k] : low[k];
                high[k] = x[i + k] > high[k] ? x[i + k] : high[k];
            }
        }
        for (; i < end; i++) {
            low[0] = x[i] < low[0] ? x[i] : low[0];
            high[0] = x[i] > high[0] ? x[i] : high[0];
        }
        for (int k = 1; k < GRAPHC_STRETCH_T; k++) {
            low[0] = low[k] < low[0] ? low[k] : low[0];
            high[0] = high[k] > high[0] ? high[k] : high[0];
        }
        y[2 * part] = low[0];
        y[2 * part + 1] = high[0];
    }
}

// The scale that spreads what lies between all of them over 255 steps; 1 if nothing does.
static inline T graphc_scale_of_T(const T * restrict extremes, int64_t parts, T * low) {
    T least = 0, most = 0;
    for (int64_t i = 0; i < parts; i++) {
        least = extremes[2 * i] < least ? extremes[2 * i] : least;
        most = extremes[2 * i + 1] > most ? extremes[2 * i + 1] : most;
    }
    *low = least;
    return most - least > 0 ? (most - least) / 255 : 1;
}

static inline void graphc_byte_scale_T(const T * restrict extremes, T * restrict y, int64_t parts, int ith, int nth) {
    T low;
    (void) nth;
    if (ith == 0) y[0] = graphc_scale_of_T(extremes, parts, &low);
}

// The byte that stands for 0 then.
static inline void graphc_byte_zero_T(const T * restrict extremes, uint8_t * restrict y, int64_t parts, int ith, int nth) {
    T low;
    (void) nth;
    if (ith != 0) return;
    const T scale = graphc_scale_of_T(extremes, parts, &low), place = rintf(-low / scale);
    y[0] = place > 0 ? (place < 255 ? (uint8_t) place : 255) : 0;
}
