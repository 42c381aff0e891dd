// Squares of bytes, by vectors.

#include <stdint.h>

enum { GRAPHC_BYTES = 16 };

typedef uint8_t graphc_bytes __attribute__((vector_size(GRAPHC_BYTES), aligned(1), may_alias));
typedef uint8_t graphc_byte_vector __attribute__((vector_size(GRAPHC_BYTES)));

#if !defined(__clang__) && __GNUC__ < 12
#define GRAPHC_MIX_BYTES(a, b, ...) __builtin_shuffle(a, b, (graphc_byte_vector) {__VA_ARGS__})
#else
#define GRAPHC_MIX_BYTES(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif

// Rows of GRAPHC_BYTES bytes, as many, as columns; rows lie `step` bytes apart, columns `across`.
static inline void graphc_transpose_bytes(const uint8_t * from, int64_t step, uint8_t * to, int64_t across) {
    graphc_byte_vector rows[GRAPHC_BYTES], mixed[GRAPHC_BYTES];
#pragma GCC unroll 16
    for (int i = 0; i < GRAPHC_BYTES; i++) rows[i] = *(const graphc_bytes *) (from + i * step);
#pragma GCC unroll 4
    for (int turn = 1; turn < GRAPHC_BYTES; turn *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < GRAPHC_BYTES / 2; i++) {
            const graphc_byte_vector a = rows[i], b = rows[i + GRAPHC_BYTES / 2];
            mixed[2 * i] = GRAPHC_MIX_BYTES(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            mixed[2 * i + 1] = GRAPHC_MIX_BYTES(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
#pragma GCC unroll 16
        for (int i = 0; i < GRAPHC_BYTES; i++) rows[i] = mixed[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < GRAPHC_BYTES; i++) *(graphc_bytes *) (to + i * across) = rows[i];
}
