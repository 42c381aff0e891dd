#pragma once

#include "graphc/engine.h"

#include "ggml.h"

#include <vector>

namespace graphc {

/// A tensor of which one size is 0.
ggml_tensor * empty_tensor(ggml_context * ctx, ggml_type type, const Sizes4 & ne);

/// The generated kernels that a graph calls, and the sizes and the fault that they share with it.
class Kernels {
  public:
    /// `sizes` are the values of the model's symbols, `faults` what a fault means, counted from 1.
    Kernels(const std::vector<int64_t> & sizes, std::vector<const char *> faults);

    /// A call of a kernel that reads `inputs` and makes a tensor.
    ggml_tensor * call(ggml_context * ctx, ggml_custom_op_t kernel, ggml_type type, const Sizes4 & ne,
                       std::vector<ggml_tensor *> inputs);

    /// Forget the fault of the last run.
    void reset() { data_[0] = 0; }

    /// Throws Error if a kernel met a value that it cannot compute with.
    void check() const;

  private:
    std::vector<int64_t> data_;  // what kernels see: the number of a fault or 0, then the sizes
    std::vector<const char *> faults_;
};

}  // namespace graphc
