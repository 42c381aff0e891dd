#include "graphc/placement.h"

#include "graphc/builder.h"
#include "graphc/error.h"
#include "graphc/generated.h"
#include "graphc/mapping.h"
#include "graphc/streams.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_map>

namespace graphc {

namespace {

/// Where a graph's results lie in the host's memory.
std::set<ggml_backend_buffer_t> host_buffers(ggml_cgraph * graph) {
    std::set<ggml_backend_buffer_t> found;
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        ggml_backend_buffer_t buffer = ggml_graph_node(graph, i)->buffer;
        if (buffer == nullptr || !ggml_backend_buffer_is_host(buffer)) continue;
        if (ggml_backend_buffer_get_usage(buffer) == GGML_BACKEND_BUFFER_USAGE_COMPUTE) found.insert(buffer);
    }
    return found;
}

/// Have Linux use huge pages for a graph's results in the host's memory.
void use_huge_pages(ggml_cgraph * graph) {
    for (ggml_backend_buffer_t buffer : host_buffers(graph)) {
        prefer_huge_pages(ggml_backend_buffer_get_base(buffer), ggml_backend_buffer_get_size(buffer));
    }
}

/// A buffer of the CPU's for tensors that lie anywhere in its memory.
ggml_backend_buffer_t elsewhere() {
    alignas(64) static std::byte nothing[64];
    static const ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(nothing, sizeof nothing);
    return buffer;
}

#ifdef _MSC_VER  // compiles none of our own code

Runner new_runner(const Backends &, ggml_cgraph *) { return Runner(nullptr, nullptr); }
ggml_status run(graphc_runner *, int) { return GGML_STATUS_FAILED; }

#else

/// For a graph that the CPU alone computes. Throws Error without memory.
Runner new_runner(const Backends & backends, ggml_cgraph * graph) {
    if (backends.accelerated()) return Runner(nullptr, graphc_runner_free);
    Runner runner(graphc_runner_new(&functions_of_ggml(), backends.list().back(), graph), graphc_runner_free);
    if (runner == nullptr) throw Error("not enough memory for a graph");
    return runner;
}

ggml_status run(graphc_runner * runner, int threads) { return static_cast<ggml_status>(graphc_runner_run(runner, threads, nullptr, nullptr)); }

#endif

}  // namespace

bool Results::place(ggml_cgraph * graph) {
    const size_t before = ggml_gallocr_get_buffer_size(allocator_.get(), 0);
    const bool placed = ggml_gallocr_reserve(allocator_.get(), graph) && ggml_gallocr_alloc_graph(allocator_.get(), graph);
    if (placed && ggml_gallocr_get_buffer_size(allocator_.get(), 0) == before) return true;
    ++turn_;
    if (placed) use_huge_pages(graph);
    return placed;
}

Placement::Placement(const Backends & backends, Results & results, ggml_context * context, ggml_cgraph * graph, size_t tensors,
                     std::vector<ggml_tensor *> lent)
    : backends_(backends), results_(results), context_(context), graph_(graph), tensors_(tensors), lent_(std::move(lent)),
      runner_(nullptr, nullptr) {
    if (!backends.accelerated()) return;
    for (ggml_backend_t device : backends.devices()) {
        for (const auto & each : pinned(device, backends.list().back(), graph)) pinned_.push_back(each);
    }
    const auto * memory = static_cast<const std::byte *>(ggml_get_mem_buffer(context));
    untouched_.assign(memory, memory + ggml_used_mem(context));
}

Placement::~Placement() = default;

