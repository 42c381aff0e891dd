// Normalizations with their scale and shift, in one step of ours.

#include "../composite.h"

static tensor * norm_of_rows(builder * b, tensor * x, tensor * scale, tensor * shift, float epsilon, enum graphc_norm_divisor by) {
    tensor * found = NULL;
    if (b->own != NULL && b->own->takes_norm(x)) {
        const struct graphc_norm_settings settings = {epsilon, by};
        tensor * sources[3] = {x};
        int count = 1;
        if (scale != NULL && b->own->takes_factor(scale, x)) {
            sources[count++] = scale, scale = NULL;
            if (shift != NULL && b->own->takes_factor(shift, x)) sources[count++] = shift, shift = NULL;
        }
        found = computed(b, b->own->norm, &settings, sizeof settings, x->ne, sources, count);
    } else if (by == GRAPHC_DEVIATION) {
        found = b->ggml->norm(b->context, x, epsilon);
    } else if (by == GRAPHC_ROOT_MEAN_SQUARE) {
        found = b->ggml->rms_norm(b->context, x, epsilon);
    } else {
        found = b->ggml->l2_norm(b->context, b->ggml->is_contiguous(x) ? x : graphc_build_copy(b, x), epsilon);
    }
    return plus(b, times(b, found, scale), shift);
}

tensor * graphc_build_layer_norm(builder * b, tensor * x, tensor * scale, tensor * shift, float epsilon) {
    return norm_of_rows(b, x, scale, shift, epsilon, GRAPHC_DEVIATION);
}

tensor * graphc_build_rms_norm(builder * b, tensor * x, tensor * scale, tensor * shift, float epsilon) {
    return norm_of_rows(b, x, scale, shift, epsilon, GRAPHC_ROOT_MEAN_SQUARE);
}

tensor * graphc_build_l2_norm(builder * b, tensor * x, float least) { return norm_of_rows(b, x, NULL, NULL, least, GRAPHC_LENGTH); }

tensor * graphc_build_group_norm(builder * b, tensor * x, tensor * scale, tensor * shift, int groups, float epsilon, bool silu) {
    scale = along_channels(b, scale), shift = along_channels(b, shift);
    if (b->own != NULL && scale != NULL && shift != NULL && b->own->takes_group_norm(x, scale, shift, groups)) {
        const struct graphc_group_norm_settings settings = {groups, epsilon, silu};
        tensor * sources[] = {x, scale, shift};
        tensor * found = computed(b, b->own->group_norm, &settings, sizeof settings, x->ne, sources, 3);
        if (!b->pairs) return found;
        const int64_t size[] = {3, x->ne[2], x->ne[3], 1};
        tensor * terms = computed(b, b->own->group_norm_terms, &settings, sizeof settings, size, sources, 3);
        return terms == NULL ? NULL : derived_from(b, &b->normalized, found, x, terms, silu);
    }
    tensor * found = plus(b, times(b, b->ggml->group_norm(b->context, x, groups, epsilon), scale), shift);
    return silu ? graphc_build_silu(b, found, NULL) : found;
}
