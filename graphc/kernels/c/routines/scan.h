// Running totals along an axis.
#include "types.h"

// Lanes next to each other that go through the axis together.
#define GRAPHC_SCAN_LANES 64

// The running sum, or product, along an axis of `size` elements, which lie `inner` apart; `outer` times `inner` lanes.
static inline void graphc_scan_T(const T * restrict x, T * restrict y, int64_t outer, int64_t size, int64_t inner,
                                 bool product, bool exclusive, bool reverse, int ith, int nth) {
    const int64_t end = outer * inner * (ith + 1) / nth;
    const int64_t step = reverse ? -inner : inner;
    int64_t lane = outer * inner * ith / nth, count;
    for (; lane < end; lane += count) {
        const int64_t place = lane % inner;
        count = inner - place < end - lane ? inner - place : end - lane;
        count = count < GRAPHC_SCAN_LANES ? count : GRAPHC_SCAN_LANES;
        W totals[GRAPHC_SCAN_LANES];
        for (int64_t k = 0; k < count; k++) totals[k] = product;
        int64_t at = (lane / inner * size + (reverse ? size - 1 : 0)) * inner + place;
        for (int64_t i = 0; i < size; i++, at += step) {
            for (int64_t k = 0; k < count; k++) {
                const W before = totals[k];
                totals[k] = (W) (product ? before * LOAD(x[at + k]) : before + LOAD(x[at + k]));
                y[at + k] = STORE((V) (exclusive ? before : totals[k]));
            }
        }
    }
}
