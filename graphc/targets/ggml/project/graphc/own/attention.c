// Attention without a matrix of scores. A panel of queries passes all keys, a block at a time: the block's scores, their
// exponentials against the largest score so far, and their share of the result, which lies transposed until the end. When a
// larger score comes, what was summed up before is scaled down. The lanes of a vector are queries, so nothing is summed across.
// With pairs, a block of keys and values is rounded once for several panels of queries; of many queries of large heads,
// it is read once for two.

#include "attention.h"

#include "parts.h"
#include "tiles.h"

#define LOG2_E 1.44269504f

enum { FIRST_MASK = 3 };  // of what attention reads

enum { KEYS = 256, DEEPEST = 512, PART = 128, FEWEST_QUERIES = 16 };
enum { LARGE_HEAD = 256, FEW_KEYS = 64 };  // of larger heads, so few keys at once stay in the cache with their values
enum { TOGETHER = 4, LARGE_TOGETHER = 2, MOST_TOGETHER = 8, MANY_UNITS = 32, DEEPEST_PAIRS = DEEPEST / TOGETHER, KEYS_IN_PAIRS = 128 };

/// What a panel of queries has so far: the largest score, the sum of exponentials, and the result [elements of v][PANEL].
struct state {
    vector largest[VECTORS], sum[VECTORS];
    float * result;
};

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

/// The panel's rows of a tensor as columns, times a factor; columns without a row are 0.
static void pack_queries(const char * rows, size_t stride, int64_t count, int64_t depth, float factor, float * panel) {
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
static void unpack_results(const struct state * s, int64_t count, int64_t values, float * to, int64_t next) {
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

/// The exponential of what is 0 at most, with an error that is nothing beside exp(0): powers of two take fewer instructions.
static inline vector share_of(vector x) { return power_of_two(x * LOG2_E); }

/// From scores [keys][PANEL] to their exponentials, and what came before scaled to the new largest score.
static void soften(struct state * s, float * scores, int64_t keys, int64_t values) {
    vector largest[VECTORS], base[VECTORS], sum[VECTORS], scale[VECTORS];
    for (int j = 0; j < VECTORS; ++j) largest[j] = s->largest[j], sum[j] = all(0);
    for (int64_t key = 0; key < keys; ++key) {
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; ++j) largest[j] = larger(*(const vector *) (scores + key * PANEL + j * WIDTH), largest[j]);
    }
    for (int j = 0; j < VECTORS; ++j) base[j] = choose(largest[j] == all(-__builtin_inff()), all(0), largest[j]);  // where all is masked so far
    for (int64_t key = 0; key < keys; ++key) {
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; ++j) {
            vector * score = (vector *) (scores + key * PANEL + j * WIDTH);
            *score = share_of(*score - base[j]);
            sum[j] += *score;
        }
    }
    for (int j = 0; j < VECTORS; ++j) {
        scale[j] = share_of(s->largest[j] - base[j]);
        s->sum[j] = s->sum[j] * scale[j] + sum[j];
        s->largest[j] = largest[j];
    }
    for (int64_t i = 0; i < values; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; ++j) *(vector *) (s->result + i * PANEL + j * WIDTH) *= scale[j];
    }
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

enum { KEYS_IN_PARTS = 128, WORDS_OF_KEYS = MAY_HAVE_TILES ? KEYS_IN_PARTS * DEEPEST_PAIRS * ALL_PARTS / 2 : WIDTH };

/// A block of keys and values in parts: tiles of keys, and of what are rows of values along the keys.
struct tiled {
    word keys[WORDS_OF_KEYS] __attribute__((aligned(64)));
    word values[WORDS_OF_KEYS] __attribute__((aligned(64)));
    int64_t next_keys, next_values;  // words from tile to tile
    bool finite;  // values
};

