// Activations, times another tensor: in one step of ours, or of the device's.

#include "../composite.h"

typedef struct ggml_tensor * one_operand(struct ggml_context *, struct ggml_tensor *);
typedef struct ggml_tensor * two_operands(struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *);

static bool is_ours(const struct graphc_builder * b, const struct ggml_tensor * x) { return b->own != NULL && b->own->takes_activation(x); }

struct ggml_tensor * graphc_build_relu(struct graphc_builder * b, struct ggml_tensor * x) {
    return is_ours(b, x) ? computed(b, b->own->relu, NULL, 0, x->ne, &x, 1) : b->ggml->relu(b->context, x);
}

/// An activation of ours, and what it is multiplied with.
static struct ggml_tensor * by_ours(struct graphc_builder * b, ggml_custom_op_t function, const struct graphc_gate_settings * settings,
                                    struct ggml_tensor * x, struct ggml_tensor * other) {
    struct ggml_tensor * sources[] = {x, other};
    const bool both = other != NULL && b->ggml->are_same_shape(x, other) && b->own->takes_activation(other);
    struct ggml_tensor * found = computed(b, function, settings, settings == NULL ? 0 : sizeof *settings, x->ne, sources, both ? 2 : 1);
    return times(b, found, both ? NULL : other);
}

/// An activation of ggml's, and what it is multiplied with: in one step where there is a device that has it.
static struct ggml_tensor * by_ggml(struct graphc_builder * b, two_operands * split, one_operand * alone, struct ggml_tensor * x,
                                    struct ggml_tensor * other) {
    const struct graphc_ggml * ggml = b->ggml;
    if (b->devices > 0 && other != NULL && ggml->are_same_shape(x, other) && ggml->is_contiguous(x) && ggml->is_contiguous(other)) {
        struct ggml_tensor * found = split(b->context, x, other);
        if (is_supported(b, found)) return found;
    }
    return times(b, alone(b->context, x), other);
}

struct ggml_tensor * graphc_build_gelu(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other) {
    if (is_ours(b, x)) return by_ours(b, b->own->gelu, NULL, x, other);
    return by_ggml(b, b->ggml->geglu_erf_split, b->ggml->gelu_erf, x, other);
}

struct ggml_tensor * graphc_build_silu(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other) {
    if (is_ours(b, x)) return graphc_build_gate(b, x, other, 1, 0);
    return by_ggml(b, b->ggml->swiglu_split, b->ggml->silu, x, other);
}

struct ggml_tensor * graphc_build_gate(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other, float linear, float cubic) {
    const struct graphc_gate_settings settings = {linear, cubic};
    if (is_ours(b, x)) return by_ours(b, b->own->gate, &settings, x, other);
    const struct graphc_ggml * ggml = b->ggml;
    struct ggml_tensor * bent = NULL;
    if (cubic == 0) {
        bent = ggml->scale(b->context, x, linear);
    } else {
        bent = ggml->mul(b->context, ggml->scale_bias(b->context, ggml->sqr(b->context, x), cubic, linear), x);
    }
    return times(b, ggml->mul(b->context, ggml->sigmoid(b->context, bent), x), other);
}
