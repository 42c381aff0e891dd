#pragma once

#include "graphc/engine.h"
#include "graphc/launches.h"

#include "ggml.h"

#include <cstring>
#include <initializer_list>
#include <list>
#include <type_traits>
#include <vector>

namespace graphc {

/// A tensor of which one size is 0.
ggml_tensor * empty_tensor(ggml_context * ctx, ggml_type type, const Sizes4 & ne);

/// What a kernel is given beside tensors: a size, or a number by its bits as double.
struct KernelArgument {
    int64_t bits = 0;

    template <class T, std::enable_if_t<std::is_convertible_v<T, int64_t> && !std::is_floating_point_v<T>, int> = 0>
    KernelArgument(T size) : bits(static_cast<int64_t>(size)) {}
    KernelArgument(double number) { std::memcpy(&bits, &number, sizeof bits); }
    KernelArgument(float number) : KernelArgument(static_cast<double>(number)) {}
};

/// The generated kernels that a graph calls, and the sizes and the fault that they share with it; and those that it launches on a GPU.
class Kernels {
  public:
    /// `sizes` are the values of the model's symbols, `faults` what a fault means, counted from 1; `device` has kernels of a GPU, if the
    /// model launches some.
    Kernels(const std::vector<int64_t> & sizes, std::vector<const char *> faults, const DeviceKernels * device = nullptr);

    /// A call of a kernel that reads `inputs` and makes a tensor; `arguments` are what else it is given.
    ggml_tensor * call(ggml_context * ctx, ggml_custom_op_t kernel, ggml_type type, const Sizes4 & ne,
                       std::vector<ggml_tensor *> inputs, std::initializer_list<KernelArgument> arguments = {});

    /// A tensor that kernels make on the GPU of others; for the numbers see `LaunchWork`. Throws Error.
    ggml_tensor * launch(ggml_context * ctx, const Launched & launched, ggml_type type, const Sizes4 & ne,
                         std::vector<ggml_tensor *> inputs, std::initializer_list<int64_t> numbers);

    /// Forget the fault of the last run.
    void reset();

    /// Throws Error if a kernel met a value that it cannot compute with.
    void check() const;

  private:
    std::list<std::vector<int64_t>> data_;  // what kernels see: the number of a fault or 0, the sizes, and arguments if there are
    std::vector<const char *> faults_;
    const DeviceKernels * device_;
    std::list<LaunchWork> work_;
};

}  // namespace graphc
