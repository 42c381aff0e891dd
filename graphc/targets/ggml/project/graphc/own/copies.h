#pragma once

// Copies of float32: of tensors in another order, repeated, and with zeros around them; of rows of any type, joined tensors of any type, and
// bytes in another order; and in another type.

#include "turns.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The settings of a concatenation: its userdata.
struct graphc_concat_settings {
    int axis;
};

/// True if `graphc_concat` joins a tensor to others, faster than ggml does.
GRAPHC_API bool graphc_takes_concat(const struct ggml_tensor * part);

/// All sources, joined along an axis.
GRAPHC_API void graphc_concat(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// True if `graphc_repeat` repeats a tensor, faster than ggml does.
GRAPHC_API bool graphc_takes_repeat(const struct ggml_tensor * x);

/// What `ggml_repeat_4d` gives for src[0].
GRAPHC_API void graphc_repeat(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// The settings of zeros around a tensor: its userdata.
struct graphc_pad_settings {
    int before[4];
};

/// True if `graphc_pad` puts zeros around a tensor, faster than ggml does.
GRAPHC_API bool graphc_takes_pad(const struct ggml_tensor * x);

/// What `ggml_pad_ext` gives for src[0].
GRAPHC_API void graphc_pad(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// The settings of a copy in another type: its userdata. What `ggml_get_type_traits` has for the two types.
struct graphc_cast_settings {
    const struct ggml_type_traits * from, * to;
};

/// True if `graphc_cast` gives a tensor, of float32, float16 or bfloat16, another type, float32 or float16, faster than ggml does.
GRAPHC_API bool graphc_takes_cast(const struct ggml_tensor * x, enum ggml_type type);

/// What `ggml_cast` gives for src[0], and the type of dst.
GRAPHC_API void graphc_cast(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// True if `graphc_row_copy` copies a tensor whose rows are not one after the other.
GRAPHC_API bool graphc_takes_row_copy(const struct ggml_tensor * x);

/// What `ggml_cont` gives for src[0].
GRAPHC_API void graphc_row_copy(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// True if `graphc_permuted_copy` copies a tensor of which the first axis is not the one along which elements lie one after the other.
GRAPHC_API bool graphc_takes_permuted_copy(const struct ggml_tensor * x);

/// What `ggml_cont` gives for src[0].
GRAPHC_API void graphc_permuted_copy(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
