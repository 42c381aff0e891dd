// Elements that a condition selects.
#include "types.h"

// Where the elements of x, of `rank` axes, are not 0, in order: y[axis][number]. Returns 1 unless there are `count`.
static inline int graphc_nonzero_T(const T * restrict x, int64_t * restrict y, int64_t rank, const int64_t * sizes,
                                   int64_t count, int ith, int nth) {
    (void) nth;
    if (ith != 0) return 0;
    int64_t size = 1, found = 0;
    for (int64_t axis = 0; axis < rank; axis++) size *= sizes[axis];
    for (int64_t i = 0; i < size; i++) {
        if (LOAD(x[i]) == 0) continue;
        if (found == count) return 1;
        for (int64_t axis = rank, rest = i; axis-- > 0; rest /= sizes[axis]) {
            y[axis * count + found] = rest % sizes[axis];
        }
        found++;
    }
    if (found == count) return 0;
    memset(y, 0, (size_t) (rank * count) * sizeof(*y));
    return 1;
}
