#pragma once

// Convolutions of images of float32, by tiles.

#include "activations.h"
#include "panels.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The third axis of a convolution of volumes: stride, pad and dilation, and the sizes of the kernel, the volumes and the result. All lines
/// of a volume's channel are those of an image then, a plane after the other; and so are the kernel's, and the result's.
struct graphc_planes {
    int stride, pad, dilation;
    int64_t kernel, volume, result;
};

/// The settings of a convolution: its userdata. `width` and `height` are the result's. The `activation` is the last that is done; with
/// `pairs`, both operands are rounded to bfloat16. `types` is what `ggml_get_type_traits` has for the kernel. `planes` are there for
/// volumes, else all 0. `panels` are there for a kernel that stays packed. If it is `doubled`, each pixel of the image stands for four, and
/// `silu` is taken of what is normalized on the way (`direct.h`).
struct graphc_conv_2d_settings {
    int s0, s1, p0, p1, d0, d1;
    int64_t width, height;
    struct graphc_planes planes;
    struct graphc_activation activation;
    bool pairs, doubled, silu;
    const struct ggml_type_traits * types;
    struct graphc_panels * panels;
    struct graphc_turns turns;
};

enum { MOST_RESULTS = 4, MOST_LINES_OF_FEW = 32, MOST_REACH_OF_FEW = 256, SHORTEST_LINE_OF_FEW = 16, PLACES_OF_RESULT = 3 };

/// The planes of a convolution: an image is a volume of one.
static inline struct graphc_planes planes_of(const struct graphc_conv_2d_settings * s) {
    const struct graphc_planes one = {1, 0, 1, 1, 1, 1};
    return s->planes.kernel > 0 ? s->planes : one;
}

/// True if a convolution of an image of so many channels has so few results, or so large a kernel, that `graphc_conv_2d` reads its pixels where
/// they lie (`few.h`).
static inline bool has_few_results(const struct ggml_tensor * kernel, int64_t channels, const struct graphc_conv_2d_settings * s) {
    const struct graphc_planes planes = planes_of(s);
    const bool plain = kernel->type == GGML_TYPE_F32 && kernel->ne[2] == channels && planes.volume == 1 && planes.kernel == 1 && !s->pairs;
    const bool small = kernel->ne[1] <= MOST_LINES_OF_FEW && (kernel->ne[0] - 1) * s->d0 <= MOST_REACH_OF_FEW;
    const bool few = kernel->ne[3] <= MOST_RESULTS || PLACES_OF_RESULT * kernel->ne[3] <= kernel->ne[0] * kernel->ne[1];  // measured
    return plain && small && few && s->s0 == 1 && s->width >= SHORTEST_LINE_OF_FEW;
}

/// True if `graphc_conv_2d` computes the convolution of this kernel and image.
GRAPHC_API bool graphc_takes_conv_2d(const struct ggml_tensor * kernel, const struct ggml_tensor * image,
                                     const struct graphc_conv_2d_settings * settings);

/// What `ggml_conv_2d` gives for the kernel src[0], the image src[1] and the settings, plus src[2] and all behind it. A kernel of fewer
/// channels than the image's is one of groups: each meets its own.
GRAPHC_API void graphc_conv_2d(struct ggml_tensor * dst, int ith, int nth, void * userdata);

/// True if `graphc_conv_2d_last` does for an image [N, H, W, C], which may lie in planes, as [N, C, H, W].
GRAPHC_API bool graphc_takes_conv_2d_last(const struct ggml_tensor * kernel, const struct ggml_tensor * image,
                                          const struct graphc_conv_2d_settings * settings);

/// Parts of the numbers that `graphc_conv_2d_last` multiplies, of which panels of the kernel may stay; -1 if none may.
GRAPHC_API int graphc_parts_of_windows(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * settings);

/// The same with the result's channels last, [N, H, W, C], plus the vector src[2], if it is there. What windows meet beside the image is 0.
GRAPHC_API void graphc_conv_2d_last(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
