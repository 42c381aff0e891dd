#pragma once

// Matrix products, convolutions, attention, normalizations, activations, rotary embeddings and copies of float32 on the
// CPU, in place of ggml's own: custom operators for its graphs.

#include "ggml.h"

#include <stdbool.h>

/// How functions are seen from outside. Not at all (`static`) where a file has all of the code and gives a table of it: `variant.c`.
#ifndef GRAPHC_API
#define GRAPHC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum { GRAPHC_RANGES = 16 };

/// How the threads share the work of an operator: each takes the next unit of a range of its own, so that it finds what it made itself in
/// the operator before; then of others, so that nobody waits for a thread that other programs hold up. 0 before and after a run. Every
/// operator in a graph has one of its own.
struct graphc_turns {
    struct {
        int next, apart[15];  // lines of the cache
    } ranges[GRAPHC_RANGES];
    int finished;
};

/// The settings of a convolution: its userdata. With `relu`, what is negative in the end becomes 0. `types` is what
/// `ggml_get_type_traits` has for the kernel.
struct graphc_conv_2d_settings {
    int s0, s1, p0, p1, d0, d1, relu;
    const struct ggml_type_traits * types;
    struct graphc_turns turns;
};

/// The settings of a product: its userdata. `types` is what `ggml_get_type_traits` has for src[0].
struct graphc_mul_mat_settings {
    int relu;
    const struct ggml_type_traits * types;
    struct graphc_turns turns;
};

/// True if `graphc_mul_mat` computes the product of these two tensors, faster or more exactly than ggml does: `a` may be of any type
/// that can be read as float32, `b` stays as it is.
GRAPHC_API bool graphc_takes_mul_mat(const struct ggml_tensor * a, const struct ggml_tensor * b,
                                     const struct graphc_mul_mat_settings * settings);

