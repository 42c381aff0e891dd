// Attention without a matrix of scores. A panel of queries passes all keys, a block at a time: the block's scores, their
// exponentials against what the largest score so far was, and their share of the result, which lies transposed until the end. When a much
// larger score comes, what was summed up before is scaled down. The lanes of a vector are queries, so nothing is summed across. With pairs, a
// block of keys and values is rounded once for several panels of queries; of many queries of large heads, it is read once for two.

#include "attention.h"

#include "heads.h"
#include "tiles.h"

enum { KEYS = 256, PART = 128, FEWEST_QUERIES = 16 };
enum { LARGE_HEAD = 256, FEW_KEYS = 64 };  // of larger heads, so few keys at once stay in the cache with their values
enum { TOGETHER = 4, MANY_UNITS = 32, DEEPEST_PAIRS = DEEPEST / TOGETHER, KEYS_IN_PAIRS = 128 };

/// A block of keys and values in pairs: rows of keys; values in rows along the keys, or a row for each pair of keys.
struct rounded {
    float keys[KEYS_IN_PAIRS * DEEPEST_PAIRS / 2] __attribute__((aligned(64)));
    float values[KEYS_IN_PAIRS / 2 * DEEPEST_PAIRS] __attribute__((aligned(64)));
};

/// A block of keys and values as tiles read them, and how far rows are apart.
struct some_keys {
    const float * keys, * values;
    int64_t next_key, next_row;
};

/// From scores [keys][PANEL] to their exponentials, which are summed up.
static inline __attribute__((always_inline)) void soften_in_place(struct state * s, float * scores, int64_t keys, int64_t values, bool masked) {
    vector base[VECTORS], sum[VECTORS];
    rebase(s, scores, keys, values, masked, base);
    for (int j = 0; j < VECTORS; ++j) sum[j] = all(0);
    for (int64_t key = 0; key < keys; ++key) {
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; ++j) {
            vector * score = (vector *) (scores + key * PANEL + j * WIDTH);
            *score = power_of_two(binary_power(*score - base[j], masked));
            sum[j] += *score;
        }
    }
    for (int j = 0; j < VECTORS; ++j) s->sum[j] += sum[j];
}

static void soften(struct state * s, float * scores, int64_t keys, int64_t values, bool masked) {
    if (masked) soften_in_place(s, scores, keys, values, true);
    else soften_in_place(s, scores, keys, values, false);
}

static bool is_float_columns(const struct ggml_tensor * t) {
    return t->type == GGML_TYPE_F32 && t->nb[1] == sizeof(float) && t->nb[0] % sizeof(float) == 0;
}

/// The pairs of what two keys have as values.
static void pair_values(const float * first, const float * second, int64_t count, float * to) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) *(words_anywhere *) (to + i) = paired(*(const unaligned *) (first + i), *(const unaligned *) (second + i));
    for (; i < count; ++i) *(word *) (to + i) = paired(all(first[i]), all(second[i]))[0];
}

/// Rounds a block of so many keys, of whose values there may be rows along the keys.
static struct some_keys round_keys(struct some_keys from, int64_t count, int64_t depth, int64_t values, bool rows, struct rounded * to) {
    static const float nothing[DEEPEST_PAIRS];
    for (int64_t i = 0; i < count; ++i) pair_row(from.keys + i * from.next_key, depth, to->keys + i * (DEEPEST_PAIRS / 2));
    for (int64_t i = 0; rows && i < values; ++i) pair_row(from.values + i * from.next_row, count, to->values + i * (KEYS_IN_PAIRS / 2));
    for (int64_t i = 0; !rows && i < count; i += 2) {
        const float * first = from.values + i * from.next_row;
        pair_values(first, i + 1 < count ? first + from.next_row : nothing, values, to->values + i / 2 * DEEPEST_PAIRS);
    }
    return (struct some_keys){to->keys, to->values, DEEPEST_PAIRS / 2, rows ? KEYS_IN_PAIRS / 2 : DEEPEST_PAIRS};
}

bool graphc_takes_attention(const struct ggml_tensor * k, const struct ggml_tensor * q, const struct ggml_tensor * v) {
    return is_float_rows(k) && is_float_rows(q) && (is_float_rows(v) || is_float_columns(v)) && q->ne[0] <= DEEPEST && v->ne[1] <= DEEPEST;
}

bool graphc_prefers_attention(const struct ggml_tensor * q) { return q->ne[1] >= FEWEST_QUERIES; }

