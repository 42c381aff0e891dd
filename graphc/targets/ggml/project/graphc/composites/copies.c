// Copies: contiguous, joined, repeated, with zeros around them, and in another type, by our own code where it is faster.

#include "../composite.h"

tensor * graphc_build_copy(builder * b, tensor * x) {
    if (b->own != NULL && b->own->takes_permuted_copy(x)) return computed_as(b, x->type, b->own->permuted_copy, NULL, 0, x->ne, &x, 1);
    if (b->own != NULL && b->own->takes_row_copy(x)) return computed_as(b, x->type, b->own->row_copy, NULL, 0, x->ne, &x, 1);
    return b->ggml->cont(b->context, x);
}

tensor * graphc_build_cast(builder * b, tensor * x, int type) {
    const enum ggml_type to = (enum ggml_type) type;
    if (b->own == NULL || !b->own->takes_cast(x, to)) return b->ggml->cast(b->context, x, to);
    const struct graphc_cast_settings settings = {b->ggml->get_type_traits(x->type), b->ggml->get_type_traits(to)};
    return computed_as(b, to, b->own->cast, &settings, sizeof settings, x->ne, &x, 1);
}

/// At most MOST_SOURCES tensors as one, or two.
static tensor * joined(builder * b, int axis, tensor ** parts, int count) {
    bool own = b->own != NULL;
    for (int i = 0; i < count; ++i) own = own && b->own->takes_concat(parts[i]);
    if (!own) {
        tensor * found = parts[0];
        for (int i = 1; i < count; ++i) found = b->ggml->concat(b->context, found, parts[i], axis);
        return found;
    }
    const struct graphc_concat_settings settings = {axis};
    int64_t ne[4];
    memcpy(ne, parts[0]->ne, sizeof ne);
    for (int i = 1; i < count; ++i) ne[axis] += parts[i]->ne[axis];
    return computed_as(b, parts[0]->type, b->own->concat, &settings, sizeof settings, ne, parts, count);
}

tensor * graphc_build_concat(builder * b, int axis, tensor ** parts, int count) {
    tensor * found = parts[0];
    for (int next = 1, more; next < count; next += more) {
        tensor * some[MOST_SOURCES] = {found};
        for (more = 0; more < MOST_SOURCES - 1 && next + more < count; ++more) some[1 + more] = parts[next + more];
        found = joined(b, axis, some, 1 + more);
    }
    return found;
}

tensor * graphc_build_repeat(builder * b, tensor * x, int ne0, int ne1, int ne2, int ne3) {
    if (b->own == NULL || !b->own->takes_repeat(x)) return b->ggml->repeat_4d(b->context, x, ne0, ne1, ne2, ne3);
    const int64_t ne[] = {ne0, ne1, ne2, ne3};
    return computed(b, b->own->repeat, NULL, 0, ne, &x, 1);
}

tensor * graphc_build_pad(builder * b, tensor * x, int before0, int behind0, int before1, int behind1, int before2, int behind2, int before3,
                          int behind3) {
    if (b->own == NULL || !b->own->takes_pad(x)) {
        return b->ggml->pad_ext(b->context, x, before0, behind0, before1, behind1, before2, behind2, before3, behind3);
    }
    const struct graphc_pad_settings settings = {{before0, before1, before2, before3}};
    const int behind[] = {behind0, behind1, behind2, behind3};
    int64_t ne[4];
    for (int i = 0; i < 4; ++i) ne[i] = x->ne[i] + settings.before[i] + behind[i];
    return computed(b, b->own->pad, &settings, sizeof settings, ne, &x, 1);
}
