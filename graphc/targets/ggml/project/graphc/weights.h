#pragma once

#include "graphc/device.h"
#include "graphc/engine.h"
#include "graphc/residence.h"
#include "graphc/values.h"

#include <array>
#include <optional>
#include <vector>

namespace graphc {

/// What is read of a weight: all of it; only rows that are looked up; nothing but by kernels, which run on the CPU; nothing.
enum class Use { whole, rows, kernels, none };

/// Where the model's code keeps a weight, and what the weight must be. Slot `i` is tensor `w<i>` of the engine; they are in the order
/// in which a run first reads them. A weight that numbers the rows of a table says how many `rows` the table has.
struct WeightSlot {
    ggml_tensor ** tensor;
    const char * name;
    ggml_type type;
    Sizes4 ne;
    Use use = Use::whole;
    int64_t rows = 0;
};

/// The weights of a model as tensors: used where they lie in the process, copied to devices, or streamed there. They have no
/// places until `place` or `pretend` gives them some.
class Weights {
  public:
    /// Fills every slot: with what is `given` for it, else from the engine. Throws Error if a tensor is missing or not what the slot
    /// says.
    Weights(const Engine & engine, const std::vector<WeightSlot> & slots, const Backends & backends,
            const std::vector<std::optional<Values>> & given);

    const Backends & backends() const { return backends_; }
    const std::vector<ggml_tensor *> & tensors() const { return tensors_; }

    /// A weight in the memory of the process: in the mapped file, or where it was made.
    const Values & stored(size_t index) const { return stored_[index].values; }

    /// Use other numbers, of the same types and shapes; weights without a value stay. Nothing may be running, and no graph that was
    /// built before is used afterwards. On an error all is as before.
    void replace(std::vector<std::optional<Values>> values);

    /// The bytes that each weight takes on a device.
    std::vector<size_t> sizes() const;

    /// The weights that one of the devices cannot hold, whatever its memory: some have a largest buffer.
    Indices refused() const;

    /// Where everything lies, once `place` has been called.
    const std::optional<Residence> & residence() const { return residence_; }

    /// Give every weight its place, and devices what is theirs. Throws Error if one has too little memory.
    void place(const Residence & residence);

    /// Let the weights look as if they lay on these devices, so that a graph of them can be measured.
    void pretend(const std::vector<int> & device);

    /// One of the two places on a device for what is streamed to it.
    ggml_backend_buffer_t slot(size_t device, size_t number) const { return slots_[device][number]; }

    /// Bytes that are allocated on a device.
    size_t allocated(size_t device) const;

  private:
    /// A weight, and the buffer that it is taken for a part of where the CPU reads it.
    struct Stored {
        Values values;
        std::shared_ptr<ggml_backend_buffer> buffer;
    };

    void clear();
    void map(size_t index);
    void copy(size_t device, const std::vector<size_t> & own);
    ggml_backend_buffer_t new_buffer(size_t device, size_t nbytes);

    const Backends & backends_;
    ggml_context_ptr context_;
    std::vector<ggml_tensor *> tensors_;
    std::vector<Stored> stored_;
    std::vector<std::vector<ggml_backend_buffer_ptr>> buffers_;  // of each device
    std::vector<std::array<ggml_backend_buffer_t, slot_count>> slots_;
    std::optional<Residence> residence_;
};

/// Say that a tensor lies there, whatever lies there; nowhere if both are null.
void move_tensor(ggml_tensor * tensor, ggml_backend_buffer_t buffer, void * address);

/// The bytes that a tensor takes in a buffer of a kind, so that another may follow.
size_t room_of(ggml_backend_buffer_type_t kind, const ggml_tensor * tensor);

}  // namespace graphc
