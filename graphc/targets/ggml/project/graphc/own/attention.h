#pragma once

// Attention of float32 without a matrix of scores.

#include "turns.h"

#ifdef __cplusplus
extern "C" {
#endif

/// True if `graphc_attention` computes the attention of these. `v` is transposed: its rows are its elements along all keys; they
/// may lie one after the other, or the elements of a key.
GRAPHC_API bool graphc_takes_attention(const struct ggml_tensor * k, const struct ggml_tensor * q, const struct ggml_tensor * v);

/// True if it is then taken for faster than two products with a softmax between, unless that was measured.
GRAPHC_API bool graphc_prefers_attention(const struct ggml_tensor * q);

/// The settings of attention: its userdata. With `pairs`, what both products multiply is rounded to bfloat16, where heads are small.
struct graphc_attention_settings {
    float factor;
    bool pairs;
    struct graphc_turns turns;
};

/// softmax(k q * factor + masks) v, for src[0] to src[2] and all masks behind them; the results of all heads for a query lie one after the
/// other.
GRAPHC_API void graphc_attention(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
