// Updates at computed indices of a copy. Each thread copies a stretch of the result and makes the updates that fall into it,
// so updates of one element happen in their order.
#include "reductions.h"
#include "types.h"

// A NaN among the operands of a maximum or minimum is the result.
static inline T graphc_updated_T(T element, T update, int reduction) {
    const V a = LOAD(element), b = LOAD(update);
    switch (reduction) {
        case GRAPHC_ADD: return STORE((V) (a + b));
        case GRAPHC_MUL: return STORE((V) (a * b));
        case GRAPHC_MAX: return STORE((V) (a > b ? a : b >= a ? b : a + b));
        case GRAPHC_MIN: return STORE((V) (a < b ? a : b <= a ? b : a + b));
        default: return update;
    }
}

// An index counted from the front; -1 if it is out of range.
static inline int64_t graphc_place_T(I index, int64_t size) {
    const int64_t place = (int64_t) index < 0 ? (int64_t) index + size : (int64_t) index;
    return place >= 0 && place < size ? place : -1;
}

// x, updated along `axis` at the indices and along the other axes at each update's own place. `sizes` are those of x, `counts`
// those of the updates. Returns 1 if an index is out of range.
static inline int graphc_scatter_elements_T(const T * restrict x, const I * restrict indices,
                                            const T * restrict updates, T * restrict y, int64_t rank,
                                            const int64_t * sizes, const int64_t * counts, int64_t axis,
                                            int reduction, int ith, int nth) {
    int64_t size = 1, rows = 1, step = 1;
    for (int64_t i = 0; i < rank; i++) size *= sizes[i];
    for (int64_t i = 0; i < rank - 1; i++) rows *= counts[i];
    for (int64_t i = axis + 1; i < rank; i++) step *= sizes[i];
    const int64_t first = size * ith / nth, end = size * (ith + 1) / nth, last = counts[rank - 1];
    memcpy(y + first, x + first, (size_t) (end - first) * sizeof(T));
    bool inside = true;
    for (int64_t row = 0; row < rows; row++) {
        int64_t start = 0, rest = row, stride = sizes[rank - 1];
        for (int64_t i = rank - 1; i-- > 0;) {
            if (i != axis) start += rest % counts[i] * stride;
            rest /= counts[i];
            stride *= sizes[i];
        }
        for (int64_t i = 0; i < last; i++) {
            const int64_t place = graphc_place_T(indices[row * last + i], sizes[axis]);
            const int64_t at = start + place * step + (axis == rank - 1 ? 0 : i);
            if (place < 0) inside = false;
            else if (at >= first && at < end) y[at] = graphc_updated_T(y[at], updates[row * last + i], reduction);
        }
    }
    return inside ? 0 : 1;
}

// x, with `count` updates of `inner` elements each at tuples of `depth` indices; `size` elements, `sizes` of the first axes.
// Returns 1 if an index is out of range.
static inline int graphc_scatter_slices_T(const T * restrict x, const I * restrict indices,
                                          const T * restrict updates, T * restrict y, int64_t size, int64_t count,
                                          int64_t depth, int64_t inner, const int64_t * sizes, int reduction,
                                          int ith, int nth) {
    const int64_t first = size * ith / nth, end = size * (ith + 1) / nth;
    memcpy(y + first, x + first, (size_t) (end - first) * sizeof(T));
    bool inside = true;
    for (int64_t tuple = 0; tuple < count; tuple++) {
        int64_t start = 0;
        bool fits = true;
        for (int64_t i = 0; i < depth; i++) {
            const int64_t place = graphc_place_T(indices[tuple * depth + i], sizes[i]);
            fits = fits && place >= 0;
            start = start * sizes[i] + place;
        }
        inside = inside && fits;
        start *= inner;
        if (!fits || start >= end || start + inner <= first) continue;
        const int64_t from = start < first ? first - start : 0, to = start + inner > end ? end - start : inner;
        for (int64_t i = from; i < to; i++) {
            y[start + i] = graphc_updated_T(y[start + i], updates[tuple * inner + i], reduction);
        }
    }
    return inside ? 0 : 1;
}
