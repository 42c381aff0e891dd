// The order of elements along an axis, or of rows.
#include "ranked.h"
#include "types.h"

// A key that is larger for a larger element.
static inline uint64_t graphc_key_T(T element) {
    const V x = LOAD(element);
    if ((V) 0.5 != 0) return graphc_float_key((double) x);                     // V is not an integer
    return (V) -1 < (V) 1 ? (uint64_t) x ^ (uint64_t) 1 << 63 : (uint64_t) x;  // V has a sign, or not
}

// Where the `count` first of the `size` items of each lane are in order, equal ones by place. An item is `width` adjacent
// elements, of which the first one counts most; the items of a lane lie `inner` items apart.
// Returns 1 if there are fewer than `count`, 2 if there is no memory.
static inline int graphc_sort_T(const T * restrict x, int64_t * restrict y, int64_t outer, int64_t size, int64_t inner,
                                int64_t width, int64_t count, bool descending, int ith, int nth) {
    const int64_t first = outer * inner * ith / nth, end = outer * inner * (ith + 1) / nth;
    if (first >= end || count == 0) return 0;
    if (count > size) return 1;
    const size_t item = sizeof(struct graphc_ranked);
    struct graphc_ranked * const items = (uint64_t) size < SIZE_MAX / item / 2 ? malloc(2 * item * (size_t) size) : NULL;
    if (!items) return 2;
    for (int64_t lane = first; lane < end; lane++) {
        const T * const from = x + (lane / inner * size * inner + lane % inner) * width;
        int64_t * const to = y + lane / inner * count * inner + lane % inner;
        for (int64_t i = 0; i < size; i++) items[i].place = i;
        for (int64_t column = width; column-- > 0;) {
            for (int64_t i = 0; i < size; i++) {
                const uint64_t key = graphc_key_T(from[items[i].place * inner * width + column]);
                items[i].key = descending ? ~key : key;
            }
            if (width == 1 && count <= size / 16) graphc_sort_first(items, size, count);
            else graphc_sort_ranked(items, items + size, size);
        }
        for (int64_t i = 0; i < count; i++) to[i * inner] = items[i].place;
    }
    free(items);
    return 0;
}
