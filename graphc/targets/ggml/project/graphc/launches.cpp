#include "graphc/launches.h"

#include "graphc/error.h"
#include "graphc/generated.h"
#include "graphc/sha256.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <limits>
#include <string_view>

namespace graphc {

namespace {

/// What a device's code is compiled for: "sm_90".
std::string architecture_of(ggml_backend_dev_t device) {
    ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(device);
    void * address = ggml_backend_reg_get_proc_address(registry, "ggml_backend_get_features");
    if (address == nullptr) return "";
    for (auto * each = reinterpret_cast<ggml_backend_get_features_t>(address)(registry); each->name != nullptr; ++each) {
        if (std::string_view(each->name) == "ARCHITECTURE") return each->value;
    }
    return "";
}

/// The number of a target, 90 of "sm_90" and "sm_90a", and whether later GPUs run its code too: that of the first.
std::pair<int, bool> numbered(const std::string & target) {
    if (target.compare(0, 3, "sm_") != 0) return {0, false};
    const size_t end = target.find_first_not_of("0123456789", 3);
    const std::string digits = target.substr(3, end == std::string::npos ? end : end - 3);
    return {digits.empty() || digits.size() > 4 ? 0 : std::stoi(digits), end == std::string::npos};
}

/// The target whose code suits an architecture best; nullptr if it runs none.
const std::pair<const char *, const char *> * best(const GpuCode & info, const std::string & architecture) {
    const int here = numbered(architecture).first;
    const std::pair<const char *, const char *> * found = nullptr;
    for (const auto & each : info.code) {
        const auto [number, portable] = numbered(each.first);
        if (here == 0 || number == 0 || number > here || (number < here && !portable)) continue;
        const auto [other, portably] = found == nullptr ? decltype(numbered(""))() : numbered(found->first);
        if (found == nullptr || number > other || (number == other && portably)) found = &each;
    }
    return found;
}

std::string listed(const GpuCode & info) {
    std::string text;
    for (const auto & [target, sum] : info.code) text += (text.empty() ? "" : ", ") + std::string(target);
    return text;
}

graphc_module * module_of(const Engine & engine, const GpuCode & info, const Backends & backends) {
    const bool fits = backends.devices().size() == 1 && is_generated(ggml_backend_get_device(backends.devices()[0]));
    if (!fits) {
        throw Error("this model was compiled for devices of generated kernels (--gpu " + listed(info) +
                    "): give one of those that --list names so");
    }
    ggml_backend_dev_t device = ggml_backend_get_device(backends.devices()[0]);
    const std::string architecture = architecture_of(device);
    const auto * target = best(info, architecture);
    if (target == nullptr) {
        throw Error("this model has kernels for " + listed(info) + ", and " + ggml_backend_dev_name(device) + " is " + architecture);
    }
    const std::string code(engine.kernels(target->first));  // it ends with a zero for the driver
    if (sha256(code) != target->second) {
        throw Error(engine.path() + " has other kernels than those that were compiled together with this code");
    }
    graphc_module * module = graphc_gpu_module(device, code.c_str(), code.size() + 1);
    check_devices();
    return module;
}

/// A number that kernels count with. Throws Error for a larger one.
int32_t counted(int64_t number, const char * kernel) {
    if (number > std::numeric_limits<int32_t>::max() || number < -std::numeric_limits<int32_t>::max()) {
        throw Error(std::string(kernel) + ": a size is " + std::to_string(number) + ", and a kernel counts to 2147483647");
    }
    return static_cast<int32_t>(number);
}

graphc_argument value_of(const void * bytes, int32_t count) {
    graphc_argument argument{};
    argument.kind = GRAPHC_VALUE, argument.number = count;
    std::memcpy(argument.bytes, bytes, static_cast<size_t>(count));
    return argument;
}

graphc_argument size_of(int64_t number, const char * kernel) {
    const int32_t value = counted(number, kernel);
    return value_of(&value, sizeof value);
}

/// What divides numbers below 2^31: with a shift s that makes 2^s at least the divisor, the multiplier is 2^(31 + s) / divisor, rounded
/// up.
graphc_argument divisor_of(int64_t number, const char * kernel) {
    const int32_t by = counted(number, kernel);
    if (by < 1) throw Error(std::string(kernel) + ": divides by " + std::to_string(number));
    uint32_t shift = 0;
    while ((uint64_t{1} << shift) < static_cast<uint64_t>(by)) ++shift;
    const uint64_t whole = uint64_t{1} << (31 + shift);
    const uint64_t multiplier = whole / static_cast<uint64_t>(by) + (whole % static_cast<uint64_t>(by) != 0);
    const uint32_t value[] = {static_cast<uint32_t>(by), static_cast<uint32_t>(multiplier), shift};
    return value_of(value, sizeof value);
}

graphc_argument place_of(int parameter) {
    graphc_argument argument{};
    argument.kind = parameter == scratch ? GRAPHC_SCRATCH : parameter == counters ? GRAPHC_COUNTERS : GRAPHC_TENSOR;
    argument.number = argument.kind == GRAPHC_TENSOR ? parameter : 0;
    return argument;
}

}  // namespace

void require_countable(const Shape & shape) {
    if (element_count(shape, 1) > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
        throw Error("kernels count to 2147483647, and an array is " + to_string(shape));
    }
}

DeviceKernels::DeviceKernels(const Engine & engine, const GpuCode & info, const Backends & backends)
    : module_(module_of(engine, info, backends), graphc_gpu_module_free) {
    for (const auto & [name, shared] : info.kernels) {
        kernels_[name] = graphc_gpu_kernel(module_.get(), name, shared);
        check_devices();
    }
}

LaunchWork::LaunchWork(const Launched & launched, const DeviceKernels & kernels, const std::vector<int64_t> & numbers) {
    auto next = numbers.begin();
    for (const LaunchInfo & info : launched.each) {
        graphc_launch launch{};
        launch.kernel = kernels.find(info.kernel);
        for (uint32_t & blocks : launch.grid) blocks = static_cast<uint32_t>(std::max(counted(*next++, info.kernel), 0));
        launch.threads[0] = info.threads, launch.threads[1] = launch.threads[2] = 1;
        launch.shared = info.shared;
        std::vector<graphc_argument> & arguments = arguments_.emplace_back();
        for (int parameter : info.parameters) {
            arguments.push_back(parameter == size      ? size_of(*next++, info.kernel)
                                : parameter == divisor ? divisor_of(*next++, info.kernel)
                                                       : place_of(parameter));
        }
        launch.scratch = static_cast<size_t>(*(numbers.end() - 2)), launch.counters = static_cast<size_t>(numbers.back());
        each_.push_back(launch);
    }
    for (size_t i = 0; i < each_.size(); ++i) {
        each_[i].count = static_cast<int32_t>(arguments_[i].size());
        each_[i].arguments = arguments_[i].data();
    }
    launches_ = {static_cast<int32_t>(each_.size()), each_.data()};
}

}  // namespace graphc
