#pragma once

#include "graphc/error.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace graphc {

/// Element types, by the names of NumPy and of its extension `ml_dtypes`; each element of a narrow type takes a byte.
/// `void8` are bytes of which a file does not say what they mean.
enum class DType {
    float32, float16, bfloat16, float64, int8, uint8, boolean, int16, uint16, int32, uint32, int64, uint64,
    float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu, float4_e2m1fn, int4, uint4, int2, uint2,
    void8
};

/// NumPy's name of an element type ("float32", "bool").
const char * dtype_name(DType dtype);

/// Bytes of one element.
size_t dtype_size(DType dtype);

/// A half-precision number as it is stored.
struct float16 {
    uint16_t bits = 0;
    float16() = default;
    explicit float16(float value);
    operator float() const;
};

/// The upper half of a float32.
struct bfloat16 {
    uint16_t bits = 0;
    bfloat16() = default;
    explicit bfloat16(float value);
    operator float() const;
};

/// The element type that a C++ type stores.
template <class T> struct dtype_of;
template <> struct dtype_of<float> { static constexpr DType value = DType::float32; };
template <> struct dtype_of<float16> { static constexpr DType value = DType::float16; };
template <> struct dtype_of<bfloat16> { static constexpr DType value = DType::bfloat16; };
template <> struct dtype_of<double> { static constexpr DType value = DType::float64; };
template <> struct dtype_of<int8_t> { static constexpr DType value = DType::int8; };
template <> struct dtype_of<uint8_t> { static constexpr DType value = DType::uint8; };
template <> struct dtype_of<bool> { static constexpr DType value = DType::boolean; };
template <> struct dtype_of<int16_t> { static constexpr DType value = DType::int16; };
template <> struct dtype_of<uint16_t> { static constexpr DType value = DType::uint16; };
template <> struct dtype_of<int32_t> { static constexpr DType value = DType::int32; };
template <> struct dtype_of<uint32_t> { static constexpr DType value = DType::uint32; };
template <> struct dtype_of<int64_t> { static constexpr DType value = DType::int64; };
template <> struct dtype_of<uint64_t> { static constexpr DType value = DType::uint64; };

using Shape = std::vector<int64_t>;

/// "[1, 3, 224, 224]"
std::string to_string(const Shape & shape);

/// Bytes in memory of their own. What they are is not said until they are written.
class RawBytes {
  public:
    RawBytes() = default;
    RawBytes(const RawBytes & other) { *this = other; }
    RawBytes(RawBytes && other) noexcept { *this = std::move(other); }
    RawBytes & operator=(const RawBytes & other);
    RawBytes & operator=(RawBytes && other) noexcept;

    /// Be so many, in the memory that is there if it suffices. None of them is said any more.
    void become(size_t size);

    std::byte * data() { return data_.get(); }
    const std::byte * data() const { return data_.get(); }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    std::byte & operator[](size_t index) { return data_[index]; }
    const std::byte & operator[](size_t index) const { return data_[index]; }
    std::byte * begin() { return data(); }
    std::byte * end() { return data() + size_; }
    const std::byte * begin() const { return data(); }
    const std::byte * end() const { return data() + size_; }
    bool operator==(const RawBytes & other) const;
    bool operator!=(const RawBytes & other) const { return !(*this == other); }

  private:
    std::unique_ptr<std::byte[]> data_;
    size_t size_ = 0, room_ = 0;
};

/// A dense array in C order: what goes into a model and comes out of it. An empty Array (no shape given) stands for "missing".
class Array {
  public:
    Array() = default;

    /// Zeros. Throws Error for a negative size or one that does not fit memory.
    Array(DType dtype, Shape shape);

    /// Zeros of a C++ element type: `Array::zeros<float>({1, 3, 32, 32})`.
    template <class T> static Array zeros(Shape shape) { return Array(dtype_of<T>::value, std::move(shape)); }

    /// The given elements. Throws Error if there are not as many as the shape says.
    template <class T> static Array of(Shape shape, const std::vector<T> & values) {
        Array array;
        array.become(dtype_of<T>::value, std::move(shape));
        array.require_size(values.size());
        T * target = array.data<T>();
        for (size_t i = 0; i < values.size(); ++i) target[i] = values[i];
        return array;
    }

    bool empty() const { return !defined_; }
    DType dtype() const { return dtype_; }
    const Shape & shape() const { return shape_; }
    size_t size() const { return bytes_.size() / dtype_size(dtype_); }

    /// Be an array of this type and shape, in the memory that is there if it suffices. What its elements are is not said. Throws Error
    /// as the constructor does.
    void become(DType dtype, Shape shape);

    /// The elements. Throws Error if they are of another type.
    template <class T> T * data() {
        require_dtype(dtype_of<T>::value);
        return reinterpret_cast<T *>(bytes_.data());
    }
    template <class T> const T * data() const {
        require_dtype(dtype_of<T>::value);
        return reinterpret_cast<const T *>(bytes_.data());
    }

    /// Take the bytes of `void8` for elements of another type of one byte each.
    void interpret(DType dtype);

    RawBytes & bytes() { return bytes_; }
    const RawBytes & bytes() const { return bytes_; }

  private:
    void require_dtype(DType wanted) const;
    void require_size(size_t count) const;

    bool defined_ = false;
    DType dtype_ = DType::float32;
    Shape shape_;
    RawBytes bytes_;
};

/// Number of elements of a shape. Throws Error for a negative size or if the product of those that are not 0 does not fit.
size_t element_count(const Shape & shape, size_t element_size);

}  // namespace graphc