/// What `ggml_mul_mat` gives for src[0] and src[1], plus src[2] and all behind it (see `graphc_takes_sum`).
GRAPHC_API void graphc_mul_mat(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// True if `graphc_conv_2d` computes the convolution of this kernel and image.
GRAPHC_API bool graphc_takes_conv_2d(const struct ggml_tensor * kernel, const struct ggml_tensor * image,
                                     const struct graphc_conv_2d_settings * settings);

/// What `ggml_conv_2d` gives for the kernel src[0], the image src[1] and the settings, plus src[2] and all behind it.
GRAPHC_API void graphc_conv_2d(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// True if `graphc_winograd` computes the convolution of this kernel and image, and does not take too much memory for it.
GRAPHC_API bool graphc_takes_winograd(const struct ggml_tensor * kernel, const struct ggml_tensor * image,
                                      const struct graphc_conv_2d_settings * settings);

/// True if it is then taken for faster than `graphc_conv_2d`, unless that was measured.
GRAPHC_API bool graphc_prefers_winograd(const struct ggml_tensor * kernel, const struct ggml_tensor * image,
                                        const struct graphc_conv_2d_settings * settings);

/// Elements of the tensor that `graphc_winograd_operands` makes: the transformed kernel of a large image, the transformed images if they
/// are small, and workspace to work for so many threads.
GRAPHC_API int64_t graphc_winograd_size(const struct ggml_tensor * kernel, const struct ggml_tensor * image,
                                        const struct graphc_conv_2d_settings * settings, int threads);

/// Transforms what is transformed before: of the kernel src[0] and the image src[1].
GRAPHC_API void graphc_winograd_operands(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// As `graphc_conv_2d`, for the image src[0], what `graphc_winograd_operands` made, src[1], and the kernel src[2].
GRAPHC_API void graphc_winograd(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// True if a tensor can be added to a product, or to a convolution's image, on the way: it is float32 and broadcasts to it.
GRAPHC_API bool graphc_takes_sum(const struct ggml_tensor * sum, const struct ggml_tensor * result, bool image);

/// True if `graphc_attention` computes the attention of these. `v` is transposed: its rows are its elements along all keys; they
/// may lie one after the other, or the elements of a key.
GRAPHC_API bool graphc_takes_attention(const struct ggml_tensor * k, const struct ggml_tensor * q, const struct ggml_tensor * v,
                                       const struct ggml_tensor * mask);

/// True if it is then taken for faster than two products with a softmax between, unless that was measured.
GRAPHC_API bool graphc_prefers_attention(const struct ggml_tensor * q);

/// The settings of attention: its userdata.
struct graphc_attention_settings {
    float factor;
    struct graphc_turns turns;
};

/// softmax(k q * factor + mask) v, for src[0] to src[3] (no mask: NULL); the results of all heads for a query lie one after the other.
GRAPHC_API void graphc_attention(struct ggml_tensor * dst, int ith, int nth, void * userdata);

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

/// The settings of a group normalization: its userdata.
struct graphc_group_norm_settings {
    int groups;
    float epsilon;
    int silu;
};

/// True if `graphc_group_norm` computes the normalization of `x` with a scale and a shift for each channel.
GRAPHC_API bool graphc_takes_group_norm(const struct ggml_tensor * x, const struct ggml_tensor * scale,
                                        const struct ggml_tensor * shift, int groups);

/// What `ggml_group_norm` gives for src[0], times src[1], plus src[2], and `ggml_silu` of that if the settings say so.
GRAPHC_API void graphc_group_norm(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// The settings of a normalization of rows: its userdata.
struct graphc_norm_settings {
    float epsilon;
    int centered;  // else the mean is taken for 0
};

/// True if `graphc_norm` normalizes the rows of `x`, and whether it can multiply them by `factor`, or add it.
GRAPHC_API bool graphc_takes_norm(const struct ggml_tensor * x);
GRAPHC_API bool graphc_takes_factor(const struct ggml_tensor * factor, const struct ggml_tensor * x);

/// What `ggml_norm`, or `ggml_rms_norm`, gives for src[0], times src[1] if it is there, plus src[2] if it is there.
GRAPHC_API void graphc_norm(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// The settings of a rotary embedding: its userdata.
struct graphc_rotary_settings {
    int interleaved;  // pairs are neighbours; else the elements at one place of the two halves of a row
};

/// True if `graphc_rotary` computes x times `cos`, plus x with the elements of each pair exchanged times `sin`; and whether it can
/// have `rest` behind the rows of that.
GRAPHC_API bool graphc_takes_rotary(const struct ggml_tensor * x, const struct ggml_tensor * cos, const struct ggml_tensor * sin);
GRAPHC_API bool graphc_takes_rest(const struct ggml_tensor * rest, const struct ggml_tensor * x);

/// The rows of src[0], rotated by src[1] and src[2], and behind each a row of src[3] if it is there.
GRAPHC_API void graphc_rotary(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// The settings of a concatenation: its userdata.
struct graphc_concat_settings {
    int axis;
};

/// True if `graphc_concat` joins a tensor to others, faster than ggml does.
GRAPHC_API bool graphc_takes_concat(const struct ggml_tensor * part);

/// All sources, joined along an axis.
GRAPHC_API void graphc_concat(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// The settings of zeros around a tensor: its userdata.
struct graphc_pad_settings {
    int before[4];
};

/// True if `graphc_pad` puts zeros around a tensor, faster than ggml does.
GRAPHC_API bool graphc_takes_pad(const struct ggml_tensor * x);

/// What `ggml_pad_ext` gives for src[0].
GRAPHC_API void graphc_pad(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// True if `graphc_permuted_copy` copies a tensor of which the first axis is not the one along which elements lie one after the other.
GRAPHC_API bool graphc_takes_permuted_copy(const struct ggml_tensor * x);

/// What `ggml_cont` gives for src[0].
GRAPHC_API void graphc_permuted_copy(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
