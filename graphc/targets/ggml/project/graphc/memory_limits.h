#pragma once

#include "graphc/weights.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace graphc {

/// Bytes that each of the first devices may use; nothing for what it reports as free.
using Limits = std::vector<std::optional<size_t>>;

/// Limits as a person gives them, with commas between: bytes, "512MiB", "4GiB", "auto"; none for an empty text. Throws Error.
Limits parse_limits(const std::string & text);

/// What a graph needs besides weights: bytes of intermediate results on each device, and the weights that are read by a device
/// where they do not lie.
struct Needs {
    std::vector<size_t> results;
    Indices displaced;
};

/// Gives weights their places: at once where there is room, else for each graph when its sizes are known. With `Backends::spill`
/// the CPU computes what does not fit, else its weights are streamed.
class Fitting {
  public:
    /// Throws Error if there are more limits than devices, or a device has too little memory.
    Fitting(Weights & weights, Reads reads, const Limits & limits);

    /// True if weights make room for graphs, of which one at a time may have memory.
    bool bounded() const { return bounded_; }

    /// See that the weights leave room for a graph, which `measure` measures. Throws Error if that cannot be.
    void fit(const std::function<Needs()> & measure);

    /// A line for each device: what of its memory holds what. None before it is known, and for the CPU alone.
    std::vector<std::string> text() const;

  private:
    std::vector<double> room() const;
    bool suits(const Needs & needs);
    std::string too_small(const TooSmall & error) const;

    Weights & weights_;
    Reads reads_;
    std::vector<size_t> sizes_;
    std::vector<size_t> limits_;
    std::vector<size_t> needed_;
    Indices host_;
    bool bounded_ = false;
};

}  // namespace graphc
