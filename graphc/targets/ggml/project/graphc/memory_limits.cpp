#include "graphc/memory_limits.h"

#include "graphc/error.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <locale>
#include <map>
#include <regex>
#include <sstream>

namespace graphc {

namespace {

/// The part of a device's free memory that is left to others, where no limit is given.
constexpr double margin = 1.0 / 16;

/// Bytes that a device is taken to have which does not say.
constexpr size_t unknown = size_t{1} << 50;

const std::map<std::string, double> units = {
    {"", 1}, {"b", 1}, {"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9},
};

std::optional<size_t> parse_limit(const std::string & given) {
    static const std::regex pattern(R"(\s*(\d{1,15}(?:\.\d{1,3})?) ?([a-z]*)\s*|\s*(auto)\s*)", std::regex::icase);
    std::smatch match;
    const bool known = std::regex_match(given, match, pattern);
    if (known && match[3].matched) return std::nullopt;
    std::string unit = known ? match[2].str() : "";
    for (char & c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    std::istringstream text(known ? match[1].str() : "0");
    text.imbue(std::locale::classic());
    double number = 0;
    text >> number;
    if (number == 0 || units.count(unit) == 0) {
        throw Error("'" + given + "' is not an amount of memory; write bytes, or 512MiB, 4GiB, auto");
    }
    return static_cast<size_t>(std::min(number * units.at(unit), static_cast<double>(unknown)));
}

/// Bytes that a device has for us.
size_t free_memory(ggml_backend_t device) {
    size_t free = 0, all = 0;
    ggml_backend_dev_memory(ggml_backend_get_device(device), &free, &all);
    const auto ours = static_cast<size_t>(static_cast<double>(free) * (1 - margin));
    return ours == 0 ? unknown : ours;
}

/// Bytes as a person reads them.
std::string mib(size_t count) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(count) / (1 << 20));
    return text;
}

/// The bytes that each device may use. Throws Error for more limits than devices.
std::vector<size_t> limits_of(const std::vector<ggml_backend_t> & devices, const Limits & limits) {
    if (limits.size() > devices.size()) {
        std::string names;
        for (ggml_backend_t device : devices) names += (names.empty() ? "" : ", ") + device_name(device);
        throw Error(std::to_string(limits.size()) + " limits of memory are given for " +
                    (names.empty() ? "the CPU, which uses weights where they lie" : names));
    }
    std::vector<size_t> found;
    for (size_t i = 0; i < devices.size(); ++i) {
        found.push_back(i < limits.size() && limits[i] ? *limits[i] : free_memory(devices[i]));
    }
    return found;
}

size_t sum(const std::vector<size_t> & numbers) {
    size_t all = 0;
    for (size_t each : numbers) all += each;
    return all;
}

}  // namespace

Limits parse_limits(const std::string & text) {
    Limits found;
    for (size_t begin = 0, end = 0; !text.empty() && end != std::string::npos; begin = end + 1) {
        end = text.find(',', begin);
        found.push_back(parse_limit(text.substr(begin, end == std::string::npos ? end : end - begin)));
    }
    return found;
}

Fitting::Fitting(Weights & weights, Reads reads, const Limits & limits) : weights_(weights), reads_(std::move(reads)) {
    const std::vector<ggml_backend_t> & devices = weights.backends().devices();
    limits_ = limits_of(devices, limits);
    needed_.resize(devices.size());
    const size_t count = weights.tensors().size();
    if (devices.empty()) {
        weights.place({std::vector<int>(count, on_host), {}, {}});
        return;
    }
    host_ = weights.refused();
    host_.insert(reads_.by_host.begin(), reads_.by_host.end());
    for (size_t i = 0; i < count; ++i) {
        if (weights.stored(i).nbytes() == 0) host_.insert(i);
    }
    sizes_ = weights.sizes();
    const bool given = std::any_of(limits.begin(), limits.end(), [](const auto & limit) { return limit.has_value(); });
    bounded_ = given || 2 * total(reads_.order, sizes_) > sum(limits_);
    if (!bounded_) {
        const auto device = devices_of_weights(reads_.order, sizes_, room(), host_, weights.backends().spill());
        weights.place({device, {}, std::vector<size_t>(devices.size())});
    }
}

void Fitting::fit(const std::function<Needs()> & measure) {
    if (!bounded_ || (weights_.residence() && suits(measure()))) return;
    const bool spill = weights_.backends().spill();
    Residence residence;
    for (bool settled = false; !settled;) {
        double space = 0;
        for (double each : room()) space += each;
        if (spill && static_cast<double>(total(reads_.order, sizes_)) > space) {
            host_.insert(reads_.by_rows.begin(), reads_.by_rows.end());
        }
        const std::vector<int> device = devices_of_weights(reads_.order, sizes_, room(), host_, spill);
        weights_.pretend(device);
        if (!suits(measure())) continue;
        try {
            residence = residence_for(device, reads_, sizes_, room());
        } catch (const TooSmall & error) {
            throw Error(too_small(error));
        }
        for (size_t i = 0; i < device.size(); ++i) {
            if (device[i] != residence.device[i]) host_.insert(i);
        }
        settled = residence.device == device;
    }
    weights_.place(residence);
}

std::vector<std::string> Fitting::text() const {
    if (!weights_.residence() || limits_.empty()) return {};
    const Residence & residence = *weights_.residence();
    std::vector<std::string> lines;
    for (size_t number = 0; number < limits_.size(); ++number) {
        size_t streamed = 0;
        for (size_t index : residence.streamed) streamed += residence.device[index] == static_cast<int>(number) ? sizes_[index] : 0;
        const size_t own = total(residence.resident(number), sizes_);
        std::string line = device_name(weights_.backends().devices()[number]) + ": weights " + mib(own);
        if (streamed != 0) line += ", " + mib(streamed) + " streamed through 2 x " + mib(residence.slots[number]);
        if (bounded_ && own + streamed != 0) line += ", intermediate results " + mib(needed_[number]);
        lines.push_back(line);
    }
    size_t rest = 0;
    for (size_t index : reads_.order) rest += residence.device[index] == on_host ? sizes_[index] : 0;
    if (rest != 0) lines.push_back("CPU: weights " + mib(rest));
    return lines;
}

/// The bytes that devices have for weights.
std::vector<double> Fitting::room() const {
    std::vector<double> found;
    for (size_t i = 0; i < limits_.size(); ++i) found.push_back(static_cast<double>(limits_[i]) - static_cast<double>(needed_[i]));
    return found;
}

/// True if it is as was thought; else it will be thought so from now on.
bool Fitting::suits(const Needs & needs) {
    const std::vector<size_t> before = needed_;
    for (size_t i = 0; i < needed_.size(); ++i) needed_[i] = std::max(needed_[i], needs.results[i]);
    const size_t known = host_.size();
    host_.insert(needs.displaced.begin(), needs.displaced.end());
    return needed_ == before && host_.size() == known;
}

/// What would do, and what for.
std::string Fitting::too_small(const TooSmall & error) const {
    const size_t needed = needed_[error.device];
    return device_name(weights_.backends().devices()[error.device]) + " may use " + mib(limits_[error.device]) +
           ", and these sizes need " + mib(needed + error.nbytes) + " there at least: " + mib(needed) +
           " for intermediate results, and twice the " + mib(error.nbytes / slot_count) + " of weights that one step reads";
}

}  // namespace graphc
