// Sums and products of two, sums of rows and over them, and softmax. Those with what broadcasts ggml computes an element at a time, or by a
// single thread.

#include "arithmetic.h"

#include "activate.h"
#include "tiles.h"

enum { PARTIAL = 32 };  // rows of a partial sum

bool graphc_takes_broadcast(const struct ggml_tensor * x, const struct ggml_tensor * other) {
    for (int i = 0; i < 4; ++i) {
        if (other->ne[i] != 1 && other->ne[i] != x->ne[i]) return false;
    }
    return is_float_rows(x) && is_float_rows(other);
}

/// What a result is made of, element by element: the axes of all that lie one after the other in each are one, and the elements of the
/// first one do in each, or are one. `step` has elements from one to the next, 0 where one serves a whole axis.
struct operands {
    int count, axes;
    int64_t ne[4], step[GGML_MAX_SRC][4];
    const float * from[GGML_MAX_SRC], * end[GGML_MAX_SRC];
};

static struct operands operands_of(const struct ggml_tensor * dst) {
    struct operands o = {.ne = {1, 1, 1, 1}};
    for (; o.count < GGML_MAX_SRC && dst->src[o.count] != NULL; ++o.count) {
        o.from[o.count] = dst->src[o.count]->data, o.end[o.count] = end_of(dst->src[o.count]);
    }
    for (int axis = 0; axis < 4; ++axis) {
        if (dst->ne[axis] == 1) continue;
        const int last = o.axes - 1;
        bool joined = last >= 0, apart = false;
        for (int i = 0; i < o.count; ++i) {
            joined = joined && step(dst->src[i], axis) == o.step[i][last] * o.ne[last];
            apart = apart || step(dst->src[i], axis) > 1;
        }
        if (joined) {
            o.ne[last] *= dst->ne[axis];
            continue;
        }
        if (last < 0 && apart) o.axes = 1;  // rows of one element
        o.ne[o.axes] = dst->ne[axis];
        for (int i = 0; i < o.count; ++i) o.step[i][o.axes] = step(dst->src[i], axis);
        ++o.axes;
    }
    return o;
}

/// What some elements that follow one another are made of: as many of each, or one for all of them.
struct stretch {
    int count;
    bool one[GGML_MAX_SRC];
    const float * from[GGML_MAX_SRC], * end[GGML_MAX_SRC];
};

/// `rows` rows of `count` elements, `step` and `row_step` from one to the next, one after the other.
static void repeated_rows(const float * from, int64_t step, int64_t row_step, int64_t count, int64_t rows, float * to) {
    for (int64_t row = 0; row < rows; ++row, from += row_step, to += count) {
        if (step == 0) for (int64_t i = 0; i < count; ++i) to[i] = *from;
        else for (int64_t i = 0; i < count; ++i) to[i] = from[i];
    }
}

/// Computes a thread's parts of a result. Several short rows are a part together, for which what is repeated is written so often.
static inline __attribute__((always_inline)) void by_parts(struct ggml_tensor * dst, int ith, int nth, const void * settings,
                                                           void (* compute)(const void *, const struct stretch *, int64_t, float *)) {
    enum { AT_ONCE = 1024, SHORT = 256 };  // elements; where a part begins does not depend on the number of threads
    const struct operands o = operands_of(dst);
    const int64_t across = parts_of(o.ne[0], AT_ONCE), high = o.ne[1];
    const int64_t tall = even_split(high, across > 1 ? 1 : AT_ONCE / o.ne[0]), down = parts_of(high, tall);
    const int64_t units = elements(dst) / (o.ne[0] * high) * down * across;
    const bool together = high > 1 && o.ne[0] <= SHORT;
    float repeated[GGML_MAX_SRC][AT_ONCE];
    const float * repeats[GGML_MAX_SRC] = {NULL};
    for (int64_t unit = units * ith / nth; unit < units * (ith + 1) / nth; ++unit) {
        const int64_t column = unit % across * AT_ONCE, first = unit / across % down * tall, plane = unit / across / down;
        const int64_t rows = min_of(tall, high - first), count = min_of(o.ne[0] - column, AT_ONCE);
        float * to = (float *) dst->data + (plane * high + first) * o.ne[0] + column;
        struct stretch stretch = {.count = o.count};
        for (int i = 0; i < o.count; ++i) {
            const int64_t * steps = o.step[i];
            stretch.from[i] = o.from[i] + column * steps[0] + first * steps[1], stretch.end[i] = o.end[i];
            for (int64_t axis = 2, place = plane; axis < o.axes; place /= o.ne[axis++]) stretch.from[i] += place % o.ne[axis] * steps[axis];
            stretch.one[i] = steps[0] == 0 && !(together && steps[1] != 0);
            if (!together || stretch.one[i] || (steps[0] == 1 && steps[1] == count)) continue;
            const bool there = steps[1] == 0 && repeats[i] == stretch.from[i];
            if (!there) repeated_rows(stretch.from[i], steps[0], steps[1], count, steps[1] == 0 ? tall : rows, repeated[i]);
            repeats[i] = stretch.from[i], stretch.from[i] = repeated[i], stretch.end[i] = repeated[i] + AT_ONCE;
        }
        if (together) {
            compute(settings, &stretch, rows * count, to);
            continue;
        }
        for (int64_t row = 0; row < rows; ++row, to += o.ne[0]) {
            compute(settings, &stretch, count, to);
            for (int i = 0; i < o.count; ++i) stretch.from[i] += o.step[i][1];
        }
    }
}

