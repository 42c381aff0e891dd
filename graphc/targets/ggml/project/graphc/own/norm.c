// Normalizations with their scale and shift, and SiLU after one of groups if asked for: groups are read twice and written once.

#include "norm.h"

#include "normalized.h"
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

/// What of the sum of (x - mean)^power over `count` elements is in each lane. Memory is not read from `limit` on.
static inline __attribute__((always_inline)) vector lanes_of_moment(const float * x, int64_t count, const float * limit, float mean, int power) {
    vector sums = all(0), others = all(0);  // by turns: a sum waits for the one before
    int64_t i = 0;
    for (; i + 2 * WIDTH <= count; i += 2 * WIDTH) {
        const vector a = *(const unaligned *) (x + i) - mean, b = *(const unaligned *) (x + i + WIDTH) - mean;
        sums += power == 1 ? a : a * a;
        others += power == 1 ? b : b * b;
    }
    for (; i < count; i += WIDTH) {
        const vector a = first_of(x + i, count - i, limit, mean) - mean;
        sums += power == 1 ? a : a * a;
    }
    return sums + others;
}

/// The sum of (x - mean)^power over `count` elements: a stretch in float32, the stretches in float64.
static inline __attribute__((always_inline)) double moment(const float * x, int64_t count, const float * limit, float mean, int power) {
    double total = 0;
    for (int64_t i = 0; i < count; i += STRETCH) total += sum_of(lanes_of_moment(x + i, min_of(STRETCH, count - i), limit, mean, power));
    return total;
}

static void normalize(const float * x, float * y, int64_t count, const struct norm_terms * terms, bool silu) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) *(unaligned *) (y + i) = normalized(*(const unaligned *) (x + i), terms, silu);
    if (i == count) return;
    const vector last = normalized(some_of(x + i, count - i), terms, silu);
    copy((const float *) &last, 1, count - i, y + i);
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

/// (x - mean) * inverse, times a number and plus a number for each element if there are. What comes behind it up to `next` may be written
/// too.
static inline void scale_row(const float * restrict x, float * restrict y, int64_t size, const float * limit, const float * next, float mean,
                             float inverse, const float * restrict scale, const float * restrict shift) {
    if (size < WIDTH && scale == NULL) {
        const vector found = (first_of(x, size, limit, mean) - mean) * inverse;
        if (y + WIDTH <= next) *(unaligned *) y = found;
        else copy((const float *) &found, 1, size, y);
    } else if (size < WIDTH) {
        for (int64_t i = 0; i < size; ++i) y[i] = (x[i] - mean) * inverse * scale[i] + (shift == NULL ? 0 : shift[i]);
    } else {
        for (int64_t first = 0; first < size; first += WIDTH) {
            const int64_t i = min_of(first, size - WIDTH);  // the last elements are those of a whole vector
            vector found = (*(const unaligned *) (x + i) - mean) * inverse;
            if (scale != NULL) found *= *(const unaligned *) (scale + i);
            if (shift != NULL) found += *(const unaligned *) (shift + i);
            *(unaligned *) (y + i) = found;
        }
    }
}

/// Sums of (x - mean)^power over some rows, as many as a vector has lanes at most. Of short rows they are added up together.
static inline __attribute__((always_inline)) vector moments(const float * const * rows, int count, int64_t size, const float * limit,
                                                            const float * means, int power) {
    vector found = all(0), totals[WIDTH];
    if (size > STRETCH) {
        for (int row = 0; row < count; ++row) found[row] = (float) moment(rows[row], size, limit, means[row], power);
        return found;
    }
    for (int row = 0; row < count; ++row) totals[row] = lanes_of_moment(rows[row], size, limit, means[row], power);
    for (int row = count; row < WIDTH; ++row) totals[row] = all(0);
    return sums_of(totals);
}

static vector roots(vector x) {
    vector found;
    for (int lane = 0; lane < WIDTH; ++lane) found[lane] = sqrtf(x[lane]);
    return found;
}

