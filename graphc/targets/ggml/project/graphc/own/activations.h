#pragma once

// Functions of each element of a result, several at a time: by themselves, times another tensor if there is one, or on the way out of what
// makes the result.

#include "turns.h"

#ifdef __cplusplus
extern "C" {
#endif

enum graphc_activation_function {
    GRAPHC_NO_ACTIVATION,
    GRAPHC_RELU,        // NaN for NaN
    GRAPHC_GELU,        // by the error function
    GRAPHC_SWISH,       // x sigmoid(a x)
    GRAPHC_GATE,        // x sigmoid(a x + b x^3)
    GRAPHC_SIGMOID,
    GRAPHC_HARD_SWISH,  // x min(max((x + 3) / 6, 0), 1)
    GRAPHC_CLIP,        // min(max(x, a), b)
    GRAPHC_LEAKY_RELU,  // a x where x is negative
    GRAPHC_TANH,
    GRAPHC_ELU,         // exp(x) - 1 where x is negative
    GRAPHC_EXP,
    GRAPHC_SIN,
    GRAPHC_COS,
    GRAPHC_MISH,        // x tanh(log(1 + exp(x)))
    GRAPHC_LOG,   // this and the next only by themselves
    GRAPHC_SQRT,
};

/// A function, and the numbers that it takes.
struct graphc_activation {
    enum graphc_activation_function function;
    float a, b;
};

/// True if `graphc_activate` computes what it says for this tensor.
GRAPHC_API bool graphc_takes_activation(const struct ggml_tensor * x);

/// The function that its userdata says, of src[0], times src[1] if it is there.
GRAPHC_API void graphc_activate(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
