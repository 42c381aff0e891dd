// Copies: tensors joined along an axis, repeated or with zeros around them, a row at a time, and tensors whose axes were permuted, a square at a
// time; and elements in another type, by vectors.
// ggml copies all of them element by element.

#include "copies.h"

#include "bytes.h"
#include "readers.h"
#include "tiles.h"

#include <string.h>

enum { SHORTEST_ROW = 8, FEWEST_ELEMENTS = 1024, MOST_PIECE = 4096, FEW_ROWS = 4 };

/// Bytes of an element, of types that have no blocks; 0 of others.
static size_t element_size(enum ggml_type type) {
    switch (type) {
        case GGML_TYPE_I8: return 1;
        case GGML_TYPE_F16: case GGML_TYPE_BF16: case GGML_TYPE_I16: return 2;
        case GGML_TYPE_F32: case GGML_TYPE_I32: return 4;
        case GGML_TYPE_F64: case GGML_TYPE_I64: return 8;
        default: return 0;
    }
}

bool graphc_takes_concat(const struct ggml_tensor * part) {
    const size_t size = element_size(part->type);
    const bool rows = size > 0 && part->nb[0] == size;
    return rows && (part->ne[0] * size >= SHORTEST_ROW * sizeof(float) || is_packed(part, 1, size));
}

void graphc_concat(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const int axis = ((const struct graphc_concat_settings *) userdata)->axis;
    const size_t size = element_size(dst->type);
    int64_t before = 0;
    for (int number = 0; number < GGML_MAX_SRC && dst->src[number] != NULL; ++number) {
        const struct ggml_tensor * part = dst->src[number];
        int inner = 1;  // axes along which both lie together
        int64_t block = part->ne[0];
        const bool packed = is_packed(part, 1, size);
        if (packed) while (inner <= axis) block *= part->ne[inner++];
        int64_t ne[GGML_MAX_DIMS] = {1, 1, 1, 1}, rows = 1;
        for (int i = inner; i < GGML_MAX_DIMS; ++i) rows *= ne[i] = part->ne[i];
        const int64_t pieces = block == 0 ? 1 : parts_of(block, MOST_PIECE), piece = parts_of(block, pieces);
        char * start = (char *) dst->data + before * dst->nb[axis];
        if (is_dense(part) && inner == 1 && pieces == 1) {  // rows of the result's rows
            for (int64_t row = rows * ith / nth; row < rows * (ith + 1) / nth; ++row) {
                copy((const float *) part->data + row * block, 1, block, (float *) start + row * dst->ne[0]);
            }
            before += part->ne[axis];
            continue;
        }
        for (int64_t unit = rows * pieces * ith / nth; unit < rows * pieces * (ith + 1) / nth; ++unit) {
            const int64_t row = unit / pieces, first = unit % pieces * piece, i2 = row / ne[1] % ne[2], i3 = row / ne[1] / ne[2];
            const size_t skipped = first * size, offsets[] = {row % ne[1], i2, i3};
            const char * from = (const char *) part->data + skipped;
            char * to = start + skipped;
            for (int i = 1; i < GGML_MAX_DIMS; ++i) from += offsets[i - 1] * part->nb[i], to += offsets[i - 1] * dst->nb[i];
            if (first < block) memcpy(to, from, min_of(piece, block - first) * size);
        }
        before += part->ne[axis];
    }
}

bool graphc_takes_repeat(const struct ggml_tensor * x) { return is_dense(x) && elements(x) > 0; }

/// A row so many times, one after the other.
static void repeat_row(const float * row, int64_t length, int64_t times, float * to) {
    if (length == 1) {
        for (int64_t i = 0; i < times; ++i) to[i] = row[0];
    } else if (length < SHORTEST_ROW) {
        for (int64_t k = 0; k < length; ++k) for (int64_t i = 0; i < times; ++i) to[i * length + k] = row[k];
    } else {
        for (int64_t i = 0; i < times; ++i) memcpy(to + i * length, row, length * sizeof(float));
    }
}

