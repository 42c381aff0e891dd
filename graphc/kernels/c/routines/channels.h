// Images of bytes with their channels last.
#include "types.h"
#include "bytes.h"

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
        for (int64_t column = left, wide; column < right; column += wide) {
            wide = right - column < GRAPHC_BYTES ? right - column : GRAPHC_BYTES;
            for (int64_t row = top, high; row < bottom; row += high) {
                high = bottom - row < GRAPHC_BYTES ? bottom - row : GRAPHC_BYTES;
                const T * restrict from = x + batch + row * columns + column;
                T * restrict to = y + batch + column * rows + row;
                if (wide == GRAPHC_BYTES && high == GRAPHC_BYTES) {
                    graphc_transpose_bytes((const uint8_t *) from, columns, (uint8_t *) to, rows);
                    continue;
                }
                for (int64_t i = 0; i < wide; i++) {
                    for (int64_t k = 0; k < high; k++) to[i * rows + k] = from[k * columns + i];
                }
            }
        }
    }
}
