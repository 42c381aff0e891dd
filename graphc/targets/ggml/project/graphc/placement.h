#pragma once

#include "graphc/memory_limits.h"
#include "graphc/runner.h"

#include <memory>
#include <vector>

namespace graphc {

class Streams;

/// A graph's steps for our own threads (`runner.h`); none where ggml's compute it.
using Runner = std::unique_ptr<graphc_runner, void (*)(graphc_runner *)>;

/// A graph whose tensors are described in a context, and memory for them: which backend computes what, and where results lie.
class Placement {
  public:
    /// `tensors` is at least the number of tensors of the graph. Those that are `lent` lie where whoever runs the graph has them, on
    /// the CPU alone. The context and the backends outlive this.
    Placement(const Backends & backends, ggml_context * context, ggml_cgraph * graph, size_t tensors, std::vector<ggml_tensor *> lent);
    ~Placement();
    Placement(const Placement &) = delete;
    Placement & operator=(const Placement &) = delete;

    bool placed() const { return scheduler_ != nullptr; }

    /// What the graph needs, for the places that the weights have or pretend to have. Only if it is not placed.
    Needs measure(const Weights & weights);

    /// Give the graph's tensors their places; those that are lent are at `addresses`. Throws Error if memory is out.
    void place(const Weights & weights, const std::vector<void *> & addresses);

    /// Have those that are lent be somewhere else. The graph is placed.
    void move(const std::vector<void *> & addresses) const;

    /// Give back the memory, so that the graph may be measured or placed anew.
    void release();

    /// Run the graph, which is placed.
    ggml_status compute();

    /// Bytes that are reserved on a device.
    size_t reserved(size_t device) const;

  private:
    ggml_backend_sched_ptr new_scheduler() const;

    /// Tell a scheduler what is pinned, which it forgets with every graph.
    void pin(ggml_backend_sched_t scheduler) const;

    /// Make the tensors what they were when the graph was built, but for those that are lent, if there are addresses for them.
    void restore(const std::vector<void *> & addresses = {}) const;

    const Backends & backends_;
    ggml_context * context_;
    ggml_cgraph * graph_;
    size_t tensors_;
    std::vector<ggml_tensor *> lent_;
    std::vector<std::pair<ggml_tensor *, ggml_backend_t>> pinned_;  // who computes them, whatever the scheduler thinks
    std::vector<std::byte> untouched_;                              // the context as it is before the scheduler writes into it
    ggml_backend_sched_ptr scheduler_;
    std::unique_ptr<Streams> streams_;
    Runner runner_;
};

}  // namespace graphc
