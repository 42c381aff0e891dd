// Activations, by themselves or times another tensor.

#include "activations.h"

#include "activate.h"

bool graphc_takes_activation(const struct ggml_tensor * x) { return is_dense(x); }

void graphc_activate(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const int64_t count = elements(dst), vectors = parts_of(count, WIDTH);
    const int64_t first = vectors * ith / nth * WIDTH, end = min_of(vectors * (ith + 1) / nth * WIDTH, count);
    const float * x = dst->src[0]->data, * other = dst->src[1] == NULL ? NULL : dst->src[1]->data;
    if (first < end) activate(userdata, x + first, other == NULL ? NULL : other + first, end - first, (float *) dst->data + first);
}
