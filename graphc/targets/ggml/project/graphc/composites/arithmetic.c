// Sums, differences, products and quotients of two tensors, sums and means of rows and over them, and softmax.

#include "../composite.h"

/// The tensor, with its elements in order: a copy by our code is faster than sums of elements that lie apart.
static tensor * rows_in_order(builder * b, tensor * x) {
    return x->nb[0] == sizeof(float) || x->ne[0] == 1 ? x : graphc_build_copy(b, x);
}

static tensor * broadcast(builder * b, tensor * x, tensor * other, enum graphc_arithmetic what) {
    if (b->own != NULL && x->type == GGML_TYPE_F32 && other->type == GGML_TYPE_F32) {
        x = rows_in_order(b, x), other = rows_in_order(b, other);
        const struct graphc_arithmetic_settings settings = {what, false};
        tensor * sources[] = {x, other};
        if (b->own->takes_broadcast(x, other)) return computed(b, b->own->broadcast, &settings, sizeof settings, x->ne, sources, 2);
    }
    switch (what) {
        case GRAPHC_DIFFERENCE: return b->ggml->sub(b->context, x, other);
        case GRAPHC_PRODUCT: return b->ggml->mul(b->context, x, other);
        case GRAPHC_QUOTIENT: return b->ggml->div(b->context, x, other);
        default: return b->ggml->add(b->context, x, other);
    }
}

tensor * graphc_build_add(builder * b, tensor * x, tensor * other) { return broadcast(b, x, other, GRAPHC_SUM); }
tensor * graphc_build_sub(builder * b, tensor * x, tensor * other) { return broadcast(b, x, other, GRAPHC_DIFFERENCE); }
tensor * graphc_build_mul(builder * b, tensor * x, tensor * other) { return broadcast(b, x, other, GRAPHC_PRODUCT); }
tensor * graphc_build_div(builder * b, tensor * x, tensor * other) { return broadcast(b, x, other, GRAPHC_QUOTIENT); }

tensor * graphc_build_scaled_sum(builder * b, tensor * x, tensor * factor, const struct graphc_activation * activation, tensor ** sums, int count) {
    tensor * sources[GGML_MAX_SRC], * all[GGML_MAX_SRC];
    int read = 0;
    bool own = b->own != NULL;
    all[read++] = x;
    if (factor != NULL) all[read++] = factor;
    for (int i = 0; i < count; ++i) all[read++] = sums[i];
    tensor result = *x;
    for (int i = 0; i < read; ++i) {
        for (int axis = 0; axis < 4; ++axis) result.ne[axis] = all[i]->ne[axis] == 1 ? result.ne[axis] : all[i]->ne[axis];
    }
    const int64_t * ne = result.ne;
    for (int i = 0; i < read && own; ++i) {
        sources[i] = all[i]->type == GGML_TYPE_F32 ? rows_in_order(b, all[i]) : all[i];
        own = b->own->takes_broadcast(&result, sources[i]);
    }
    if (own) {
        struct graphc_scaled_sum_settings settings;
        memset(&settings, 0, sizeof settings);
        settings.scaled = factor != NULL;
        if (activation != NULL) settings.activation = *activation;
        return computed(b, b->own->scaled_sum, &settings, sizeof settings, ne, sources, read);
    }
    if (!b->ggml->are_same_shape(x, &result)) x = graphc_build_repeat(b, x, (int) ne[0], (int) ne[1], (int) ne[2], (int) ne[3]);
    tensor * found = times(b, x, factor);
    for (int i = 0; i < count; ++i) found = plus(b, found, sums[i]);
    return found == NULL || activation == NULL ? found : with_activation(b, *activation, found, NULL);
}

static tensor * of_rows(builder * b, tensor * x, bool mean) {
    const struct graphc_arithmetic_settings settings = {GRAPHC_SUM, mean};
    const int64_t ne[] = {1, x->ne[1], x->ne[2], x->ne[3]};
    if (b->own != NULL && b->own->takes_sum_rows(x)) return computed(b, b->own->sum_rows, &settings, sizeof settings, ne, &x, 1);
    return (mean ? b->ggml->mean : b->ggml->sum_rows)(b->context, x);
}

tensor * graphc_build_sum_rows(builder * b, tensor * x) { return of_rows(b, x, false); }
tensor * graphc_build_mean(builder * b, tensor * x) { return of_rows(b, x, true); }

tensor * graphc_build_soft_max(builder * b, tensor * x) {
    if (b->own != NULL && b->own->takes_sum_rows(x)) return computed(b, b->own->soft_max, NULL, 0, x->ne, &x, 1);
    return b->ggml->soft_max(b->context, x);
}

static tensor * over_rows(builder * b, tensor * x, bool mean) {
    const struct graphc_arithmetic_settings settings = {GRAPHC_SUM, mean};
    const int64_t ne[] = {x->ne[0], 1, x->ne[2], x->ne[3]};
    if (b->own != NULL && b->own->takes_sum_over_rows(x)) return computed(b, b->own->sum_over_rows, &settings, sizeof settings, ne, &x, 1);
    tensor * turned = b->ggml->cont(b->context, b->ggml->permute(b->context, x, 1, 0, 2, 3));
    tensor * found = (mean ? b->ggml->mean : b->ggml->sum_rows)(b->context, turned);
    return b->ggml->reshape_4d(b->context, found, ne[0], ne[1], ne[2], ne[3]);
}

tensor * graphc_build_sum_over_rows(builder * b, tensor * x) { return over_rows(b, x, false); }
tensor * graphc_build_mean_over_rows(builder * b, tensor * x) { return over_rows(b, x, true); }
