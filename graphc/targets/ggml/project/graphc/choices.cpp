#include "graphc/choices.h"

#include "graphc/error.h"
#include "graphc/paths.h"

#include <fstream>
#include <set>

namespace graphc {

namespace {

/// Kinds of calls, and the ways of computing them; each device has some of these.
const std::map<std::string, std::set<std::string>> known = {
    {"conv_2d", {"winograd", "tiles", "direct", "columns"}},
    {"attention", {"flash", "scores"}},
};

std::string trimmed(const std::string & text) {
    const char * blank = " \t\r";
    const size_t first = text.find_first_not_of(blank), last = text.find_last_not_of(blank);
    return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

std::string sizes(const ggml_tensor * tensor) {
    std::string text;
    for (const int64_t size : tensor->ne) text += (text.empty() ? "" : "x") + std::to_string(size);
    return text;
}

std::string pair(const int32_t * numbers) { return std::to_string(numbers[0]) + "x" + std::to_string(numbers[1]); }

}  // namespace

Choices::Choices(const std::filesystem::path & file) {
    if (is_special(file)) throw Error(text_of(file) + " is not a file");
    std::ifstream stream(file);
    if (!stream) throw Error(text_of(file) + " cannot be read");
    int number = 0;
    for (std::string line; std::getline(stream, line);) {
        ++number;
        line = trimmed(line);
        if (line.empty() || line.front() == '#') continue;
        const size_t equals = line.find('=');
        const auto kind = known.find(line.substr(0, line.find(' ')));
        const std::string way = equals == std::string::npos ? "" : trimmed(line.substr(equals + 1, line.find('#', equals) - equals - 1));
        if (kind == known.end() || kind->second.count(way) == 0) {
            throw Error(text_of(file) + ": line " + std::to_string(number) + " is not a choice that this program knows");
        }
        ways_[trimmed(line.substr(0, equals))] = way;
    }
}

std::string Choices::way(const std::string & key) const {
    const auto found = ways_.find(key);
    return found == ways_.end() ? "" : found->second;
}

std::string convolution_key(const ggml_tensor * kernel, const ggml_tensor * image, const int32_t * settings) {
    return std::string("conv_2d ") + ggml_type_name(kernel->type) + " " + sizes(kernel) + " " + sizes(image) + " stride " + pair(settings) +
           " pad " + pair(settings + 2) + " dilation " + pair(settings + 4);
}

std::string attention_key(const ggml_tensor * k, const ggml_tensor * q, const ggml_tensor * v, const ggml_tensor * mask) {
    return std::string("attention ") + ggml_type_name(k->type) + " " + sizes(k) + " " + sizes(q) + " values " + std::to_string(v->ne[1]) +
           " mask " + (mask == nullptr ? "0" : "1");
}

}  // namespace graphc
