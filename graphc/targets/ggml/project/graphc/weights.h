#pragma once

#include "graphc/device.h"
#include "graphc/engine.h"

#include <vector>

namespace graphc {

/// Where the model's code keeps a weight, and what the weight must be. Slot `i` is tensor `w<i>` of the engine. A weight that
/// numbers the rows of a table says how many `rows` the table has.
struct WeightSlot {
    ggml_tensor ** tensor;
    const char * name;
    ggml_type type;
    Sizes4 ne;
    int64_t rows = 0;
};

/// The weights of a model on a device: used where they lie in the mapped file on the CPU, else copied to the device.
class Weights {
  public:
    /// Fills every slot. Throws Error if a tensor is missing or not what the slot says, or the device has too little memory.
    Weights(const Engine & engine, const std::vector<WeightSlot> & slots, const Backends & backends);

  private:
    ggml_context_ptr context_;
    ggml_backend_buffer_ptr buffer_;
};

}  // namespace graphc
