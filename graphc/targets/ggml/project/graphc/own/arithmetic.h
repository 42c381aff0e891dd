#pragma once

// Sums, differences, products and quotients of float32, of which the second operand may serve whole rows or planes of the first; sums of
// rows and over them, and softmax.

#include "activations.h"

#ifdef __cplusplus
extern "C" {
#endif

/// True if `graphc_broadcast` computes the sum of these two, or another function of them.
GRAPHC_API bool graphc_takes_broadcast(const struct ggml_tensor * x, const struct ggml_tensor * other);

enum graphc_arithmetic { GRAPHC_SUM, GRAPHC_DIFFERENCE, GRAPHC_PRODUCT, GRAPHC_QUOTIENT };

/// The settings of both functions, their userdata: what is made of two, and means instead of sums.
struct graphc_arithmetic_settings {
    enum graphc_arithmetic what;
    bool mean;
};

/// What `ggml_add`, `ggml_sub`, `ggml_mul` or `ggml_div` gives for src[0] and src[1].
GRAPHC_API void graphc_broadcast(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// The settings of a sum of several, its userdata: if `scaled`, the first is multiplied by the second before others are added.
struct graphc_scaled_sum_settings {
    bool scaled;
    struct graphc_activation activation;
};

/// src[0], times src[1] if the settings say so, plus all behind it, of which `graphc_takes_broadcast` is true; the activation of that.
GRAPHC_API void graphc_scaled_sum(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// True if `graphc_sum_rows` and `graphc_soft_max` compute sums, or softmax, of these rows.
GRAPHC_API bool graphc_takes_sum_rows(const struct ggml_tensor * x);

/// What `ggml_sum_rows`, or `ggml_mean`, gives for src[0].
GRAPHC_API void graphc_sum_rows(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// True if `graphc_sum_over_rows` computes the sum, or the mean, of these rows.
GRAPHC_API bool graphc_takes_sum_over_rows(const struct ggml_tensor * x);

/// The sum, or the mean, of the rows of each matrix of src[0], element by element.
GRAPHC_API void graphc_sum_over_rows(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// What `ggml_soft_max` gives for src[0].
GRAPHC_API void graphc_soft_max(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
