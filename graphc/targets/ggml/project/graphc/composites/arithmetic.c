// Sums and products with what broadcasts, sums of rows, and means.

#include "../composite.h"

/// The tensor, with its elements in order: a copy by our code is faster than sums of elements that lie apart.
static struct ggml_tensor * rows_in_order(struct graphc_builder * b, struct ggml_tensor * x) {
    return x->nb[0] == sizeof(float) || x->ne[0] == 1 ? x : graphc_build_copy(b, x);
}

/// A sum or product by our code; NULL where that does not compute it.
static struct ggml_tensor * broadcast_by_ours(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other, bool product) {
    if (b->own == NULL || x->type != GGML_TYPE_F32 || other->type != GGML_TYPE_F32) return NULL;
    x = rows_in_order(b, x), other = rows_in_order(b, other);
    if (!b->own->takes_broadcast(x, other)) return (product ? b->ggml->mul : b->ggml->add)(b->context, x, other);
    const struct graphc_arithmetic_settings settings = {product, false};
    struct ggml_tensor * sources[] = {x, other};
    return computed(b, b->own->broadcast, &settings, sizeof settings, x->ne, sources, 2);
}

struct ggml_tensor * graphc_build_add(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other) {
    struct ggml_tensor * found = broadcast_by_ours(b, x, other, false);
    return found != NULL ? found : b->ggml->add(b->context, x, other);
}

struct ggml_tensor * graphc_build_mul(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other) {
    struct ggml_tensor * found = broadcast_by_ours(b, x, other, true);
    return found != NULL ? found : b->ggml->mul(b->context, x, other);
}

static struct ggml_tensor * rows_by_ours(struct graphc_builder * b, struct ggml_tensor * x, bool mean) {
    if (b->own == NULL || !b->own->takes_sum_rows(x)) return NULL;
    const struct graphc_arithmetic_settings settings = {false, mean};
    const int64_t ne[] = {1, x->ne[1], x->ne[2], x->ne[3]};
    return computed(b, b->own->sum_rows, &settings, sizeof settings, ne, &x, 1);
}

struct ggml_tensor * graphc_build_sum_rows(struct graphc_builder * b, struct ggml_tensor * x) {
    struct ggml_tensor * found = rows_by_ours(b, x, false);
    return found != NULL ? found : b->ggml->sum_rows(b->context, x);
}

struct ggml_tensor * graphc_build_mean(struct graphc_builder * b, struct ggml_tensor * x) {
    struct ggml_tensor * found = rows_by_ours(b, x, true);
    return found != NULL ? found : b->ggml->mean(b->context, x);
}

struct ggml_tensor * graphc_build_mean_over_rows(struct graphc_builder * b, struct ggml_tensor * x) {
    const int64_t ne[] = {x->ne[0], 1, x->ne[2], x->ne[3]};
    if (b->own != NULL && b->own->takes_mean_over_rows(x)) return computed(b, b->own->mean_over_rows, NULL, 0, ne, &x, 1);
    struct ggml_tensor * found = b->ggml->cont(b->context, b->ggml->permute(b->context, x, 1, 0, 2, 3));
    return b->ggml->reshape_4d(b->context, b->ggml->mean(b->context, found), ne[0], ne[1], ne[2], ne[3]);
}
