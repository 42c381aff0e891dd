#pragma once

#include "graphc/array.h"
#include "graphc/device.h"
#include "graphc/engine.h"

#include "gpu/gpu.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace graphc {

/// What a kernel's parameter is: a tensor that the call reads, by its number, or one of these.
enum KernelParameter : int {
    result = -1,    // the tensor that the call makes
    scratch = -2,   // memory that nobody else needs
    counters = -3,  // memory that is 0 when the kernel begins, and when it ends
    size = -4,      // the next of the call's numbers
    divisor = -5,   // what divides by the next of the call's numbers
};

/// A kernel, as it is launched: threads of a block, bytes of a block's shared memory, and its parameters.
struct LaunchInfo {
    const char * kernel;
    uint32_t threads, shared;
    std::vector<int> parameters;
};

/// The kernels that a call launches, one after the other.
struct Launched {
    std::vector<LaunchInfo> each;
};

/// The kernels for GPUs that belong to a model's code: by target, the SHA-256 of the PTX in the engine; and the kernels, with the bytes
/// of a block's shared memory. There is none of a model that was not compiled with `--gpu`.
struct GpuCode {
    std::vector<std::pair<const char *, const char *>> code;
    std::vector<std::pair<const char *, uint32_t>> kernels;
};

/// The kernels of a model on its device.
class DeviceKernels {
  public:
    /// Of the engine's code that suits the device. Throws Error if the backends are no such device, the engine has no code for it or
    /// other code than belongs to the model's, or the device does not take it.
    DeviceKernels(const Engine & engine, const GpuCode & info, const Backends & backends);

    graphc_kernel * find(const char * name) const { return kernels_.at(name); }

  private:
    std::unique_ptr<graphc_module, void (*)(graphc_module *)> module_;
    std::map<std::string, graphc_kernel *> kernels_;
};

/// Throws Error for an array of more elements than kernels count to.
void require_countable(const Shape & shape);

/// What a node of a graph launches. The node has its address.
class LaunchWork {
  public:
    /// `numbers` are, for each kernel, its blocks along x, y and z and what its parameters take; the last two are the bytes of scratch memory
    /// and of counters. Throws Error for what a kernel cannot count.
    LaunchWork(const Launched & launched, const DeviceKernels & kernels, const std::vector<int64_t> & numbers);
    LaunchWork(const LaunchWork &) = delete;
    LaunchWork & operator=(const LaunchWork &) = delete;

    graphc_launches * launches() { return &launches_; }

  private:
    std::vector<std::vector<graphc_argument>> arguments_;
    std::vector<graphc_launch> each_;
    graphc_launches launches_;
};

}  // namespace graphc
