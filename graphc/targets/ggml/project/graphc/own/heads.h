#pragma once

// Panels of queries as columns, of which each has a state, and the scores of a block of keys: what vectors and tiles share that pass all keys.

#include "tiles.h"

#include <string.h>

#define LOG2_E 1.44269504f

enum { DEEPEST = 512, LARGE_TOGETHER = 2 };  // elements of a head, and panels of queries that pass a block of its keys together

/// What a panel of queries has so far: what exponentials are taken against, their sum, and the result [elements of v][PANEL].
struct state {
    vector base[VECTORS], sum[VECTORS];
    float * result;
};

/// The panel's rows of a tensor as columns, times a factor; columns without a row are 0.
static __attribute__((unused)) void pack_queries(const char * rows, size_t stride, int64_t count, int64_t depth, float factor, float * panel) {
    for (int64_t j = 0; j < PANEL; j += WIDTH) {
        const float * from = (const float *) (rows + j * stride);
        const int64_t there = min_of(count - j, WIDTH), next = stride / sizeof(float);
        int64_t k = 0;
        for (; there == WIDTH && k + WIDTH <= depth; k += WIDTH) transpose(from + k, next, panel + k * PANEL + j);
        for (; k < depth; ++k) {
            for (int64_t x = 0; x < WIDTH; ++x) panel[k * PANEL + j + x] = x < there ? from[x * next + k] : 0;
        }
    }
    for (int64_t i = 0; i < depth * PANEL; i += WIDTH) *(vector *) (panel + i) *= factor;
}

/// The panel's results as rows of a tensor, `next` elements apart, each times its query's share.
static __attribute__((unused)) void unpack_results(const struct state * s, int64_t count, int64_t values, float * to, int64_t next) {
    for (int j = 0; j < VECTORS; ++j) {
        const vector share = 1.0f / s->sum[j];
        for (int64_t i = 0; i < values; ++i) *(vector *) (s->result + i * PANEL + j * WIDTH) *= share;
    }
    for (int64_t j = 0; j < count; j += WIDTH) {
        const int64_t there = min_of(count - j, WIDTH);
        for (int64_t i = 0; i < values; i += WIDTH) {
            if (there == WIDTH && i + WIDTH <= values) {
                transpose_square(s->result + i * PANEL + j, PANEL, to + j * next + i, next);
                continue;
            }
            float square[WIDTH * WIDTH] __attribute__((aligned(64)));
            transpose_square(s->result + i * PANEL + j, PANEL, square, WIDTH);
            for (int64_t x = 0; x < there; ++x) copy(square + x * WIDTH, 1, min_of(values - i, WIDTH), to + (j + x) * next + i);
        }
    }
}

/// Adds a mask's rows, `next` elements apart, to the columns of scores, a square at a time.
static void add_mask(float * scores, const float * mask, int64_t next, int64_t queries, int64_t keys) {
    float square[WIDTH * WIDTH] __attribute__((aligned(64)));
    for (int64_t x = 0; x < queries; x += WIDTH) {
        int64_t key = 0;
        for (; queries - x >= WIDTH && key + WIDTH <= keys; key += WIDTH) {
            transpose_square(mask + x * next + key, next, square, WIDTH);
            for (int i = 0; i < WIDTH; ++i) *(vector *) (scores + (key + i) * PANEL + x) += *(const vector *) (square + i * WIDTH);
        }
        for (int64_t query = x; query < min_of(x + WIDTH, queries); ++query) {
            for (int64_t rest = key; rest < keys; ++rest) scores[rest * PANEL + query] += mask[query * next + rest];
        }
    }
}

/// The same of all masks, which are the sources from one on, for so many keys and queries of a head from some on.
static __attribute__((unused)) void add_masks(const struct ggml_tensor * dst, int first, int64_t key, int64_t keys, int64_t query, int64_t queries, int64_t i2, int64_t i3,
                                              float * scores) {
    for (int each = first; each < GGML_MAX_SRC && dst->src[each] != NULL; ++each) {
        const struct ggml_tensor * mask = dst->src[each];
        const size_t above = i2 % mask->ne[2] * mask->nb[2] + i3 % mask->ne[3] * mask->nb[3];
        const char * at = (const char *) mask->data + query * mask->nb[1] + key * mask->nb[0] + above;
        add_mask(scores, (const float *) at, (int64_t) (mask->nb[1] / sizeof(float)), queries, keys);
    }
}

/// A head's queries from one on, and the keys, values and results that belong to them; numbers of the heads of those.
struct head {
    int64_t of_keys, of_values;
    const char * queries, * keys, * values;
    float * results;
    int64_t next_result;  // elements from a query's to the next one's
};

