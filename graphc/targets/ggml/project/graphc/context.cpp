#include "graphc/context.h"

#include <algorithm>

namespace graphc {

namespace {

/// Graphs of recent sizes that a context keeps of each part: on the CPU alone they share memory, on devices each has its own.
constexpr size_t kept_sizes = 8, kept_on_devices = 2;

}  // namespace

Graph & Context::graph(const void * part, const std::vector<int64_t> & sizes, const std::function<std::unique_ptr<Graph>()> & make) {
    Kept & kept = graphs_[part];
    const auto found = std::find_if(kept.begin(), kept.end(), [&](const auto & each) { return each.first == sizes; });
    if (found != kept.end()) {
        kept.splice(kept.begin(), kept, found);
    } else {
        kept.emplace_front(sizes, make());
        if (kept.size() > (backends_->accelerated() ? kept_on_devices : kept_sizes)) kept.pop_back();
    }
    return *kept.front().second;
}

void Context::share_threads() const { backends_->use_threads(all_.threads()); }

Context & Contexts::take() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return changes_ == 0 && running_ < most_; });
    if (idle_.empty()) {
        idle_.reserve(all_.size() + 1);  // so that giving back never fails
        all_.push_back(std::make_unique<Context>(memory_, *this, backends_.again()));
        idle_.push_back(all_.back().get());
    }
    Context * context = idle_.back();
    idle_.pop_back();
    ++running_;
    return *context;
}

void Contexts::give_back(Context & context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(&context);
    --running_;
    changed_.notify_all();
}

void Contexts::change(const std::function<void()> & change) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++changes_;
    const auto done = [this](void *) {
        --changes_;
        changed_.notify_all();
    };
    const std::unique_ptr<void, decltype(done)> end(this, done);
    changed_.wait(lock, [this] { return running_ == 0; });
    for (const std::unique_ptr<Context> & each : all_) each->forget();
    change();
}

int Contexts::threads() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::max(1, backends_.threads() / static_cast<int>(std::max<size_t>(running_, 1)));
}

}  // namespace graphc