/// Splits a block of so many keys, of whose values there may be rows along the keys.
static void tile_keys(struct some_keys from, int64_t count, int64_t depth, int64_t values, bool rows, int parts, struct tiled * to) {
    to->next_keys = steps_in(depth) * parts * TILE_WORDS, to->next_values = steps_in(count) * parts * TILE_WORDS;
    to->finite = true;
    for (int64_t i = 0; i < count; i += TILE_ROWS) {
        split_rows(parts, from.keys + i * from.next_key, from.next_key, min_of(count - i, TILE_ROWS), depth, to->keys + i / TILE_ROWS * to->next_keys);
    }
    float turned[TILE_ROWS * KEYS_IN_PARTS] __attribute__((aligned(64)));
    for (int64_t i = 0; i < values; i += TILE_ROWS) {
        const int64_t there = min_of(values - i, TILE_ROWS);
        for (int64_t key = 0; key < count; key += WIDTH) {
            const float * square = from.values + (rows ? i * from.next_row + key : key * from.next_row + i);
            const bool whole = there == WIDTH && key + WIDTH <= count;
            if (whole && !rows) transpose_square(square, from.next_row, turned + key, KEYS_IN_PARTS);
            for (int64_t x = 0; x < there && (rows || !whole); ++x) {
                for (int64_t y = 0; y < min_of(count - key, WIDTH); ++y) turned[x * KEYS_IN_PARTS + key + y] = square[rows ? x * from.next_row + y : y * from.next_row + x];
            }
        }
        for (int64_t x = 0; x < there; ++x) {
            for (int64_t y = count; y < parts_of(count, WIDTH) * WIDTH; ++y) turned[x * KEYS_IN_PARTS + y] = 0;
            to->finite &= !not_all_finite(turned + x * KEYS_IN_PARTS, count);
        }
        split_rows(parts, turned, KEYS_IN_PARTS, there, count, to->values + i / TILE_ROWS * to->next_values);
    }
}

/// The scores [keys][PANEL] of so many keys with a panel of queries.
static BY_MATRIX_UNIT void score_tiles(const struct tiled * keys, int64_t count, const float * panel, int64_t depth, int parts, float * scores) {
    const int64_t steps = steps_in(depth);
    for (int64_t i = 0; i < count; i += MOST_TILE_ROWS) {
        const word * a = keys->keys + i / TILE_ROWS * keys->next_keys;
        const int64_t there = min_of(count - i, MOST_TILE_ROWS);
        float * to = scores + i * PANEL;
        multiplier_for(parts, there, PANEL)(a, keys->next_keys, (const word *) panel, steps, false, to, PANEL, nothing_soon);
        if (parts == ALL_PARTS && not_all_finite(to, there * PANEL)) mend_sums(a, keys->next_keys, (const word *) panel, steps, there, PANEL, to, PANEL);
    }
}

/// Adds the share of so many keys, whose exponentials are `scores`, to the result.
static BY_MATRIX_UNIT void share_tiles(const struct tiled * keys, int64_t count, int64_t values, const float * scores, int parts, float * result) {
    word exponentials[KEYS_IN_PARTS * PANEL * ALL_PARTS / 2] __attribute__((aligned(64)));
    const int64_t steps = steps_in(count);
    split_panel(parts, scores, count, exponentials);
    for (int64_t i = 0; i < values; i += MOST_TILE_ROWS) {
        const word * a = keys->values + i / TILE_ROWS * keys->next_values;
        const int64_t there = min_of(values - i, MOST_TILE_ROWS);
        float * to = result + i * PANEL;
        if (parts == ONE_PART || keys->finite) {
            multiplier_for(parts, there, PANEL)(a, keys->next_values, exponentials, steps, true, to, PANEL, nothing_soon);
            continue;
        }
        for (int64_t each = 0; each < there * PANEL; ++each) to[each] += whole_product(a, keys->next_values, exponentials, steps, each / PANEL, each % PANEL);
    }
}

/// The parts that pay: what heads are filled up with to whole tiles is multiplied too.
static int parts_of_heads(int64_t depth, int64_t values, bool rounded) {
    const int parts = parts_for(rounded);
    const int64_t filled = steps_in(depth) * STEP + parts_of(values, TILE_ROWS) * TILE_ROWS;
    const bool pays = depth <= LARGE_HEAD && values <= LARGE_HEAD && 6 * filled <= 7 * (depth + values);
    return parts == ALL_PARTS && !pays ? NO_PARTS : parts;
}