Needs Placement::measure(const Weights & weights) {
    Needs needs;
    needs.results.resize(backends_.list().size());
    ggml_backend_sched_reserve_size(new_scheduler().get(), graph_, needs.results.data());
    release();
    const ggml_backend_sched_ptr scheduler = new_scheduler();  // the other forgot what is pinned
    ggml_backend_sched_split_graph(scheduler.get(), graph_);
    release();
    std::unordered_map<const ggml_tensor *, size_t> known;
    for (ggml_tensor * tensor : weights.tensors()) known.emplace(tensor, known.size());
    for (int i = 0; i < ggml_graph_n_nodes(graph_); ++i) {
        ggml_tensor * node = ggml_graph_node(graph_, i);
        if (graphc_is_view(node)) continue;
        ggml_backend_t runs = ggml_backend_sched_get_tensor_backend(scheduler.get(), node);
        for (ggml_tensor * source : node->src) {
            ggml_tensor * root = source != nullptr && source->view_src != nullptr ? source->view_src : source;
            const auto weight = known.find(root);
            if (weight == known.end() || ggml_backend_sched_get_tensor_backend(scheduler.get(), root) == runs) continue;
            needs.displaced.push_back(weight->second);
        }
    }
    return needs;
}

void Placement::place(const Weights & weights, const std::vector<void *> & addresses) {
    restore(addresses);
    if (!(backends_.accelerated() ? schedule() : results_.place(graph_))) {
        release();
        check_devices();
        throw Error("not enough memory for the intermediate results of these sizes");
    }
    if (backends_.accelerated()) streams_ = std::make_unique<Streams>(weights, graph_, scheduler_.get());
    runner_ = new_runner(backends_, graph_);
    turn_ = results_.turn();
}

bool Placement::schedule() {
    scheduler_ = new_scheduler();
    if (!ggml_backend_sched_reserve(scheduler_.get(), graph_)) return false;  // what follows would end the process
    restore();
    pin(scheduler_.get());
    if (!ggml_backend_sched_alloc_graph(scheduler_.get(), graph_)) return false;
    use_huge_pages(graph_);
    return true;
}

void Placement::release() {
    runner_.reset();
    streams_.reset();
    scheduler_.reset();
    restore();
}

void Placement::restore(const std::vector<void *> & addresses) const {
    if (backends_.accelerated()) {
        std::memcpy(ggml_get_mem_buffer(context_), untouched_.data(), untouched_.size());
        return;
    }
    for (ggml_tensor * each = ggml_get_first_tensor(context_); each; each = ggml_get_next_tensor(context_, each)) {
        const bool seen = each->view_src != nullptr && each->view_src->data != nullptr;  // of a weight; other sources come first
        each->buffer = nullptr;
        each->data = seen ? static_cast<std::byte *>(each->view_src->data) + each->view_offs : nullptr;
    }
    for (size_t i = 0; i < addresses.size(); ++i) {
        lent_[i]->buffer = elsewhere();
        lent_[i]->data = addresses[i];
    }
}

void Placement::move(const std::vector<void *> & addresses) const {
    for (size_t i = 0; i < addresses.size(); ++i) lent_[i]->data = addresses[i];
    for (ggml_tensor * each = ggml_get_first_tensor(context_); each; each = ggml_get_next_tensor(context_, each)) {
        if (std::find(lent_.begin(), lent_.end(), each->view_src) == lent_.end()) continue;
        each->data = static_cast<std::byte *>(each->view_src->data) + each->view_offs;
    }
}

ggml_status Placement::compute() {
    if (runner_ != nullptr) return run(runner_.get(), backends_.threads_in_use());
    if (!backends_.accelerated()) return ggml_backend_graph_compute(backends_.list().back(), graph_);
    const auto run = [this] { return ggml_backend_sched_graph_compute(scheduler_.get(), graph_); };
    return streams_->compute(run);
}

size_t Placement::reserved(size_t device) const {
    return ggml_backend_sched_get_buffer_size(scheduler_.get(), backends_.devices()[device]);
}

ggml_backend_sched_ptr Placement::new_scheduler() const {
    std::vector<ggml_backend_t> list = backends_.list();
    ggml_backend_sched_ptr scheduler(ggml_backend_sched_new(list.data(), nullptr, static_cast<int>(list.size()), tensors_, false, false));
    pin(scheduler.get());
    return scheduler;
}

void Placement::pin(ggml_backend_sched_t scheduler) const {
    for (const auto & [tensor, backend] : pinned_) ggml_backend_sched_set_tensor_backend(scheduler, tensor, backend);
}

}  // namespace graphc
