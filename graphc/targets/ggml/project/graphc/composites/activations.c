// Activations, times another tensor: in one step of ours, or of the device's.

#include "../composite.h"

typedef struct ggml_tensor * two_operands(struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *);

struct ggml_tensor * graphc_build_relu(struct graphc_builder * b, struct ggml_tensor * x) {
    if (b->own == NULL || !b->own->takes_activation(x)) return b->ggml->relu(b->context, x);
    return computed(b, b->own->relu, NULL, x->ne, &x, 1);
}

/// An activation of ours, and what it is multiplied with.
static struct ggml_tensor * activated(struct graphc_builder * b, ggml_custom_op_t function, void * settings, struct ggml_tensor * x,
                                      struct ggml_tensor * other) {
    struct ggml_tensor * sources[] = {x, other};
    const bool both = other != NULL && b->ggml->are_same_shape(x, other) && b->own->takes_activation(other);
    struct ggml_tensor * found = computed(b, function, settings, x->ne, sources, both ? 2 : 1);
    return times(b, found, both ? NULL : other);
}

/// An activation and what it is multiplied with in one step of a device; NULL where it has none.
static struct ggml_tensor * split(struct graphc_builder * b, two_operands * function, struct ggml_tensor * x, struct ggml_tensor * other) {
    const struct graphc_ggml * ggml = b->ggml;
    if (b->devices == 0 || other == NULL || !ggml->are_same_shape(x, other) || !ggml->is_contiguous(x) || !ggml->is_contiguous(other)) return NULL;
    struct ggml_tensor * found = function(b->context, x, other);
    return is_supported(b, found) ? found : NULL;
}

struct ggml_tensor * graphc_build_gelu(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other) {
    if (b->own != NULL && b->own->takes_activation(x)) return activated(b, b->own->gelu, NULL, x, other);
    struct ggml_tensor * found = split(b, b->ggml->geglu_erf_split, x, other);
    if (found != NULL) return found;
    return times(b, b->ggml->gelu_erf(b->context, x), other);
}

/// x sigmoid(linear x + cubic x^3) by our code, times another tensor.
static struct ggml_tensor * gated(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other, float linear, float cubic) {
    struct graphc_gate_settings * settings = (struct graphc_gate_settings *) keep(b, sizeof *settings);
    if (settings == NULL) return NULL;
    settings->linear = linear, settings->cubic = cubic;
    return activated(b, b->own->gate, settings, x, other);
}

struct ggml_tensor * graphc_build_silu(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other) {
    if (b->own != NULL && b->own->takes_activation(x)) return gated(b, x, other, 1, 0);
    struct ggml_tensor * found = split(b, b->ggml->swiglu_split, x, other);
    if (found != NULL) return found;
    return times(b, b->ggml->silu(b->context, x), other);
}

struct ggml_tensor * graphc_build_gate(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other, float linear, float cubic) {
    if (b->own != NULL && b->own->takes_activation(x)) return gated(b, x, other, linear, cubic);
    const struct graphc_ggml * ggml = b->ggml;
    struct ggml_tensor * bent = NULL;
    if (cubic == 0) {
        bent = ggml->scale(b->context, x, linear);
    } else {
        bent = ggml->mul(b->context, ggml->scale_bias(b->context, ggml->sqr(b->context, x), cubic, linear), x);
    }
    return times(b, ggml->mul(b->context, ggml->sigmoid(b->context, bent), x), other);
}
