#pragma once

// Images of float32 whose channels lie one after the other, [N, H, W, C].

#include "convolution.h"

#ifdef __cplusplus
extern "C" {
#endif

/// True if `graphc_conv_2d_dw_last` computes the convolution of this kernel and image.
GRAPHC_API bool graphc_takes_conv_2d_dw_last(const struct ggml_tensor * kernel, const struct ggml_tensor * image);

/// The convolution of each channel of the image src[1] with a kernel of its own, of src[0], by the settings, plus the vector src[2], if it is
/// there. What the windows meet beside the image is 0.
GRAPHC_API void graphc_conv_2d_dw_last(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// The settings of a convolution of single channels of what a product makes of an image, plus a vector, if that is `added`, and an
/// activation: its userdata.
struct graphc_expanded_conv_2d_settings {
    struct graphc_conv_2d_settings convolution;
    struct graphc_activation activation;
    bool added;
};

/// True if `graphc_expanded_conv_2d` computes it, faster than both by themselves.
GRAPHC_API bool graphc_takes_expanded_conv_2d(const struct ggml_tensor * weight, const struct ggml_tensor * image,
                                              const struct ggml_tensor * kernel, const struct graphc_conv_2d_settings * settings);

/// `graphc_conv_2d_dw_last`, with the kernel src[2], of the product of the image src[1] with the weight src[0], plus the vector src[3] if
/// it is `added`; plus the vector behind that, if it is there. A few lines of the product are made at a time.
GRAPHC_API void graphc_expanded_conv_2d(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
