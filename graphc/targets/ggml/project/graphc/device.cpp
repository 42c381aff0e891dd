#include "graphc/device.h"

#include "graphc/build.h"
#include "graphc/error.h"
#include "graphc/generated.h"
#include "graphc/variants.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#ifdef __linux__
#include <sched.h>
#endif

namespace graphc {

namespace {

const std::string scheme = "rpc://";

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

/// Have backends compute products of float32 as such, unless the environment says otherwise: Vulkan's and cuBLAS read this when
/// a device is opened.
void compute_in_float32() {
    for (const auto & [name, value] : {std::pair{"GGML_VK_DISABLE_F16", "1"}, std::pair{"NVIDIA_TF32_OVERRIDE", "0"}}) {
        if (std::getenv(name) != nullptr) continue;
#ifdef _WIN32
        _putenv_s(name, value);
#else
        setenv(name, value, 0);
#endif
    }
}

/// Backends that are separate libraries are found beside the program, or where GGML_BACKEND_PATH says; with a ggml that has them
/// built in, nothing else is loaded.
void load_backends() {
    static const bool loaded = [] {
        cpu_variant();  // refuses a processor that is too old, before ggml uses what it lacks
        if (ggml_backend_dev_count() == 0 || std::getenv("GGML_BACKEND_PATH") != nullptr) ggml_backend_load_all();
        return true;
    }();
    static_cast<void>(loaded);
}

using Handles = std::vector<ggml_backend_dev_t>;

Handles all_devices() {
    Handles found;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) found.push_back(ggml_backend_dev_get(i));
    return found;
}

/// Of ggml's own backends.
ggml_backend_dev_t first_accelerator() {
    for (auto type : {GGML_BACKEND_DEVICE_TYPE_GPU, GGML_BACKEND_DEVICE_TYPE_IGPU}) {
        for (ggml_backend_dev_t device : all_devices()) {
            if (ggml_backend_dev_type(device) == type && !is_generated(device)) return device;
        }
    }
    return nullptr;
}

/// What a person reads of a device: ggml's name, and whose it is where another may have the same.
std::string shown_name(ggml_backend_dev_t device) {
    const std::string name = ggml_backend_dev_name(device);
    return is_generated(device) ? name + " (generated)" : name;
}

/// The devices of a server. Throws Error if ggml cannot connect.
Handles connect(std::string endpoint) {
    if (endpoint.find(':') == std::string::npos) endpoint += ":50052";
    ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
    void * address = rpc == nullptr ? nullptr : ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server");
    if (address == nullptr) throw Error("devices of servers need -DGGML_RPC=ON, or GGML_BACKEND_PATH with ggml's library for them");
    ggml_backend_reg_t server = reinterpret_cast<ggml_backend_reg_t (*)(const char *)>(address)(endpoint.c_str());
    if (server == nullptr) throw Error("no server at " + scheme + endpoint);
    Handles found;
    for (size_t i = 0; i < ggml_backend_reg_dev_count(server); ++i) found.push_back(ggml_backend_reg_dev_get(server, i));
    return found;
}

/// The device with that name, or those at that address. Throws Error if there is none.
Handles find_devices(const std::string & name) {
    if (name.compare(0, scheme.size(), scheme) == 0) return connect(name.substr(scheme.size()));
    if (name == "gpu") {
        if (ggml_backend_dev_t first = first_accelerator()) return {first};
    }
    std::string known;
    for (ggml_backend_dev_t device : all_devices()) {
        const std::string each = ggml_backend_dev_name(device), shown = shown_name(device);
        if (lower(each) == name || lower(each) == name + "0" || lower(shown) == name) return {device};
        known += (known.empty() ? "" : ", ") + shown;
    }
    throw Error("no device '" + name + "'; there is " + known);
}

/// The names between commas, in lower case, without spaces around them.
std::vector<std::string> split(const std::string & device) {
    std::vector<std::string> names;
    std::istringstream parts(lower(device));
    for (std::string part; std::getline(parts, part, ',');) {
        const size_t begin = part.find_first_not_of(' ');
        if (begin != std::string::npos) names.push_back(part.substr(begin, part.find_last_not_of(' ') - begin + 1));
    }
    return names;
}

/// The devices before the CPU. Throws Error if one is not there, one is named twice, or there are too many.
Handles choose(const std::string & device, const std::vector<std::string> & names) {
    Handles found;
    for (const std::string & name : names) {
        if (name == "cpu") continue;
        const Handles more = find_devices(name);
        found.insert(found.end(), more.begin(), more.end());
    }
    if (std::set<ggml_backend_dev_t>(found.begin(), found.end()).size() < found.size()) {
        throw Error("--device " + device + ": a device is named twice");
    }
    if (found.size() > GRAPHC_MOST_DEVICES) {
        throw Error(std::to_string(found.size()) + " devices; ggml can use at most " + std::to_string(GRAPHC_MOST_DEVICES) + " besides the CPU");
    }
    return found;
}

/// A queue of a device. Throws Error.
ggml_backend_ptr opened(ggml_backend_dev_t handle) {
    ggml_backend_ptr backend(ggml_backend_dev_init(handle, nullptr));
    if (backend == nullptr) check_devices();
    if (backend == nullptr) throw Error(std::string("device ") + ggml_backend_dev_name(handle) + " could not be opened");
    return backend;
}

/// Some bytes on a server, which keep the connection: ggml connects anew where it has no memory, and does not look whether it can.
ggml_backend_buffer_ptr hold(ggml_backend_t server) {
    ggml_backend_buffer_ptr buffer(ggml_backend_buft_alloc_buffer(ggml_backend_get_default_buffer_type(server), 64));
    if (buffer == nullptr) throw Error(device_name(server) + " has no memory left");
    return buffer;
}

}  // namespace

