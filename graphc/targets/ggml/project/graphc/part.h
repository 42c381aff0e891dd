#pragma once

#include "graphc/context.h"

#include <array>

namespace graphc {

/// What the generated code knows about calls that are one graph. `sizes` are the places, among all of the model's named sizes,
/// of those that the calls depend on.
struct PartInfo {
    size_t tensor_count = 0;  // at least the number of tensors that the calls make
    std::vector<InputInfo> inputs;
    std::vector<OutputInfo> outputs;
    std::vector<size_t> sizes;
};

/// Calls of a model that a device computes as one graph: all of them, or those between two steps of the host. The graphs are in the
/// context of a run.
class Part {
  public:
    using Sizes = std::vector<int64_t>;
    using Tensors = std::vector<ggml_tensor *>;

    /// The calls are those that a method of the model makes; the model outlives its parts.
    template <class M>
    Part(const M & model, std::vector<GraphOutput> (M::*build)(const Builder &, Kernels &, const Sizes &, const Tensors &) const,
         PartInfo info)
        : faults_(model.info().faults), info_(std::move(info)), device_(model.device_kernels()),
          build_([&model, build](const Builder & ctx, Kernels & kernels, const Sizes & sizes, const Tensors & inputs) {
              return (model.*build)(ctx, kernels, sizes, inputs);
          }) {}

    /// The outputs in order, for the inputs in order and the values of all named sizes: see `Graph::run`. Throws Error.
    void run(Context & context, const Sizes & sizes, const std::vector<const Array *> & inputs,
             const std::vector<Array *> & outputs) const;

    /// The same, where it is known how many outputs there are: `auto [x, y] = part.run<2>(context, sizes, {&a, &b})`.
    template <size_t N> std::array<Array, N> run(Context & context, const Sizes & sizes, const std::vector<const Array *> & inputs) const {
        std::array<Array, N> found;
        std::vector<Array *> outputs;
        for (Array & each : found) outputs.push_back(&each);
        run(context, sizes, inputs, outputs);
        return found;
    }

  private:
    std::vector<const char *> faults_;
    PartInfo info_;
    const DeviceKernels * device_;
    std::function<std::vector<GraphOutput>(const Builder &, Kernels &, const Sizes &, const Tensors &)> build_;
};

}  // namespace graphc
