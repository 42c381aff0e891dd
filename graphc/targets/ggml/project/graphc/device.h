#pragma once

#include "ggml-backend.h"
#include "ggml-cpp.h"

#include <memory>
#include <string>
#include <vector>

namespace graphc {

/// A device that ggml was built for and found on this machine.
struct DeviceInfo {
    std::string name;         // "CPU", "CUDA0", "Vulkan0"
    std::string description;  // the hardware's own name
    size_t free_bytes = 0;
    size_t total_bytes = 0;
};

std::vector<DeviceInfo> devices();

/// Threads to use unless told: the processors that this process may run on.
int default_threads();

/// What a person calls a backend's device: ggml's name ("Vulkan0"), or the address of its server.
std::string device_name(ggml_backend_t backend);

/// ggml's name of what a backend is for: "CPU", "Vulkan".
std::string backend_name(ggml_backend_t backend);

/// The devices that compute, and the CPU behind them for what they cannot do.
class Backends {
  public:
    /// `device` is a name as `devices()` gives it, in any case and with or without a final 0 ("cuda"), or the address of a
    /// server of ggml's RPC ("rpc://HOST:PORT"), or "gpu" for the first graphics processor, or several with commas between; empty
    /// for the CPU. `threads` below 1 means `default_threads()`. If `fast`, devices may multiply float32 in float16 or
    /// TF32, where the choice of a process's first model holds for the others, and the CPU in bfloat16. `choices` are between ways of computing (`read_choices`);
    /// they do not count for several devices. Throws Error.
    Backends(const std::string & device, int threads, bool fast = false, std::string choices = {});

    /// The same devices, opened once more: what computes at the same time as these.
    std::unique_ptr<Backends> again() const;

    int threads() const { return threads_; }

    /// Have the CPU compute with so many threads from now on.
    void use_threads(int threads);
    int threads_in_use() const { return threads_in_use_; }

    /// All of them, the CPU last; and those before it.
    const std::vector<ggml_backend_t> & list() const { return list_; }
    const std::vector<ggml_backend_t> & devices() const { return devices_; }
    bool accelerated() const { return !devices_.empty(); }

    /// How many devices are those of servers.
    size_t servers() const { return held_.size(); }

    /// True if the CPU is one of several devices that were named, so that it gets what the others have no room for.
    bool spill() const { return spill_; }

    /// True if products may give up digits of float32.
    bool fast() const { return fast_; }

    const std::string & choices() const { return choices_; }

  private:
    explicit Backends(const Backends & other);

    int threads_, threads_in_use_ = 0;
    bool fast_;
    std::string choices_;
    bool spill_ = false;
    std::vector<ggml_backend_ptr> owned_;
    std::vector<ggml_backend_t> list_, devices_;
    std::vector<ggml_backend_buffer_ptr> held_;
};

}  // namespace graphc
