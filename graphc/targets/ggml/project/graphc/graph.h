#pragma once

#include "graphc/array.h"
#include "graphc/device.h"
#include "graphc/kernels.h"
#include "graphc/memory.h"
#include "graphc/builder.h"
#include "graphc/sizes.h"

#include <functional>
#include <memory>
#include <vector>

namespace graphc {

class Results;

/// A tensor that is an output, and the output's shape in the model's order of axes.
struct GraphOutput {
    ggml_tensor * tensor;
    Shape shape;
};

/// Makes the calls of a model, from its inputs to its outputs.
using BuildGraph = std::function<std::vector<GraphOutput>(const Builder &, Kernels &, const std::vector<ggml_tensor *> &)>;

/// A tensor without elements if there are none, else what `call` makes: ggml's functions expect elements.
template <class F> ggml_tensor * unless_empty(ggml_context * ctx, ggml_type type, const Sizes4 & ne, F && call) {
    return has_no_elements(ne) ? empty_tensor(ctx, type, ne) : call();
}

/// The calls of a model for one choice of sizes.
class Graph {
  public:
    /// `backends` compute it, and on the CPU alone its results lie in `results`. `tensor_count` is at least the number of tensors
    /// that `build` makes. Throws Error.
    Graph(Memory & memory, const Backends & backends, Results & results, const std::vector<InputInfo> & infos,
          const std::vector<const Array *> & inputs, Kernels kernels, size_t tensor_count, const BuildGraph & build);
    ~Graph();
    Graph(const Graph &) = delete;
    Graph & operator=(const Graph &) = delete;

    /// Compute the outputs of the inputs, into arrays whose memory is used again where it suffices; none of them is an input. On the
    /// CPU alone, arrays are used where they lie; else they are copied there and back. Throws Error, also if memory does not suffice;
    /// what outputs hold then is not said.
    void run(const std::vector<InputInfo> & infos, const std::vector<const Array *> & inputs,
             const std::vector<OutputInfo> & declared, const std::vector<Array *> & outputs);

  private:
    /// The tensors that lie in arrays, of inputs and then of outputs: some where the CPU computes all, else none.
    std::vector<ggml_tensor *> lend(const std::vector<InputInfo> & infos, bool on_the_cpu);

    Memory & memory_;
    ggml_context_ptr context_;
    std::unique_ptr<Builder> builder_;
    Kernels kernels_;
    std::vector<ggml_tensor *> inputs_;
    std::vector<GraphOutput> outputs_;
    std::vector<bool> inputs_lent_, outputs_lent_;
    ggml_cgraph * graph_ = nullptr;
    std::unique_ptr<Placement> placement_;
};

}  // namespace graphc
