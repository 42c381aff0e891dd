#pragma once

#include <cstddef>
#include <set>
#include <vector>

namespace graphc {

// Which weights lie in the memory of which device, and which stay on the host, to be copied when their turn comes: arithmetic over
// bytes, the same as in Python's `residence.py`. Weights are taken in the order in which a run reads them, so that each device
// computes a stretch of the model and activations cross from one to the next once.

/// Stands for a device where a weight stays on the host and what reads it runs there.
constexpr int on_host = -1;

/// Places on a device for weights that are streamed: one is read while the other is filled.
constexpr size_t slot_count = 2;

using Indices = std::set<size_t>;

/// What a model's calls read of its weights: `order`, those that are read, by first use; `together`, those that one call reads
/// besides single ones; `by_rows`, those of which only rows are looked up; `by_host`, those that only kernels read, which no
/// device runs but the CPU.
struct Reads {
    std::vector<size_t> order;
    std::vector<std::vector<size_t>> together;
    Indices by_rows;
    Indices by_host;
};

/// For each weight its device, or `on_host`; those that are streamed through slots; the bytes of a slot, for each device.
struct Residence {
    std::vector<int> device;
    Indices streamed;
    std::vector<size_t> slots;

    /// The weights that lie on a device all the time.
    std::vector<size_t> resident(size_t device) const;
};

/// A device does not have the bytes that weights need at least.
struct TooSmall {
    size_t device;
    size_t nbytes;
};

/// The device of each weight, `on_host` for those of `host` and those that nothing reads. `room` are the bytes that devices have
/// for weights: each gets a share in proportion, in order. With `spill`, no more than there is room for, and the host computes
/// the rest.
std::vector<int> devices_of_weights(const std::vector<size_t> & order, const std::vector<size_t> & sizes,
                                    const std::vector<double> & room, const Indices & host, bool spill);

/// Which weights of each device are streamed: as few bytes as `room` allows, the largest first; those of which only rows are read
/// stay on the host instead. Throws TooSmall.
Residence residence_for(const std::vector<int> & device, const Reads & reads, const std::vector<size_t> & sizes,
                        const std::vector<double> & room);

/// The bytes of some weights together.
template <class I> size_t total(const I & indices, const std::vector<size_t> & sizes) {
    size_t sum = 0;
    for (size_t index : indices) sum += sizes[index];
    return sum;
}

}  // namespace graphc
