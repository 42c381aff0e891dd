// Probabilities of classes, from what is known of each pair of them.
#include <math.h>
#include <stdint.h>

#define GRAPHC_MOST_CLASSES 1024

// The probability of a class against another, of those of the first of each pair.
static inline double graphc_over(const float * x, int64_t classes, int64_t a, int64_t b) {
    const int64_t first = a < b ? a : b, second = a < b ? b : a;
    const double found = x[first * classes - first * (first + 1) / 2 + second - first - 1];
    return a < b ? found : 1 - found;
}

// What two classes have to do with each other, in the sum of squares that is made small.
static inline double graphc_between(const float * x, int64_t classes, int64_t a, int64_t b) {
    if (a != b) return -graphc_over(x, classes, b, a) * graphc_over(x, classes, a, b);
    double sum = 0;
    for (int64_t other = 0; other < classes; other++) {
        const double over = other == a ? 0 : graphc_over(x, classes, other, a);
        sum += over * over;
    }
    return sum;
}

// y[row][class], of x[row][pair]: steps along one class after the other, until none changes much.
static inline void graphc_pairwise_coupling(const float * x, float * y, int64_t rows, int64_t classes, int ith, int nth) {
    double p[GRAPHC_MOST_CLASSES], slope[GRAPHC_MOST_CLASSES];
    const int64_t pairs = classes * (classes - 1) / 2, end = rows * (ith + 1) / nth;
    for (int64_t row = rows * ith / nth; row < end; row++) {
        const float * const of_row = x + row * pairs;
        for (int64_t a = 0; a < classes; a++) p[a] = 1.0 / (double) classes;
        for (int step = 0; step < 100; step++) {
            double value = 0, most = 0;
            for (int64_t a = 0; a < classes; a++) {
                slope[a] = 0;
                for (int64_t b = 0; b < classes; b++) slope[a] += graphc_between(of_row, classes, a, b) * p[b];
                value += p[a] * slope[a];
            }
            for (int64_t a = 0; a < classes; a++) most = fabs(slope[a] - value) > most ? fabs(slope[a] - value) : most;
            if (most < 0.005 / (double) classes) break;
            for (int64_t a = 0; a < classes; a++) {
                const double own = graphc_between(of_row, classes, a, a);
                const double change = (value - slope[a]) / own, whole = 1 + change;
                value = (value + change * (change * own + 2 * slope[a])) / whole / whole;
                for (int64_t b = 0; b < classes; b++) slope[b] = (slope[b] + change * graphc_between(of_row, classes, a, b)) / whole;
                p[a] += change;
                for (int64_t b = 0; b < classes; b++) p[b] /= whole;
            }
        }
        for (int64_t a = 0; a < classes; a++) y[row * classes + a] = (float) p[a];
    }
}
