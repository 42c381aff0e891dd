#include "graphc/memory.h"

#include "graphc/placement.h"

#include <algorithm>

namespace graphc {

void Memory::load(const Engine & engine, const std::vector<WeightSlot> & slots,
                  const std::vector<std::vector<size_t>> & together, const std::vector<std::optional<Values>> & given) {
    reads_.together = together;
    for (size_t i = 0; i < slots.size(); ++i) {
        if (slots[i].use != Use::none) reads_.order.emplace_back(i, slots[i].use);
    }
    weights_ = std::make_unique<Weights>(engine, slots, backends_, given);
    fitting_ = std::make_unique<Fitting>(*weights_, reads_, limits_);
}

void Memory::place(Placement & graph, const std::vector<void *> & addresses) {
    if (graph.placed()) return graph.move(addresses);
    if (!backends_.accelerated()) return graph.place(*weights_, addresses);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (fitting_->bounded()) {
        release_others(graph);  // all that have memory: one context runs
        fitting_->fit([&] { return graph.measure(*weights_); });
    }
    try {
        graph.place(*weights_, addresses);
    } catch (const Error &) {
        if (!release_others(graph)) throw;
        graph.place(*weights_, addresses);
    }
    placed_.insert(&graph);
}

bool Memory::release_others(const Placement & graph) {
    const size_t before = placed_.size();
    for (auto each = placed_.begin(); each != placed_.end();) {
        if (!(*each)->is_beside(graph)) {
            ++each;
            continue;
        }
        (*each)->release();
        each = placed_.erase(each);
    }
    return placed_.size() < before;
}

void Memory::replace(const std::vector<std::optional<Values>> & values, const std::vector<Beside> & beside) {
    const std::lock_guard<std::mutex> lock(mutex_);
    weights_->replace(values, beside, [this] { fitting_ = std::make_unique<Fitting>(*weights_, all_reads(), limits_); });
}

/// What is read of the weights, and of what is beside them at the moment.
Reads Memory::all_reads() const {
    Reads reads = reads_;
    for (const Factors & each : weights_->factors()) {
        const auto with = [&](const auto & read) { return read.first == each.weight; };
        const auto place = std::find_if(reads.order.begin(), reads.order.end(), with);
        reads.order.insert(place + 1, {{each.down, Use::whole}, {each.up, Use::whole}});
    }
    return reads;
}

void Memory::forget(Placement & graph) {
    const std::lock_guard<std::mutex> lock(mutex_);
    placed_.erase(&graph);
}

std::vector<std::string> Memory::text() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return fitting_->text();
}

std::vector<size_t> Memory::allocated() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<size_t> found;
    for (size_t device = 0; device < backends_.devices().size(); ++device) {
        found.push_back(weights_->allocated(device));
        for (const Placement * graph : placed_) found.back() += graph->reserved(device);
    }
    return found;
}

}  // namespace graphc