/// A function of two numbers; which one is a constant where this is called.
static inline __attribute__((always_inline)) float of_two(enum graphc_arithmetic what, float a, float b) {
    return what == GRAPHC_SUM ? a + b : what == GRAPHC_DIFFERENCE ? a - b : what == GRAPHC_PRODUCT ? a * b : a / b;
}

/// That function of `count` numbers and others, or one other.
static inline __attribute__((always_inline)) void combine_by(enum graphc_arithmetic what, const float * x, const float * other, bool one,
                                                             int64_t count, float * to) {
    const float single = *other;
    if (one) for (int64_t i = 0; i < count; ++i) to[i] = of_two(what, x[i], single);
    else for (int64_t i = 0; i < count; ++i) to[i] = of_two(what, x[i], other[i]);
}

static void combine(const void * settings, const struct stretch * stretch, int64_t count, float * to) {
    const float * x = stretch->from[0], * other = stretch->from[1];
    const bool one = stretch->one[1];
    switch (((const struct graphc_arithmetic_settings *) settings)->what) {
        case GRAPHC_SUM: combine_by(GRAPHC_SUM, x, other, one, count, to); break;
        case GRAPHC_DIFFERENCE: combine_by(GRAPHC_DIFFERENCE, x, other, one, count, to); break;
        case GRAPHC_PRODUCT: combine_by(GRAPHC_PRODUCT, x, other, one, count, to); break;
        case GRAPHC_QUOTIENT: combine_by(GRAPHC_QUOTIENT, x, other, one, count, to); break;
    }
}

void graphc_broadcast(struct ggml_tensor * dst, int ith, int nth, void * userdata) { by_parts(dst, ith, nth, userdata, combine); }

/// Up to a vector of what one is made of at each of `there` elements. Memory is not read from its end on.
static inline vector addend_at(const struct stretch * stretch, int which, int64_t i, int64_t there) {
    return stretch->one[which] ? all(*stretch->from[which]) : first_of(stretch->from[which] + i, there, stretch->end[which], 0);
}

/// Whole vectors of what is made of so many, whose elements are read one after the other where `along` is -1, or of the same place where it
/// is 0. How many there are, and whether the second is a factor, are constants where this is called.
static inline __attribute__((always_inline)) void add_vectors(int count, bool scaled, const float * const * from, const int64_t * along,
                                                              struct simple_activation simple, int64_t elements, float * to) {
    for (int64_t i = 0; i < elements; i += WIDTH) {
        vector sum = *(const unaligned *) (from[0] + (i & along[0]));
        if (scaled) sum *= *(const unaligned *) (from[1] + (i & along[1]));
        for (int each = 1 + scaled; each < count; ++each) sum += *(const unaligned *) (from[each] + (i & along[each]));
        *(unaligned *) (to + i) = simply_activated(simple, sum);
    }
}

