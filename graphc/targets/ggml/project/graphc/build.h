#pragma once

// What a graph has for the composite calls of a program: in which way each is computed is decided here, for Python and C++ alike.

#include "variants.h"

#include "ggml-backend.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ggml_tensor * graphc_of_one(struct ggml_context *, struct ggml_tensor *);
typedef struct ggml_tensor * graphc_of_two(struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *);
typedef struct ggml_tensor * graphc_with_number(struct ggml_context *, struct ggml_tensor *, float);
typedef struct ggml_tensor * graphc_convolved(struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *, int, int, int, int, int, int);

/// What is called of ggml: linked in a C++ program, found by name in Python.
struct graphc_ggml {
    struct ggml_tensor * (*custom_4d)(struct ggml_context *, enum ggml_type, int64_t, int64_t, int64_t, int64_t, struct ggml_tensor **, int,
                                      ggml_custom_op_t, int, void *);
    graphc_of_one * cont;
    graphc_of_one * relu;
    graphc_of_one * silu;
    graphc_of_one * gelu_erf;
    graphc_of_one * sigmoid;
    graphc_of_one * sqr;
    graphc_of_two * add;
    graphc_of_two * mul;
    graphc_of_two * mul_mat;
    graphc_of_two * swiglu_split;
    graphc_of_two * geglu_erf_split;
    graphc_with_number * norm;
    graphc_with_number * rms_norm;
    graphc_with_number * scale;
    graphc_convolved * conv_2d;
    graphc_convolved * conv_2d_direct;
    struct ggml_tensor * (*scale_bias)(struct ggml_context *, struct ggml_tensor *, float, float);
    struct ggml_tensor * (*group_norm)(struct ggml_context *, struct ggml_tensor *, int, float);
    struct ggml_tensor * (*concat)(struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *, int);
    struct ggml_tensor * (*pad_ext)(struct ggml_context *, struct ggml_tensor *, int, int, int, int, int, int, int, int);
    struct ggml_tensor * (*permute)(struct ggml_context *, struct ggml_tensor *, int, int, int, int);
    struct ggml_tensor * (*reshape_4d)(struct ggml_context *, struct ggml_tensor *, int64_t, int64_t, int64_t, int64_t);
    struct ggml_tensor * (*view_4d)(struct ggml_context *, struct ggml_tensor *, int64_t, int64_t, int64_t, int64_t, size_t, size_t, size_t, size_t);
    struct ggml_tensor * (*soft_max_ext)(struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *, float, float);
    struct ggml_tensor * (*flash_attn_ext)(struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *, struct ggml_tensor *,
                                           struct ggml_tensor *, float, float, float);
    void (*flash_attn_ext_set_prec)(struct ggml_tensor *, enum ggml_prec);
    bool (*is_contiguous)(const struct ggml_tensor *);
    bool (*are_same_shape)(const struct ggml_tensor *, const struct ggml_tensor *);
    size_t (*row_size)(enum ggml_type, int64_t);
    const char * (*type_name)(enum ggml_type);
    const struct ggml_type_traits * (*get_type_traits)(enum ggml_type);
    bool (*backend_supports_op)(ggml_backend_t, const struct ggml_tensor *);
    int (*graph_n_nodes)(struct ggml_cgraph *);
    struct ggml_tensor * (*graph_node)(struct ggml_cgraph *, int);
    size_t (*nbytes)(const struct ggml_tensor *);
    size_t (*type_size)(enum ggml_type);
    bool (*is_quantized)(enum ggml_type);
};

/// What one graph's calls are built with. It lives as long as the graph, whose custom operators read their settings in it.
struct graphc_builder;

/// A builder of tensors in a context, computed by this code of ours (none: NULL) with so many threads; NULL without memory.
GRAPHC_API struct graphc_builder * graphc_builder_new(struct ggml_context * context, const struct graphc_ggml * ggml,
                                                      const struct graphc_functions * own, int threads);
GRAPHC_API void graphc_builder_free(struct graphc_builder * b);

/// A device that computes what is built, besides the CPU: its backend's name, and whether it may round what it multiplies.
GRAPHC_API void graphc_builder_device(struct graphc_builder * b, ggml_backend_t device, const char * name, bool fast);

/// Takes the ways that were measured to be the fastest (by `graphc tune`), a line for each: what the choice depends on, `=`, the way.
/// "conv_2d *" stands for all calls of a kind that no other line is about. What stands behind a `#` is a remark. Returns 0, or the
/// number of the first line that is not a choice between known ways; the other lines count. Without a builder they are only
/// looked at.
GRAPHC_API int graphc_builder_choose(struct graphc_builder * b, const char * text, size_t size);

/// Factors of a change that is beside a weight: products with the weight have up (down x) added.
GRAPHC_API void graphc_builder_beside(struct graphc_builder * b, const struct ggml_tensor * weight, struct ggml_tensor * down,
                                      struct ggml_tensor * up);

/// The key of the call that was built last and the way that it took, where there are several; told once.
GRAPHC_API bool graphc_builder_taken(struct graphc_builder * b, const char ** key, const char ** way);

#ifdef __cplusplus
}
#endif