void graphc_norm(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const struct graphc_norm_settings * s = userdata;
    const struct ggml_tensor * x = dst->src[0], * scale = dst->src[1], * shift = scale == NULL ? NULL : dst->src[2];
    const float * limit = end_of(x), * scales = scale == NULL ? NULL : scale->data, * shifts = shift == NULL ? NULL : shift->data;
    const int64_t size = x->ne[0], rows = x->ne[1] * x->ne[2] * x->ne[3], end = rows * (ith + 1) / nth;
    const vector least = all(s->epsilon);
    float * to = dst->data;
    const int64_t first = rows * ith / nth;
    if (first == end) return;
    int64_t i1 = first % x->ne[1], i2 = first / x->ne[1] % x->ne[2];
    const char * at = (const char *) x->data + i1 * x->nb[1] + i2 * x->nb[2] + first / x->ne[1] / x->ne[2] * x->nb[3];
    for (int64_t row = first; row < end; row += WIDTH) {
        const int count = (int) min_of(WIDTH, end - row);
        const float * from[WIDTH];
        float means[WIDTH] = {0}, inverses[WIDTH];
        for (int i = 0; i < count; ++i, at += x->nb[1]) {
            if (i1 == x->ne[1]) i1 = 0, ++i2, at += x->nb[2] - x->ne[1] * x->nb[1];
            if (i2 == x->ne[2]) i2 = 0, at += x->nb[3] - x->ne[2] * x->nb[2];
            from[i] = (const float *) at, ++i1;
        }
        if (s->divisor == GRAPHC_DEVIATION) *(unaligned *) means = moments(from, count, size, limit, means, 1) / (float) size;
        const vector squares = moments(from, count, size, limit, means, 2), lengths = roots(squares);
        const vector divisors = s->divisor != GRAPHC_LENGTH ? roots(squares / (float) size + least) : choose(lengths < least, least, lengths);
        *(unaligned *) inverses = 1.0f / divisors;
        for (int i = 0; i < count; ++i) {
            scale_row(from[i], to + (row + i) * size, size, limit, to + end * size, means[i], inverses[i], scales, shifts);
        }
    }
}

bool graphc_takes_group_norm(const struct ggml_tensor * x, const struct ggml_tensor * scale, const struct ggml_tensor * shift, int groups) {
    return is_dense(x) && groups >= 1 && x->ne[2] % groups == 0 && is_along(scale, x, 2) && is_along(shift, x, 2);
}

/// The mean and the variance of so many elements, a stretch of which is read once: its squares are taken against its own mean.
static void statistics(const float * x, int64_t count, const float * limit, double * mean, double * variance) {
    double middle = 0, squares = 0;
    for (int64_t i = 0; i < count; i += STRETCH) {
        const int64_t some = min_of(STRETCH, count - i);
        const double own = sum_of(lanes_of_moment(x + i, some, limit, 0, 1)) / (double) some, away = own - middle, share = (double) some / (double) (i + some);
        squares += sum_of(lanes_of_moment(x + i, some, limit, (float) own, 2)) + away * away * (double) i * share;
        middle += away * share;
    }
    *mean = middle, *variance = squares / (double) count;
}

/// What a group, one of those of all images, takes away, and the inverse of its deviation.
static struct norm_terms terms_of_group(const struct ggml_tensor * x, const struct graphc_group_norm_settings * s, int64_t group) {
    const int64_t size = x->ne[0] * x->ne[1] * (x->ne[2] / s->groups);
    double mean, variance;
    statistics((const float *) x->data + group * size, size, end_of(x), &mean, &variance);
    return (struct norm_terms){(float) mean, 1.0f / sqrtf((float) variance + s->epsilon), 0};
}

/// The same for a channel.
static inline struct norm_terms terms_of_channel(struct norm_terms of_group, const struct ggml_tensor * dst, int64_t channel) {
    const float * scale = dst->src[1]->data, * shift = dst->src[2]->data;
    return (struct norm_terms){of_group.mean, of_group.scale * scale[channel], shift[channel]};
}

void graphc_group_norm(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const struct graphc_group_norm_settings * s = userdata;
    const struct ggml_tensor * x = dst->src[0];
    const int64_t plane = x->ne[0] * x->ne[1], channels = x->ne[2] / s->groups;
    for (int64_t group = ith; group < x->ne[3] * s->groups; group += nth) {
        const struct norm_terms of_group = terms_of_group(x, s, group);
        for (int64_t c = group * channels; c < (group + 1) * channels; ++c) {
            const struct norm_terms terms = terms_of_channel(of_group, dst, c % x->ne[2]);
            normalize((const float *) x->data + c * plane, (float *) dst->data + c * plane, plane, &terms, s->silu);
        }
    }
}

void graphc_group_norm_terms(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const struct graphc_group_norm_settings * s = userdata;
    const struct ggml_tensor * x = dst->src[0];
    const int64_t channels = x->ne[2] / s->groups;
    for (int64_t group = ith; group < x->ne[3] * s->groups; group += nth) {
        const struct norm_terms of_group = terms_of_group(x, s, group);
        for (int64_t c = group * channels; c < (group + 1) * channels; ++c) ((struct norm_terms *) dst->data)[c] = terms_of_channel(of_group, dst, c % x->ne[2]);
    }
}
