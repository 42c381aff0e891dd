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

enum { GRAPHC_LSTM, GRAPHC_GRU, GRAPHC_LINEAR_GRU, GRAPHC_TANH, GRAPHC_RELU };

// Gates of GRAPHC_UNITS units, from `first` on, of rows that have `all` of them: a state times the weights, and what stands behind those.
static inline __attribute__((always_inline)) void graphc_sum_gates(int first, int count, int all, const float * state, const float * weights,
                                                                   int64_t size, float sums[][GRAPHC_UNITS]) {
    const float * row = weights + first * GRAPHC_UNITS;
    for (int gate = 0; gate < count; gate++) memcpy(sums[gate], row + (size * all + gate) * GRAPHC_UNITS, sizeof sums[gate]);
    for (int64_t k = 0; k < size; k++, row += all * GRAPHC_UNITS) {
        const float factor = state[k];
        for (int i = 0; i < GRAPHC_UNITS; i++) {
            sums[0][i] += factor * row[i];
            if (count > 1) sums[1][i] += factor * row[GRAPHC_UNITS + i];
            if (count > 2) sums[2][i] += factor * row[2 * GRAPHC_UNITS + i];
            if (count > 3) sums[3][i] += factor * row[3 * GRAPHC_UNITS + i];
        }
    }
}

// One step of a sequence: the state becomes `next`, which is elsewhere, and an LSTM's cells are changed. `given` are its gates, one after
// the other; `rest` has room for what a reset leaves of a state.
static inline __attribute__((always_inline)) void graphc_step(int cell, const float * given, const float * weights, const float * state,
                                                              int64_t size, float * next, float * cells, float * rest) {
    enum { UNITS = GRAPHC_UNITS };
    const int all = cell == GRAPHC_LSTM ? 4 : cell == GRAPHC_GRU || cell == GRAPHC_LINEAR_GRU ? 3 : 1;
    const int64_t panel = (size + 1) * all * UNITS;
    float x[4][UNITS] = {{0}}, sums[4][UNITS], old[UNITS] = {0}, found[UNITS], kept[UNITS] = {0};
    for (int64_t unit = 0; unit < size; unit += UNITS, weights += panel) {
        const size_t bytes = (size_t) (size - unit < UNITS ? size - unit : UNITS) * sizeof(float);
        for (int gate = 0; gate < all; gate++) memcpy(x[gate], given + gate * size + unit, bytes);
        memcpy(old, (cell == GRAPHC_LSTM ? cells : state) + unit, bytes);
        graphc_sum_gates(0, cell == GRAPHC_GRU ? 2 : all, all, state, weights, size, sums);
        if (cell == GRAPHC_LSTM) {  // input, output, forget, cell
            for (int i = 0; i < UNITS; i++) {
                const float fresh = graphc_logistic(x[0][i] + sums[0][i]) * graphc_tanh(x[3][i] + sums[3][i]);
                kept[i] = graphc_logistic(x[2][i] + sums[2][i]) * old[i] + fresh;
                found[i] = graphc_logistic(x[1][i] + sums[1][i]) * graphc_tanh(kept[i]);
            }
            memcpy(cells + unit, kept, bytes);
        } else if (cell == GRAPHC_LINEAR_GRU) {  // update, reset, hidden
            for (int i = 0; i < UNITS; i++) {
                const float update = graphc_logistic(x[0][i] + sums[0][i]);
                const float fresh = graphc_tanh(x[2][i] + graphc_logistic(x[1][i] + sums[1][i]) * sums[2][i]);
                found[i] = (1.0f - update) * fresh + update * old[i];
            }
        } else if (cell == GRAPHC_GRU) {  // the updates, until all that resets leave is known
            for (int i = 0; i < UNITS; i++) {
                found[i] = graphc_logistic(x[0][i] + sums[0][i]);
                kept[i] = graphc_logistic(x[1][i] + sums[1][i]) * old[i];
            }
            memcpy(rest + unit, kept, bytes);
        } else if (cell == GRAPHC_TANH) {
            for (int i = 0; i < UNITS; i++) found[i] = graphc_tanh(x[0][i] + sums[0][i]);
        } else {
            for (int i = 0; i < UNITS; i++) {
                const float sum = x[0][i] + sums[0][i];
                found[i] = sum < 0.0f ? 0.0f : sum;
            }
        }
        memcpy(next + unit, found, bytes);
    }
    if (cell != GRAPHC_GRU) return;
    weights -= (size + UNITS - 1) / UNITS * panel;
    for (int64_t unit = 0; unit < size; unit += UNITS, weights += panel) {
        const size_t bytes = (size_t) (size - unit < UNITS ? size - unit : UNITS) * sizeof(float);
        memcpy(x[2], given + 2 * size + unit, bytes);
        memcpy(old, state + unit, bytes);
        memcpy(found, next + unit, bytes);
        graphc_sum_gates(2, 1, all, rest, weights, size, sums);
        for (int i = 0; i < UNITS; i++) found[i] = (1.0f - found[i]) * graphc_tanh(x[2][i] + sums[0][i]) + found[i] * old[i];
        memcpy(next + unit, found, bytes);
    }
}

