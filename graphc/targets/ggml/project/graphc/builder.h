#pragma once

#include "graphc/assign.h"
#include "graphc/build.h"
#include "graphc/device.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace graphc {

class Weights;

/// ggml's functions, for what is C.
const graphc_ggml & functions_of_ggml();

/// What the calls of one graph are made with; ggml's functions take it for their context. It lives as long as the graph.
class Builder {
  public:
    /// The tensors are in `context`, and `backends` compute them. Factors beside weights are added to what is multiplied with those.
    Builder(ggml_context * context, const Backends & backends, const Weights & weights);

    operator ggml_context *() const { return context_; }
    operator graphc_builder *() const { return builder_.get(); }

    /// What becomes of each element of a result on its way out, by its name and numbers: ctx.activation("clip", 0, 6). Throws Error if
    /// there is no such function, or without memory.
    const graphc_activation * activation(const char * name, float first = 0, float second = 0) const;

  private:
    ggml_context * context_;
    std::unique_ptr<graphc_builder, void (*)(graphc_builder *)> builder_;
};

/// What of a graph the scheduler would give the wrong one of the two, with the right one (`assign.h`). Throws Error without memory.
std::vector<std::pair<ggml_tensor *, ggml_backend_t>> pinned(ggml_backend_t device, ggml_backend_t cpu, ggml_cgraph * graph);

/// The order that several servers need (`assign.h`). Throws Error without memory.
void order_views(ggml_cgraph * graph);

using Tensor = ggml_tensor *;
using Tensors = std::vector<Tensor>;
using Activation = const graphc_activation *;

/// Ways of computing calls that were measured to be the fastest on a device: the text of a file that `graphc tune --output FILE` wrote
/// (see `graphc_builder_choose`). Throws Error if it cannot be read, or holds anything but choices between known ways.
std::string read_choices(const std::filesystem::path & file);

/// The tensor. Throws Error if there is none: without memory.
Tensor checked(Tensor tensor);

}  // namespace graphc

#include "graphc/calls.h"
