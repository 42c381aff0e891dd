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

// How many steps of `stride` it takes from 0 to `distance` or beyond; none if that is not above 0.
static inline int64_t graphc_steps_T(int64_t distance, int64_t stride) {
    if (distance <= 0) return 0;
    return stride == 1 ? distance : stride == 2 ? (distance + 1) / 2 : (distance + stride - 1) / stride;
}

// The same for a row of the image that all windows of a row meet, of which `to` has the largest so far.
static inline void graphc_larger_of_row_T(const T * restrict from, const struct graphc_pool_T * s, T * restrict to) {
    const int64_t stride = s->strides[1], inner = s->inner;
    for (int64_t kx = 0; kx < s->kernel[1]; kx++) {
        const int64_t left = kx * s->dilations[1] - s->pads[1], inside = graphc_steps_T(s->width - left, stride);
        const int64_t first = graphc_steps_T(-left, stride), end = inside < s->across ? inside : s->across;
        const T * const at = from + left * inner;
        if (inner != 1) {
            for (int64_t i = first; i < end; i++) graphc_larger_T(at + i * stride * inner, 1, to + i * inner, 0, inner);
        } else if (stride == 1) {
            graphc_larger_T(at, 1, to, first, end);
        } else if (stride == 2) {
            graphc_larger_T(at, 2, to, first, end);
        } else {
            graphc_larger_T(at, stride, to, first, end);
        }
    }
}

// y[image][row][column] = the largest of a window of x[image], where `lowest` surrounds the image.
static inline void graphc_max_pool_T(const T * restrict x, T * restrict y, V lowest, const int64_t * settings, int ith, int nth) {
    struct graphc_pool_T s;
    memcpy(&s, settings, sizeof(s));
    const int64_t rows = s.images * s.down, size = s.across * s.inner;
    for (int64_t row = rows * ith / nth; row < rows * (ith + 1) / nth; row++) {
        const int64_t image = row / s.down, top = (row - image * s.down) * s.strides[0] - s.pads[0];
        const T * const plane = x + image * s.height * s.width * s.inner;
        T * to = y + row * size;
        for (int64_t i = 0; i < size; i++) to[i] = STORE(lowest);
        for (int64_t ky = 0; ky < s.kernel[0]; ky++) {
            const int64_t iy = top + ky * s.dilations[0];
            if (iy >= 0 && iy < s.height) graphc_larger_of_row_T(plane + iy * s.width * s.inner, &s, to);
        }
    }
}
