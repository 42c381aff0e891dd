// Images with their channels last.
#include "types.h"

// The side of the squares that stay in the cache.
enum { GRAPHC_SQUARE_T = 64 };

// y[batch][column][row] = x[batch][row][column].
static inline void graphc_channels_last_T(const T * restrict x, T * restrict y, int64_t batches, int64_t rows,
                                          int64_t columns, int ith, int nth) {
    const int64_t down = (rows + GRAPHC_SQUARE_T - 1) / GRAPHC_SQUARE_T, across = (columns + GRAPHC_SQUARE_T - 1) / GRAPHC_SQUARE_T;
    for (int64_t square = ith; square < batches * down * across; square += nth) {
        const int64_t left = square % across * GRAPHC_SQUARE_T, top = square / across % down * GRAPHC_SQUARE_T;
        const int64_t right = columns - left < GRAPHC_SQUARE_T ? columns : left + GRAPHC_SQUARE_T;
        const int64_t bottom = rows - top < GRAPHC_SQUARE_T ? rows : top + GRAPHC_SQUARE_T;
        const int64_t batch = square / across / down * rows * columns;
        for (int64_t column = left; column < right; column++) {
            for (int64_t row = top; row < bottom; row++) y[batch + column * rows + row] = x[batch + row * columns + column];
        }
    }
}
