#pragma once

#include "graphc/memory_limits.h"
#include "graphc/runner.h"

#include <memory>
#include <vector>

namespace graphc {

class Streams;

/// A graph's steps for our own threads (`runner.h`); none where ggml's compute it.
using Runner = std::unique_ptr<graphc_runner, void (*)(graphc_runner *)>;

/// The memory of intermediate results where the CPU computes alone: one for all graphs of a context, as large as the largest needs.
/// They run one after the other, and nothing of a run is needed in the next.
class Results {
  public:
    explicit Results(ggml_backend_t cpu) : allocator_(ggml_gallocr_new(ggml_backend_get_default_buffer_type(cpu))) {}

    /// Give a graph its places; false if memory is out. A graph that needs more than there is gets other memory, and those before
    /// have no places any more.
    bool place(ggml_cgraph * graph);

    /// Another number once the memory is another.
    size_t turn() const { return turn_; }

  private:
    ggml_gallocr_ptr allocator_;
    size_t turn_ = 1;
};

/// A graph whose tensors are described in a context, and memory for them: which backend computes what, and where results lie.
class Placement {
  public:
    /// `tensors` is at least the number of tensors of the graph. On the CPU alone, its results lie in `results`, and those that
    /// are `lent` where whoever runs the graph has them. The results, the context and the backends outlive this.
    Placement(const Backends & backends, Results & results, ggml_context * context, ggml_cgraph * graph, size_t tensors,
              std::vector<ggml_tensor *> lent);
    ~Placement();
    Placement(const Placement &) = delete;
    Placement & operator=(const Placement &) = delete;

    bool placed() const { return backends_.accelerated() ? scheduler_ != nullptr : turn_ == results_.turn(); }

    /// True for another graph of the same context, of which one runs at a time.
    bool is_beside(const Placement & other) const { return this != &other && &results_ == &other.results_; }

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
    /// Give the graph's tensors their places on devices; false if memory is out.
    bool schedule();

    ggml_backend_sched_ptr new_scheduler() const;

    /// Tell a scheduler what is pinned, which it forgets with every graph.
    void pin(ggml_backend_sched_t scheduler) const;

    /// Make the tensors what they were when the graph was built, but for those that are lent, if there are addresses for them.
    void restore(const std::vector<void *> & addresses = {}) const;

    const Backends & backends_;
    Results & results_;
    size_t turn_ = 0;  // of the results, when they gave the graph its places
    ggml_context * context_;
    ggml_cgraph * graph_;
    size_t tensors_;
    std::vector<ggml_tensor *> lent_;
    std::vector<std::pair<ggml_tensor *, ggml_backend_t>> pinned_;  // who computes them, whatever the scheduler thinks
    std::vector<std::byte> untouched_;                              // the context as it is before a scheduler writes into it
    ggml_backend_sched_ptr scheduler_;
    std::unique_ptr<Streams> streams_;
    Runner runner_;
};

}  // namespace graphc
