#pragma once

#include "graphc/choices.h"

#include "ggml-backend.h"
#include "ggml-cpp.h"

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

/// The device that computes, and the CPU behind it for what the device cannot do.
class Backends {
  public:
    /// `device` is a name as `devices()` gives it, in any case and with or without a final 0 ("cuda"), or the address of a
    /// server of ggml's RPC ("rpc://HOST:PORT"); empty for the first graphics processor, or the CPU where there is none.
    /// `threads` below 1 means `default_threads()`. If `fast`, devices may multiply float32 in float16 or TF32; the choice of a
    /// process's first model holds for the others. `choices` are between ways of computing. Throws Error.
    Backends(const std::string & device, int threads, bool fast = false, Choices choices = {});

    int threads() const { return threads_; }
    ggml_backend_t device() const { return list_.front(); }
    bool accelerated() const { return list_.size() > 1; }
    const std::vector<ggml_backend_t> & list() const { return list_; }

    /// Whether devices may give up digits of float32.
    bool fast() const { return fast_; }

    const Choices & choices() const { return choices_; }

  private:
    int threads_;
    bool fast_;
    Choices choices_;
    ggml_backend_ptr cpu_;
    ggml_backend_ptr accelerator_;
    std::vector<ggml_backend_t> list_;
};

}  // namespace graphc
