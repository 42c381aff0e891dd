#pragma once

// Products with few rows: a row of weights is read once for all of them, a part at a time, and what it is multiplied with stays in the
// first cache. What is read next is fetched meanwhile, for a processor does not foresee it where parts of rows follow one another. Sums
// are made of partial sums over DEPTH elements, and those of the sums of a vector's lanes.

#include "products.h"

#include "blocks.h"
#include "readers.h"
#include "tiles.h"

enum { TALL = 32, TALL_FOR_ONE = 4 * TALL, NEAR = 4096, AHEAD = 8192 };

/// Adds the products of weights with so many rows, DEPTH elements apart, to sums by lanes, TALL apart. `rows` is a constant where this
/// is called, and `depth` a multiple of EVEN.
static inline __attribute__((always_inline)) void dots(int rows, const float * weights, const float * a, int depth, vector * totals) {
    vector sums[MOST_FEW][2];
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) sums[i][0] = sums[i][1] = (vector){0};
    for (int k = 0; k < depth; k += EVEN) {
        const vector even = *(const unaligned *) (weights + k), odd = *(const unaligned *) (weights + k + WIDTH);
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
            const vector * with = (const vector *) (a + i * DEPTH + k);
            sums[i][0] += even * with[0];
            sums[i][rows <= MOST_FEW / 2] += odd * with[1];  // with more rows, there are too few registers for two sums of each
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) totals[i * TALL] += sums[i][0] + sums[i][1];
}

#define DOTS(n) \
    static __attribute__((noinline)) void dots_##n(const float * weights, const float * a, int depth, vector * totals) { \
        dots(n, weights, a, depth, totals); \
    }
DOTS(1) DOTS(2) DOTS(3) DOTS(4) DOTS(5) DOTS(6) DOTS(7) DOTS(8)

/// By the number of rows.
static void (*const all_dots[MOST_FEW + 1])(const float *, const float *, int, vector *) = {
    NULL, dots_1, dots_2, dots_3, dots_4, dots_5, dots_6, dots_7, dots_8,
};

/// How a row lies that meets weights: as it is where the order has no bytes.
static struct halves order_for(const struct matrix * m, int64_t rows) {
    return rows == 1 && m->scales == NULL ? readers[m->type].order : (struct halves){0};
}

/// Parts of DEPTH columns of activations, in each its rows one after the other; the last is filled up with zeros.
static void pack_activations(const float * a, int64_t lda, int64_t rows, int64_t count, struct halves order, float * packed) {
    if (order.bytes > 0) return order_row(a, count, order, packed);
    for (int64_t k = 0; k < count; k += DEPTH) {
        const int64_t there = min_of(DEPTH, count - k);
        for (int64_t i = 0; i < rows; ++i, packed += DEPTH) {
            widen(GGML_TYPE_F32, NULL, a + i * lda + k, there, packed);
            for (int64_t x = there; x < DEPTH; ++x) packed[x] = 0;
        }
    }
}

/// Adds the products of `count` elements of a row of weights, from `column` on, with packed activations to sums by lanes. What lies so
/// many bytes ahead comes to the cache meanwhile.
static void multiply_row(const struct matrix * m, int64_t row, int64_t column, int64_t count, const float * packed, int64_t rows, int64_t ahead,
                         vector * totals) {
    float workspace[DEPTH] __attribute__((aligned(64)));
    const struct reader * reader = &readers[m->type];
    if (rows == 1 && reads_scaled(m)) return reader->scaled_dot(element(m, row, column), scaling_at(m, row, column), packed, count, ahead, totals);
    if (rows == 1 && m->scales == NULL && reader->dot != NULL) {
        const int64_t even = count % EVEN == 0 ? count : count / DEPTH * DEPTH;
        reader->dot(element(m, row, column), packed, even, ahead, totals);
        count -= even, column += even, packed += even;
    }
    const int64_t bytes = bytes_of(m, DEPTH);
    for (; count > 0; count -= DEPTH, column += DEPTH, packed += rows * DEPTH) {
        int depth = (int) min_of(count, DEPTH);
        const char * weights = element(m, row, column);
        fetch(weights + ahead, bytes);
        const float * x = (const float *) weights;
        if (m->type != GGML_TYPE_F32 || depth % EVEN != 0) {
            read_row(m, row, column, depth, workspace);
            for (; depth % EVEN != 0; ++depth) workspace[depth] = 0;
            x = workspace;
        }
        all_dots[rows](x, packed, depth, totals);
    }
}

