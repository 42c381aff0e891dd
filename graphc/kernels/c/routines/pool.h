// The largest elements of windows.
#include "types.h"

// Images of height x width x inner, and as many windows in each; the settings along the height come before those along the width. Of
// what is inner, each has windows of its own.
struct graphc_pool_T {
    int64_t images, height, width, inner, down, across, kernel[2], strides[2], dilations[2], pads[2];
};

// What is not a number is larger than all that is.
static inline V graphc_larger_T(V a, V b) { return a > b || a != a ? a : b; }

// How many steps of `stride` it takes from 0 to `distance` or beyond; none if that is not above 0.
static inline int64_t graphc_steps_T(int64_t distance, int64_t stride) {
    if (distance <= 0) return 0;
    return stride == 1 ? distance : stride == 2 ? (distance + 1) / 2 : (distance + stride - 1) / stride;
}

// to[i] = the largest of what is there, if that counts, and of from[i * stride], from[i * stride + next], ..., which are one to three.
static inline void graphc_largest_T(const T * restrict from, int64_t stride, int64_t next, int64_t some, bool counts, T * restrict to, int64_t count) {
    const T * restrict const second = from + next, * restrict const third = second + next;
    if (some == 3 && !counts) {
        for (int64_t i = 0; i < count; i++) {
            const V both = graphc_larger_T(LOAD(second[i * stride]), LOAD(third[i * stride]));
            to[i] = STORE(graphc_larger_T(LOAD(from[i * stride]), both));
        }
    } else if (some == 2) {
        for (int64_t i = 0; i < count; i++) {
            const V both = graphc_larger_T(LOAD(from[i * stride]), LOAD(second[i * stride]));
            to[i] = STORE(counts ? graphc_larger_T(both, LOAD(to[i])) : both);
        }
    } else {
        for (int64_t i = 0; i < count; i++) to[i] = STORE(counts ? graphc_larger_T(LOAD(from[i * stride]), LOAD(to[i])) : LOAD(from[i * stride]));
    }
}

// The same of so many.
static inline void graphc_largest_of_T(const T * restrict from, int64_t stride, int64_t next, int64_t taps, bool counts, T * restrict to, int64_t count) {
    while (taps > 0) {
        const int64_t some = taps >= 3 && !counts ? 3 : taps >= 2 ? 2 : 1;
        if (stride == 1) graphc_largest_T(from, 1, next, some, counts, to, count);
        else if (stride == 2) graphc_largest_T(from, 2, next, some, counts, to, count);
        else graphc_largest_T(from, stride, next, some, counts, to, count);
        from += some * next, taps -= some, counts = true;
    }
}

// The places of a window along an axis that are inside an image of so many, where its first is `from`.
struct graphc_taps_T {
    int64_t first, end;
};

static inline struct graphc_taps_T graphc_taps_inside_T(const struct graphc_pool_T * s, int axis, int64_t from, int64_t size) {
    const int64_t first = graphc_steps_T(-from, s->dilations[axis]), inside = graphc_steps_T(size - from, s->dilations[axis]);
    return (struct graphc_taps_T){first, inside < s->kernel[axis] ? inside : s->kernel[axis]};
}

// Of each row the largest of one window, to[row * size], or of it and what is there, if that counts: several rows together.
static inline void graphc_largest_of_column_T(const T * restrict from, int64_t line, int64_t next, int64_t taps, int64_t rows, bool counts,
                                              V lowest, T * restrict to, int64_t size) {
    enum { TOGETHER = 64 };
    T column[TOGETHER];
    for (int64_t row = 0, some; row < rows; row += some) {
        some = rows - row < TOGETHER ? rows - row : TOGETHER;
        for (int64_t k = 0; k < some; k++) column[k] = counts ? to[(row + k) * size] : STORE(lowest);
        graphc_largest_of_T(from + row * line, line, next, taps, true, column, some);
        for (int64_t k = 0; k < some; k++) to[(row + k) * size] = column[k];
    }
}

