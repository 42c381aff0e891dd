// Attention by a matrix unit, as by vectors (`attention.c`), of keys and values that were split into parts before. Keys, and values as rows
// along the keys, are the rows of tiles; queries and exponentials are panels.

#include "attention_tiles.h"

#include "heads.h"
#include "minimal.h"
#include "parts.h"
#include "tiles.h"

enum {
    MOST_TOGETHER = 4,   // panels of queries
    KEYS_AT_ONCE = 96,   // three steps: what a power of 2 is apart would drive one another from the first cache
    ROOM_OF_QUERIES = MAY_HAVE_TILES ? LARGE_TOGETHER * DEEPEST * ALL_PARTS / 2 : 1,  // rows of panels
    ROOM_OF_RESULTS = LARGE_TOGETHER * DEEPEST,
    TILES_OF_HEAD = 256  // elements of larger heads are not split into all parts
};

/// The parts that pay: what heads are filled up with to whole tiles is multiplied too.
static int parts_of_heads(int64_t depth, int64_t values, bool rounded) {
    const int parts = parts_for(rounded);
    const int64_t filled = steps_in(depth) * STEP + parts_of(values, TILE_ROWS) * TILE_ROWS;
    const bool pays = depth <= TILES_OF_HEAD && values <= TILES_OF_HEAD && 6 * filled <= 7 * (depth + values);
    return parts == ALL_PARTS && !pays ? NO_PARTS : parts;
}

bool graphc_tiles_attention(int64_t depth, int64_t values, bool rounded) { return parts_of_heads(depth, values, rounded) != NO_PARTS; }

/// Keys and values in parts: for each head and each block of keys tiles of them, and of what are rows of values along the keys, in words. Then
/// comes for each block of values if all of them are finite.
struct plan_attention {
    int parts;
    int64_t depth, keys, values, blocks, key_heads, value_heads;
    int64_t next_keys, next_values;  // words from tile to tile
    int64_t key_block, value_block, values_from, finite_from, size;
};

static struct plan_attention plan_attention_of(const struct ggml_tensor * k, const struct ggml_tensor * v, bool rounded) {
    struct plan_attention p = {.parts = parts_of_heads(k->ne[0], v->ne[1], rounded), .depth = k->ne[0], .keys = k->ne[1], .values = v->ne[1]};
    p.blocks = parts_of(p.keys, KEYS_AT_ONCE), p.key_heads = k->ne[2] * k->ne[3], p.value_heads = v->ne[2] * v->ne[3];
    p.next_keys = words_of_tiles(p.parts, p.depth), p.next_values = words_of_tiles(p.parts, KEYS_AT_ONCE);
    p.key_block = KEYS_AT_ONCE / TILE_ROWS * p.next_keys, p.value_block = parts_of(p.values, TILE_ROWS) * p.next_values;
    p.values_from = p.key_heads * p.blocks * p.key_block, p.finite_from = p.values_from + p.value_heads * p.blocks * p.value_block;
    p.size = p.finite_from + p.value_heads * p.blocks;
    return p;
}

int64_t graphc_attention_tiles_size(const struct ggml_tensor * k, const struct ggml_tensor * v, bool rounded) {
    return plan_attention_of(k, v, rounded).size + WIDTH;
}

/// Splits so many keys, rows `next` elements apart, into tiles.
static void tile_keys(const struct plan_attention * p, const float * keys, int64_t next, int64_t count, word * to) {
    for (int64_t i = 0; i < count; i += TILE_ROWS) {
        split_rows(p->parts, keys + i * next, next, min_of(count - i, TILE_ROWS), p->depth, to + i / TILE_ROWS * p->next_keys);
    }
}

/// The same of so many keys' values, of which there are rows along the keys, or a row for each key. True if all are finite.
static bool tile_values(const struct plan_attention * p, const float * from, int64_t next, bool along, int64_t count, word * to) {
    float turned[TILE_ROWS * KEYS_AT_ONCE] __attribute__((aligned(64))), square[WIDTH * WIDTH] __attribute__((aligned(64)));
    const int64_t apart = along ? next : KEYS_AT_ONCE;
    bool finite = true;
    for (int64_t i = 0; i < p->values; i += TILE_ROWS) {
        const int64_t there = min_of(p->values - i, TILE_ROWS);
        for (int64_t key = 0; key < count && !along; key += WIDTH) {
            const int64_t some = min_of(count - key, WIDTH);
            const float * lines = from + key * next + i;
            const bool whole = there == WIDTH && some == WIDTH;
            for (int64_t y = 0; y < WIDTH && !whole; ++y) *(vector *) (square + y * WIDTH) = y < some ? some_of(lines + y * next, there) : all(0);
            transpose_square(whole ? lines : square, whole ? next : WIDTH, turned + key, KEYS_AT_ONCE);
        }
        const float * rows = along ? from + i * next : turned;
        for (int64_t x = 0; x < there && p->parts == ALL_PARTS; ++x) {
            for (int64_t key = 0; key < count; key += WIDTH) {
                const vector some = some_of(rows + x * apart + key, count - key);
                finite &= !not_all_finite((const float *) &some, WIDTH);
            }
        }
        split_rows(p->parts, rows, apart, there, count, to + i / TILE_ROWS * p->next_values);
    }
    return finite;
}

