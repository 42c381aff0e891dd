// Tensors with elements of their own beyond their ends: reflected, those at the edge, or from the other end.
#include "types.h"

enum { GRAPHC_MOST_AXES_T = 8 };
enum { GRAPHC_REFLECTED_T, GRAPHC_EDGE_T, GRAPHC_WRAPPED_T };

// Sizes before and after, and how many elements come before, of each axis; of the axes, the last come last.
struct graphc_pads_T {
    int64_t mode, axes, sizes[GRAPHC_MOST_AXES_T], padded[GRAPHC_MOST_AXES_T], before[GRAPHC_MOST_AXES_T];
};

// The element of an axis that stands at a place, which may be beyond its ends.
static inline int64_t graphc_pad_source_T(int64_t mode, int64_t place, int64_t size) {
    if (mode == GRAPHC_EDGE_T) return place < 0 ? 0 : place < size ? place : size - 1;
    if (mode == GRAPHC_WRAPPED_T) return (place % size + size) % size;
    const int64_t forward = place < 0 ? -place : place;
    return forward < size ? forward : 2 * (size - 1) - forward;
}

static inline void graphc_pad_T(const T * restrict x, T * restrict y, const int64_t * numbers, int ith, int nth) {
    struct graphc_pads_T p;
    memcpy(&p, numbers, sizeof(p));
    const int64_t last = p.axes - 1, size = p.sizes[last], padded = p.padded[last], before = p.before[last];
    int64_t rows = 1;
    for (int64_t i = 0; i < last; i++) rows *= p.padded[i];
    for (int64_t row = rows * ith / nth; row < rows * (ith + 1) / nth; row++) {
        int64_t from = 0, step = size, left = row;
        for (int64_t i = last - 1; i >= 0; left /= p.padded[i], step *= p.sizes[i], i--) {
            from += graphc_pad_source_T(p.mode, left % p.padded[i] - p.before[i], p.sizes[i]) * step;
        }
        T * const to = y + row * padded;
        for (int64_t i = 0; i < before; i++) to[i] = x[from + graphc_pad_source_T(p.mode, i - before, size)];
        memcpy(to + before, x + from, (size_t) size * sizeof(T));
        for (int64_t i = before + size; i < padded; i++) to[i] = x[from + graphc_pad_source_T(p.mode, i - before, size)];
    }
}