std::vector<DeviceInfo> devices() {
    load_backends();
    load_generated();
    std::vector<DeviceInfo> found;
    for (ggml_backend_dev_t device : all_devices()) {
        DeviceInfo info{shown_name(device), ggml_backend_dev_description(device), 0, 0};
        ggml_backend_dev_memory(device, &info.free_bytes, &info.total_bytes);
        found.push_back(info);
    }
    return found;
}

int default_threads() {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::string device_name(ggml_backend_t backend) {
    ggml_backend_dev_t device = ggml_backend_get_device(backend);
    return backend_name(backend) == "RPC" ? scheme + ggml_backend_dev_description(device) : ggml_backend_dev_name(device);
}

std::string backend_name(ggml_backend_t backend) {
    return ggml_backend_reg_name(ggml_backend_dev_backend_reg(ggml_backend_get_device(backend)));
}

Backends::Backends(const std::string & device, int threads, bool fast, std::string choices)
    : threads_(threads < 1 ? std::min(default_threads(), GGML_MAX_N_THREADS) : threads), fast_(fast), choices_(std::move(choices)) {
    if (!fast) compute_in_float32();
    load_backends();
    ggml_backend_ptr cpu(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr));
    if (cpu == nullptr) throw Error("ggml has no CPU backend");
    if (threads > GGML_MAX_N_THREADS) throw Error("more than " + std::to_string(GGML_MAX_N_THREADS) + " threads");
    const std::vector<std::string> names = split(device);
    if (std::any_of(names.begin(), names.end(), [](const std::string & name) { return name != "cpu"; })) load_generated();
    spill_ = names.size() > 1 && std::count(names.begin(), names.end(), "cpu") != 0;
    for (ggml_backend_dev_t handle : choose(device, names)) {
        owned_.push_back(opened(handle));
        devices_.push_back(owned_.back().get());
        if (backend_name(devices_.back()) == "RPC") held_.push_back(hold(devices_.back()));
    }
    if (devices_.size() > 1) choices_ = {};  // they are those of one
    list_ = devices_;
    list_.push_back(cpu.get());
    owned_.push_back(std::move(cpu));
    use_threads(threads_);
}

Backends::Backends(const Backends & other)
    : threads_(other.threads_), fast_(other.fast_), choices_(other.choices_), spill_(other.spill_) {
    for (ggml_backend_t each : other.list_) {
        owned_.push_back(opened(ggml_backend_get_device(each)));
        list_.push_back(owned_.back().get());
        if (backend_name(each) == "RPC") held_.push_back(hold(list_.back()));
    }
    devices_.assign(list_.begin(), list_.end() - 1);
}

std::unique_ptr<Backends> Backends::again() const { return std::unique_ptr<Backends>(new Backends(*this)); }

void Backends::use_threads(int threads) {
    threads_in_use_ = threads;
    ggml_backend_t cpu = list_.back();
    ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(ggml_backend_get_device(cpu));
    void * address = ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads");
    if (address != nullptr) reinterpret_cast<ggml_backend_set_n_threads_t>(address)(cpu, threads);
}

}  // namespace graphc