void graphc_repeat(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    (void) userdata;
    const struct ggml_tensor * x = dst->src[0];
    const int64_t length = x->ne[0], all_times = dst->ne[0] / length, rows = elements(dst) / dst->ne[0];
    const int64_t pieces = min_of(parts_of(dst->ne[0], MOST_PIECE), all_times), units = rows * pieces;
    for (int64_t unit = units * ith / nth; unit < units * (ith + 1) / nth; ++unit) {
        const int64_t row = unit / pieces, piece = unit % pieces;
        const int64_t first = all_times * piece / pieces, times = all_times * (piece + 1) / pieces - first;
        const int64_t i1 = row % dst->ne[1] % x->ne[1], i2 = row / dst->ne[1] % dst->ne[2] % x->ne[2];
        const int64_t i3 = row / dst->ne[1] / dst->ne[2] % x->ne[3];
        const float * from = (const float *) x->data + ((i3 * x->ne[2] + i2) * x->ne[1] + i1) * length;
        repeat_row(from, length, times, (float *) dst->data + row * dst->ne[0] + first * length);
    }
}

bool graphc_takes_pad(const struct ggml_tensor * x) { return is_float_rows(x) && x->ne[0] >= SHORTEST_ROW; }

void graphc_pad(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const struct ggml_tensor * x = dst->src[0];
    const int * before = ((const struct graphc_pad_settings *) userdata)->before;
    const int64_t rows = dst->ne[1] * dst->ne[2] * dst->ne[3];
    for (int64_t row = rows * ith / nth; row < rows * (ith + 1) / nth; ++row) {
        const int64_t at[] = {row % dst->ne[1] - before[1], row / dst->ne[1] % dst->ne[2] - before[2], row / dst->ne[1] / dst->ne[2] - before[3]};
        float * to = (float *) dst->data + row * dst->ne[0];
        bool inside = true;
        for (int i = 0; i < 3; ++i) inside = inside && at[i] >= 0 && at[i] < x->ne[i + 1];
        const int64_t left = inside ? before[0] : dst->ne[0], right = inside ? left + x->ne[0] : left;
        memset(to, 0, left * sizeof(float));
        if (inside) memcpy(to + left, (const char *) x->data + at[0] * x->nb[1] + at[1] * x->nb[2] + at[2] * x->nb[3], x->ne[0] * sizeof(float));
        memset(to + right, 0, (dst->ne[0] - right) * sizeof(float));
    }
}

bool graphc_takes_cast(const struct ggml_tensor * x, enum ggml_type type) {
    const bool halves = x->type == GGML_TYPE_F16 || x->type == GGML_TYPE_BF16;
    const bool known = (halves || x->type == GGML_TYPE_F32) && (type == GGML_TYPE_F32 || type == GGML_TYPE_F16);
    return known && x->type != type && is_packed(x, 1, halves ? sizeof(uint16_t) : sizeof(float));
}

#if defined(__AVX2__) && defined(__F16C__)
enum { NARROWS = true };

static inline void narrow_vector(vector x, uint16_t * to) { __asm__("vcvtps2ph $0, %1, %0" : "=m"(*(uint16_t (*)[WIDTH]) to) : "v"(x)); }
#else
enum { NARROWS = false };

static inline void narrow_vector(vector x, uint16_t * to) { (void) x, (void) to; }
#endif

/// Float32 as float16, each number the nearest.
static void narrow(const struct ggml_type_traits * types, const float * from, int64_t count, uint16_t * to) {
    int64_t i = 0;
    for (; NARROWS && i + WIDTH <= count; i += WIDTH) narrow_vector(*(const unaligned *) (from + i), to + i);
    types->from_float_ref(from + i, to + i, count - i);
}

