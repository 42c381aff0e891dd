#pragma once

// Convolutions of 3 x 3 by Winograd's F(2 x 2, 3 x 3) and F(4 x 4, 3 x 3).

#include "convolution.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