// Sequences of a batch, each in all directions: y is [steps][directions][batch][size], 0 behind a sequence's end, then the state after
// its last step, and the cells of an LSTM.
static inline __attribute__((always_inline)) void graphc_recur(int cell, const float * gates, const float * weights, const int64_t * lengths,
                                                               const float * first, const float * first_cells, float * y, int64_t steps,
                                                               int64_t batch, int64_t directions, int64_t size, const int64_t * reverse,
                                                               int ith, int nth) {
    const int all = cell == GRAPHC_LSTM ? 4 : cell == GRAPHC_GRU || cell == GRAPHC_LINEAR_GRU ? 3 : 1;
    const int64_t sequences = directions * batch, panels = (size + GRAPHC_UNITS - 1) / GRAPHC_UNITS * (size + 1) * all * GRAPHC_UNITS;
    const size_t bytes = (size_t) size * sizeof(float);
    for (int64_t number = sequences * ith / nth; number < sequences * (ith + 1) / nth; number++) {
        const int64_t direction = number / batch, which = number % batch, length = lengths[which];
        const int64_t count = length < 0 ? 0 : length > steps ? steps : length;
        float * last = y + (steps * sequences + number) * size, * cells = last + sequences * size;
        const float * state = first + number * size;
        if (cell == GRAPHC_LSTM) memcpy(cells, first_cells + number * size, bytes);
        for (int64_t i = 0; i < count; i++) {
            const int64_t step = reverse[direction] ? count - 1 - i : i;
            const float * given = gates + ((step * batch + which) * directions + direction) * all * size;
            float * next = y + (step * sequences + number) * size;
            graphc_step(cell, given, weights + direction * panels, state, size, next, cells, last);
            state = next;
        }
        for (int64_t step = count; step < steps; step++) memset(y + (step * sequences + number) * size, 0, bytes);
        memcpy(last, state, bytes);
    }
}

static inline void graphc_lstm(const float * gates, const float * weights, const int64_t * lengths, const float * first,
                               const float * first_cells, float * y, int64_t steps, int64_t batch, int64_t directions, int64_t size, const int64_t * reverse,
                               int ith, int nth) {
    graphc_recur(GRAPHC_LSTM, gates, weights, lengths, first, first_cells, y, steps, batch, directions, size, reverse, ith, nth);
}

static inline void graphc_gru(const float * gates, const float * weights, const int64_t * lengths, const float * first,
                              float * y, int64_t steps, int64_t batch, int64_t directions, int64_t size, const int64_t * reverse,
                              int ith, int nth) {
    graphc_recur(GRAPHC_GRU, gates, weights, lengths, first, NULL, y, steps, batch, directions, size, reverse, ith, nth);
}

static inline void graphc_linear_gru(const float * gates, const float * weights, const int64_t * lengths, const float * first,
                                     float * y, int64_t steps, int64_t batch, int64_t directions, int64_t size, const int64_t * reverse,
                                     int ith, int nth) {
    graphc_recur(GRAPHC_LINEAR_GRU, gates, weights, lengths, first, NULL, y, steps, batch, directions, size, reverse, ith, nth);
}

static inline void graphc_rnn_of_tanh(const float * gates, const float * weights, const int64_t * lengths, const float * first,
                                      float * y, int64_t steps, int64_t batch, int64_t directions, int64_t size, const int64_t * reverse,
                                      int ith, int nth) {
    graphc_recur(GRAPHC_TANH, gates, weights, lengths, first, NULL, y, steps, batch, directions, size, reverse, ith, nth);
}

static inline void graphc_rnn_of_relu(const float * gates, const float * weights, const int64_t * lengths, const float * first,
                                      float * y, int64_t steps, int64_t batch, int64_t directions, int64_t size, const int64_t * reverse,
                                      int ith, int nth) {
    graphc_recur(GRAPHC_RELU, gates, weights, lengths, first, NULL, y, steps, batch, directions, size, reverse, ith, nth);
}