void graphc_attention_tiles(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_attention_settings * settings = userdata;
    const struct ggml_tensor * k = dst->src[0], * v = dst->src[1];
    const struct plan_attention p = plan_attention_of(k, v, settings->pairs);
    const bool along = is_float_rows(v);
    const int64_t of_keys = p.key_heads * p.blocks, units = of_keys + p.value_heads * p.blocks;
    word * tiles = (word *) room_of(dst);
    for (int64_t unit; (unit = take(&settings->turns, units, ith, nth)) < units;) {
        const int64_t number = unit < of_keys ? unit : unit - of_keys, key = number % p.blocks * KEYS_AT_ONCE, head = number / p.blocks;
        const int64_t count = min_of(p.keys - key, KEYS_AT_ONCE);
        const struct ggml_tensor * t = unit < of_keys ? k : v;
        const char * from = (const char *) t->data + head % t->ne[2] * t->nb[2] + head / t->ne[2] * t->nb[3];
        if (unit < of_keys) {
            tile_keys(&p, (const float *) (from + key * k->nb[1]), (int64_t) (k->nb[1] / sizeof(float)), count, tiles + number * p.key_block);
            continue;
        }
        const int64_t next = (int64_t) ((along ? v->nb[1] : v->nb[0]) / sizeof(float));
        tiles[p.finite_from + number] = tile_values(&p, (const float *) (from + key * v->nb[0]), next, along, count, tiles + p.values_from + number * p.value_block);
    }
}

/// The scores [keys][PANEL] of so many keys with a panel of queries.
static BY_MATRIX_UNIT void score_tiles(const struct plan_attention * p, const word * keys, int64_t count, const word * panel, float * scores) {
    const int64_t steps = steps_in(p->depth);
    for (int64_t i = 0; i < count; i += MOST_TILE_ROWS, keys += 2 * p->next_keys) {
        const int64_t there = min_of(count - i, MOST_TILE_ROWS);
        float * to = scores + i * PANEL;
        multiplier_for(p->parts, there, PANEL)(keys, p->next_keys, panel, steps, false, to, PANEL, nothing_soon);
        if (p->parts == ALL_PARTS && not_all_finite(to, there * PANEL)) mend_sums(keys, p->next_keys, panel, steps, there, PANEL, to, PANEL);
    }
}

static inline vector power_for(int parts, vector x) { return parts == ONE_PART ? roughly_power_of_two(x) : power_of_two(x); }

/// From scores [keys][PANEL] to their exponentials, which are summed up, as a panel of parts.
static inline __attribute__((always_inline)) void soften_to(int parts, bool masked, struct state * s, const float * scores, int64_t keys, int64_t values,
                                                             word * to) {
    vector base[VECTORS], sum[VECTORS];
    rebase(s, scores, keys, values, masked, base);
    for (int j = 0; j < VECTORS; ++j) sum[j] = all(0);
    for (int64_t key = 0; key < steps_in(keys) * STEP; key += 2) {
        word * rows = to + row_of_pair(parts, key) * PANEL;
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; ++j) {
            const vector * score = (const vector *) (scores + key * PANEL + j * WIDTH);
            vector even = all(0), odd = all(0);
            if (key < keys) even = power_for(parts, binary_power(score[0] - base[j], masked));
            if (key + 1 < keys) odd = power_for(parts, binary_power(score[VECTORS] - base[j], masked));
            sum[j] += even + odd;
            words_of found[ALL_PARTS];
            if (parts == ONE_PART) *found = ((words_of) even + 0x8000) >> 16 | (((words_of) odd + 0x8000) & 0xffff0000);
            else in_parts(even, odd, found);
#pragma GCC unroll 3
            for (int part = 0; part < parts; ++part) *(words_of *) (rows + part * TILE_PAIRS * PANEL + j * WIDTH) = found[part];
        }
    }
    for (int j = 0; j < VECTORS; ++j) s->sum[j] += sum[j];
}

#define SOFTENER(parts, masked) \
    static __attribute__((noinline)) void soften_##parts##_##masked(struct state * s, const float * scores, int64_t keys, int64_t values, word * to) { \
        soften_to(parts, masked, s, scores, keys, values, to); \
    }
