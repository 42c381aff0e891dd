#pragma once

// Convolutions of each channel of an image of float32 with a kernel of its own.

#include "convolution.h"

#ifdef __cplusplus
extern "C" {
#endif

/// True if `graphc_conv_2d_dw` computes the convolution of this kernel and image.
GRAPHC_API bool graphc_takes_conv_2d_dw(const struct ggml_tensor * kernel, const struct ggml_tensor * image,
                                        const struct graphc_conv_2d_settings * settings);

/// What `ggml_conv_2d_dw_direct` gives for the kernel src[0], the image src[1] and the settings, plus src[2] and all behind it.
GRAPHC_API void graphc_conv_2d_dw(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
