// Activations, times another tensor: in one step of ours, or of the device's.

#include "../composite.h"

#include <math.h>

typedef tensor * one_operand(struct ggml_context *, tensor *);
typedef tensor * two_operands(struct ggml_context *, tensor *, tensor *);

/// An activation of ggml's, and what it is multiplied with: in one step (`split`) where there is a device that has it.
static tensor * gated_by_ggml(builder * b, two_operands * split, one_operand * alone, tensor * x, tensor * other) {
    const struct graphc_ggml * ggml = b->ggml;
    if (b->devices > 0 && other != NULL && ggml->are_same_shape(x, other) && ggml->is_contiguous(x) && ggml->is_contiguous(other)) {
        tensor * found = split(b->context, x, other);
        if (is_supported(b, found)) return found;
    }
    return times(b, alone(b->context, x), other);
}

/// x tanh(log(1 + exp(x))).
static float mish_of(float x) {
    const float power = expf(x > 20 ? 20 : x), above = power * (power + 2);
    return x * (above / (above + 2));
}

/// A thread's share of what ggml has no function for.
static void activate_one_by_one(tensor * dst, int ith, int nth, void * userdata) {
    const struct graphc_activation * how = (const struct graphc_activation *) userdata;
    const int64_t count = dst->ne[0] * dst->ne[1] * dst->ne[2] * dst->ne[3];
    const float * x = (const float *) dst->src[0]->data;
    float * y = (float *) dst->data;
    for (int64_t i = count * ith / nth; i < count * (ith + 1) / nth; ++i) {
        if (how->function == GRAPHC_LEAKY_RELU) y[i] = x[i] < 0 ? x[i] * how->a : x[i];
        else if (how->function == GRAPHC_MISH) y[i] = mish_of(x[i]);
        else y[i] = x[i] <= how->a ? how->a : x[i] >= how->b ? how->b : x[i];
    }
}

/// What an activation makes of a tensor, and what that is multiplied with.
static tensor * with_activation(builder * b, struct graphc_activation how, tensor * x, tensor * other) {
    const struct graphc_ggml * ggml = b->ggml;
    if (b->own != NULL && b->own->takes_activation(x)) {
        tensor * sources[] = {x, other};
        const bool both = other != NULL && ggml->are_same_shape(x, other) && b->own->takes_activation(other);
        return times(b, computed(b, b->own->activate, &how, sizeof how, x->ne, sources, both ? 2 : 1), both ? NULL : other);
    }
    tensor * bent = NULL;
    switch (how.function) {
        case GRAPHC_RELU: return ggml->relu(b->context, x);
        case GRAPHC_SIGMOID: return ggml->sigmoid(b->context, x);
        case GRAPHC_HARD_SWISH: return ggml->hardswish(b->context, x);
        case GRAPHC_TANH: return ggml->tanh(b->context, x);
        case GRAPHC_ELU: return ggml->elu(b->context, x);
        case GRAPHC_EXP: return ggml->exp(b->context, x);
        case GRAPHC_SIN: return ggml->sin(b->context, x);
        case GRAPHC_COS: return ggml->cos(b->context, x);
        case GRAPHC_LOG: return ggml->log(b->context, x);
        case GRAPHC_SQRT: return ggml->sqrt(b->context, x);
        case GRAPHC_GELU: return gated_by_ggml(b, ggml->geglu_erf_split, ggml->gelu_erf, x, other);
        case GRAPHC_SWISH:
            if (how.a == 1) return gated_by_ggml(b, ggml->swiglu_split, ggml->silu, x, other);
            bent = ggml->scale(b->context, x, how.a);
            break;
        case GRAPHC_GATE: bent = ggml->mul(b->context, ggml->scale_bias(b->context, ggml->sqr(b->context, x), how.b, how.a), x); break;
        default: return computed(b, activate_one_by_one, &how, sizeof how, x->ne, &x, 1);
    }
    return times(b, ggml->mul(b->context, ggml->sigmoid(b->context, bent), x), other);
}

static tensor * by_function(builder * b, enum graphc_activation_function function, tensor * x, tensor * other, float first, float second) {
    const struct graphc_activation how = {function, first, second};
    return with_activation(b, how, x, other);
}

tensor * graphc_build_relu(builder * b, tensor * x) { return by_function(b, GRAPHC_RELU, x, NULL, 0, 0); }
tensor * graphc_build_sigmoid(builder * b, tensor * x) { return by_function(b, GRAPHC_SIGMOID, x, NULL, 0, 0); }
tensor * graphc_build_hard_swish(builder * b, tensor * x) { return by_function(b, GRAPHC_HARD_SWISH, x, NULL, 0, 0); }
tensor * graphc_build_tanh(builder * b, tensor * x) { return by_function(b, GRAPHC_TANH, x, NULL, 0, 0); }
tensor * graphc_build_elu(builder * b, tensor * x) { return by_function(b, GRAPHC_ELU, x, NULL, 0, 0); }
tensor * graphc_build_exp(builder * b, tensor * x) { return by_function(b, GRAPHC_EXP, x, NULL, 0, 0); }
tensor * graphc_build_sin(builder * b, tensor * x) { return by_function(b, GRAPHC_SIN, x, NULL, 0, 0); }
tensor * graphc_build_cos(builder * b, tensor * x) { return by_function(b, GRAPHC_COS, x, NULL, 0, 0); }
tensor * graphc_build_log(builder * b, tensor * x) { return by_function(b, GRAPHC_LOG, x, NULL, 0, 0); }
tensor * graphc_build_sqrt(builder * b, tensor * x) { return by_function(b, GRAPHC_SQRT, x, NULL, 0, 0); }
tensor * graphc_build_gelu(builder * b, tensor * x, tensor * other) { return by_function(b, GRAPHC_GELU, x, other, 0, 0); }
tensor * graphc_build_silu(builder * b, tensor * x, tensor * other) { return by_function(b, GRAPHC_SWISH, x, other, 1, 0); }
tensor * graphc_build_gate(builder * b, tensor * x, tensor * other, float linear, float cubic) {
    return by_function(b, cubic == 0 ? GRAPHC_SWISH : GRAPHC_GATE, x, other, linear, cubic);
}
