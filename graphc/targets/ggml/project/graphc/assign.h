#pragma once

#include "ggml-backend.h"

#include <vector>

namespace graphc {

/// Whether a tensor computes nothing.
bool is_view(const ggml_tensor * tensor);

/// What of a graph the CPU computes though the scheduler would give it to the device: copies at which Vulkan's backend ends the
/// process, and small tensors between two that the device cannot compute.
std::vector<ggml_tensor *> kept_on_cpu(ggml_backend_t device, ggml_cgraph * graph);

}  // namespace graphc