// Of rows [rows][width][inner] the largest of each window, [rows][across][inner], or of it and what is there, if that counts.
static inline void graphc_largest_across_T(const T * restrict from, int64_t rows, const struct graphc_pool_T * s, bool counts, V lowest, T * restrict to) {
    const int64_t stride = s->strides[1], inner = s->inner, next = s->dilations[1] * inner, line = s->width * inner, size = s->across * inner;
    const int64_t inside = graphc_steps_T(s->width + s->pads[1] - (s->kernel[1] - 1) * s->dilations[1], stride);
    int64_t first = graphc_steps_T(s->pads[1], stride), end = inside < s->across ? inside : s->across;  // of windows that are all inside
    if (first > end) first = end = s->across;
    const T * const whole = from + (first * stride - s->pads[1]) * inner;
    const bool together = inner == 1 ? size * stride == line : stride == 1 && size == line;  // all rows are one, but for windows that are not all inside
    const int64_t neighbours = stride == 1 || inner == 1 ? end - first : 1, count = neighbours * inner, step = inner == 1 ? stride : 1;
    if (together && first < end) graphc_largest_of_T(whole, step, next, s->kernel[1], counts, to + first * inner, (rows - 1) * size + count);
    for (int64_t row = 0; row < rows && !together; row++) {
        for (int64_t i = first; i < end; i += neighbours) {
            const T * const at = whole + row * line + (i - first) * stride * inner;
            graphc_largest_of_T(at, step, next, s->kernel[1], counts, to + row * size + i * inner, count);
        }
    }
    for (int64_t i = first == 0 ? end : 0; i < s->across; i = i + 1 == first ? end : i + 1) {
        const int64_t left = i * stride - s->pads[1];
        const struct graphc_taps_T taps = graphc_taps_inside_T(s, 1, left, s->width);
        const T * const met = from + left * inner + taps.first * next;
        if (inner == 1) graphc_largest_of_column_T(met, line, next, taps.end - taps.first, rows, counts, lowest, to + i, size);
        for (int64_t row = 0; row < rows && inner > 1; row++) {
            T * const windows = to + row * size + i * inner;
            for (int64_t k = 0; k < inner && !counts; k++) windows[k] = STORE(lowest);
            graphc_largest_of_T(met + row * line, 1, next, taps.end - taps.first, true, windows, inner);
        }
    }
}

// Of the rows of an image, the largest that windows meet along its height, for the windows of `rows` rows from `row` on.
static inline void graphc_largest_down_T(const T * restrict image, int64_t row, int64_t rows, const struct graphc_pool_T * s, V lowest, T * restrict to) {
    const int64_t line = s->width * s->inner, next = s->dilations[0] * line;
    for (int64_t i = 0, some; i < rows; i += some) {
        const int64_t top = (row + i) * s->strides[0] - s->pads[0];
        const struct graphc_taps_T taps = graphc_taps_inside_T(s, 0, top, s->height);
        const int64_t inside = s->height - (s->kernel[0] - 1) * s->dilations[0] - top;  // rows from `top` on that meet nothing outside
        some = s->strides[0] != 1 || top < 0 || inside < 1 ? 1 : inside < rows - i ? inside : rows - i;
        for (int64_t k = 0; k < line && taps.first >= taps.end; k++) to[i * line + k] = STORE(lowest);
        graphc_largest_of_T(image + top * line + taps.first * next, 1, next, taps.end - taps.first, false, to + i * line, some * line);
    }
}

// y[image][row][column] = the largest of a window of x[image], where `lowest` surrounds the image.
static inline void graphc_max_pool_T(const T * restrict x, T * restrict y, V lowest, const int64_t * settings, int ith, int nth) {
    enum { ROOM = 8192 };
    T largest[ROOM];  // along the height, of as many rows as there is room for
    struct graphc_pool_T s;
    memcpy(&s, settings, sizeof(s));
    const int64_t line = s.width * s.inner, most = line == 0 || line > ROOM ? 1 : ROOM / line, end = s.images * s.down * (ith + 1) / nth;
    for (int64_t at = s.images * s.down * ith / nth, rows; at < end; at += rows) {
        const T * const from = x + at / s.down * s.height * line;
        T * const to = y + at * s.across * s.inner;
        rows = end - at < most ? end - at : most;
        if (line <= ROOM) {
            for (int64_t done = 0, some; done < rows; done += some) {
                const int64_t image = (at + done) / s.down, row = at + done - image * s.down;
                some = rows - done < s.down - row ? rows - done : s.down - row;
                graphc_largest_down_T(x + image * s.height * line, row, some, &s, lowest, largest + done * line);
            }
            graphc_largest_across_T(largest, rows, &s, false, lowest, to);
            continue;
        }
        const int64_t top = at % s.down * s.strides[0] - s.pads[0];
        const struct graphc_taps_T taps = graphc_taps_inside_T(&s, 0, top, s.height);
        for (int64_t i = 0; i < s.across * s.inner; i++) to[i] = STORE(lowest);
        for (int64_t ky = taps.first; ky < taps.end; ky++) graphc_largest_across_T(from + (top + ky * s.dilations[0]) * line, 1, &s, true, lowest, to);
    }
}
