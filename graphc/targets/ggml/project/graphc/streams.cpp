#include "graphc/streams.h"

#include "graphc/assign.h"
#include "graphc/error.h"
#include "graphc/generated.h"

namespace graphc {

Stream::Stream(const Weights & weights, size_t device, ggml_cgraph * graph) : weights_(weights), device_(device), stretches_(1) {
    ggml_backend_dev_props props;
    ggml_backend_dev_get_props(ggml_backend_get_device(weights.backends().devices()[device]), &props);
    concurrent_ = props.caps.async;
    std::unordered_map<const ggml_tensor *, size_t> own;
    for (size_t index = 0; index < weights.tensors().size(); ++index) {
        const bool here = graphc_residence_of(weights.residence(), index) == static_cast<int>(device);
        if (here && graphc_residence_streamed(weights.residence(), index)) own[weights.tensors()[index]] = index;
    }
    const ggml_tensor * before = nullptr;
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        ggml_tensor * node = ggml_graph_node(graph, i);
        const Indices reads = reads_of(node, own);
        if (graphc_is_view(node)) continue;
        if (!reads.empty()) read(reads, before);
        before = node;
    }
}

/// The streamed weights whose memory a node reads; notes views of them.
Indices Stream::reads_of(ggml_tensor * node, const std::unordered_map<const ggml_tensor *, size_t> & own) {
    std::vector<ggml_tensor *> tensors(std::begin(node->src), std::end(node->src));
    tensors.push_back(node);
    Indices found;
    for (ggml_tensor * each : tensors) {
        if (each == nullptr) continue;
        const auto weight = own.find(each->view_src != nullptr ? each->view_src : each);
        if (weight == own.end()) continue;
        found.insert(weight->second);
        if (each->view_src != nullptr) views_[weight->second].push_back(each);
    }
    return found;
}

/// The next node reads these weights; another was `before` it.
void Stream::read(const Indices & reads, const ggml_tensor * before) {
    const size_t size = graphc_residence_slot(weights_.residence(), static_cast<int>(device_));
    ggml_backend_buffer_type_t kind = ggml_backend_get_default_buffer_type(weights_.backends().devices()[device_]);
    size_t more = 0;
    for (size_t index : reads) {
        if (stretches_.back().offsets.count(index) == 0) more += room_of(kind, weights_.tensors()[index]);
    }
    if (stretches_.back().nbytes + more > size) {
        ends_.insert(before);
        stretches_.emplace_back();
    }
    Stretch & current = stretches_.back();
    for (size_t index : reads) {
        if (!current.offsets.emplace(index, current.nbytes).second) continue;
        current.nbytes += room_of(kind, weights_.tensors()[index]);
    }
    if (current.nbytes > size) throw Error("one step reads more weights than there is a place for on the device");
}

void Stream::start() {
    wait();
    turn_ = 0;
    fill(0);
    point(0);
    ahead(1);
}

void Stream::advance() {
    wait();
    turn_ += 1;
    point(turn_);
    ahead(turn_ + 1);
}

void Stream::wait() {
    if (coming_.valid()) coming_.get();
}

/// Copy the weights of a stretch into its slot, unless they are there.
void Stream::fill(size_t number) {
    if (number >= stretches_.size() || filled_.count(number) != 0) return;
    for (size_t each = number % GRAPHC_SLOTS; each < stretches_.size(); each += GRAPHC_SLOTS) filled_.erase(each);
    ggml_backend_buffer_t buffer = weights_.slot(device_, number % GRAPHC_SLOTS);
    std::byte * base = static_cast<std::byte *>(ggml_backend_buffer_get_base(buffer));
    for (const auto & [index, offset] : stretches_[number].offsets) {
        ggml_tensor target = *weights_.tensors()[index];
        move_tensor(&target, buffer, base + offset);
        ggml_backend_buffer_init_tensor(buffer, &target);  // some pad rows of blocks with zeros
        const Values values = weights_.placed(index);
        ggml_backend_tensor_set(&target, values.data, 0, values.nbytes());
        check_devices();
    }
    filled_.insert(number);
}

/// Let the tensors of a stretch's weights, and their views, lie in its slot.
void Stream::point(size_t number) {
    ggml_backend_buffer_t buffer = weights_.slot(device_, number % GRAPHC_SLOTS);
    std::byte * base = static_cast<std::byte *>(ggml_backend_buffer_get_base(buffer));
    for (const auto & [index, offset] : stretches_[number].offsets) {
        move_tensor(weights_.tensors()[index], buffer, base + offset);
        for (ggml_tensor * view : views_[index]) move_tensor(view, buffer, base + offset + view->view_offs);
    }
}

/// Begin to fill the other slot: in a thread, or at once where the device does one thing at a time.
void Stream::ahead(size_t number) {
    if (concurrent_ && number < stretches_.size()) {
        coming_ = std::async(std::launch::async, [this, number] { fill(number); });
    } else {
        fill(number);
    }
}

Streams::Streams(const Weights & weights, ggml_cgraph * graph, ggml_backend_sched_t scheduler) {
    for (size_t device = 0; device < weights.backends().devices().size(); ++device) {
        if (weights.slot(device, 0) != nullptr) streams_.push_back(std::make_unique<Stream>(weights, device, graph));
    }
    if (!streams_.empty()) ggml_backend_sched_set_eval_callback(scheduler, called, this);
}

ggml_status Streams::compute(const std::function<ggml_status()> & run) {
    error_ = nullptr;
    for (auto & stream : streams_) stream->start();
    const ggml_status status = run();
    for (auto & stream : streams_) stream->wait();
    if (error_ != nullptr) std::rethrow_exception(error_);
    return status;
}

/// Asked whether a node is the last of a stretch; or told that it is computed. Errors may not pass through ggml.
bool Streams::called(ggml_tensor * node, bool asked, void * streams) {
    auto * self = static_cast<Streams *>(streams);
    bool ended = false;
    for (auto & stream : self->streams_) {
        if (!stream->ends(node)) continue;
        ended = true;
        try {
            if (!asked) stream->advance();
        } catch (...) {
            self->error_ = std::current_exception();
        }
    }
    return asked ? ended : true;
}

}  // namespace graphc
