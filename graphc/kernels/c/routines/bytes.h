// Squares of bytes, by vectors.
#pragma once

#include <stdint.h>

#include "squares.h"

enum { GRAPHC_BYTES = 16 };

typedef uint8_t graphc_bytes __attribute__((vector_size(GRAPHC_BYTES), aligned(1), may_alias));
typedef uint8_t graphc_byte_vector __attribute__((vector_size(GRAPHC_BYTES)));

#define GRAPHC_FIRST_BYTES(a, b) GRAPHC_MIX(graphc_byte_vector, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define GRAPHC_LAST_BYTES(a, b) GRAPHC_MIX(graphc_byte_vector, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

// Rows of GRAPHC_BYTES bytes, as many, as columns; rows lie `step` bytes apart, columns `across`.
static inline void graphc_transpose_bytes(const uint8_t * from, int64_t step, uint8_t * to, int64_t across) {
    graphc_byte_vector rows[GRAPHC_BYTES];
#pragma GCC unroll 16
    for (int i = 0; i < GRAPHC_BYTES; i++) rows[i] = *(const graphc_bytes *) (from + i * step);
    GRAPHC_TURN(graphc_byte_vector, GRAPHC_BYTES, rows, GRAPHC_FIRST_BYTES, GRAPHC_LAST_BYTES);
#pragma GCC unroll 16
    for (int i = 0; i < GRAPHC_BYTES; i++) *(graphc_bytes *) (to + i * across) = rows[i];
}