/// Writes rows of sums over lanes, TALL apart, to a block of the result.
static void write_sums(const struct block * b, const vector * totals) {
    for (int64_t i = 0; i < b->rows; ++i) {
        for (int64_t j = 0; j < b->columns; j += WIDTH) {
            const vector sums = sums_of(totals + i * TALL + j);
            copy((const float *) &sums, 1, min_of(WIDTH, b->columns - j), b->c + i * b->ldc + j);
        }
    }
    finish(b, 0, b->rows);
}

/// `graphc_mul_mat` for up to MOST_FEW rows. With more, panels are faster. Where all batches have the same weights, a part of these is in the
/// cache until all have been multiplied with it.
static void multiply_few(struct ggml_tensor * dst, int ith, int nth, struct graphc_mul_mat_settings * s) {
    const struct ggml_tensor * b = dst->src[1];
    const int64_t depth = b->ne[0], columns = dst->ne[0], rows = dst->ne[1], batches = dst->ne[2] * dst->ne[3];
    const bool same_weights = batches > 1 && dst->src[0]->ne[2] * dst->src[0]->ne[3] == 1;
    const int64_t tall = min_of(rows == 1 && !same_weights ? TALL_FOR_ONE : TALL, parts_of(columns * batches, 4 * nth));
    const int64_t parts = parts_of(columns, tall), near = NEAR / rows / DEPTH * DEPTH;
    float packed[NEAR / DEPTH * ORDERED] __attribute__((aligned(64)));
    vector totals[MOST_FEW * TALL];
    int64_t packed_batch = -1;
    for (int64_t unit; (unit = take(&s->turns, parts * batches, ith, nth)) < parts * batches;) {
        const int64_t batch = same_weights ? unit % batches : unit / parts, part = same_weights ? unit / batches : unit % parts;
        struct block block = {.dst = dst, .at = {{part * tall, 0, batch % dst->ne[2], batch / dst->ne[2]}}, .axis = 1, .rows = rows};
        const struct matrix weights = columns_at(dst, s, block.at);
        const float * a = (const float *) ((const char *) b->data + block.at.axis[2] * b->nb[2] + block.at.axis[3] * b->nb[3]);
        block.c = (float *) ((char *) dst->data + block.at.axis[2] * dst->nb[2] + block.at.axis[3] * dst->nb[3]) + block.at.axis[0];
        block.ldc = dst->nb[1] / sizeof(float), block.columns = min_of(tall, columns - block.at.axis[0]), block.activation = &s->activation, block.between = s->scaled;
        for (int64_t i = 0; i < (rows - 1) * TALL + parts_of(tall, WIDTH) * WIDTH; ++i) totals[i] = (vector){0};
        const bool apart = near < depth || weights.step != bytes_of(&weights, depth);
        const int64_t ahead = apart ? weights.step * parts_of(AHEAD, bytes_of(&weights, min_of(near, depth))) : AHEAD;  // of what is read then
        for (int64_t k = 0; k < depth; k += near) {
            const int64_t wide = min_of(near, depth - k);
            if (packed_batch != batch || near < depth) pack_activations(a + k, b->nb[1] / sizeof(float), rows, wide, order_for(&weights, rows), packed);
            for (int64_t j = 0; j < block.columns; ++j) multiply_row(&weights, j, k, wide, packed, rows, ahead, totals + j);
        }
        packed_batch = batch;
        write_sums(&block, totals);
    }
}
