#pragma once

// Images of float32 of another size, and the means of their windows. Channels are the third axis, or the innermost one.

#include "turns.h"

#ifdef __cplusplus
extern "C" {
#endif

/// True if `graphc_upscale` gives a tensor other sizes, faster than ggml does.
GRAPHC_API bool graphc_takes_upscale(const struct ggml_tensor * x);

/// What `ggml_interpolate` gives for src[0] by its nearest elements: the same ones.
GRAPHC_API void graphc_upscale(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// The settings of an interpolation: its userdata.
struct graphc_interpolate_settings {
    bool last;  // channels are the innermost axis
};

/// True if `graphc_interpolate` gives images, of so many channels and of them, other sizes, faster than ggml does.
GRAPHC_API bool graphc_takes_interpolate(const struct ggml_tensor * x, const int64_t * sizes, bool last);

/// Images src[0], interpolated from half pixels along both axes.
GRAPHC_API void graphc_interpolate(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// The settings of means of windows: their userdata. Along the width, then along the height.
struct graphc_average_pool_settings {
    int window[2], strides[2], pads[2];
    bool last;  // channels are the innermost axis
};

/// True if `graphc_average_pool` computes the means of images' windows, faster than ggml does.
GRAPHC_API bool graphc_takes_average_pool(const struct ggml_tensor * x);

/// The means of the windows of images src[0], of which the padding counts as zeros.
GRAPHC_API void graphc_average_pool(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
