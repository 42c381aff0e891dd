#pragma once

// Convolutions of rounded images by a matrix unit, without copies of what windows meet.

#include "convolution.h"

#ifdef __cplusplus
extern "C" {
#endif

/// True if `graphc_direct` computes the convolution of this kernel and image, whose channels come last if `last`, and is faster than others. A
/// `doubled` image is there as it was before, and the settings are those of a kernel of 3 x 3 with pads of 1.
GRAPHC_API bool graphc_takes_direct(const struct ggml_tensor * kernel, const struct ggml_tensor * image, bool last,
                                    const struct graphc_conv_2d_settings * settings);

/// The panels of a kernel that `graphc_takes_direct` takes, and which stays where it is, as it is, while they are held. NULL without memory.
GRAPHC_API struct graphc_panels * graphc_hold_panels_of_direct(const struct ggml_tensor * kernel, const struct graphc_conv_2d_settings * settings);

/// Elements of the tensor that `graphc_direct_operands` makes: the image and, unless its panels are held, the kernel, rounded.
GRAPHC_API int64_t graphc_direct_size(const struct ggml_tensor * kernel, const struct ggml_tensor * image, bool last,
                                      const struct graphc_conv_2d_settings * settings);

/// Rounds the kernel src[0], unless its panels are held, and the image src[1], normalized if src[2] has what `graphc_group_norm_terms` makes, whose channels come last, or which lies in planes.
GRAPHC_API void graphc_direct_operands_last(struct ggml_tensor * dst, int ith, int nth, void * userdata);
GRAPHC_API void graphc_direct_operands(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// As `graphc_conv_2d_last` and `graphc_conv_2d`, for the image src[0], what was made of both, src[1], and the kernel src[2].
GRAPHC_API void graphc_direct_last(struct ggml_tensor * dst, int ith, int nth, void * userdata);
GRAPHC_API void graphc_direct(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
