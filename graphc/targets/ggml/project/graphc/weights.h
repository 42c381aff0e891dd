#pragma once

#include "graphc/device.h"
#include "graphc/engine.h"
#include "graphc/residence.h"
#include "graphc/values.h"

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace graphc {

/// What is read of a weight: all of it; all of it by matrix products alone (said of weights in blocks); only rows that are looked up;
/// nothing but by kernels, which run on the CPU; nothing.
enum class Use { whole, products, rows, kernels, none };

/// How kernels of a GPU read a weight: the order of its four axes in memory (of the shape, the outermost first), and the type. Of a
/// kernel `of_doubled` images, they read what is left for images that are not doubled yet (`undoubled`), each in this order.
struct Packing {
    std::array<int64_t, 4> order;
    ggml_type type;
    bool of_doubled = false;
};

/// Where the model's code keeps a weight, and what the weight must be. Slot `i` is tensor `w<i>` of the engine; they are in the order
/// in which a run first reads them. A weight that numbers the rows of a table says how many `rows` the table has.
struct WeightSlot {
    ggml_tensor ** tensor;
    const char * name;
    ggml_type type;
    Sizes4 ne;
    Use use = Use::whole;
    int64_t rows = 0;
    std::optional<Packing> packing = {};
};

using Indices = std::set<size_t>;

/// What is added to the products with a weight: those with `up [rows, rank]` of those with `down [rank, columns]`, both float32.
struct Beside {
    size_t weight;
    Values down;
    Values up;
};

/// Which of the tensors are a weight and the factors beside it.
struct Factors {
    size_t weight;
    size_t down;
    size_t up;
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

    /// The model's own, in the order of the slots, and then the factors that are beside some: down, up, down, up, ...
    const std::vector<ggml_tensor *> & tensors() const { return held_.tensors; }

    /// What is beside which weight.
    std::vector<Factors> factors() const;

    /// A weight in the memory of the process: in the mapped file, or where it was made.
    const Values & stored(size_t index) const { return held_.stored[index].values; }

    /// The same as its tensor holds it: packed, if kernels of a GPU read it so. Throws Error.
    Values placed(size_t index) const;

    /// Use other numbers, of the same types and shapes; weights without a value stay. What is beside weights becomes this, in the
    /// order of the weights; if that needs other tensors than before, nothing has a place any more when `renew` is called. Nothing
    /// may be running, and no graph that was built before is used afterwards. On an error, also one of `renew`, all is as before.
    void replace(const std::vector<std::optional<Values>> & values, const std::vector<Beside> & beside,
                 const std::function<void()> & renew);

    /// The bytes that each weight takes on a device.
    std::vector<size_t> sizes() const;

    /// The weights that one of the devices cannot hold, whatever its memory: some have a largest buffer.
    Indices refused() const;

    /// Where everything lies, once `place` has been called; else null.
    const graphc_residence * residence() const { return residence_; }

    /// Give every weight its place, and devices what is theirs. `residence` lives as long. Throws Error if a device has too little memory.
    void place(const graphc_residence & residence);

    /// Let the weights look as if they lay there, so that a graph of them can be measured.
    void pretend(const graphc_residence & residence);

    /// One of the two places on a device for what is streamed to it; null if nothing is.
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

    /// What there is: the model's own weights, then factors, and which weights they are beside.
    struct Held {
        std::vector<ggml_tensor *> tensors;
        std::vector<Stored> stored;
        std::vector<size_t> beside;
        std::shared_ptr<ggml_context> factors;
    };

    Held with(const std::vector<Beside> & beside) const;

    const Backends & backends_;
    const size_t own_;  // weights of the model
    std::vector<std::optional<Packing>> packings_;  // of those
    std::vector<Stored> packed_;                    // what lies in the memory of the process
    ggml_context_ptr context_;
    Held held_;
    std::vector<std::vector<ggml_backend_buffer_ptr>> buffers_;  // of each device
    std::vector<std::array<ggml_backend_buffer_t, GRAPHC_SLOTS>> slots_;
    const graphc_residence * residence_ = nullptr;
};

/// Say that a tensor lies there, whatever lies there; nowhere if both are null.
void move_tensor(ggml_tensor * tensor, ggml_backend_buffer_t buffer, void * address);

/// The bytes that a tensor takes in a buffer of a kind, so that another may follow.
size_t room_of(ggml_backend_buffer_type_t kind, const ggml_tensor * tensor);

}  // namespace graphc