static void add_all(int count, bool scaled, const float * const * from, const int64_t * along, struct simple_activation simple,
                    int64_t elements, float * to) {
    if (count == 2 && !scaled) add_vectors(2, false, from, along, simple, elements, to);
    else if (count == 3 && !scaled) add_vectors(3, false, from, along, simple, elements, to);
    else if (count == 2) add_vectors(2, true, from, along, simple, elements, to);
    else if (count == 3) add_vectors(3, true, from, along, simple, elements, to);
    else add_vectors(count, scaled, from, along, simple, elements, to);
}

static void add_part(const void * settings, const struct stretch * stretch, int64_t count, float * to) {
    const struct graphc_scaled_sum_settings * s = settings;
    const struct simple_activation simple = simple_of(&s->activation);
    const int64_t whole = count / WIDTH * WIDTH;
    vector alike[GGML_MAX_SRC];
    const float * read[GGML_MAX_SRC];
    int64_t along[GGML_MAX_SRC];
    for (int i = 0; i < stretch->count; ++i) {
        if (stretch->one[i]) alike[i] = all(*stretch->from[i]);
        along[i] = stretch->one[i] ? 0 : -1, read[i] = stretch->one[i] ? (const float *) &alike[i] : stretch->from[i];
    }
    add_all(stretch->count, s->scaled, read, along, simple, whole, to);
    for (int64_t i = whole; i < count; i += WIDTH) {
        vector sum = addend_at(stretch, 0, i, count - i);
        if (s->scaled) sum *= addend_at(stretch, 1, i, count - i);
        for (int each = 1 + s->scaled; each < stretch->count; ++each) sum += addend_at(stretch, each, i, count - i);
        sum = simply_activated(simple, sum);
        copy((const float *) &sum, 1, count - i, to + i);
    }
    if (!is_simple(&s->activation)) activate(&s->activation, to, NULL, count, to);
}

void graphc_scaled_sum(struct ggml_tensor * dst, int ith, int nth, void * userdata) { by_parts(dst, ith, nth, userdata, add_part); }

bool graphc_takes_sum_rows(const struct ggml_tensor * x) { return is_dense(x); }

/// The sum of a row: of partial sums in float32 of what follows one another.
static double sum_row(const float * x, int64_t count) {
    enum { SOME = 32, BESIDE = 4 };
    double sum = 0;
    int64_t i = 0;
    for (; i + SOME * WIDTH <= count; i += SOME * WIDTH) {
        vector lanes[BESIDE] = {0};
        for (int part = 0; part < SOME; part += BESIDE) {
            for (int k = 0; k < BESIDE; ++k) lanes[k] += *(const unaligned *) (x + i + (part + k) * WIDTH);
        }
        const vector together = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
        for (int lane = 0; lane < WIDTH; ++lane) sum += together[lane];
    }
    vector lanes = all(0);
    for (; i + WIDTH <= count; i += WIDTH) lanes += *(const unaligned *) (x + i);
    for (int lane = 0; lane < WIDTH; ++lane) sum += lanes[lane];
    for (; i < count; ++i) sum += x[i];
    return sum;
}

/// The sums, or the means, of rows of less than a vector.
static inline __attribute__((always_inline)) void sum_short_rows(const float * x, int64_t rows, int64_t count, bool mean, float * sums) {
    for (int64_t row = 0; row < rows; ++row) {
        float sum = 0;
        for (int64_t i = 0; i < count; ++i) sum += x[row * count + i];
        sums[row] = mean ? sum / (float) count : sum;
    }
}

void graphc_sum_rows(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const struct graphc_arithmetic_settings * s = userdata;
    const struct ggml_tensor * x = dst->src[0];
    const int64_t rows = elements(dst), count = x->ne[0], first = rows * ith / nth, some = rows * (ith + 1) / nth - first;
    if (count < WIDTH) {
        const float * from = (const float *) x->data + first * count;
        float * sums = (float *) dst->data + first;
        if (count == 2) sum_short_rows(from, some, 2, s->mean, sums);
        else if (count == 3) sum_short_rows(from, some, 3, s->mean, sums);
        else if (count == 4) sum_short_rows(from, some, 4, s->mean, sums);
        else sum_short_rows(from, some, count, s->mean, sums);
        return;
    }
    for (int64_t row = first; row < first + some; ++row) {
        const double sum = sum_row((const float *) x->data + row * count, count);
        ((float *) dst->data)[row] = (float) (s->mean ? sum / (double) count : sum);
    }
}

