// The steps of recurrent layers. All loops over hidden units are by vectors of the compiler's.
#include <stdint.h>
#include <string.h>

// Units of a layer of which all gates are summed up at once.
enum { GRAPHC_UNITS = 32 };

// exp(x), to a unit in the last place: 0 and infinity are never reached.
static inline float graphc_exponential(float x) {
    const float shifter = 12582912.0f + 127;  // 1.5 * 2^23 + 127: a sum with it ends in the bits of a rounded exponent
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    const float shifted = x * 1.44269504f + shifter, n = shifted - shifter;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691e-4f;
    p = p * r + 1.3981999e-3f;
    p = p * r + 8.3334519e-3f;
    p = p * r + 4.1665796e-2f;
    p = p * r + 1.6666666e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    uint32_t bits;
    float power;
    memcpy(&bits, &shifted, sizeof bits);
    bits <<= 23;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

static inline float graphc_logistic(float x) {
    return 1.0f / (1.0f + graphc_exponential(-x));
}

// tanh(x): by a polynomial near 0, where 1 minus something would cancel. Source of the coefficients: the Cephes library.
static inline float graphc_tanh(float x) {
    const float square = x * x, far = 1.0f - 2.0f / (1.0f + graphc_exponential(2.0f * x));
    float p = -5.70498872745e-3f;
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    const float near = p * square * x + x;
    return square < 0.390625f ? near : far;
}

// The states after each step, [2][steps][batch][size]: outputs, and cells. The gates of a step, of input, output, forget and cell, are
// what is given for it plus the last output times the weights, which lie as they are read: [units together][size][4][GRAPHC_UNITS].
static inline void graphc_lstm(const float * gates, const float * weights, const float * first_output, const float * first_cell,
                               float * y, int64_t steps, int64_t batch, int64_t size, int64_t reverse, int ith, int nth) {
    const int64_t all = steps * batch * size;
    for (int64_t number = batch * ith / nth; number < batch * (ith + 1) / nth; number++) {
        const float * output = first_output + number * size;
        const float * cell = first_cell + number * size;
        for (int64_t count = 0; count < steps; count++) {
            const int64_t step = reverse ? steps - 1 - count : count, place = (step * batch + number) * size;
            const float * row = weights;
            for (int64_t unit = 0; unit < size; unit += GRAPHC_UNITS) {
                const size_t bytes = (size_t) (size - unit < GRAPHC_UNITS ? size - unit : GRAPHC_UNITS) * sizeof(float);
                float sums[4][GRAPHC_UNITS] = {{0}}, cells[GRAPHC_UNITS] = {0}, outputs[GRAPHC_UNITS];
                for (int gate = 0; gate < 4; gate++) memcpy(sums[gate], gates + 4 * place + gate * size + unit, bytes);
                memcpy(cells, cell + unit, bytes);
                for (int64_t k = 0; k < size; k++, row += 4 * GRAPHC_UNITS) {
                    const float factor = output[k];
                    for (int i = 0; i < GRAPHC_UNITS; i++) {
                        sums[0][i] += factor * row[i];
                        sums[1][i] += factor * row[GRAPHC_UNITS + i];
                        sums[2][i] += factor * row[2 * GRAPHC_UNITS + i];
                        sums[3][i] += factor * row[3 * GRAPHC_UNITS + i];
                    }
                }
                for (int i = 0; i < GRAPHC_UNITS; i++) {
                    cells[i] = graphc_logistic(sums[2][i]) * cells[i] + graphc_logistic(sums[0][i]) * graphc_tanh(sums[3][i]);
                    outputs[i] = graphc_logistic(sums[1][i]) * graphc_tanh(cells[i]);
                }
                memcpy(y + place + unit, outputs, bytes);
                memcpy(y + all + place + unit, cells, bytes);
            }
            output = y + place, cell = y + all + place;
        }
    }
}
