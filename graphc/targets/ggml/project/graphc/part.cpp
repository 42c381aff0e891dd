#include "graphc/part.h"

namespace graphc {

namespace {

/// Graphs of recent sizes that a part keeps.
constexpr size_t kept_sizes = 8;

}  // namespace

std::vector<Array> Part::run(const Sizes & sizes, const std::vector<const Array *> & inputs) {
    return graph_for(sizes, inputs).run(info_.inputs, inputs, info_.outputs);
}

Graph & Part::graph_for(const Sizes & sizes, const std::vector<const Array *> & inputs) {
    Sizes own;
    for (size_t place : info_.sizes) own.push_back(sizes[place]);
    for (auto kept = graphs_.begin(); kept != graphs_.end(); ++kept) {
        if (kept->first == own) {
            graphs_.splice(graphs_.begin(), graphs_, kept);
            return *graphs_.front().second;
        }
    }
    const auto calls = [&](ggml_context * ctx, Kernels & kernels, const Tensors & tensors) {
        return build_(ctx, kernels, sizes, tensors);
    };
    graphs_.emplace_front(own, std::make_unique<Graph>(memory_, info_.inputs, inputs, Kernels(sizes, faults_),
                                                       info_.tensor_count, calls));
    if (graphs_.size() > kept_sizes) graphs_.pop_back();
    return *graphs_.front().second;
}

}  // namespace graphc