void graphc_attention(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_attention_settings * settings = userdata;
    const struct ggml_tensor * k = dst->src[0], * q = dst->src[1], * v = dst->src[2];
    const int64_t depth = q->ne[0], keys = k->ne[1], values = v->ne[1], queries = q->ne[1], high = tile_rows(values);
    const bool pairs = settings->pairs && depth <= DEEPEST_PAIRS && values <= DEEPEST_PAIRS, rows_of_v = is_float_rows(v);
    const bool masked = dst->src[3] != NULL;
    const float factor = factor_of_queries(settings->factor, masked);
    const bool large = depth > LARGE_HEAD, many = queries * q->ne[2] * q->ne[3] >= MANY_UNITS * nth * LARGE_TOGETHER * PANEL;
    const int64_t most = pairs ? TOGETHER : large && many ? LARGE_TOGETHER : 1, at_once = pairs ? KEYS_IN_PAIRS : large ? FEW_KEYS : KEYS;
    const int64_t panel_size = (pairs ? DEEPEST_PAIRS : DEEPEST) * PANEL;
    const int64_t wide = most * PANEL, groups = parts_of(queries, wide), deep = pairs ? pairs_in(depth) : depth;
    const tile_function * along = tiles_for(pairs, PANEL), * down = HAS_PAIRS && pairs ? transposed_paired_tiles : transposed_tiles;
    const tile_function * for_values = rows_of_v ? along : down;
    float panels[LARGE_TOGETHER * DEEPEST * PANEL] __attribute__((aligned(64))), scores[KEYS * PANEL] __attribute__((aligned(64)));
    float results[LARGE_TOGETHER * DEEPEST * PANEL] __attribute__((aligned(64)));
    struct state states[TOGETHER];
    struct rounded rounded;
    const struct ahead nothing = {panels, 0};
    const int64_t units = groups * q->ne[2] * q->ne[3];
    for (int64_t unit; (unit = take(&settings->turns, units, ith, nth)) < units;) {
        const int64_t first = unit % groups * wide, count = min_of(queries - first, wide), i2 = unit / groups % q->ne[2], i3 = unit / groups / q->ne[2];
        const struct head head = head_at(dst, first, i2, i3);
        for (int64_t x = 0; x < count; x += PANEL) {
            float * panel = panels + x / PANEL * panel_size;
            pack_queries(head.queries + x * q->nb[1], q->nb[1], min_of(count - x, PANEL), depth, factor, panel);
            if (pairs) pair_panel(panel, depth, panel);
        }
        begin_states(states, parts_of(count, PANEL), results, panel_size);
        for (int64_t key = 0; key < keys; key += at_once) {
            const int64_t block = min_of(keys - key, at_once);
            struct some_keys some = {(const float *) (head.keys + key * k->nb[1]), (const float *) (head.values + key * v->nb[0]), k->nb[1] / sizeof(float), 0};
            some.next_row = (rows_of_v ? v->nb[1] : v->nb[0]) / sizeof(float);
            if (pairs) some = round_keys(some, block, depth, values, rows_of_v, &rounded);
            for (int64_t x = 0; x < count; x += PANEL) {
                struct state * s = &states[x / PANEL];
                const float * panel = panels + x / PANEL * panel_size;
                for (int64_t i = 0; i < block; i += ROWS) {
                    const float * a = some.keys + i * some.next_key;
                    const struct ahead next = rows_ahead(a + ROWS * some.next_key, some.next_key * (int64_t) sizeof(float));
                    for (int64_t part = 0; part < deep; part += PART) {  // partial sums: rounding errors grow with their length
                        along[min_of(block - i, ROWS)](a + part, some.next_key, panel + part * PANEL, scores + i * PANEL, PANEL,
                                                       one_line(min_of(deep - part, PART)), part == 0 ? &as_they_are : &added_up, next);
                    }
                }
                add_masks(dst, 3, key, block, first + x, min_of(count - x, PANEL), i2, i3, scores);
                soften(s, scores, block, values, masked);
                if (pairs) pair_panel(scores, block, scores);
                for (int64_t i = 0; i < values; i += high) {
                    const float * a = some.values + i * (rows_of_v ? some.next_row : 1);
                    for_values[min_of(values - i, high)](a, some.next_row, scores, s->result + i * PANEL, PANEL,
                                                    one_line(pairs ? pairs_in(block) : block), &added_up, nothing);
                }
            }
        }
        for (int64_t x = 0; x < count; x += PANEL) {
            unpack_results(&states[x / PANEL], min_of(count - x, PANEL), values, head.results + x * head.next_result, head.next_result);
        }
    }
}
