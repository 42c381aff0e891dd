// Activations, times another tensor: in one step of ours, or of the device's.

#include "../composite.h"

typedef struct ggml_tensor * one_operand(struct ggml_context *, struct ggml_tensor *);
typedef struct ggml_tensor * two_operands(struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *);

/// An activation by our code, and what it is multiplied with; NULL where our code does not compute it.
static struct ggml_tensor * by_ours(struct graphc_builder * b, enum graphc_activation_function function, float first, float second,
                                    struct ggml_tensor * x, struct ggml_tensor * other) {
    if (b->own == NULL || !b->own->takes_activation(x)) return NULL;
    const struct graphc_activation how = {function, first, second};
    struct ggml_tensor * sources[] = {x, other};
    const bool both = other != NULL && b->ggml->are_same_shape(x, other) && b->own->takes_activation(other);
    struct ggml_tensor * found = computed(b, b->own->activate, &how, sizeof how, x->ne, sources, both ? 2 : 1);
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

struct ggml_tensor * graphc_build_relu(struct graphc_builder * b, struct ggml_tensor * x) {
    struct ggml_tensor * found = by_ours(b, GRAPHC_RELU, 0, 0, x, NULL);
    return found != NULL ? found : b->ggml->relu(b->context, x);
}

struct ggml_tensor * graphc_build_sigmoid(struct graphc_builder * b, struct ggml_tensor * x) {
    struct ggml_tensor * found = by_ours(b, GRAPHC_SIGMOID, 0, 0, x, NULL);
    return found != NULL ? found : b->ggml->sigmoid(b->context, x);
}

struct ggml_tensor * graphc_build_hard_swish(struct graphc_builder * b, struct ggml_tensor * x) {
    struct ggml_tensor * found = by_ours(b, GRAPHC_HARD_SWISH, 0, 0, x, NULL);
    return found != NULL ? found : b->ggml->hardswish(b->context, x);
}

struct ggml_tensor * graphc_build_gelu(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other) {
    struct ggml_tensor * found = by_ours(b, GRAPHC_GELU, 0, 0, x, other);
    return found != NULL ? found : by_ggml(b, b->ggml->geglu_erf_split, b->ggml->gelu_erf, x, other);
}

struct ggml_tensor * graphc_build_silu(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other) {
    struct ggml_tensor * found = by_ours(b, GRAPHC_SWISH, 1, 0, x, other);
    return found != NULL ? found : by_ggml(b, b->ggml->swiglu_split, b->ggml->silu, x, other);
}

struct ggml_tensor * graphc_build_gate(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other, float linear, float cubic) {
    struct ggml_tensor * found = by_ours(b, cubic == 0 ? GRAPHC_SWISH : GRAPHC_GATE, linear, cubic, x, other);
    if (found != NULL) return found;
    const struct graphc_ggml * ggml = b->ggml;
    struct ggml_tensor * bent = NULL;
    if (cubic == 0) {
        bent = ggml->scale(b->context, x, linear);
    } else {
        bent = ggml->mul(b->context, ggml->scale_bias(b->context, ggml->sqr(b->context, x), cubic, linear), x);
    }
    return times(b, ggml->mul(b->context, ggml->sigmoid(b->context, bent), x), other);
}

/// A thread's share of what ggml has no function for.
static void activate_one_by_one(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const struct graphc_activation * how = (const struct graphc_activation *) userdata;
    const int64_t count = dst->ne[0] * dst->ne[1] * dst->ne[2] * dst->ne[3];
    const float * x = (const float *) dst->src[0]->data;
    float * y = (float *) dst->data;
    for (int64_t i = count * ith / nth; i < count * (ith + 1) / nth; ++i) {
        if (how->function == GRAPHC_LEAKY_RELU) y[i] = x[i] < 0 ? x[i] * how->a : x[i];
        else y[i] = x[i] <= how->a ? how->a : x[i] >= how->b ? how->b : x[i];
    }
}

/// What an activation makes of a result, in a step of its own: as the composite of its name does, if it is one.
static struct ggml_tensor * with_activation(struct graphc_builder * b, struct ggml_tensor * x, const struct graphc_activation * how) {
    if (x == NULL || how == NULL) return x;
    switch (how->function) {
        case GRAPHC_RELU: return graphc_build_relu(b, x);
        case GRAPHC_SIGMOID: return graphc_build_sigmoid(b, x);
        case GRAPHC_HARD_SWISH: return graphc_build_hard_swish(b, x);
        case GRAPHC_GELU: return graphc_build_gelu(b, x, NULL);
        case GRAPHC_SWISH: return how->a == 1 ? graphc_build_silu(b, x, NULL) : graphc_build_gate(b, x, NULL, how->a, 0);
        case GRAPHC_GATE: return graphc_build_gate(b, x, NULL, how->a, how->b);
        default: break;
    }
    struct ggml_tensor * found = by_ours(b, how->function, how->a, how->b, x, NULL);
    return found != NULL ? found : computed(b, activate_one_by_one, how, sizeof *how, x->ne, &x, 1);
}
