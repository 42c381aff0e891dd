#pragma once

// Normalizations of float32, of rows and of groups of channels, with their scale and shift.

#include "turns.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/// What it takes from each channel of each image, multiplies it by and adds, [N, C, 3], for whoever reads `x` and does that.
GRAPHC_API void graphc_group_norm_terms(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// What rows are divided by: their standard deviation, after their mean was taken away; the root of the mean of their squares; or that of
/// the sum.
enum graphc_norm_divisor { GRAPHC_DEVIATION, GRAPHC_ROOT_MEAN_SQUARE, GRAPHC_LENGTH };

/// The settings of a normalization of rows: its userdata.
struct graphc_norm_settings {
    float epsilon;  // is added to the mean of squares; a length is at least that
    enum graphc_norm_divisor divisor;
};

/// True if `graphc_norm` normalizes the rows of `x`, and whether it can multiply them by `factor`, or add it.
GRAPHC_API bool graphc_takes_norm(const struct ggml_tensor * x);
GRAPHC_API bool graphc_takes_factor(const struct ggml_tensor * factor, const struct ggml_tensor * x);

/// What `ggml_norm`, `ggml_rms_norm` or `ggml_l2_norm` gives for src[0], times src[1] if it is there, plus src[2] if it is there.
GRAPHC_API void graphc_norm(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
