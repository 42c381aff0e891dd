// Attention: without its matrix of scores where a device can, and that is faster or the matrix is too large.

#include "../composite.h"

/// Bytes of a matrix of scores from which a device is better off without it: small ones fit any.
#define LARGE_SCORES ((size_t) 1 << 22)

/// Parts of the queries whose scores are made one after the other, at most: `composites/attention.py` has room for so many.
#define MOST_SCORE_PARTS ((size_t) 16)

/// Attention on the CPU without a matrix of scores; NULL where our code does not take it.
static tensor * own_attention(builder * b, tensor * q, tensor * k, tensor * v, tensor * mask, float scale, tensor ** others, int count) {
    tensor * columns = b->ggml->permute(b->context, v, 1, 0, 2, 3), * sources[GGML_MAX_SRC];
    const int masks = count + (mask != NULL);
    if (b->own == NULL || 4 + count > GGML_MAX_SRC) return NULL;
    if (mask != NULL && mask->type != GGML_TYPE_F32) return NULL;
    for (int i = 0; i < count; ++i) {
        if (others[i]->type != GGML_TYPE_F32) return NULL;
    }
    if (!b->own->takes_attention(k, q, columns)) columns = graphc_build_copy(b, columns);
    if (!b->own->takes_attention(k, q, columns)) return NULL;
    struct graphc_attention_settings settings;
    memset(&settings, 0, sizeof settings);
    settings.factor = scale, settings.pairs = rounds(b, k);  // it is decided now: a choice is told apart by its number
    const bool tiles = 4 + masks <= GGML_MAX_SRC && b->own->tiles_attention(q->ne[0], v->ne[0], settings.pairs);
    int read = 3;
    sources[0] = k, sources[1] = q, sources[2] = columns;
    if (tiles) {
        tensor * split[] = {k, columns};
        const int64_t size[] = {b->own->attention_tiles_size(k, columns, settings.pairs), 1, 1, 1};
        tensor * made = computed(b, b->own->attention_tiles, &settings, sizeof settings, size, split, 2);
        if (made == NULL) return NULL;
        sources[read++] = made;
    }
    if (mask != NULL) sources[read++] = mask;
    for (int i = 0; i < count; ++i) sources[read++] = others[i];
    const int64_t ne[] = {v->ne[0], q->ne[2], q->ne[1], q->ne[3]};
    return computed(b, tiles ? b->own->attention_by_tiles : b->own->attention, &settings, sizeof settings, ne, sources, read);
}

/// A mask and others, if there are any, as one, which has the largest of their sizes.
static tensor * sum_of_masks(builder * b, tensor * mask, tensor ** others, int count) {
    for (int i = 0; i < count; ++i) {
        int64_t ne[4];
        for (int axis = 0; axis < 4; ++axis) ne[axis] = mask->ne[axis] == 1 ? others[i]->ne[axis] : mask->ne[axis];
        mask = graphc_build_add(b, b->ggml->repeat_4d(b->context, mask, ne[0], ne[1], ne[2], ne[3]), others[i]);
    }
    return mask;
}

/// Attention of a device's own; NULL where it is not as exact as it has to be, or does not take it: ggml wants masks in float16.
static tensor * device_attention(builder * b, tensor * q, tensor * k, tensor * v, tensor * mask, float scale) {
    if (!b->halves || mask != NULL) return NULL;
    tensor * read[] = {q, k, v};
    for (int i = 0; i < 3; ++i) {
        if (read[i]->type != GGML_TYPE_F32) return NULL;
        if (read[i]->nb[0] != sizeof(float)) read[i] = graphc_build_copy(b, read[i]);
    }
    tensor * found = b->ggml->flash_attn_ext(b->context, read[0], read[1], read[2], NULL, scale, 0, 0);
    b->ggml->flash_attn_ext_set_prec(found, GGML_PREC_F32);
    return is_supported(b, found) ? found : NULL;
}

/// Some rows of queries, or of a mask.
static tensor * some_rows(builder * b, tensor * x, int64_t first, int64_t count) {
    if (count == x->ne[1]) return x;
    const size_t offset = (size_t) first * x->nb[1];
    return b->ggml->view_4d(b->context, x, x->ne[0], count, x->ne[2], x->ne[3], x->nb[1], x->nb[2], x->nb[3], offset);
}

/// Attention by a matrix of scores; by several, one after the other, of some queries each, where one would be too large.
static tensor * scored_attention(builder * b, tensor * q, tensor * k, tensor * v, tensor * mask, float scale, size_t scores) {
    const size_t wanted = scores / MOST_BYTES + (scores % MOST_BYTES > 0);
    const size_t parts = wanted < MOST_SCORE_PARTS ? wanted : MOST_SCORE_PARTS;
    const int64_t rows = parts > 1 ? (q->ne[1] + (int64_t) parts - 1) / (int64_t) parts : q->ne[1];
    tensor * columns = graphc_build_copy(b, b->ggml->permute(b->context, v, 1, 0, 2, 3)), * found = NULL;
    for (int64_t first = 0; found == NULL || first < q->ne[1]; first += rows) {
        const int64_t count = first + rows < q->ne[1] ? rows : q->ne[1] - first;
        tensor * some = some_rows(b, q, first, count), * hidden = mask == NULL ? NULL : some_rows(b, mask, first, count);
        if (hidden != NULL && !b->ggml->is_contiguous(hidden)) hidden = graphc_build_copy(b, hidden);
        tensor * weights = b->ggml->soft_max_ext(b->context, graphc_build_linear(b, k, some, NULL, NULL, 0), hidden, scale, 0);
        tensor * part = graphc_build_linear(b, columns, weights, NULL, NULL, 0);
        part = graphc_build_copy(b, b->ggml->permute(b->context, part, 0, 2, 1, 3));
        found = found == NULL ? part : b->ggml->concat(b->context, found, part, 2);
    }
    return found;
}

tensor * graphc_build_attention(builder * b, tensor * q, tensor * k, tensor * v, tensor * mask, float scale, tensor ** others, int count) {
    char of_k[SIZES_SIZE], of_q[SIZES_SIZE], key[KEY_SIZE];
    snprintf(key, sizeof key, "attention %s %s %s values %" PRId64 " mask %d", b->ggml->type_name(k->type), sizes_of(k, of_k),
             sizes_of(q, of_q), v->ne[0], (mask != NULL) + count);
    const char * way = chosen(b, key);
    const size_t scores = sizeof(float) * (size_t) (k->ne[1] * q->ne[1] * q->ne[2] * q->ne[3]);
    const bool prefers = b->devices > 0 ? scores >= LARGE_SCORES : b->own != NULL && b->own->prefers_attention(q);
    const bool flash = same(way, "flash") || (prefers && !(same(way, "scores") && scores <= MOST_BYTES));
    tensor * found = NULL;
    if (flash && b->devices == 0) found = own_attention(b, q, k, v, mask, scale, others, count);
    if (found == NULL) mask = sum_of_masks(b, mask, others, count);
    if (flash && b->devices > 0) found = device_attention(b, q, k, v, mask, scale);
    if (found == NULL) {
        found = scored_attention(b, q, k, v, mask, scale, scores);
        if (scores <= MOST_BYTES && (b->own != NULL || b->devices > 0)) take_way(b, key, "scores");
    } else {
        take_way(b, key, "flash");
    }
    return found;
}