void graphc_cast(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    enum { AT_ONCE = 2048 };  // a part of the first cache
    const struct graphc_cast_settings * s = userdata;
    const struct ggml_tensor * x = dst->src[0];
    const int64_t count = elements(x), parts = parts_of(count, AT_ONCE);
    const bool wide = x->type == GGML_TYPE_F32, widened = dst->type == GGML_TYPE_F32;
    float workspace[AT_ONCE] __attribute__((aligned(64)));
    for (int64_t part = parts * ith / nth; part < parts * (ith + 1) / nth; ++part) {
        const int64_t first = part * AT_ONCE, some = min_of(count - first, AT_ONCE);
        const float * numbers = (const float *) x->data + first;
        float * to = widened ? (float *) dst->data + first : workspace;
        if (!wide) widen(x->type, s->from, (const uint16_t *) x->data + first, some, to), numbers = to;
        if (!widened) narrow(s->to, numbers, some, (uint16_t *) dst->data + first);
    }
}

/// The first axis with more than one element; that of the result's rows.
static int row_axis(const struct ggml_tensor * x) {
    int axis = 0;
    while (axis < GGML_MAX_DIMS - 1 && x->ne[axis] == 1) ++axis;
    return axis;
}

bool graphc_takes_row_copy(const struct ggml_tensor * x) {
    const size_t size = element_size(x->type), step = x->nb[row_axis(x)];
    const bool apart = x->type == GGML_TYPE_F32 && step % sizeof(float) == 0;  // elements of rows
    const bool rows = size > 0 && (step == size || apart) && !is_packed(x, 1, size);
    return rows && x->ne[row_axis(x)] * size >= SHORTEST_ROW * sizeof(float) && elements(x) >= FEWEST_ELEMENTS;
}

void graphc_row_copy(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    (void) userdata;
    const struct ggml_tensor * x = dst->src[0];
    const int axis = row_axis(x);
    const int64_t length = x->ne[axis], size = length * element_size(x->type), rows = elements(x) / length;
    char * to = (char *) dst->data + rows * ith / nth * size;
    for (int64_t row = rows * ith / nth; row < rows * (ith + 1) / nth; ++row, to += size) {
        const char * from = x->data;
        int64_t left = row;
        for (int i = axis + 1; i < GGML_MAX_DIMS; left /= x->ne[i], ++i) from += left % x->ne[i] * x->nb[i];
        if (x->type == GGML_TYPE_F32) copy((const float *) from, x->nb[axis] / sizeof(float), length, (float *) to);
        else memcpy(to, from, size);
    }
}

/// The axis along which elements lie one after the other, if it is another; else 0.
static int dense_axis(const struct ggml_tensor * x) {
    for (int axis = row_axis(x) + 1; axis < GGML_MAX_DIMS; ++axis) {
        if (x->ne[axis] > 1 && x->nb[axis] == element_size(x->type)) return axis;
    }
    return 0;
}

bool graphc_takes_permuted_copy(const struct ggml_tensor * x) {
    const bool known = (x->type == GGML_TYPE_F32 && x->nb[row_axis(x)] % sizeof(float) == 0) || x->type == GGML_TYPE_I8;
    return known && dense_axis(x) > 0 && elements(x) >= FEWEST_ELEMENTS;
}

/// So many columns of `from`, whose rows are `step` elements apart, as rows of `to`.
static void turn(const float * from, int64_t step, int64_t rows, int64_t columns, float * to, int64_t next) {
    float square[WIDTH * PANEL] __attribute__((aligned(64)));
    int64_t row = 0;
    for (; columns == WIDTH && row + WIDTH <= rows; row += WIDTH) {
        transpose(from + row * step, step, square);
        for (int column = 0; column < WIDTH; ++column) *(unaligned *) (to + column * next + row) = *(vector *) (square + column * PANEL);
    }
    for (; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) to[column * next + row] = from[row * step + column];
    }
}

