#include "graphc/checkpoint.h"

#include "graphc/gguf.h"
#include "graphc/json.h"
#include "graphc/paths.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace graphc {

namespace {

/// Types of safetensors that ggml has too.
const std::map<std::string, ggml_type> stored_types = {
    {"F64", GGML_TYPE_F64}, {"F32", GGML_TYPE_F32}, {"F16", GGML_TYPE_F16}, {"BF16", GGML_TYPE_BF16},
    {"I64", GGML_TYPE_I64}, {"I32", GGML_TYPE_I32}, {"I16", GGML_TYPE_I16}, {"I8", GGML_TYPE_I8},
};

/// Numbers that lie in a file, at an address that their type may have.
Values placed(Values values, const std::byte * data, const std::shared_ptr<const Mapping> & mapping) {
    constexpr size_t widest = 8;
    values.data = data;
    values.keeps = mapping;
    if (reinterpret_cast<uintptr_t>(data) % widest == 0) return values;
    auto [copy, bytes] = new_values(values.type, values.shape);
    std::memcpy(bytes, data, values.nbytes());
    return copy;
}

}  // namespace

Checkpoint::Checkpoint(const std::filesystem::path & path) : Checkpoint(text_of(path), Mapping(path)) {}

Checkpoint::Checkpoint(const void * data, size_t size) : Checkpoint("the checkpoint in memory", Mapping(data, size)) {}

Checkpoint::Checkpoint(std::string path, Mapping mapped) : path_(std::move(path)) {
    const auto mapping = std::make_shared<const Mapping>(std::move(mapped));
    try {
        if (mapping->size() < 8) throw Error("is not a file of weights");
        if (std::memcmp(mapping->data(), "GGUF", 4) == 0) {
            read_tensors(mapping);
        } else {
            read_safetensors(mapping);
        }
    } catch (const std::exception & error) {
        throw Error(path_ + " " + error.what());
    }
}

void Checkpoint::read_tensors(const std::shared_ptr<const Mapping> & mapping) {
    for (const StoredTensor & each : read_gguf(*mapping).tensors) {
        const auto end = each.ne.rend(), begin = end - static_cast<std::ptrdiff_t>(each.rank);
        tensors_[each.name] = placed({each.type, Shape(begin, end), nullptr, nullptr}, each.data, mapping);
    }
}

void Checkpoint::read_safetensors(const std::shared_ptr<const Mapping> & mapping) {
    uint64_t length = 0;
    std::memcpy(&length, mapping->data(), sizeof length);
    const char * text = reinterpret_cast<const char *>(mapping->data()) + sizeof length;
    if (length > mapping->size() - sizeof length || length < 2 || text[0] != '{') {
        throw Error("is neither safetensors nor GGUF; `graphc refit` reads other kinds of files");
    }
    const Json header = Json::parse({text, static_cast<size_t>(length)});
    const std::byte * data = mapping->data() + sizeof length + length;
    const uint64_t size = mapping->size() - sizeof length - length;
    std::vector<std::pair<int64_t, int64_t>> spans;
    for (const auto & [name, declared] : header.object()) {
        if (name == "__metadata__") continue;
        const std::vector<int64_t> span = declared["data_offsets"].integers();
        if (span.size() != 2 || span[0] < 0 || span[0] > span[1] || static_cast<uint64_t>(span[1]) > size) {
            throw Error("is damaged or cut off: tensor '" + name + "' goes past the end of the file");
        }
        spans.emplace_back(span[0], span[1]);
        const Shape shape = declared["shape"].integers();
        const auto type = stored_types.find(declared["dtype"].string());
        if (type == stored_types.end()) {
            unreadable_[name] = declared["dtype"].string();
            continue;
        }
        Values values{type->second, shape, nullptr, nullptr};
        const size_t count = element_count(shape, ggml_type_size(values.type));
        if (count * ggml_type_size(values.type) != static_cast<uint64_t>(span[1] - span[0])) {
            throw Error("is damaged: tensor '" + name + "' of " + to_string(shape) + " has " + std::to_string(span[1] - span[0]) + " bytes");
        }
        tensors_[name] = placed(std::move(values), data + span[0], mapping);
    }
    std::sort(spans.begin(), spans.end());
    int64_t end = 0;
    for (const auto & [first, behind] : spans) {
        if (first != std::exchange(end, behind)) throw Error("is damaged: a tensor overlaps another, or leaves a gap");
    }
    if (static_cast<uint64_t>(end) != size) throw Error("is damaged: bytes at its end belong to no tensor");
}

}  // namespace graphc
