// Numbers that become bytes.

#include "rounding.h"

// y = round(x / scale) + zero.
static inline void graphc_quantize(const float * restrict x, const float * scale, const void * zero, void * restrict result, int64_t count,
                                     int64_t lowest, int ith, int nth) {
    uint8_t * restrict const y = (uint8_t *) result;
    const int32_t middle = graphc_middle(zero, lowest), least = (int32_t) lowest;
    const float by = scale[0];
    int64_t i = count * ith / nth;
    const int64_t end = count * (ith + 1) / nth;
#if defined(GRAPHC_ROUNDS_VECTORS)
    for (; i + GRAPHC_ROUNDED <= end; i += GRAPHC_ROUNDED) {
        graphc_numbers numbers[GRAPHC_ROUNDED / GRAPHC_NUMBERS];
        for (int k = 0; k < GRAPHC_ROUNDED / GRAPHC_NUMBERS; k++) numbers[k] = (graphc_numbers) ((const graphc_loose_wholes *) (x + i))[k] / by;
        graphc_round_bytes(numbers, least, middle, y + i);
    }
#endif
    for (; i < end; i++) y[i] = graphc_round_byte(x[i] / by, least, middle);
}
