#pragma once

// What a graph has for the composite calls of a program: in which way each is computed is decided here, for Python and C++ alike.

#include "variants.h"

#include "ggml-backend.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// What is called of ggml, without its prefix: linked in a C++ program, found by name in Python.
#define GRAPHC_GGML(F) \
    F(custom_4d) F(cont) F(relu) F(silu) F(hardswish) F(gelu_erf) F(sigmoid) F(tanh) F(elu) F(exp) F(sin) F(cos) F(log) F(sqrt) F(sqr) F(add) F(sub) F(mul) F(div) F(mean) F(sum_rows) F(mul_mat) F(swiglu_split) \
    F(geglu_erf_split) F(norm) F(rms_norm) F(l2_norm) F(scale) F(conv_2d) F(conv_2d_direct) F(conv_2d_dw_direct) F(conv_3d_direct) F(scale_bias) F(group_norm) F(concat) \
    F(pad_ext) F(interpolate) F(pool_2d) F(im2col) F(im2col_3d) F(permute) F(reshape_4d) F(repeat_4d) F(view_4d) F(soft_max) F(soft_max_ext) F(flash_attn_ext) F(flash_attn_ext_set_prec) \
    F(cast) F(is_contiguous) F(are_same_shape) F(row_size) F(type_name) F(get_type_traits) F(backend_supports_op) F(backend_buffer_get_usage) \
    F(graph_n_nodes) F(graph_node) F(graph_clear) F(build_forward_expand) F(nbytes) F(type_size) F(is_quantized) \
    F(init) F(free) F(new_graph_custom) F(graph_add_node) F(graph_overhead_custom) F(backend_graph_compute) F(backend_get_device) \
    F(backend_dev_backend_reg) F(backend_reg_get_proc_address)

#define GRAPHC_GGML_FIELD(name) GRAPHC_POINTER(ggml_##name) name;

struct graphc_ggml {
    GRAPHC_GGML(GRAPHC_GGML_FIELD)
};

/// Devices besides the CPU at most: ggml's scheduler takes one more, and ends the process at others.
enum { GRAPHC_MOST_DEVICES = 15 };

/// What one graph's calls are built with. It lives as long as the graph, whose custom operators read their settings in it.
struct graphc_builder;

/// A builder of tensors in a context, computed by this code of ours (none: NULL) with so many threads; NULL without memory. If `fast`, that
/// code may round what it multiplies to bfloat16, where the processor has an instruction for it.
GRAPHC_API struct graphc_builder * graphc_builder_new(struct ggml_context * context, const struct graphc_ggml * ggml,
                                                      const struct graphc_functions * own, int threads, bool fast);
GRAPHC_API void graphc_builder_free(struct graphc_builder * b);

/// A device that computes what is built, besides the CPU: its backend's name, and whether it may round what it multiplies. There are
/// GRAPHC_MOST_DEVICES at most.
GRAPHC_API void graphc_builder_device(struct graphc_builder * b, ggml_backend_t device, const char * name, bool fast);

/// Takes the ways that were measured to be the fastest (by `graphc tune`), a line for each: what the choice depends on, `=`, the way.
/// "conv_2d *" stands for all calls of a kind that no other line is about. What stands behind a `#` is a remark. Returns 0, or the
/// number of the first line that is not a choice between known ways; the other lines count. Without a builder they are only
/// looked at.
GRAPHC_API int graphc_builder_choose(struct graphc_builder * b, const char * text, size_t size);

/// Factors of a change that is beside a weight: products with the weight have up (down x) added.
GRAPHC_API void graphc_builder_beside(struct graphc_builder * b, const struct ggml_tensor * weight, struct ggml_tensor * down,
                                      struct ggml_tensor * up);

/// What becomes of each element of a result on its way out, by its name (`relu`, `silu`, `gate`, …: the functions of
/// `own/activations.h`), and its numbers; NULL without memory, or if there is no such function.
GRAPHC_API const struct graphc_activation * graphc_builder_activation(struct graphc_builder * b, const char * name, float first, float second);

/// Where the number of choices is that were made so far, as long as the builder is there.
GRAPHC_API const int * graphc_builder_decided(const struct graphc_builder * b);

/// The way that was taken so many behind the first, where there were several, and the key of that choice; false if there are not so many.
GRAPHC_API bool graphc_builder_taken(const struct graphc_builder * b, int index, const char ** key, const char ** way);

#ifdef __cplusplus
}
#endif
