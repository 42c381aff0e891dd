// Who computes what of a graph that devices run, and in which order. Valid as C and as C++.

#include "assign.h"

#include <stdlib.h>
#include <string.h>

/// Bytes of a weight that may be copied to the CPU in every run.
#define SMALL_WEIGHT ((size_t) 1 << 16)

struct assigned_node {
    const struct ggml_tensor * tensor;
    int index;
};

/// What a device is for: worth moving data.
static bool is_heavy(const struct ggml_tensor * node) {
    return node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_CONV_2D || node->op == GGML_OP_IM2COL ||
           node->op == GGML_OP_CONV_TRANSPOSE_2D;
}

/// Copies of elements of one byte or eight. Source: `ggml_vk_get_cpy_pipeline`.
static bool copies_odd_elements(const struct graphc_ggml * ggml, const struct ggml_tensor * node) {
    const bool copies = node->op == GGML_OP_CONT || node->op == GGML_OP_CPY || node->op == GGML_OP_DUP;
    const size_t size = ggml->type_size(node->type);
    return copies && size != 2 && size != 4 && !ggml->is_quantized(node->type);
}

/// What a backend says that it supports, and ends the process at. Kernels are functions of this process, whatever a server says.
static bool ends_the_process(const struct graphc_ggml * ggml, const char * backend, const struct ggml_tensor * node) {
    if (strcmp(backend, "Vulkan") == 0) return copies_odd_elements(ggml, node);
    return strcmp(backend, "RPC") == 0 && node->op == GGML_OP_CUSTOM;
}

/// A tensor that a node reads, or of a view what it is a view of; NULL if there is none.
static const struct ggml_tensor * source_of(const struct ggml_tensor * node, int place) {
    const struct ggml_tensor * found = node->src[place];
    return found != NULL && found->view_src != NULL && graphc_is_view(found) ? found->view_src : found;
}

/// True for a weight.
static bool is_stored(const struct ggml_tensor * tensor) { return tensor->op == GGML_OP_NONE && (tensor->flags & GGML_TENSOR_FLAG_INPUT) == 0; }

/// Nothing that a device is for, which reads no weight that had to be copied.
static bool is_light(const struct graphc_ggml * ggml, const struct ggml_tensor * node) {
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        const struct ggml_tensor * each = source_of(node, i);
        if (each != NULL && is_stored(each) && ggml->nbytes(each) > SMALL_WEIGHT) return false;
    }
    return !is_heavy(node);
}

static bool is_cpus(unsigned char side) { return side != GRAPHC_DEVICE && side != GRAPHC_LAUNCHED; }

static int by_address(const void * a, const void * b) {
    const struct ggml_tensor * first = ((const struct assigned_node *) a)->tensor, * second = ((const struct assigned_node *) b)->tensor;
    return first < second ? -1 : first > second;
}

/// The nodes of a graph by their addresses; NULL without memory.
static struct assigned_node * sorted_nodes(const struct graphc_ggml * ggml, struct ggml_cgraph * graph) {
    const int count = ggml->graph_n_nodes(graph);
    struct assigned_node * sorted = (struct assigned_node *) calloc((size_t) count + 1, sizeof *sorted);
    for (int i = 0; sorted != NULL && i < count; ++i) sorted[i].tensor = ggml->graph_node(graph, i), sorted[i].index = i;
    if (sorted != NULL) qsort(sorted, (size_t) count, sizeof *sorted, by_address);
    return sorted;
}

/// The number of the node that makes a tensor; -1 if none does.
static int index_of(const struct assigned_node * sorted, int count, const struct ggml_tensor * tensor) {
    const struct assigned_node wanted = {tensor, 0};
    const void * found = tensor == NULL || graphc_is_view(tensor) ? NULL : bsearch(&wanted, sorted, (size_t) count, sizeof wanted, by_address);
    return found == NULL ? -1 : ((const struct assigned_node *) found)->index;
}

/// Of a node: whether it is the CPU's or could be by what it reads, and whether anything reads it, or anything that is the device's.
struct around {
    bool fed, read, lost;
};

