#pragma once

#include "graphc/memory_limits.h"

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace graphc {

class Placement;

/// Where a model's weights and the results of its graphs lie; several runs may ask at once. On devices, graphs keep their memory until
/// another of their context finds none; within limits, one at a time has some, and weights make room for it. On the CPU alone, they
/// share that of their context.
class Memory {
  public:
    /// `limits` are what each device may use, as `parse_limits` reads them. Throws Error.
    Memory(const Backends & backends, const std::string & limits) : backends_(backends), limits_(parse_limits(limits)) {}

    /// Fills every slot of the weights, with what is `given` for it or else from the engine. `together` are those that one call reads
    /// with others. Throws Error.
    void load(const Engine & engine, const std::vector<WeightSlot> & slots, const std::vector<std::vector<size_t>> & together,
              const std::vector<std::optional<Values>> & given);

    const Backends & backends() const { return backends_; }

    /// The weights as they are stored. Whoever reads them sees to it that nobody replaces them meanwhile.
    const Weights & weights() const { return *weights_; }

    /// Use other numbers, and other factors beside weights: see `Weights::replace`.
    void replace(const std::vector<std::optional<Values>> & values, const std::vector<Beside> & beside);

    /// True if one graph at a time has memory.
    bool bounded() const { return fitting_->bounded(); }

    /// See that a graph has its places, and what is lent to it is at `addresses`. Throws Error if memory is out.
    void place(Placement & graph, const std::vector<void *> & addresses);

    /// A graph is no more.
    void forget(Placement & graph);

    /// A line for each device: what of its memory holds what. None before it is known, and for the CPU alone.
    std::vector<std::string> text() const;

    /// Bytes that are allocated on each device, for weights and graphs.
    std::vector<size_t> allocated() const;

  private:
    /// Take the memory of other graphs of the same context, which do not run now; false if they have none.
    bool release_others(const Placement & graph);

    Reads all_reads() const;

    const Backends & backends_;
    Limits limits_;
    Reads reads_;  // of the model's own weights
    std::unique_ptr<Weights> weights_;
    std::unique_ptr<Fitting> fitting_;
    mutable std::mutex mutex_;
    std::set<Placement *> placed_;
};

}  // namespace graphc
