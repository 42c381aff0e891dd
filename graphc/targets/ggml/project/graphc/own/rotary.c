// Rotary embeddings: the elements of a row rotated in pairs, neighbours or those at one place of its halves. Read once, written once.

#include "rotary.h"

#include "tiles.h"

#include <string.h>

typedef uint64_t neighbours __attribute__((vector_size(WIDTH * 4)));

/// True if there is a number for each element of a row of x, the same for all rows along an axis or not.
static bool is_angles(const struct ggml_tensor * t, const struct ggml_tensor * x) {
    bool fits = is_float_rows(t) && t->ne[0] == x->ne[0];
    for (int i = 1; i < GGML_MAX_DIMS; ++i) fits = fits && (t->ne[i] == 1 || t->ne[i] == x->ne[i]);
    return fits;
}

bool graphc_takes_rotary(const struct ggml_tensor * x, const struct ggml_tensor * cos, const struct ggml_tensor * sin) {
    return is_float_rows(x) && x->ne[0] % 2 == 0 && is_angles(cos, x) && is_angles(sin, x);
}

bool graphc_takes_rest(const struct ggml_tensor * rest, const struct ggml_tensor * x) {
    return is_float_rows(rest) && rest->ne[1] == x->ne[1] && rest->ne[2] == x->ne[2] && rest->ne[3] == x->ne[3];
}

static void turn_neighbours(const float * restrict x, const float * restrict cos, const float * restrict sin, float * restrict y, int64_t size) {
    int64_t i = 0;
    for (; i + WIDTH <= size; i += WIDTH) {
        const vector straight = *(const unaligned *) (x + i);
        const neighbours pairs = (neighbours) straight;
        const vector swapped = (vector) (pairs >> 32 | pairs << 32);
        *(unaligned *) (y + i) = straight * *(const unaligned *) (cos + i) + swapped * *(const unaligned *) (sin + i);
    }
    for (; i < size; ++i) y[i] = x[i] * cos[i] + x[i ^ 1] * sin[i];
}

static void turn_halves(const float * restrict x, const float * restrict cos, const float * restrict sin, float * restrict y, int64_t size) {
    const int64_t half = size / 2;
    for (int64_t i = 0; i < half; ++i) y[i] = x[i] * cos[i] + x[i + half] * sin[i];
    for (int64_t i = half; i < size; ++i) y[i] = x[i] * cos[i] + x[i - half] * sin[i];
}

/// Where row (i1, i2, i3) of a tensor lies, which has one for all along an axis of size 1.
static const float * row_of(const struct ggml_tensor * t, int64_t i1, int64_t i2, int64_t i3) {
    return (const float *) ((const char *) t->data + i1 % t->ne[1] * t->nb[1] + i2 % t->ne[2] * t->nb[2] + i3 % t->ne[3] * t->nb[3]);
}

void graphc_rotary(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const struct graphc_rotary_settings * settings = userdata;
    const struct ggml_tensor * x = dst->src[0], * rest = dst->src[3];
    const int64_t size = x->ne[0], rows = x->ne[1] * x->ne[2] * x->ne[3];
    for (int64_t row = rows * ith / nth; row < rows * (ith + 1) / nth; ++row) {
        const int64_t i1 = row % x->ne[1], i2 = row / x->ne[1] % x->ne[2], i3 = row / x->ne[1] / x->ne[2];
        const float * from = row_of(x, i1, i2, i3), * cos = row_of(dst->src[1], i1, i2, i3), * sin = row_of(dst->src[2], i1, i2, i3);
        float * to = (float *) dst->data + row * dst->ne[0];
        (settings->interleaved ? turn_neighbours : turn_halves)(from, cos, sin, to, size);
        if (rest != NULL) memcpy(to + size, row_of(rest, i1, i2, i3), rest->ne[0] * sizeof(float));
    }
}
