#include "graphc/view_order.h"

#include "graphc/assign.h"

#include <unordered_map>
#include <vector>

namespace graphc {

void order_views(ggml_cgraph * graph) {
    std::vector<ggml_tensor *> nodes(ggml_graph_nodes(graph), ggml_graph_nodes(graph) + ggml_graph_n_nodes(graph));
    std::unordered_map<const ggml_tensor *, std::vector<ggml_tensor *>> views;
    for (ggml_tensor * node : nodes) {
        const ggml_tensor * root = node->view_src;
        if (root == nullptr || !graphc_is_view(node)) continue;
        if (root->op == GGML_OP_NONE && (root->flags & GGML_TENSOR_FLAG_INPUT) == 0) {  // a weight's
            node->op = GGML_OP_NONE;
            node->src[0] = nullptr;
        } else {
            views[root].push_back(node);
        }
    }
    ggml_graph_clear(graph);
    for (ggml_tensor * node : nodes) {
        if (graphc_is_view(node)) continue;
        ggml_build_forward_expand(graph, node);
        for (ggml_tensor * view : views[node]) ggml_build_forward_expand(graph, view);
    }
    for (ggml_tensor * node : nodes) {
        if (node->op != GGML_OP_NONE) ggml_build_forward_expand(graph, node);
    }
}

}  // namespace graphc
