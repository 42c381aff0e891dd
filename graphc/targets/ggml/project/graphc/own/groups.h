#pragma once

// Convolutions in groups, of images of float32 whose channels lie one after the other, [N, H, W, C].

#include "convolution.h"

#ifdef __cplusplus
extern "C" {
#endif

/// True if `graphc_conv_2d_groups_last` computes the convolution of this kernel and image: groups of a few channels or some whole vectors of
/// them, of which as many are read as become. If others may be `rounded`, so are all but a few.
GRAPHC_API bool graphc_takes_conv_2d_groups_last(const struct ggml_tensor * kernel, const struct ggml_tensor * image, bool rounded);

/// What `graphc_conv_2d_last` gives, for such groups.
GRAPHC_API void graphc_conv_2d_groups_last(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
