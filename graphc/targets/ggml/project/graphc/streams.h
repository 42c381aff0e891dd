#pragma once

#include "graphc/weights.h"

#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace graphc {

/// What a graph streams to one device: weights that stay on the host and are copied shortly before they are read. The graph is
/// cut into stretches whose weights fit into a slot; while one is computed, a thread fills the other slot for the next.
class Stream {
  public:
    /// The graph has its places; the weights have a residence. Throws Error if what one node reads does not fit into a slot.
    Stream(const Weights & weights, size_t device, ggml_cgraph * graph);
    Stream(const Stream &) = delete;
    Stream & operator=(const Stream &) = delete;

    /// Have the first stretch ready, and the second one coming.
    void start();

    /// True if a node is the last of a stretch that another one follows.
    bool ends(const ggml_tensor * node) const { return ends_.count(node) != 0; }

    /// The device waits; go on to the next stretch. Throws what copying threw.
    void advance();

    /// Wait for what is being copied. Throws what copying threw.
    void wait();

  private:
    /// Where in the slot each weight lies that consecutive nodes read.
    struct Stretch {
        std::map<size_t, size_t> offsets;
        size_t nbytes = 0;
    };

    Indices reads_of(ggml_tensor * node, const std::unordered_map<const ggml_tensor *, size_t> & own);
    void read(const Indices & reads, const ggml_tensor * before);
    void fill(size_t number);
    void point(size_t number);
    void ahead(size_t number);

    const Weights & weights_;
    size_t device_;
    bool concurrent_;
    std::vector<Stretch> stretches_;
    Indices filled_;  // stretches that lie in their slots
    std::unordered_map<size_t, std::vector<ggml_tensor *>> views_;
    std::unordered_set<const ggml_tensor *> ends_;
    size_t turn_ = 0;
    std::future<void> coming_;
};

/// What a graph streams, on all devices.
class Streams {
  public:
    /// `scheduler` runs the graph and lives as long.
    Streams(const Weights & weights, ggml_cgraph * graph, ggml_backend_sched_t scheduler);

    /// Run the graph, with the weights copied as they are needed; what `run` returns. Throws what copying threw.
    ggml_status compute(const std::function<ggml_status()> & run);

  private:
    static bool called(ggml_tensor * node, bool asked, void * streams);

    std::vector<std::unique_ptr<Stream>> streams_;
    std::exception_ptr error_;
};

}  // namespace graphc
