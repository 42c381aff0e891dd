#pragma once

// Activations of float32, several elements at a time, times another tensor if there is one.

#include "turns.h"

#ifdef __cplusplus
extern "C" {
#endif

/// True if the functions below compute what they say for this tensor.
GRAPHC_API bool graphc_takes_activation(const struct ggml_tensor * x);

/// ReLU of src[0] as `ggml_relu` gives it, but NaN for NaN.
GRAPHC_API void graphc_relu(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// What `ggml_gelu_erf` gives for src[0], times src[1] if it is there.
GRAPHC_API void graphc_gelu(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// The settings of a gate: its userdata.
struct graphc_gate_settings {
    float linear, cubic;
};

/// x sigmoid(linear x + cubic x^3) for src[0], times src[1] if it is there: SiLU, and two approximations of GELU.
GRAPHC_API void graphc_gate(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
