#include "graphc/array.h"

#include "ggml.h"

#include <algorithm>
#include <limits>

namespace graphc {

namespace {

struct DTypeInfo {
    const char * name;
    size_t size;
};

/// In the order of the enumeration.
constexpr DTypeInfo dtypes[] = {
    {"float32", 4}, {"float16", 2}, {"bfloat16", 2}, {"float64", 8}, {"int8", 1},   {"uint8", 1},  {"bool", 1},
    {"int16", 2},   {"uint16", 2},  {"int32", 4},    {"uint32", 4},  {"int64", 8}, {"uint64", 8},
    {"float8_e4m3fn", 1},  {"float8_e4m3fnuz", 1}, {"float8_e5m2", 1}, {"float8_e5m2fnuz", 1}, {"float8_e8m0fnu", 1},
    {"float4_e2m1fn", 1},  {"int4", 1},            {"uint4", 1},       {"int2", 1},            {"uint2", 1},
    {"void8", 1},
};

}  // namespace

const char * dtype_name(DType dtype) { return dtypes[static_cast<size_t>(dtype)].name; }

size_t dtype_size(DType dtype) { return dtypes[static_cast<size_t>(dtype)].size; }

float16::float16(float value) : bits(ggml_fp32_to_fp16(value)) {}

float16::operator float() const { return ggml_fp16_to_fp32(bits); }

bfloat16::bfloat16(float value) : bits(ggml_fp32_to_bf16(value).bits) {}

bfloat16::operator float() const { return ggml_bf16_to_fp32(ggml_bf16_t{bits}); }

std::string to_string(const Shape & shape) {
    std::string text = "[";
    for (size_t axis = 0; axis < shape.size(); ++axis) text += (axis ? ", " : "") + std::to_string(shape[axis]);
    return text + "]";
}

size_t element_count(const Shape & shape, size_t element_size) {
    const uint64_t limit = std::numeric_limits<int64_t>::max() / element_size;
    uint64_t count = 1;
    bool empty = false;
    for (int64_t size : shape) {
        if (size < 0) throw Error("shape " + to_string(shape) + " has a negative size");
        empty |= size == 0;
        if (size == 0) continue;
        if (count > limit / static_cast<uint64_t>(size)) {
            throw Error("shape " + to_string(shape) + " has more elements than memory can hold");
        }
        count *= static_cast<uint64_t>(size);
    }
    return empty ? 0 : static_cast<size_t>(count);
}

RawBytes & RawBytes::operator=(const RawBytes & other) {
    if (this == &other) return *this;
    become(other.size_);
    std::copy(other.begin(), other.end(), begin());
    return *this;
}

RawBytes & RawBytes::operator=(RawBytes && other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0), room_ = std::exchange(other.room_, 0);
    return *this;
}

void RawBytes::become(size_t size) {
    if (size > room_) {
        const size_t room = std::max(size, room_ + room_ / 4);  // what has grown once will grow again
        data_.reset();                                          // first: there may be no memory for both
        size_ = room_ = 0;
        data_.reset(new std::byte[room]);
        room_ = room;
    }
    size_ = size;
}

bool RawBytes::operator==(const RawBytes & other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

Array::Array(DType dtype, Shape shape) {
    become(dtype, std::move(shape));
    std::fill(bytes_.begin(), bytes_.end(), std::byte{0});
}

void Array::become(DType dtype, Shape shape) {
    const size_t size = element_count(shape, dtype_size(dtype)) * dtype_size(dtype);
    try {
        bytes_.become(size);
    } catch (const std::exception &) {
        *this = Array();
        throw Error("not enough memory for an array of " + to_string(shape));
    }
    defined_ = true, dtype_ = dtype, shape_ = std::move(shape);
}

void Array::interpret(DType dtype) {
    if (dtype_ == DType::void8 && dtype_size(dtype) == 1) dtype_ = dtype;
}

void Array::require_dtype(DType wanted) const {
    if (wanted != dtype_) {
        throw Error(std::string("an array of ") + dtype_name(dtype_) + " was read as " + dtype_name(wanted));
    }
}

void Array::require_size(size_t count) const {
    if (count != size()) {
        throw Error(std::to_string(count) + " elements do not fill the shape " + to_string(shape_));
    }
}

}  // namespace graphc
