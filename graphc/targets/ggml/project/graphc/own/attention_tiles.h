#pragma once

// Attention by a matrix unit.

#include "attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/// True if the processor has a matrix unit, and its tiles are worth it for heads of such queries and values, rounded or not.
GRAPHC_API bool graphc_tiles_attention(int64_t depth, int64_t values, bool rounded);

/// Elements of the tensor that `graphc_attention_tiles` makes.
GRAPHC_API int64_t graphc_attention_tiles_size(const struct ggml_tensor * k, const struct ggml_tensor * v, bool rounded);

/// Splits the keys src[0] and the values src[1] into parts.
GRAPHC_API void graphc_attention_tiles(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// What `graphc_attention` computes, with what was made of keys and values in src[3], before the masks.
GRAPHC_API void graphc_attention_by_tiles(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