/// Keys of a block.
static int64_t keys_in_parts(int64_t depth, int64_t values, int parts) {
    const int64_t deepest = (depth > values ? steps_in(depth) : steps_in(values)) * STEP;
    return min_of(WORDS_OF_KEYS * 2 / parts / deepest / STEP * STEP, KEYS_IN_PARTS);
}

bool graphc_takes_attention(const struct ggml_tensor * k, const struct ggml_tensor * q, const struct ggml_tensor * v) {
    return is_float_rows(k) && is_float_rows(q) && (is_float_rows(v) || is_float_columns(v)) && q->ne[0] <= DEEPEST && v->ne[1] <= DEEPEST;
}

bool graphc_prefers_attention(const struct ggml_tensor * q) { return q->ne[1] >= FEWEST_QUERIES; }

void graphc_attention(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_attention_settings * settings = userdata;
    const struct ggml_tensor * k = dst->src[0], * q = dst->src[1], * v = dst->src[2];
    const int64_t depth = q->ne[0], keys = k->ne[1], values = v->ne[1], queries = q->ne[1], high = tile_rows(values);
    const int parts = parts_of_heads(depth, values, settings->pairs);
    const bool pairs = settings->pairs && parts == NO_PARTS && depth <= DEEPEST_PAIRS && values <= DEEPEST_PAIRS, rows_of_v = is_float_rows(v);
    const bool large = depth > LARGE_HEAD, many = queries * q->ne[2] * q->ne[3] >= MANY_UNITS * nth * LARGE_TOGETHER * PANEL;
    const bool shares = pairs || (parts != NO_PARTS && depth <= DEEPEST_PAIRS && values <= DEEPEST_PAIRS);  // what a block of keys becomes
    const int64_t most = shares ? (pairs ? TOGETHER : MOST_TOGETHER) : parts != NO_PARTS || (large && many) ? LARGE_TOGETHER : 1;
    const int64_t at_once = parts != NO_PARTS ? keys_in_parts(depth, values, parts) : pairs ? KEYS_IN_PAIRS : large ? FEW_KEYS : KEYS;
    const int64_t panel_size = (shares ? DEEPEST_PAIRS : DEEPEST) * PANEL, words_of_panel = panel_size * (parts == ALL_PARTS ? ALL_PARTS : 2) / 2;
    const int64_t wide = most * PANEL, groups = parts_of(queries, wide), deep = pairs ? pairs_in(depth) : depth;
    const tile_function * along = pairs ? paired_tiles : tiles, * down = pairs ? transposed_paired_tiles : transposed_tiles;
    const tile_function * for_values = rows_of_v ? along : down;
    const size_t next_query = dst->nb[2], next_head = dst->nb[1];
    float panels[LARGE_TOGETHER * DEEPEST * PANEL * (MAY_HAVE_TILES ? ALL_PARTS : 2) / 2] __attribute__((aligned(64))), scores[KEYS * PANEL] __attribute__((aligned(64)));
    float results[LARGE_TOGETHER * DEEPEST * PANEL] __attribute__((aligned(64)));
    struct state states[MOST_TOGETHER];
    union {
        struct rounded rounded;
        struct tiled tiled;
    } shared;
    const struct ahead nothing = {panels, 0};
    const int64_t units = groups * q->ne[2] * q->ne[3];
    for (int64_t unit; (unit = take(&settings->turns, units, ith, nth)) < units;) {
        const int64_t first = unit % groups * wide, count = min_of(queries - first, wide);
        const int64_t i2 = unit / groups % q->ne[2], i3 = unit / groups / q->ne[2];
        const int64_t k2 = i2 / (q->ne[2] / k->ne[2]), k3 = i3 / (q->ne[3] / k->ne[3]);
        const int64_t v2 = i2 / (q->ne[2] / v->ne[2]), v3 = i3 / (q->ne[3] / v->ne[3]);
        const char * rows = (const char *) q->data + first * q->nb[1] + i2 * q->nb[2] + i3 * q->nb[3];
        for (int64_t x = 0; x < count; x += PANEL) {
            float * panel = panels + x / PANEL * words_of_panel, * wide = parts == NO_PARTS ? panel : results;
            pack_queries(rows + x * q->nb[1], q->nb[1], min_of(count - x, PANEL), depth, settings->factor, wide);
            if (pairs) pair_panel(panel, depth, panel);
            if (parts != NO_PARTS) split_panel(parts, wide, depth, (word *) panel);
        }
        for (int64_t x = 0; x < count; x += PANEL) {
            struct state * s = &states[x / PANEL];
            for (int j = 0; j < VECTORS; ++j) s->largest[j] = all(-__builtin_inff()), s->sum[j] = all(0);
            s->result = results + x / PANEL * panel_size;
            for (int64_t i = 0; i < parts_of(values, MOST_TILE_ROWS) * MOST_TILE_ROWS * PANEL; ++i) s->result[i] = 0;
        }
        if (parts != NO_PARTS) begin_tiles(MOST_TILE_ROWS);
        for (int64_t key = 0; key < keys; key += at_once) {
            const int64_t block = min_of(keys - key, at_once);
            const char * from = (const char *) k->data + key * k->nb[1] + k2 * k->nb[2] + k3 * k->nb[3];
            const char * to = (const char *) v->data + key * v->nb[0] + v2 * v->nb[2] + v3 * v->nb[3];
            struct some_keys some = {(const float *) from, (const float *) to, k->nb[1] / sizeof(float), 0};
            some.next_row = (rows_of_v ? v->nb[1] : v->nb[0]) / sizeof(float);
            if (pairs) some = round_keys(some, block, depth, values, rows_of_v, &shared.rounded);
            if (parts != NO_PARTS) tile_keys(some, block, depth, values, rows_of_v, parts, &shared.tiled);
            for (int64_t x = 0; x < count; x += PANEL) {
                struct state * s = &states[x / PANEL];
                const float * panel = panels + x / PANEL * words_of_panel;
                if (parts != NO_PARTS) score_tiles(&shared.tiled, block, panel, depth, parts, scores);
                for (int64_t i = 0; i < block && parts == NO_PARTS; i += ROWS) {
                    const float * a = some.keys + i * some.next_key;
                    const struct ahead next = rows_ahead(a + ROWS * some.next_key, some.next_key * (int64_t) sizeof(float));
                    for (int64_t part = 0; part < deep; part += PART) {  // partial sums: rounding errors grow with their length
                        along[min_of(block - i, ROWS)](a + part, some.next_key, panel + part * PANEL, scores + i * PANEL, PANEL,
                                                       one_line(min_of(deep - part, PART)), part == 0 ? &as_they_are : &added_up, next);
                    }
                }
                for (int each = FIRST_MASK; each < GGML_MAX_SRC && dst->src[each] != NULL; ++each) {
                    const struct ggml_tensor * mask = dst->src[each];
                    const size_t above = i2 % mask->ne[2] * mask->nb[2] + i3 % mask->ne[3] * mask->nb[3];
                    const char * at = (const char *) mask->data + (first + x) * mask->nb[1] + key * mask->nb[0] + above;
                    add_mask(scores, (const float *) at, (int64_t) (mask->nb[1] / sizeof(float)), min_of(count - x, PANEL), block);
                }
                soften(s, scores, block, values);
                if (parts != NO_PARTS) share_tiles(&shared.tiled, block, values, scores, parts, s->result);
                if (pairs) pair_panel(scores, block, scores);
                for (int64_t i = 0; i < values && parts == NO_PARTS; i += high) {
                    const float * a = some.values + i * (rows_of_v ? some.next_row : 1);
                    for_values[min_of(values - i, high)](a, some.next_row, scores, s->result + i * PANEL, PANEL,
                                                    one_line(pairs ? pairs_in(block) : block), &added_up, nothing);
                }
            }
        }
        if (parts != NO_PARTS) end_tiles();
        for (int64_t x = 0; x < count; x += PANEL) {
            float * out = (float *) ((char *) dst->data + (first + x) * next_query + i2 * next_head + i3 * dst->nb[3]);
            unpack_results(&states[x / PANEL], min_of(count - x, PANEL), values, out, next_query / sizeof(float));
        }
    }
}
