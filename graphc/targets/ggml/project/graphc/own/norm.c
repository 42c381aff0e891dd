// Normalizations with their scale and shift, and SiLU after one of groups if asked for: read three times, written once.

#include "norm.h"

#include "tiles.h"

#include <math.h>

enum { STRETCH = 1024 };

/// The sum of all lanes, in float64, in halves.
static inline double sum_of(vector x) {
    double lanes[WIDTH];
    for (int lane = 0; lane < WIDTH; ++lane) lanes[lane] = x[lane];
    for (int half = WIDTH / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    return lanes[0];
}

/// The sum of (x - mean)^power over `count` elements: a stretch in float32, the stretches in float64.
static double moment(const float * x, int64_t count, float mean, int power) {
    double total = 0;
    for (int64_t start = 0; start < count; start += STRETCH) {
        const int64_t end = min_of(start + STRETCH, count);
        vector sums = all(0), others = all(0);  // by turns: a sum waits for the one before
        int64_t i = start;
        for (; i + 2 * WIDTH <= end; i += 2 * WIDTH) {
            const vector a = *(const unaligned *) (x + i) - mean, b = *(const unaligned *) (x + i + WIDTH) - mean;
            sums += power == 1 ? a : a * a;
            others += power == 1 ? b : b * b;
        }
        total += sum_of(sums + others);
        for (; i < end; ++i) total += power == 1 ? x[i] - mean : (double) (x[i] - mean) * (x[i] - mean);
    }
    return total;
}

static vector normalized(vector x, float mean, float scale, float shift, bool active) {
    const vector y = (x - mean) * scale + shift;
    return active ? y * sigmoid(y) : y;
}

static void normalize(const float * x, float * y, int64_t count, float mean, float scale, float shift, bool active) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) *(unaligned *) (y + i) = normalized(*(const unaligned *) (x + i), mean, scale, shift, active);
    vector last = all(mean);
    for (int64_t k = i; k < count; ++k) last[k - i] = x[k];
    last = normalized(last, mean, scale, shift, active);
    for (int64_t k = i; k < count; ++k) y[k] = last[k - i];
}

/// True if it holds a number for each element of an axis, one after the other.
static bool is_along(const struct ggml_tensor * t, const struct ggml_tensor * x, int axis) {
    for (int i = 0; i < 4; ++i) {
        if (t->ne[i] != (i == axis ? x->ne[axis] : 1)) return false;
    }
    return is_dense(t);
}

bool graphc_takes_norm(const struct ggml_tensor * x) { return is_float_rows(x); }

bool graphc_takes_factor(const struct ggml_tensor * factor, const struct ggml_tensor * x) { return is_along(factor, x, 0); }

/// (x - mean) * inverse, times a number and plus a number for each element if there are.
static void scale_row(const float * restrict x, float * restrict y, int64_t size, float mean, float inverse, const float * restrict scale,
                      const float * restrict shift) {
    if (shift != NULL) {
        for (int64_t i = 0; i < size; ++i) y[i] = (x[i] - mean) * inverse * scale[i] + shift[i];
    } else if (scale != NULL) {
        for (int64_t i = 0; i < size; ++i) y[i] = (x[i] - mean) * inverse * scale[i];
    } else {
        for (int64_t i = 0; i < size; ++i) y[i] = (x[i] - mean) * inverse;
    }
}

void graphc_norm(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const struct graphc_norm_settings * s = userdata;
    const struct ggml_tensor * x = dst->src[0], * scale = dst->src[1], * shift = scale == NULL ? NULL : dst->src[2];
    const int64_t size = x->ne[0];
    const int64_t rows = x->ne[1] * x->ne[2] * x->ne[3];
    for (int64_t row = rows * ith / nth; row < rows * (ith + 1) / nth; ++row) {
        const int64_t i1 = row % x->ne[1], i2 = row / x->ne[1] % x->ne[2], i3 = row / x->ne[1] / x->ne[2];
        const float * from = (const float *) ((const char *) x->data + i1 * x->nb[1] + i2 * x->nb[2] + i3 * x->nb[3]);
        const float mean = s->centered ? (float) (moment(from, size, 0, 1) / size) : 0;
        const float inverse = 1.0f / sqrtf((float) (moment(from, size, mean, 2) / size) + s->epsilon);
        scale_row(from, (float *) dst->data + row * size, size, mean, inverse, scale == NULL ? NULL : scale->data, shift == NULL ? NULL : shift->data);
    }
}

bool graphc_takes_group_norm(const struct ggml_tensor * x, const struct ggml_tensor * scale, const struct ggml_tensor * shift, int groups) {
    return is_dense(x) && groups >= 1 && x->ne[2] % groups == 0 && is_along(scale, x, 2) && is_along(shift, x, 2);
}

void graphc_group_norm(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const struct graphc_group_norm_settings * s = userdata;
    const struct ggml_tensor * x = dst->src[0];
    const float * scale = dst->src[1]->data, * shift = dst->src[2]->data;
    const int64_t plane = x->ne[0] * x->ne[1], channels = x->ne[2] / s->groups, size = plane * channels;
    for (int64_t unit = ith; unit < x->ne[3] * s->groups; unit += nth) {
        const float * from = (const float *) x->data + unit * size;
        float * to = (float *) dst->data + unit * size;
        const float mean = (float) (moment(from, size, 0, 1) / size);
        const float inverse = 1.0f / sqrtf((float) (moment(from, size, mean, 2) / size) + s->epsilon);
        const int64_t first = unit % s->groups * channels;
        for (int64_t c = 0; c < channels; ++c) {
            normalize(from + c * plane, to + c * plane, plane, mean, inverse * scale[first + c], shift[first + c], s->silu);
        }
    }
}