static inline struct head head_at(const struct ggml_tensor * dst, int64_t query, int64_t i2, int64_t i3) {
    const struct ggml_tensor * k = dst->src[0], * q = dst->src[1], * v = dst->src[2];
    const int64_t k2 = i2 / (q->ne[2] / k->ne[2]), k3 = i3 / (q->ne[3] / k->ne[3]), v2 = i2 / (q->ne[2] / v->ne[2]), v3 = i3 / (q->ne[3] / v->ne[3]);
    struct head found = {k3 * k->ne[2] + k2, v3 * v->ne[2] + v2};
    found.queries = (const char *) q->data + query * q->nb[1] + i2 * q->nb[2] + i3 * q->nb[3];
    found.keys = (const char *) k->data + k2 * k->nb[2] + k3 * k->nb[3], found.values = (const char *) v->data + v2 * v->nb[2] + v3 * v->nb[3];
    found.results = (float *) ((char *) dst->data + query * dst->nb[2] + i2 * dst->nb[1] + i3 * dst->nb[3]);
    found.next_result = (int64_t) (dst->nb[2] / sizeof(float));
    return found;
}

/// Scores are powers of 2, for which queries are multiplied with log2(e); or of e, where there are masks: the largest of those have no room
/// for a factor. So much may they be above what exponentials are taken against: sums are far from what a float32 can hold.
enum { MOST_ABOVE = 8 };

static inline float factor_of_queries(float factor, bool masked) { return masked ? factor : factor * LOG2_E; }

/// The power of 2 that the difference of two scores stands for.
static inline vector binary_power(vector difference, bool masked) { return masked ? difference * LOG2_E : difference; }

/// The largest of the scores [keys][PANEL] of each query.
static inline void largest_of(const float * scores, int64_t keys, vector * largest) {
    enum { CHAINS = 4 };
    vector found[CHAINS][VECTORS];
#pragma GCC unroll 4
    for (int chain = 0; chain < CHAINS; ++chain) {
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; ++j) found[chain][j] = all(-__builtin_inff());
    }
    int64_t key = 0;
    for (; key + CHAINS <= keys; key += CHAINS) {
#pragma GCC unroll 4
        for (int chain = 0; chain < CHAINS; ++chain) {
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; ++j) found[chain][j] = larger(*(const vector *) (scores + (key + chain) * PANEL + j * WIDTH), found[chain][j]);
        }
    }
    for (; key < keys; ++key) {
        for (int j = 0; j < VECTORS; ++j) found[0][j] = larger(*(const vector *) (scores + key * PANEL + j * WIDTH), found[0][j]);
    }
    for (int j = 0; j < VECTORS; ++j) largest[j] = larger(larger(found[0][j], found[1][j]), larger(found[2][j], found[3][j]));
}

/// What the exponentials of some scores are taken against. If it is not what it was, what was summed up before is scaled.
static inline void rebase(struct state * s, const float * scores, int64_t keys, int64_t values, bool masked, vector * base) {
    vector largest[VECTORS], scale[VECTORS];
    integers above = {0};
    int32_t any = 0;
    largest_of(scores, keys, largest);
    for (int j = 0; j < VECTORS; ++j) above |= largest[j] > s->base[j] + (float) MOST_ABOVE;
    for (int i = 0; i < WIDTH; ++i) any |= above[i];
    for (int j = 0; j < VECTORS && any; ++j) {
        const vector next = larger(largest[j], s->base[j]);
        scale[j] = power_of_two(binary_power(s->base[j] - choose(next == all(-__builtin_inff()), all(0), next), masked));
        s->base[j] = next, s->sum[j] *= scale[j];
    }
    for (int64_t i = 0; i < values && any; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; ++j) *(vector *) (s->result + i * PANEL + j * WIDTH) *= scale[j];
    }
    for (int j = 0; j < VECTORS; ++j) base[j] = choose(s->base[j] == all(-__builtin_inff()), all(0), s->base[j]);  // where all is masked so far
}

/// The state of so many panels before the first key, and their results one after the other.
static inline void begin_states(struct state * states, int64_t panels, float * results, int64_t panel_size) {
    for (int64_t x = 0; x < panels; ++x) {
        for (int j = 0; j < VECTORS; ++j) states[x].base[j] = all(-__builtin_inff()), states[x].sum[j] = all(0);
        states[x].result = results + x * panel_size;
    }
    memset(results, 0, (size_t) (panels * panel_size) * sizeof *results);
}
