#pragma once

// Which tensors of a graph the CPU computes where another device runs it, and their order where several servers do. Valid as C and as C++.
//
// ggml's scheduler gives the CPU what the device's backend does not support. Two things it does not see: calls that a backend says
// it supports and then ends the process at, and small tensors between two of the CPU's, for which the data would go to the device
// and come back. And it believes that the CPU can compute every custom operator, also the kernels of a device.

#include "build.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Who computes a tensor: the device, or the CPU because the device's backend refuses it, would end the process at it, or because it
/// is better there; or the device because it is a kernel of its own, that nobody else can compute.
enum graphc_side { GRAPHC_DEVICE, GRAPHC_REFUSED, GRAPHC_BROKEN, GRAPHC_KEPT, GRAPHC_LAUNCHED };

/// True if a tensor computes nothing.
static inline bool graphc_is_view(const struct ggml_tensor * tensor) {
    return tensor->op == GGML_OP_NONE || tensor->op == GGML_OP_RESHAPE || tensor->op == GGML_OP_VIEW || tensor->op == GGML_OP_PERMUTE ||
           tensor->op == GGML_OP_TRANSPOSE;
}

/// Who computes each node of a graph whose tensors have no places yet, as a `graphc_side`; `backend` is the name of the device's. False
/// without memory.
GRAPHC_API bool graphc_assign(const struct graphc_ggml * ggml, ggml_backend_t device, const char * backend, struct ggml_cgraph * graph,
                              unsigned char * sides);

/// Orders a graph for several servers. ggml sends a server all nodes of its stretch of a graph, also views, which compute nothing, and a
/// server refuses a view of what another one holds. So views come right behind what they are views of, and those of weights are no nodes.
/// False without memory.
GRAPHC_API bool graphc_order_views(const struct graphc_ggml * ggml, struct ggml_cgraph * graph);

#ifdef __cplusplus
}
#endif
