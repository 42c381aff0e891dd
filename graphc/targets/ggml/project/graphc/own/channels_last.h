#pragma once

// Images of float32 whose channels lie one after the other, [N, H, W, C].

#include "convolution.h"

#ifdef __cplusplus
extern "C" {
#endif

/// True if `graphc_conv_2d_dw_last` computes the convolution of this kernel and image.
GRAPHC_API bool graphc_takes_conv_2d_dw_last(const struct ggml_tensor * kernel, const struct ggml_tensor * image);

/// The convolution of each channel of the image src[1] with a kernel of its own, of src[0], by the settings, plus the vector src[2], if it
/// is there. What the windows meet beside the image is 0.
GRAPHC_API void graphc_conv_2d_dw_last(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// True if `graphc_mean_over_rows` computes the mean of these rows.
GRAPHC_API bool graphc_takes_mean_over_rows(const struct ggml_tensor * x);

/// The mean of the rows of each matrix of src[0], element by element.
GRAPHC_API void graphc_mean_over_rows(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
