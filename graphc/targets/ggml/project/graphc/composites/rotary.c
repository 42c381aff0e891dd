// Rotary embeddings, in one step of ours.

#include "../composite.h"

/// x with the elements of each pair exchanged: neighbours, or those at one place of the two halves of a row.
static tensor * exchanged(builder * b, tensor * x, bool interleaved) {
    const int64_t half = x->ne[0] / 2, rows = x->ne[1] * x->ne[2] * x->ne[3];
    tensor * pairs = x;
    if (interleaved) {
        tensor * together = b->ggml->is_contiguous(x) ? x : graphc_build_copy(b, x);
        pairs = b->ggml->reshape_4d(b->context, together, 2, half * rows, 1, 1);
    }
    const int64_t * ne = pairs->ne;
    const size_t * nb = pairs->nb;
    tensor * parts[2];
    for (int i = 0; i < 2; ++i) {
        const size_t offset = i == 0 ? (size_t) (ne[0] / 2) * nb[0] : 0;
        parts[i] = b->ggml->view_4d(b->context, pairs, ne[0] / 2, ne[1], ne[2], ne[3], nb[1], nb[2], nb[3], offset);
    }
    tensor * swapped = graphc_build_concat(b, 0, parts, 2);
    return interleaved ? b->ggml->reshape_4d(b->context, swapped, x->ne[0], x->ne[1], x->ne[2], x->ne[3]) : swapped;
}

tensor * graphc_build_rotary(builder * b, tensor * x, tensor * cos, tensor * sin, tensor * rest, bool interleaved) {
    tensor * found = NULL;
    if (b->own != NULL && b->own->takes_rotary(x, cos, sin)) {
        const struct graphc_rotary_settings settings = {interleaved};
        const bool all = rest != NULL && b->own->takes_rest(rest, x);
        tensor * sources[] = {x, cos, sin, rest};
        const int64_t ne[] = {x->ne[0] + (all ? rest->ne[0] : 0), x->ne[1], x->ne[2], x->ne[3]};
        found = computed(b, b->own->rotary, &settings, sizeof settings, ne, sources, all ? 4 : 3);
        if (found == NULL || all || rest == NULL) return found;
    } else {
        const struct graphc_ggml * ggml = b->ggml;
        tensor * rotated = ggml->mul(b->context, exchanged(b, x, interleaved), sin);
        found = ggml->add(b->context, ggml->mul(b->context, x, cos), rotated);
        if (rest == NULL) return found;
    }
    tensor * parts[] = {found, rest};
    return graphc_build_concat(b, 0, parts, 2);
}
