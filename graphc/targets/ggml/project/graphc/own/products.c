// Matrix products by blocks. The result does not depend on the number of threads. What is packed next comes to the cache meanwhile:
// with few rows, memory is the limit.

#include "products.h"

#include "blocks.h"
#include "rows.h"
#include "tiles.h"

/// True if rows that can be read as float32 lie anywhere, the blocks of each one after the other.
static bool is_rows(const struct ggml_tensor * t, const struct ggml_type_traits * types) {
    return types->to_float != NULL && t->ne[0] % types->blck_size == 0 && t->nb[0] == types->type_size;
}

bool graphc_takes_mul_mat(const struct ggml_tensor * a, const struct ggml_tensor * b, const struct graphc_mul_mat_settings * s) {
    if (a->type == GGML_TYPE_F32) return is_float_rows(a) && is_float_rows(b);
    return is_rows(a, s->types) && is_float_rows(b);
}

bool graphc_takes_gate(const struct ggml_tensor * gate, const struct ggml_tensor * b) {
    const bool fits = gate->ne[0] == b->ne[0] && gate->ne[1] == 1 && gate->ne[2] == b->ne[2] && gate->ne[3] == b->ne[3];
    return is_dense(gate) && fits && b->ne[1] > MOST_FEW;
}

bool graphc_takes_sum(const struct ggml_tensor * sum, const struct ggml_tensor * result, bool image) {
    for (int i = 0; i < 4; ++i) {
        if (sum->ne[i] != 1 && sum->ne[i] != result->ne[i]) return false;
    }
    const bool one = sum->ne[0] == 1 && sum->ne[1] == 1;
    const bool plane = sum->ne[0] == result->ne[0] && sum->ne[1] == result->ne[1] && sum->nb[1] == sum->ne[0] * sizeof(float);
    return is_float_rows(sum) && (!image || one || plane);
}

bool graphc_multiplies_pairs(void) { return HAS_PAIRS; }

bool graphc_multiplies_tiles(void) { return has_matrix_unit(); }

/// Where a unit begins. Units that follow one another share the larger operand's part: more rows than columns, or columns.
static struct place find(const struct units * u, const struct ggml_tensor * dst, int64_t unit) {
    const int64_t batch = unit / u->parts / u->columns, tall = dst->ne[1] > dst->ne[0];
    const int64_t column = tall ? unit % u->columns : unit / u->parts % u->columns;
    const int64_t part = tall ? unit / u->columns % u->parts : unit % u->parts;
    return (struct place){{column * u->wide, part * u->rows, batch % dst->ne[2], batch / dst->ne[2]}};
}

/// A product, and what it reads, as others see it.
struct all_rows {
    struct ggml_tensor result, read[GGML_MAX_SRC];
};

/// True if the rows of a tensor are those of one matrix, however many axes count them.
static bool is_one_matrix(const struct ggml_tensor * t) {
    return (t->ne[2] == 1 || t->nb[2] == t->ne[1] * t->nb[1]) && (t->ne[3] == 1 || t->nb[3] == t->ne[2] * t->nb[2]);
}

/// A product of which all batches share a matrix as one of all their rows, for which it is packed once; else the product itself. A few
/// rows of a few batches stay apart, so that their numbers do not depend on how many batches there are, and so do those of which each batch
/// has a gate.
static struct ggml_tensor * with_all_rows(struct ggml_tensor * dst, const struct graphc_mul_mat_settings * s, struct all_rows * all) {
    enum { MANY_BATCHES = 32 };
    const int64_t batches = dst->ne[2] * dst->ne[3];
    if (batches == 1 || s->gated || (dst->ne[1] <= MOST_FEW && batches < MANY_BATCHES) || dst->src[0]->ne[2] * dst->src[0]->ne[3] != 1 || !is_one_matrix(dst->src[1])) return dst;
    all->result = *dst;
    all->result.ne[1] *= batches, all->result.ne[2] = all->result.ne[3] = 1;
    for (int i = 0; i < GGML_MAX_SRC && dst->src[i] != NULL; ++i) {
        struct ggml_tensor * t = &all->read[i];
        *t = *dst->src[i];
        const bool of_rows = i == 1 || i >= 2 + s->scaled, whole = t->ne[1] * t->ne[2] * t->ne[3] == dst->ne[1] * batches && is_one_matrix(t);
        if (of_rows && whole) t->ne[1] *= batches, t->ne[2] = t->ne[3] = 1;
        else if (of_rows && t->ne[1] * t->ne[2] * t->ne[3] != 1) return dst;
        all->result.src[i] = t;
    }
    return &all->result;
}

/// A part of a result: the place where it begins, and its columns and rows; where the part that comes then begins, and its columns at most.
struct part_of_result {
    struct place at, then;
    int64_t columns, rows, most_columns;
    bool stays;  // are the panels of its columns
};