/// What is light, made from the CPU's alone, and read by the CPU's alone, becomes the CPU's. `around` has as many zeros as nodes.
static void keep_between(const struct graphc_ggml * ggml, struct ggml_cgraph * graph, const struct assigned_node * sorted, int count,
                         unsigned char * sides, struct around * around) {
    for (int i = 0; i < count; ++i) {  // made from the CPU's alone
        const struct ggml_tensor * node = ggml->graph_node(graph, i);
        bool reads = false, all = true;
        for (int k = 0; k < GGML_MAX_SRC; ++k) {
            const int source = index_of(sorted, count, source_of(node, k));
            if (source >= 0) reads = true, all = all && around[source].fed;
        }
        const bool light = sides[i] == GRAPHC_DEVICE && !graphc_is_view(node) && is_light(ggml, node);
        around[i].fed = is_cpus(sides[i]) || (light && reads && all);
    }
    for (int i = count - 1; i >= 0; --i) {  // read by the CPU's alone
        const struct ggml_tensor * node = ggml->graph_node(graph, i);
        if (graphc_is_view(node)) continue;
        if (sides[i] == GRAPHC_DEVICE && around[i].fed && around[i].read && !around[i].lost) sides[i] = GRAPHC_KEPT;
        for (int k = 0; k < GGML_MAX_SRC; ++k) {
            const int source = index_of(sorted, count, source_of(node, k));
            if (source >= 0) around[source].read = true, around[source].lost = around[source].lost || !is_cpus(sides[i]);
        }
    }
}

bool graphc_assign(const struct graphc_ggml * ggml, ggml_backend_t device, const char * backend, struct ggml_cgraph * graph,
                   unsigned char * sides) {
    const int count = ggml->graph_n_nodes(graph);
    struct assigned_node * sorted = sorted_nodes(ggml, graph);
    struct around * around = (struct around *) calloc((size_t) count + 1, sizeof *around);
    const bool enough = sorted != NULL && around != NULL;
    bool cpu = false;
    for (int i = 0; i < count; ++i) {
        const struct ggml_tensor * node = ggml->graph_node(graph, i);
        sides[i] = GRAPHC_DEVICE;
        if (graphc_is_view(node)) continue;
        if (ends_the_process(ggml, backend, node)) sides[i] = GRAPHC_BROKEN;
        else if (!ggml->backend_supports_op(device, node)) sides[i] = GRAPHC_REFUSED;
        else if (node->op == GGML_OP_CUSTOM) sides[i] = GRAPHC_LAUNCHED;
        cpu = cpu || is_cpus(sides[i]);
    }
    if (enough && cpu) keep_between(ggml, graph, sorted, count, sides, around);
    free(sorted);
    free(around);
    return enough;
}

bool graphc_order_views(const struct graphc_ggml * ggml, struct ggml_cgraph * graph) {
    struct node {
        struct ggml_tensor * tensor;
        int first, next;  // of its views; of those of what it is a view of
    };
    const int count = ggml->graph_n_nodes(graph);
    struct assigned_node * sorted = sorted_nodes(ggml, graph);
    struct node * nodes = (struct node *) calloc((size_t) count + 1, sizeof *nodes);
    const bool enough = sorted != NULL && nodes != NULL;
    for (int i = 0; enough && i < count; ++i) nodes[i].tensor = ggml->graph_node(graph, i), nodes[i].first = nodes[i].next = -1;
    for (int i = count - 1; enough && i >= 0; --i) {
        struct ggml_tensor * node = nodes[i].tensor, * root = graphc_is_view(node) ? node->view_src : NULL;
        const int place = index_of(sorted, count, root);
        if (place >= 0) nodes[i].next = nodes[place].first, nodes[place].first = i;
        else if (root != NULL && is_stored(root)) node->op = GGML_OP_NONE, node->src[0] = NULL;
    }
    if (enough) ggml->graph_clear(graph);
    for (int i = 0; enough && i < count; ++i) {
        if (graphc_is_view(nodes[i].tensor)) continue;
        ggml->build_forward_expand(graph, nodes[i].tensor);
        for (int view = nodes[i].first; view >= 0; view = nodes[view].next) ggml->build_forward_expand(graph, nodes[view].tensor);
    }
    for (int i = 0; enough && i < count; ++i) {  // views of inputs
        if (nodes[i].tensor->op != GGML_OP_NONE) ggml->build_forward_expand(graph, nodes[i].tensor);
    }
    free(sorted);
    free(nodes);
    return enough;
}
