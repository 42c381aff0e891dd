#include "graphc/builder.h"

#include "graphc/error.h"
#include "graphc/paths.h"
#include "graphc/weights.h"

#include "assign.c"
#include "build.c"

#include <fstream>
#include <iterator>

namespace graphc {

#define GRAPHC_GGML_ENTRY(name) ggml_##name,

const graphc_ggml & functions_of_ggml() {
    static const graphc_ggml table = {GRAPHC_GGML(GRAPHC_GGML_ENTRY)};
    return table;
}

std::string read_choices(const std::filesystem::path & file) {
    if (is_special(file)) throw Error(text_of(file) + " is not a file");
    std::ifstream stream(file, std::ios::binary);
    if (!stream) throw Error(text_of(file) + " cannot be read");
    std::string text(std::istreambuf_iterator<char>(stream), {});
    const int line = graphc_builder_choose(nullptr, text.data(), text.size());
    if (line != 0) throw Error(text_of(file) + ": line " + std::to_string(line) + " is not a choice that this program knows");
    return text;
}

Tensor checked(Tensor tensor) {
    if (tensor == nullptr) throw Error("not enough memory for a graph");
    return tensor;
}

Builder::Builder(ggml_context * context, const Backends & backends, const Weights & weights)
    : context_(context), builder_(nullptr, graphc_builder_free) {
    const graphc_functions * own = backends.accelerated() ? nullptr : cpu_variant().functions;
    builder_.reset(graphc_builder_new(context, &functions_of_ggml(), own, backends.threads(), backends.fast()));
    if (builder_ == nullptr) throw Error("not enough memory for a graph");
    for (ggml_backend_t device : backends.devices()) {
        graphc_builder_device(builder_.get(), device, backend_name(device).c_str(), backends.fast());
    }
    graphc_builder_choose(builder_.get(), backends.choices().data(), backends.choices().size());
    for (const Factors & each : weights.factors()) {
        const std::vector<ggml_tensor *> & tensors = weights.tensors();
        graphc_builder_beside(builder_.get(), tensors[each.weight], tensors[each.down], tensors[each.up]);
    }
}

const graphc_activation * Builder::activation(const char * name, float first, float second) const {
    const graphc_activation * found = graphc_builder_activation(builder_.get(), name, first, second);
    if (found == nullptr) throw Error("there is no activation " + std::string(name) + ", or not enough memory for a graph");
    return found;
}

std::vector<std::pair<ggml_tensor *, ggml_backend_t>> pinned(ggml_backend_t device, ggml_backend_t cpu, ggml_cgraph * graph) {
    std::vector<unsigned char> sides(static_cast<size_t>(ggml_graph_n_nodes(graph)));
    const bool enough = graphc_assign(&functions_of_ggml(), device, backend_name(device).c_str(), graph, sides.data());
    if (!enough) throw Error("not enough memory for a graph");
    std::vector<std::pair<ggml_tensor *, ggml_backend_t>> found;
    for (size_t i = 0; i < sides.size(); ++i) {
        ggml_tensor * node = ggml_graph_node(graph, static_cast<int>(i));
        if (sides[i] == GRAPHC_BROKEN || sides[i] == GRAPHC_KEPT) found.emplace_back(node, cpu);
        if (sides[i] == GRAPHC_LAUNCHED) found.emplace_back(node, device);
    }
    return found;
}

void order_views(ggml_cgraph * graph) {
    if (!graphc_order_views(&functions_of_ggml(), graph)) throw Error("not enough memory for a graph");
}

}  // namespace graphc
