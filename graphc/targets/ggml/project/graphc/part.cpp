#include "graphc/part.h"

namespace graphc {

void Part::run(Context & context, const Sizes & sizes, const std::vector<const Array *> & inputs,
               const std::vector<Array *> & outputs) const {
    Sizes own;
    for (size_t place : info_.sizes) own.push_back(sizes[place]);
    const auto calls = [&](const Builder & ctx, Kernels & kernels, const Tensors & tensors) { return build_(ctx, kernels, sizes, tensors); };
    Graph & graph = context.graph(this, own, [&] {
        return std::make_unique<Graph>(context.memory(), context.backends(), context.results(), info_.inputs, inputs,
                                       Kernels(sizes, faults_, device_), info_.tensor_count, calls);
    });
    context.share_threads();
    graph.run(info_.inputs, inputs, info_.outputs, outputs);
}

}  // namespace graphc