/// The largest of a row; of numbers with NaN among them any, or NaN.
static inline float largest_of_row(const float * x, int64_t count, const float * end) {
    enum { SOME = 4 };
    const float nothing = -__builtin_inff();
    vector lanes[SOME];
    for (int part = 0; part < SOME; ++part) lanes[part] = all(nothing);
    int64_t i = 0;
    for (; i + SOME * WIDTH <= count; i += SOME * WIDTH) {
        for (int part = 0; part < SOME; ++part) lanes[part] = larger(*(const unaligned *) (x + i + part * WIDTH), lanes[part]);
    }
    for (; i < count; i += WIDTH) lanes[0] = larger(first_of(x + i, count - i, end, nothing), lanes[0]);
    for (int part = 1; part < SOME; ++part) lanes[0] = larger(lanes[part], lanes[0]);
    float largest = lanes[0][0];
    for (int lane = 1; lane < WIDTH; ++lane) largest = lanes[0][lane] > largest ? lanes[0][lane] : largest;
    return largest;
}

void graphc_soft_max(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    (void) userdata;
    const int64_t count = dst->ne[0], rows = elements(dst) / count;
    const int64_t whole = count / WIDTH * WIDTH;
    const float * end = end_of(dst->src[0]);
    for (int64_t row = rows * ith / nth; row < rows * (ith + 1) / nth; ++row) {
        const float * x = (const float *) dst->src[0]->data + row * count;
        float * y = (float *) dst->data + row * count;
        const float largest = largest_of_row(x, count, end);
        for (int64_t i = 0; i < whole; i += WIDTH) *(unaligned *) (y + i) = exponential(*(const unaligned *) (x + i) - largest);
        if (whole < count) {
            const vector last = exponential(first_of(x + whole, count - whole, end, 0) - largest);
            copy((const float *) &last, 1, count - whole, y + whole);
        }
        const float share = (float) (1 / sum_row(y, count));
        for (int64_t i = 0; i < count; ++i) y[i] *= share;
    }
}

bool graphc_takes_sum_over_rows(const struct ggml_tensor * x) { return is_dense(x); }

/// The sum of `count` elements, `step` apart, of as many columns beside one another as a vector has: of partial sums of what follows one
/// another. And of one column.
static inline vector sum_of_columns(const float * x, int64_t step, int64_t count) {
    vector sum = all(0);
    for (int64_t i = 0; i < count;) {
        vector part = all(0);
        for (const int64_t stop = min_of(i + PARTIAL, count); i < stop; ++i) part += *(const unaligned *) (x + i * step);
        sum += part;
    }
    return sum;
}

static inline float sum_of_column(const float * x, int64_t step, int64_t count) {
    float sum = 0;
    for (int64_t i = 0; i < count;) {
        float part = 0;
        for (const int64_t stop = min_of(i + PARTIAL, count); i < stop; ++i) part += x[i * step];
        sum += part;
    }
    return sum;
}

void graphc_sum_over_rows(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const bool mean = ((const struct graphc_arithmetic_settings *) userdata)->mean;
    const struct ggml_tensor * x = dst->src[0];
    const int64_t columns = x->ne[0], rows = x->ne[1], across = parts_of(columns, WIDTH), units = across * x->ne[2] * x->ne[3];
    const float parts = mean ? (float) rows : 1;
    for (int64_t unit = units * ith / nth; unit < units * (ith + 1) / nth; ++unit) {
        const int64_t batch = unit / across, column = unit % across * WIDTH;
        const float * from = (const float *) x->data + batch * rows * columns + column;
        float * to = (float *) dst->data + batch * columns + column;
        if (column + WIDTH <= columns) {
            *(unaligned *) to = sum_of_columns(from, columns, rows) / parts;
            continue;
        }
        for (int64_t i = 0; i < columns - column; ++i) to[i] = sum_of_column(from + i, columns, rows) / parts;
    }
}
