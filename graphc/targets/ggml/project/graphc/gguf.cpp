#include "graphc/gguf.h"

#include "graphc/error.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace graphc {

namespace {

constexpr uint32_t gguf_version = 3;
constexpr const char * alignment_key = "general.alignment";
constexpr uint64_t default_alignment = 32;

/// Kinds of metadata values, and the bytes that the plain ones take.
enum Kind : uint32_t { string_kind = 8, array_kind = 9, kind_count = 13 };
constexpr size_t kind_sizes[kind_count] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr Kind u32_kind = static_cast<Kind>(4);

/// Takes values from the front of the file's bytes.
class Reader {
  public:
    explicit Reader(const Mapping & mapping) : start_(mapping.data()), at_(start_), end_(start_ + mapping.size()) {}

    size_t position() const { return static_cast<size_t>(at_ - start_); }
    size_t remaining() const { return static_cast<size_t>(end_ - at_); }

    const std::byte * take(uint64_t count) {
        if (count > remaining()) throw Error("is truncated");
        const std::byte * found = at_;
        at_ += count;
        return found;
    }

    template <class T> T number() {
        T value;
        std::memcpy(&value, take(sizeof value), sizeof value);
        return value;
    }

    std::string_view string() {
        const uint64_t length = number<uint64_t>();
        return std::string_view(reinterpret_cast<const char *>(take(length)), static_cast<size_t>(length));
    }

    void skip_value(uint32_t kind) {
        if (kind == string_kind) {
            take(number<uint64_t>());
        } else if (kind == array_kind) {
            skip_array();
        } else {
            take(plain_size(kind));
        }
    }

  private:
    void skip_array() {
        const uint32_t kind = number<uint32_t>();
        const uint64_t count = number<uint64_t>();
        if (kind == array_kind) throw Error("has nested arrays in its metadata");
        if (kind != string_kind) {
            if (count > remaining() / plain_size(kind)) throw Error("is truncated");
            take(count * plain_size(kind));
        } else {
            for (uint64_t i = 0; i < count; ++i) take(number<uint64_t>());
        }
    }

    static size_t plain_size(uint32_t kind) {
        if (kind >= kind_count || kind_sizes[kind] == 0) throw Error("has metadata of an unknown kind");
        return kind_sizes[kind];
    }

    const std::byte * start_;
    const std::byte * at_;
    const std::byte * end_;
};

/// The texts and the numbers of 32 bits of the metadata; other values are passed over.
void read_metadata(Reader & reader, uint64_t count, Gguf & found) {
    for (uint64_t i = 0; i < count; ++i) {
        const std::string key(reader.string());
        const uint32_t kind = reader.number<uint32_t>();
        if (kind == string_kind) {
            found.texts[key] = reader.string();
        } else if (kind == u32_kind) {
            found.numbers[key] = reader.number<uint32_t>();
        } else {
            reader.skip_value(kind);
        }
    }
}

/// The metadata's number, or another if it has none.
uint64_t alignment_of(const Gguf & found) {
    const auto given = found.numbers.find(alignment_key);
    const uint64_t alignment = given == found.numbers.end() ? default_alignment : given->second;
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) throw Error("has a damaged alignment");
    return alignment;
}

/// Bytes of a tensor. Throws Error for an unknown type or sizes that do not fit memory.
size_t tensor_bytes(const StoredTensor & tensor) {
    const size_t block = static_cast<size_t>(ggml_blck_size(tensor.type));
    const size_t type_size = ggml_type_size(tensor.type);
    if (block == 0 || type_size == 0 || tensor.ne[0] % static_cast<int64_t>(block) != 0) {
        throw Error("has a tensor of an unknown type");
    }
    uint64_t bytes = static_cast<uint64_t>(tensor.ne[0]) / block;
    const uint64_t limit = std::numeric_limits<int64_t>::max() / type_size;
    for (size_t axis = 1; axis < 4; ++axis) {
        const uint64_t size = static_cast<uint64_t>(tensor.ne[axis]);
        if (size != 0 && bytes > limit / size) throw Error("has a tensor that is too large");
        bytes *= size;
    }
    if (bytes > limit) throw Error("has a tensor that is too large");
    return static_cast<size_t>(bytes * type_size);
}

/// One entry of the table of tensors; `offset` counts from the start of the data.
StoredTensor read_entry(Reader & reader, uint64_t & offset) {
    StoredTensor tensor;
    tensor.name = reader.string();
    tensor.rank = reader.number<uint32_t>();
    if (tensor.rank > tensor.ne.size()) throw Error("has a tensor of more than four axes");
    for (uint32_t axis = 0; axis < tensor.rank; ++axis) {
        tensor.ne[axis] = reader.number<int64_t>();
        if (tensor.ne[axis] < 0) throw Error("has a tensor of negative size");
    }
    const uint32_t type = reader.number<uint32_t>();
    if (type >= GGML_TYPE_COUNT) throw Error("has a tensor of an unknown type");
    tensor.type = static_cast<ggml_type>(type);
    tensor.nbytes = tensor_bytes(tensor);
    offset = reader.number<uint64_t>();
    return tensor;
}

}  // namespace

Gguf read_gguf(const Mapping & mapping) {
    Reader reader(mapping);
    if (mapping.size() < 4 || std::memcmp(reader.take(4), "GGUF", 4) != 0) throw Error("is not a GGUF file");
    if (reader.number<uint32_t>() != gguf_version) throw Error("is a GGUF file of another version");
    const uint64_t tensor_count = reader.number<uint64_t>();
    const uint64_t key_count = reader.number<uint64_t>();
    Gguf found;
    read_metadata(reader, key_count, found);
    const uint64_t alignment = alignment_of(found);
    std::vector<uint64_t> offsets;
    for (uint64_t i = 0; i < tensor_count; ++i) {
        uint64_t offset = 0;
        found.tensors.push_back(read_entry(reader, offset));
        offsets.push_back(offset);
    }
    const uint64_t padding = (alignment - reader.position() % alignment) % alignment;
    if (tensor_count != 0) reader.take(padding);
    for (size_t i = 0; i < offsets.size(); ++i) {
        StoredTensor & tensor = found.tensors[i];
        if (offsets[i] % alignment != 0) throw Error("has a tensor that is not aligned");
        if (offsets[i] > reader.remaining() || tensor.nbytes > reader.remaining() - offsets[i]) throw Error("is truncated");
        tensor.data = mapping.data() + reader.position() + offsets[i];
    }
    std::sort(found.tensors.begin(), found.tensors.end(), [](const auto & a, const auto & b) { return a.name < b.name; });
    return found;
}

}  // namespace graphc