/// Multiplies a part of a result; `packed` is memory for the panels of its columns, unless those stay as they are.
static void multiply_part(struct ggml_tensor * dst, struct graphc_mul_mat_settings * s, int parts, const struct part_of_result * some, float * packed) {
    const struct ggml_tensor * b = dst->src[1];
    const struct place at = some->at, then = some->then;
    const int64_t depth = b->ne[0];
    const bool pairs = s->pairs && parts == NO_PARTS;
    const int64_t most = parts == NO_PARTS ? depth_of(pairs) : depth_of_parts(parts, depth);
    const struct matrix weights = columns_at(dst, s, at), later = columns_at(dst, s, then);
    const char * left = (const char *) b->data + at.axis[1] * b->nb[1] + at.axis[2] * b->nb[2] + at.axis[3] * b->nb[3];
    char * c = (char *) dst->data;
    for (int each = 0; each < 4; ++each) c += at.axis[each] * dst->nb[each];
    struct block part = {.dst = dst, .at = at, .axis = 1, .c = (float *) c, .ldc = dst->nb[1] / sizeof(float)};
    part.coming_step = weights.step, part.activation = &s->activation, part.pairs = pairs, part.parts = parts;
    part.between = s->scaled + s->gated;
    const float * gate = s->gated ? (const float *) dst->src[2]->data + (at.axis[3] * dst->ne[2] + at.axis[2]) * depth : NULL;
    part.rows = some->rows, part.columns = some->columns;
    for (int64_t k = 0; k < depth; k += most) {
        part.depth = (int) min_of(depth - k, most);
        part.first = k == 0, part.last = k + most >= depth;
        part.a = (struct matrix){.data = left + k * sizeof(float), .step = b->nb[1], .type = GGML_TYPE_F32};
        const int64_t next_column = (part.last ? then : at).axis[0], next_k = part.last ? 0 : k + most;
        part.coming_rows = min_of(dst->ne[0] - next_column, some->most_columns);
        part.coming_together = some->stays, part.from_memory = some->stays && parts == s->panels->parts;
        if (some->stays) {
            const int64_t deep = rows_of_part(s->panels, k);
            part.packed = part.from_memory ? panels_at(s->panels, at.axis[0], k) : packed, part.deep = part.from_memory ? deep : part_rows(parts, part.depth);
            part.coming = (const char *) panels_at(s->panels, next_column, next_k), part.coming_step = deep * (int64_t) sizeof(float);
            part.coming_rows = parts_of(part.coming_rows * rows_of_part(s->panels, next_k), deep);
            if (!part.from_memory) split_panels(s->panels, at.axis[0], part.columns, k, parts, packed);
        } else {
            part.packed = packed, part.deep = DEPTH, part.coming = element(part.last ? &later : &weights, 0, next_k);
            const float * scales = gate == NULL ? NULL : gate + k;
            if (parts == NO_PARTS) {
                pack_rows(&weights, 0, part.columns, k, part.depth, pairs, packed);
                for (int64_t j = 0; gate != NULL && j < part.columns; j += PANEL) gate_panel(scales, part.depth, packed + j * DEPTH);
            } else {
                part.deep = part_rows(parts, part.depth);
                pack_parts(&weights, 0, part.columns, k, part.depth, scales, parts, packed);
            }
        }
        multiply(&part);
    }
}

void graphc_mul_mat(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_mul_mat_settings * s = userdata;
    struct all_rows all_rows;
    const int parts = parts_of_product(s->pairs, dst->ne[1], dst->ne[0], dst->src[1]->ne[0]);
    dst = with_all_rows(dst, s, &all_rows);
    const int64_t depth = dst->src[1]->ne[0], columns = dst->ne[0], rows = dst->ne[1], packed_columns = columns_of_unit(parts);
    if (rows <= MOST_FEW) return multiply_few(dst, ith, nth, s);
    const bool rounded = s->panels != NULL && s->panels->parts == ONE_PART;
    float packed[PACKED_COLUMNS] __attribute__((aligned(64)));
    const struct units u = cut(rows, columns, dst->ne[2] * dst->ne[3], nth, rounded ? columns_of_kept(columns, depth) : packed_columns);
    for (int64_t unit; (unit = take(&s->turns, u.count, ith, nth)) < u.count;) {
        struct part_of_result part = {.at = find(&u, dst, unit), .then = find(&u, dst, min_of(unit + 1, u.count - 1)), .most_columns = u.wide};
        const int64_t end = min_of(columns, part.at.axis[0] + u.wide);
        part.rows = min_of(rows - part.at.axis[1], u.rows);
        part.stays = s->panels != NULL && stays_packed(s->panels, part.at.axis[0], end - part.at.axis[0]);
        for (; part.at.axis[0] < end; part.at.axis[0] += part.columns) {
            part.columns = min_of(end - part.at.axis[0], part.stays ? u.wide : packed_columns);
            multiply_part(dst, s, parts, &part, packed);
        }
    }
}
