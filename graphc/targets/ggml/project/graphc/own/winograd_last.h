#pragma once

// Convolutions of 3 x 3 by Winograd's F(4 x 4, 3 x 3), of images whose channels lie one after the other.

#include "convolution.h"

#ifdef __cplusplus
extern "C" {
#endif

/// True if `graphc_winograd_last` computes the convolution of this kernel and image, [N, H, W, C].
GRAPHC_API bool graphc_takes_winograd_last(const struct ggml_tensor * kernel, const struct ggml_tensor * image,
                                           const struct graphc_conv_2d_settings * settings);

/// Elements of the tensor that `graphc_winograd_last_operands` makes: the transformed images, or of large ones the transformed kernel, and
/// workspace for so many threads.
GRAPHC_API int64_t graphc_winograd_last_size(const struct ggml_tensor * kernel, const struct ggml_tensor * image,
                                             const struct graphc_conv_2d_settings * settings, int threads);

/// Transforms the images src[1], for the kernel src[0], or that.
GRAPHC_API void graphc_winograd_last_operands(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// As `graphc_conv_2d_last`, for the image src[0], what `graphc_winograd_last_operands` made, src[1], the kernel src[2], and what is
/// added, from src[3] on: vectors, and images like the result.
GRAPHC_API void graphc_winograd_last(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
