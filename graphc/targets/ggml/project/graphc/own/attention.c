// Attention without a matrix of scores. A panel of queries passes all keys, a block at a time: the block's scores, their
// exponentials against the largest score so far, and their share of the result, which lies transposed until the end. When a
// larger score comes, what was summed up before is scaled down. The lanes of a vector are queries, so nothing is summed across.

#include "attention.h"

#include "tiles.h"

enum { KEYS = 256, DEEPEST = 512, PART = 128, FEWEST_QUERIES = 16 };

/// What a panel of queries has so far: the largest score, the sum of exponentials, and the result [elements of v][PANEL].
struct state {
    vector largest[VECTORS], sum[VECTORS];
    float result[DEEPEST * PANEL] __attribute__((aligned(64)));
};

/// The panel's rows of a tensor as columns, times a factor; columns without a row are 0.
static void pack_queries(const char * rows, size_t stride, int64_t count, int64_t depth, float factor, float * panel) {
    for (int x = 0; x < PANEL; ++x) {
        const float * row = (const float *) (rows + x * stride);
        for (int64_t k = 0; k < depth; ++k) panel[k * PANEL + x] = x < count ? row[k] * factor : 0;
    }
}

static void add_mask(float * scores, const char * mask, size_t stride, int64_t queries, int64_t keys) {
    for (int64_t x = 0; x < queries; ++x) {
        const float * row = (const float *) (mask + x * stride);
        for (int64_t key = 0; key < keys; ++key) scores[key * PANEL + x] += row[key];
    }
}

/// From scores [keys][PANEL] to their exponentials, and what came before scaled to the new largest score.
static void soften(struct state * s, float * scores, int64_t keys, int64_t values) {
    for (int j = 0; j < VECTORS; ++j) {
        vector some[4] = {s->largest[j], s->largest[j], s->largest[j], s->largest[j]}, sum = all(0);  // so that none waits for another
        for (int64_t key = 0; key < keys; ++key) some[key % 4] = larger(*(const vector *) (scores + key * PANEL + j * WIDTH), some[key % 4]);
        const vector largest = larger(larger(some[0], some[1]), larger(some[2], some[3]));
        const vector base = choose(largest == all(-__builtin_inff()), all(0), largest);  // where all is masked so far
        for (int64_t key = 0; key < keys; ++key) {
            vector * score = (vector *) (scores + key * PANEL + j * WIDTH);
            *score = exponential(*score - base);
            sum += *score;
        }
        const vector scale = exponential(s->largest[j] - base);
        for (int64_t i = 0; i < values; ++i) *(vector *) (s->result + i * PANEL + j * WIDTH) *= scale;
        s->sum[j] = s->sum[j] * scale + sum;
        s->largest[j] = largest;
    }
}

static bool is_float_columns(const struct ggml_tensor * t) {
    return t->type == GGML_TYPE_F32 && t->nb[1] == sizeof(float) && t->nb[0] % sizeof(float) == 0;
}

bool graphc_takes_attention(const struct ggml_tensor * k, const struct ggml_tensor * q, const struct ggml_tensor * v,
                            const struct ggml_tensor * mask) {
    return is_float_rows(k) && is_float_rows(q) && (is_float_rows(v) || is_float_columns(v)) && q->ne[0] <= DEEPEST && v->ne[1] <= DEEPEST &&
           (mask == NULL || is_float_rows(mask));
}

bool graphc_prefers_attention(const struct ggml_tensor * q) { return q->ne[1] >= FEWEST_QUERIES; }

void graphc_attention(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_attention_settings * settings = userdata;
    const struct ggml_tensor * k = dst->src[0], * q = dst->src[1], * v = dst->src[2], * mask = dst->src[3];
    const int64_t depth = q->ne[0], keys = k->ne[1], values = v->ne[1], queries = q->ne[1];
    const int64_t panels = (queries + PANEL - 1) / PANEL, high = tile_rows(values);
    const tile_function * parts = is_float_rows(v) ? tiles : transposed_tiles;
    const int64_t lda = (is_float_rows(v) ? v->nb[1] : v->nb[0]) / sizeof(float);
    const size_t next_query = dst->nb[2], next_head = dst->nb[1];
    float panel[DEEPEST * PANEL] __attribute__((aligned(64))), scores[KEYS * PANEL] __attribute__((aligned(64)));
    struct state s;
    const struct ahead nothing = {panel, 0};
    const int64_t units = panels * q->ne[2] * q->ne[3];
    for (int64_t unit; (unit = take(&settings->turns, units, ith, nth)) < units;) {
        const int64_t first = unit % panels * PANEL, count = min_of(queries - first, PANEL);
        const int64_t i2 = unit / panels % q->ne[2], i3 = unit / panels / q->ne[2];
        const int64_t k2 = i2 / (q->ne[2] / k->ne[2]), k3 = i3 / (q->ne[3] / k->ne[3]);
        const int64_t v2 = i2 / (q->ne[2] / v->ne[2]), v3 = i3 / (q->ne[3] / v->ne[3]);
        const char * rows = (const char *) q->data + first * q->nb[1] + i2 * q->nb[2] + i3 * q->nb[3];
        pack_queries(rows, q->nb[1], count, depth, settings->factor, panel);
        for (int j = 0; j < VECTORS; ++j) s.largest[j] = all(-__builtin_inff()), s.sum[j] = all(0);
        for (int64_t i = 0; i < values * PANEL; ++i) s.result[i] = 0;
        for (int64_t key = 0; key < keys; key += KEYS) {
            const int64_t block = min_of(keys - key, KEYS);
            const char * from = (const char *) k->data + key * k->nb[1] + k2 * k->nb[2] + k3 * k->nb[3];
            for (int64_t i = 0; i < block; i += ROWS) {
                const float * a = (const float *) (from + i * k->nb[1]);
                for (int64_t part = 0; part < depth; part += PART) {  // partial sums: rounding errors grow with their length
                    tiles[min_of(block - i, ROWS)](a + part, k->nb[1] / sizeof(float), panel + part * PANEL, scores + i * PANEL, PANEL,
                                                  (int) min_of(depth - part, PART), part == 0, nothing);
                }
            }
            if (mask != NULL) {
                const size_t above = i2 % mask->ne[2] * mask->nb[2] + i3 % mask->ne[3] * mask->nb[3];
                add_mask(scores, (const char *) mask->data + first * mask->nb[1] + key * mask->nb[0] + above, mask->nb[1], count, block);
            }
            soften(&s, scores, block, values);
            const char * to = (const char *) v->data + key * v->nb[0] + v2 * v->nb[2] + v3 * v->nb[3];
            for (int64_t i = 0; i < values; i += high) {
                const float * a = (const float *) (to + i * v->nb[1]);
                parts[min_of(values - i, high)](a, lda, scores, s.result + i * PANEL, PANEL, (int) block, false, nothing);
            }
        }
        for (int j = 0; j < VECTORS; ++j) {
            const vector share = 1.0f / s.sum[j];
            for (int64_t i = 0; i < values; ++i) *(vector *) (s.result + i * PANEL + j * WIDTH) *= share;
        }
        float * out = (float *) ((char *) dst->data + first * next_query + i2 * next_head + i3 * dst->nb[3]);
        for (int64_t x = 0; x < count; ++x) {
            for (int64_t i = 0; i < values; ++i) out[x * (next_query / sizeof(float)) + i] = s.result[i * PANEL + x];
        }
    }
}