/// The same of two to four rows, whose columns follow one another then.
static void interleave(const float * restrict from, int64_t step, int64_t rows, int64_t columns, float * restrict to) {
    const float * restrict const b = from + step, * restrict const c = b + step, * restrict const d = c + step;
    if (rows == 2) for (int64_t i = 0; i < columns; ++i) to[2 * i] = from[i], to[2 * i + 1] = b[i];
    if (rows == 3) for (int64_t i = 0; i < columns; ++i) to[3 * i] = from[i], to[3 * i + 1] = b[i], to[3 * i + 2] = c[i];
    if (rows == 4) for (int64_t i = 0; i < columns; ++i) to[4 * i] = from[i], to[4 * i + 1] = b[i], to[4 * i + 2] = c[i], to[4 * i + 3] = d[i];
}

/// The same of two to four columns, whose rows followed one another.
static void separate(const float * restrict from, int64_t rows, int64_t columns, float * restrict to, int64_t next) {
    float * restrict const b = to + next, * restrict const c = b + next, * restrict const d = c + next;
    if (columns == 2) for (int64_t i = 0; i < rows; ++i) to[i] = from[2 * i], b[i] = from[2 * i + 1];
    if (columns == 3) for (int64_t i = 0; i < rows; ++i) to[i] = from[3 * i], b[i] = from[3 * i + 1], c[i] = from[3 * i + 2];
    if (columns == 4) for (int64_t i = 0; i < rows; ++i) to[i] = from[4 * i], b[i] = from[4 * i + 1], c[i] = from[4 * i + 2], d[i] = from[4 * i + 3];
}

/// The same of bytes.
static void turn_bytes(const uint8_t * from, int64_t step, int64_t rows, int64_t columns, uint8_t * to, int64_t next) {
    int64_t row = 0;
    for (; columns == GRAPHC_BYTES && row + GRAPHC_BYTES <= rows; row += GRAPHC_BYTES) graphc_transpose_bytes(from + row * step, step, to + row, next);
    for (; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) to[column * next + row] = from[row * step + column];
    }
}

void graphc_permuted_copy(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    (void) userdata;
    const struct ggml_tensor * x = dst->src[0];
    const bool bytes = x->type == GGML_TYPE_I8;
    const int first_axis = row_axis(x), axis = dense_axis(x);
    int others[2], found = 0;
    for (int i = 0; i < GGML_MAX_DIMS; ++i) if (i != first_axis && i != axis) others[found++] = i;
    const int b = others[0], c = others[1];
    const int64_t size = element_size(x->type), step = x->nb[first_axis] / size, next = dst->nb[axis] / size;
    const int64_t rows = x->ne[first_axis], columns = x->ne[axis];
    const bool few_rows = !bytes && rows <= FEW_ROWS && next == rows, few_columns = !bytes && columns <= FEW_ROWS && step == columns;
    const int64_t wide = bytes ? GRAPHC_BYTES : few_rows ? MOST_PIECE : WIDTH;
    const int64_t parts = parts_of(columns, wide), units = parts * x->ne[b] * x->ne[c];
    for (int64_t unit = units * ith / nth; unit < units * (ith + 1) / nth; ++unit) {
        const int64_t first = unit % parts * wide, ib = unit / parts % x->ne[b], ic = unit / parts / x->ne[b];
        const int64_t some = min_of(columns - first, wide);
        const char * from = (const char *) x->data + first * x->nb[axis] + ib * x->nb[b] + ic * x->nb[c];
        char * to = (char *) dst->data + first * dst->nb[axis] + ib * dst->nb[b] + ic * dst->nb[c];
        if (bytes) turn_bytes((const uint8_t *) from, step, rows, some, (uint8_t *) to, next);
        else if (few_rows) interleave((const float *) from, step, rows, some, (float *) to);
        else if (few_columns) separate((const float *) from, rows, columns, (float *) to, next);
        else turn((const float *) from, step, rows, some, (float *) to, next);
    }
}
