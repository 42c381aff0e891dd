#pragma once

// Matrix products of float32, with what is added to them.

#include "activations.h"
#include "panels.h"

#ifdef __cplusplus
extern "C" {
#endif

/// True if this code can multiply pairs of bfloat16 by an instruction.
GRAPHC_API bool graphc_multiplies_pairs(void);

/// True if the processor has a matrix unit that this code multiplies with (`parts.h`).
GRAPHC_API bool graphc_multiplies_tiles(void);

/// The settings of a product: its userdata. With `pairs`, both operands are rounded to bfloat16 (not where there are few rows).
/// `types` is what `ggml_get_type_traits` has for src[0], and `scaled` is 1 if src[2] has a scale for each block of its rows, [N, blocks],
/// and 2 if src[3] has what is added to each block's elements before. If it is `gated`, src[2] has what the rows of each matrix of src[1]
/// are multiplied with.
struct graphc_mul_mat_settings {
    int scaled;
    bool gated;
    struct graphc_activation activation;
    bool pairs;
    const struct ggml_type_traits * types;
    struct graphc_panels * panels;
    struct graphc_turns turns;
};

/// True if `graphc_mul_mat` computes the product of these two tensors, faster or more exactly than ggml does: `a` may be of any type
/// that can be read as float32, `b` stays as it is.
GRAPHC_API bool graphc_takes_mul_mat(const struct ggml_tensor * a, const struct ggml_tensor * b,
                                     const struct graphc_mul_mat_settings * settings);

/// True if `graphc_mul_mat` multiplies these rows with a gate: a vector for each matrix of them.
GRAPHC_API bool graphc_takes_gate(const struct ggml_tensor * gate, const struct ggml_tensor * b);

/// What `ggml_mul_mat` gives for src[0] and src[1], plus src[2], or what is behind the scales or the gate, and all behind it (see
/// `graphc_takes_sum`).
GRAPHC_API void graphc_mul_mat(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// True if a tensor can be added to a product, or to a convolution's image, on the way: it is float32 and broadcasts to it.
GRAPHC_API bool graphc_takes_sum(const struct ggml_tensor * sum, const struct ggml_tensor * result, bool image);

#ifdef __cplusplus
}
#endif
