// What a processor and its memory can do at most. Compiled after `tiles.h`, as the code that does the products is.

/// So many rounds of multiplications and additions in registers; the result keeps the compiler from leaving them out.
float graphc_peak_arithmetic(int64_t rounds) {
    vector sums[ROWS][VECTORS];
    const vector factor = all(0.999f), term = all(0.001f);
    for (int i = 0; i < ROWS; ++i) {
        for (int j = 0; j < VECTORS; ++j) sums[i][j] = all((float) (i + j));
    }
    for (int64_t k = 0; k < rounds; ++k) {
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; ++j) sums[i][j] = sums[i][j] * factor + term;
        }
    }
    float result = 0;
    for (int i = 0; i < ROWS; ++i) {
        for (int j = 0; j < VECTORS; ++j) result += sums[i][j][0];
    }
    return result;
}

/// Operations of a round.
int64_t graphc_peak_operations(void) { return 2 * ROWS * VECTORS * WIDTH; }

/// c = a + b / 2: two streams from memory and one to it.
void graphc_peak_memory(const float * restrict a, const float * restrict b, float * restrict c, int64_t count) {
    for (int64_t i = 0; i < count; ++i) c[i] = a[i] + 0.5f * b[i];
}
