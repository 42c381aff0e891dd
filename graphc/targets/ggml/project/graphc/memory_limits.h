#pragma once

#include "graphc/weights.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace graphc {

/// Bytes that each of the first devices may use; 0 for what it reports as free.
using Limits = std::vector<size_t>;

/// Limits as a person gives them, with commas between: bytes, "512MiB", "4GiB", "auto"; none for an empty text. Throws Error.
Limits parse_limits(const std::string & text);

/// What a model's calls read: its weights in the order of their first use, and those that one call reads besides single ones.
struct Reads {
    std::vector<std::pair<size_t, Use>> order;
    std::vector<std::vector<size_t>> together;
};

/// What a graph needs besides weights: bytes of intermediate results on each device, and the weights that are read by a device
/// where they do not lie.
struct Needs {
    std::vector<size_t> results;
    std::vector<size_t> displaced;
};

/// Gives weights their places, as `residence.h` says: at once where there is room, else for each graph when its sizes are known.
class Fitting {
  public:
    /// Throws Error if there are more limits than devices, or a device has too little memory.
    Fitting(Weights & weights, const Reads & reads, const Limits & limits);

    /// True if weights make room for graphs, of which one at a time may have memory.
    bool bounded() const { return bounded_; }

    /// See that the weights leave room for a graph, which `measure` measures. Throws Error if that cannot be.
    void fit(const std::function<Needs()> & measure);

    /// A line for each device: what of its memory holds what. None before it is known, and for the CPU alone.
    std::vector<std::string> text() const;

  private:
    bool fits(const Needs & needs);

    Weights & weights_;
    std::unique_ptr<graphc_residence, void (*)(graphc_residence *)> residence_;
    bool bounded_ = false;
};

}  // namespace graphc
