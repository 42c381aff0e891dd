// The largest elements of windows.
#include "types.h"

// Images of height x width x inner, and as many windows in each; the settings along the height come before those along the width. Of
// what is inner, each has windows of its own.
struct graphc_pool_T {
    int64_t images, height, width, inner, down, across, kernel[2], strides[2], dilations[2], pads[2];
};

// to[i] = the larger of to[i] and from[i * stride]. What is not a number is larger than all that is.
static inline void graphc_larger_T(const T * restrict from, int64_t stride, T * restrict to, int64_t first, int64_t end) {
    for (int64_t i = first; i < end; i++) {
        const V a = LOAD(from[i * stride]), b = LOAD(to[i]);
        to[i] = STORE(a > b || a != a ? a : b);
    }
}

// y[image][row][column] = the largest of a window of x[image], where `lowest` surrounds the image.
static inline void graphc_max_pool_T(const T * restrict x, T * restrict y, V lowest, const int64_t * settings, int ith, int nth) {
    struct graphc_pool_T s;
    memcpy(&s, settings, sizeof(s));
    const int64_t rows = s.images * s.down, stride = s.strides[1];
    for (int64_t row = rows * ith / nth; row < rows * (ith + 1) / nth; row++) {
        T * to = y + row * s.across * s.inner;
        for (int64_t i = 0; i < s.across * s.inner; i++) to[i] = STORE(lowest);
        for (int64_t tap = 0; tap < s.kernel[0] * s.kernel[1]; tap++) {
            const int64_t iy = row % s.down * s.strides[0] - s.pads[0] + tap / s.kernel[1] * s.dilations[0];
            if (iy < 0 || iy >= s.height) continue;
            const int64_t left = tap % s.kernel[1] * s.dilations[1] - s.pads[1];
            const int64_t inside = left < s.width ? (s.width - left + stride - 1) / stride : 0;
            const int64_t first = left < 0 ? (stride - 1 - left) / stride : 0, end = inside < s.across ? inside : s.across;
            const T * from = x + ((row / s.down * s.height + iy) * s.width + left) * s.inner;
            if (s.inner != 1) {
                for (int64_t i = first; i < end; i++) graphc_larger_T(from + i * stride * s.inner, 1, to + i * s.inner, 0, s.inner);
            } else if (stride == 1) {
                graphc_larger_T(from, 1, to, first, end);
            } else if (stride == 2) {
                graphc_larger_T(from, 2, to, first, end);
            } else {
                graphc_larger_T(from, stride, to, first, end);
            }
        }
    }
}
