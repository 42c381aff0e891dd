#include "graphc/memory_limits.h"

#include "graphc/error.h"

#include "residence.c"

#include <algorithm>
#include <cctype>
#include <locale>
#include <map>
#include <regex>
#include <sstream>

namespace graphc {

namespace {

const std::map<std::string, double> units = {
    {"", 1}, {"b", 1}, {"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9},
};

size_t parse_limit(const std::string & given) {
    static const std::regex pattern(R"(\s*(\d{1,15}(?:\.\d{1,3})?) ?([a-z]*)\s*|\s*(auto)\s*)", std::regex::icase);
    std::smatch match;
    const bool known = std::regex_match(given, match, pattern);
    if (known && match[3].matched) return 0;
    std::string unit = known ? match[2].str() : "";
    for (char & c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    std::istringstream text(known ? match[1].str() : "0");
    text.imbue(std::locale::classic());
    double number = 0;
    text >> number;
    if (number == 0 || units.count(unit) == 0) {
        throw Error("'" + given + "' is not an amount of memory; write bytes, or 512MiB, 4GiB, auto");
    }
    return static_cast<size_t>(std::min(number * units.at(unit), 0x1p50));
}

/// Throws Error for more limits than devices.
void check_count(const std::vector<ggml_backend_t> & devices, const Limits & limits) {
    if (limits.size() <= devices.size()) return;
    std::string names;
    for (ggml_backend_t device : devices) names += (names.empty() ? "" : ", ") + device_name(device);
    throw Error(std::to_string(limits.size()) + " limits of memory are given for " +
                (names.empty() ? "the CPU, which uses weights where they lie" : names));
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

Fitting::Fitting(Weights & weights, const Reads & reads, const Limits & limits)
    : weights_(weights),
      residence_(graphc_residence_new(weights.tensors().size(), weights.backends().spill()), graphc_residence_free) {
    const std::vector<ggml_backend_t> & devices = weights.backends().devices();
    check_count(devices, limits);
    bool enough = residence_ != nullptr;
    for (size_t i = 0; enough && i < devices.size(); ++i) {
        size_t free = 0, all = 0;
        ggml_backend_dev_memory(ggml_backend_get_device(devices[i]), &free, &all);
        graphc_residence_device(residence_.get(), device_name(devices[i]).c_str(), i < limits.size() ? limits[i] : 0, free);
    }
    const std::vector<size_t> sizes = weights.sizes();
    const std::set<size_t> refused = weights.refused();
    for (size_t i = 0; enough && i < reads.order.size(); ++i) {
        const auto & [index, use] = reads.order[i];
        const bool stays = use == Use::kernels || refused.count(index) != 0 || weights.stored(index).nbytes() == 0;
        enough = graphc_residence_weight(residence_.get(), index, sizes[index], use == Use::rows, stays);
    }
    for (const std::vector<size_t> & call : reads.together) {
        enough = enough && graphc_residence_together(residence_.get(), call.data(), call.size());
    }
    if (!enough) throw Error("not enough memory for weights");
    bounded_ = !devices.empty() && graphc_residence_bounded(residence_.get());
    if (!bounded_) weights.place(*residence_);
}

void Fitting::fit(const std::function<Needs()> & measure) {
    if (!bounded_ || (weights_.residence() && fits(measure()))) return;
    do weights_.pretend(*residence_);
    while (!fits(measure()));
    weights_.place(*residence_);
}

std::vector<std::string> Fitting::text() const {
    const int count = static_cast<int>(weights_.backends().devices().size());
    std::vector<std::string> lines;
    for (int device = 0; weights_.residence() && device < count; ++device) lines.push_back(graphc_residence_text(residence_.get(), device));
    const std::string rest = lines.empty() ? "" : graphc_residence_text(residence_.get(), GRAPHC_ON_HOST);
    if (!rest.empty()) lines.push_back(rest);
    return lines;
}

/// True if weights may lie where they are thought to; else they are thought to lie elsewhere from now on. Throws Error.
bool Fitting::fits(const Needs & needs) {
    const auto & [results, displaced] = needs;
    const bool fit = graphc_residence_fits(residence_.get(), results.data(), displaced.data(), displaced.size());
    const char * problem = graphc_residence_problem(residence_.get());
    if (problem != nullptr) throw Error(problem);
    return fit;
}

}  // namespace graphc
