#include "graphc/assign.h"

#include "graphc/device.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace graphc {

namespace {

using Tensors = std::unordered_set<const ggml_tensor *>;

/// Bytes of a weight that may be copied to the CPU in every run.
constexpr size_t small = 1 << 16;

/// What a device is for: worth moving data.
bool is_heavy(const ggml_tensor * tensor) {
    switch (tensor->op) {
        case GGML_OP_MUL_MAT:
        case GGML_OP_CONV_2D:
        case GGML_OP_IM2COL:
        case GGML_OP_CONV_TRANSPOSE_2D: return true;
        default: return false;
    }
}

/// Copies of elements of one byte or eight.
bool copies_odd_elements(const ggml_tensor * tensor) {
    const bool copies = tensor->op == GGML_OP_CONT || tensor->op == GGML_OP_CPY || tensor->op == GGML_OP_DUP;
    const size_t size = ggml_type_size(tensor->type);
    return copies && size != 2 && size != 4 && !ggml_is_quantized(tensor->type);
}

/// What a backend says that it supports, and ends the process at. Kernels are functions of this process, whatever a server says.
bool ends_the_process(const std::string & backend, const ggml_tensor * tensor) {
    return (backend == "Vulkan" && copies_odd_elements(tensor)) || (backend == "RPC" && tensor->op == GGML_OP_CUSTOM);
}

/// What a tensor reads; of a view, what it is a view of.
std::vector<const ggml_tensor *> sources_of(const ggml_tensor * tensor) {
    std::vector<const ggml_tensor *> found;
    for (const ggml_tensor * each : tensor->src) {
        if (each != nullptr) found.push_back(each->view_src != nullptr && is_view(each) ? each->view_src : each);
    }
    return found;
}

/// The computed tensors among them.
std::vector<const ggml_tensor *> computed_sources(const ggml_tensor * tensor) {
    std::vector<const ggml_tensor *> found = sources_of(tensor);
    found.erase(std::remove_if(found.begin(), found.end(), is_view), found.end());
    return found;
}

bool is_light(const ggml_tensor * tensor) {
    for (const ggml_tensor * each : sources_of(tensor)) {
        const bool weight = each->op == GGML_OP_NONE && (each->flags & GGML_TENSOR_FLAG_INPUT) == 0;
        if (weight && ggml_nbytes(each) > small) return false;
    }
    return !is_heavy(tensor);
}

bool all_in(const std::vector<const ggml_tensor *> & tensors, const Tensors & set) {
    const auto inside = [&](const ggml_tensor * each) { return set.count(each) != 0; };
    return !tensors.empty() && std::all_of(tensors.begin(), tensors.end(), inside);
}

}  // namespace

bool is_view(const ggml_tensor * tensor) {
    switch (tensor->op) {
        case GGML_OP_NONE:
        case GGML_OP_RESHAPE:
        case GGML_OP_VIEW:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE: return true;
        default: return false;
    }
}

std::vector<ggml_tensor *> kept_on_cpu(ggml_backend_t device, ggml_cgraph * graph) {
    const std::string backend = backend_name(device);
    std::vector<ggml_tensor *> nodes, kept;
    Tensors cpu;
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        ggml_tensor * node = ggml_graph_node(graph, i);
        if (is_view(node)) continue;
        nodes.push_back(node);
        const bool ends = ends_the_process(backend, node);
        if (ends) kept.push_back(node);
        if (ends || !ggml_backend_supports_op(device, node)) cpu.insert(node);
    }
    Tensors fed = cpu, eaten = cpu;
    std::unordered_map<const ggml_tensor *, std::vector<const ggml_tensor *>> readers;
    for (const ggml_tensor * node : nodes) {
        const auto sources = computed_sources(node);
        for (const ggml_tensor * each : sources) readers[each].push_back(node);
        if (is_light(node) && all_in(sources, fed)) fed.insert(node);
    }
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
        if (fed.count(*node) == 0 || !all_in(readers[*node], eaten) || !eaten.insert(*node).second) continue;
        kept.push_back(*node);
    }
    return kept;
}

}  // namespace graphc
