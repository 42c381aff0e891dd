#pragma once

#include "graphc/graph.h"
#include "graphc/placement.h"

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace graphc {

class Contexts;

/// What one run of a model has for itself: queues of the devices, the graphs of recent sizes, and memory for their results. Weights
/// and code are the model's, and shared.
class Context {
  public:
    /// `backends` are used by nobody else.
    Context(Memory & memory, const Contexts & all, std::unique_ptr<Backends> backends)
        : memory_(memory), all_(all), backends_(std::move(backends)), results_(backends_->list().back()) {}

    Memory & memory() { return memory_; }
    const Backends & backends() const { return *backends_; }
    Results & results() { return results_; }

    /// The graph of a part for its sizes: one that is kept, or a new one, as `make` makes it.
    Graph & graph(const void * part, const std::vector<int64_t> & sizes, const std::function<std::unique_ptr<Graph>()> & make);

    /// Have the CPU use this run's share of the model's threads.
    void share_threads() const;

    /// No graph is kept any more.
    void forget() { graphs_.clear(); }

  private:
    using Kept = std::list<std::pair<std::vector<int64_t>, std::unique_ptr<Graph>>>;

    Memory & memory_;
    const Contexts & all_;
    std::unique_ptr<Backends> backends_;
    Results results_;
    std::unordered_map<const void *, Kept> graphs_;  // of each part, the most recently used first
};

/// The contexts of a model: as many as there are runs at the same time, up to a limit. A run that finds none waits for one. What
/// changes weights waits until nothing runs, and runs that begin meanwhile wait for it.
class Contexts {
  public:
    /// `most` runs at the same time, at least one, on the devices of `backends`. They share its threads.
    Contexts(Memory & memory, const Backends & backends, size_t most) : memory_(memory), backends_(backends), most_(most) {}
    Contexts(const Contexts &) = delete;
    Contexts & operator=(const Contexts &) = delete;

    /// What `run` gives for a context that nobody else has meanwhile. Throws Error if there is no memory for one.
    template <class F> auto with(F && run) {
        const Lease lease(*this);
        return run(lease.context);
    }

    /// Does something while nothing runs. Graphs are forgotten before it: they hold places of the old weights.
    void change(const std::function<void()> & change);

    /// The threads that each of the runs has at the moment.
    int threads() const;

  private:
    struct Lease {
        explicit Lease(Contexts & from) : contexts(from), context(from.take()) {}
        ~Lease() { contexts.give_back(context); }
        Lease(const Lease &) = delete;
        Lease & operator=(const Lease &) = delete;
        Contexts & contexts;
        Context & context;
    };

    Context & take();
    void give_back(Context & context);

    Memory & memory_;
    const Backends & backends_;
    const size_t most_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::unique_ptr<Context>> all_;
    std::vector<Context *> idle_;  // the one that was used last is taken first: its graphs are there
    size_t running_ = 0;
    size_t changes_ = 0;  // that wait, or are being done
};

}  // namespace graphc