SOFTENER(1, 0) SOFTENER(1, 1) SOFTENER(3, 0) SOFTENER(3, 1)

typedef void (*softener)(struct state *, const float *, int64_t, int64_t, word *);

static inline softener softener_for(int parts, bool masked) {
    static const softener all_of_them[2][2] = {{soften_1_0, soften_1_1}, {soften_3_0, soften_3_1}};
    return all_of_them[parts == ALL_PARTS][masked];
}

/// Adds the share of so many keys' values, which may not all be finite, to the result.
static BY_MATRIX_UNIT void share_tiles(const struct plan_attention * p, const word * values, bool finite, int64_t count, const word * exponentials, float * result) {
    const int64_t steps = steps_in(count);
    for (int64_t i = 0; i < p->values; i += MOST_TILE_ROWS, values += 2 * p->next_values) {
        const int64_t there = min_of(p->values - i, MOST_TILE_ROWS);
        float * to = result + i * PANEL;
        if (p->parts == ONE_PART || finite) {
            multiplier_for(p->parts, there, PANEL)(values, p->next_values, exponentials, steps, true, to, PANEL, nothing_soon);
            continue;
        }
        for (int64_t each = 0; each < there * PANEL; ++each) to[each] += whole_product(values, p->next_values, exponentials, steps, each / PANEL, each % PANEL);
    }
}

BY_MATRIX_UNIT void graphc_attention_by_tiles(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_attention_settings * settings = userdata;
    const struct ggml_tensor * k = dst->src[0], * q = dst->src[1], * v = dst->src[2];
    const struct plan_attention p = plan_attention_of(k, v, settings->pairs);
    const word * tiles = (const word *) room_of(dst->src[3]);
    const int64_t queries = q->ne[1], heads = q->ne[2] * q->ne[3];
    const int64_t rows_of_queries = part_rows(p.parts, p.depth), rows_of_results = parts_of(p.values, MOST_TILE_ROWS) * MOST_TILE_ROWS;
    int64_t together = min_of(MOST_TOGETHER, min_of(ROOM_OF_QUERIES / rows_of_queries, ROOM_OF_RESULTS / rows_of_results));
    while (together > 1 && parts_of(queries, together * PANEL) * heads < 4 * nth) together = (together + 1) / 2;
    const int64_t wide = together * PANEL, groups = parts_of(queries, wide), units = groups * heads;
    word panels[ROOM_OF_QUERIES * PANEL] __attribute__((aligned(64))), exponentials[KEYS_AT_ONCE * ALL_PARTS / 2 * PANEL] __attribute__((aligned(64)));
    float results[ROOM_OF_RESULTS * PANEL] __attribute__((aligned(64))), scores[KEYS_AT_ONCE * PANEL] __attribute__((aligned(64)));
    struct state states[MOST_TOGETHER];
    const bool masked = dst->src[4] != NULL;
    const float factor = factor_of_queries(settings->factor, masked);
    const softener soften = softener_for(p.parts, masked);
    for (int64_t unit; (unit = take(&settings->turns, units, ith, nth)) < units;) {
        const int64_t first = unit % groups * wide, count = min_of(queries - first, wide), i2 = unit / groups % q->ne[2], i3 = unit / groups / q->ne[2];
        const struct head head = head_at(dst, first, i2, i3);
        for (int64_t x = 0; x < count; x += PANEL) {
            pack_queries(head.queries + x * q->nb[1], q->nb[1], min_of(count - x, PANEL), p.depth, factor, results);
            split_panel(p.parts, results, p.depth, panels + x * rows_of_queries);
        }
        begin_states(states, parts_of(count, PANEL), results, rows_of_results * PANEL);
        begin_tiles(MOST_TILE_ROWS);
        for (int64_t block = 0; block < p.blocks; ++block) {
            const int64_t key = block * KEYS_AT_ONCE, some = min_of(p.keys - key, KEYS_AT_ONCE), number = head.of_values * p.blocks + block;
            const word * keys = tiles + (head.of_keys * p.blocks + block) * p.key_block, * values = tiles + p.values_from + number * p.value_block;
            for (int64_t x = 0; x < count; x += PANEL) {
                struct state * s = &states[x / PANEL];
                score_tiles(&p, keys, some, panels + x * rows_of_queries, scores);
                add_masks(dst, 4, key, some, first + x, min_of(count - x, PANEL), i2, i3, scores);
                soften(s, scores, some, p.values, exponentials);
                share_tiles(&p, values, tiles[p.finite_from + number], some, exponentials, s->result);
            }
        }
        end_tiles();
        for (int64_t x = 0; x < count; x += PANEL) {
            unpack_results(&states[x / PANEL], min_of(count - x, PANEL), p.values, head.results + x * head.next_result, head.next_result);
        }
    }
}
