// Images of another size, and the means of their windows, by our own code where it is faster.

#include "../composite.h"

/// Images whose channels are the innermost axis as planes, and back.
static tensor * as_planes(builder * b, tensor * x) { return b->ggml->cont(b->context, b->ggml->permute(b->context, x, 2, 0, 1, 3)); }
static tensor * from_planes(builder * b, tensor * x) { return b->ggml->cont(b->context, b->ggml->permute(b->context, x, 1, 2, 0, 3)); }

/// True if an image has twice as many pixels along its lines as another, and twice as many lines.
static bool is_twice(const tensor * image, const tensor * source, bool last) {
    const int64_t * to = image->ne, * from = source->ne;
    return to[last] == 2 * from[last] && to[1 + last] == 2 * from[1 + last] && to[last ? 0 : 2] == from[last ? 0 : 2] && to[3] == from[3];
}

tensor * graphc_build_upscale(builder * b, tensor * x, int ne0, int ne1, int ne2, int ne3, int mode, bool last) {
    const int64_t ne[] = {ne0, ne1, ne2, ne3};
    if (mode == GGML_SCALE_MODE_NEAREST) {
        tensor * found = b->own != NULL && b->own->takes_upscale(x) ? computed(b, b->own->upscale, NULL, 0, ne, &x, 1) : NULL;
        if (found != NULL) return is_twice(found, x, last) ? derived_from(b, &b->doubled, found, x, NULL, false) : found;
        return b->ggml->interpolate(b->context, x, ne0, ne1, ne2, ne3, (uint32_t) mode);
    }
    const struct graphc_interpolate_settings settings = {last};
    if (b->own != NULL && b->own->takes_interpolate(x, ne, last)) return computed(b, b->own->interpolate, &settings, sizeof settings, ne, &x, 1);
    if (!last) return b->ggml->interpolate(b->context, x, ne0, ne1, ne2, ne3, (uint32_t) mode);
    return from_planes(b, b->ggml->interpolate(b->context, as_planes(b, x), ne1, ne2, ne0, ne3, (uint32_t) mode));
}

tensor * graphc_build_average_pool(builder * b, tensor * x, int k0, int k1, int s0, int s1, float p0, float p1, bool last) {
    if (b->own == NULL || !b->own->takes_average_pool(x)) {
        if (!last) return b->ggml->pool_2d(b->context, x, GGML_OP_POOL_AVG, k0, k1, s0, s1, p0, p1);
        return from_planes(b, b->ggml->pool_2d(b->context, as_planes(b, x), GGML_OP_POOL_AVG, k0, k1, s0, s1, p0, p1));
    }
    const struct graphc_average_pool_settings settings = {{k0, k1}, {s0, s1}, {(int) p0, (int) p1}, last};
    int64_t ne[] = {x->ne[0], x->ne[1], x->ne[2], x->ne[3]};
    ne[last] = (ne[last] + 2 * settings.pads[0] - k0) / s0 + 1;
    ne[1 + last] = (ne[1 + last] + 2 * settings.pads[1] - k1) / s1 + 1;
    return computed(b, b->own->average_pool, &settings, sizeof settings, ne, &x, 1);
}
