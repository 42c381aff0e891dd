#pragma once

#include "graphc/array.h"

#include "ggml.h"

#include <memory>

namespace graphc {

/// Numbers in the memory of the process, in C order: a parameter, or what is made of some. Of a type in blocks, the last axis has
/// whole blocks. `keeps` is what must live as long.
struct Values {
    ggml_type type = GGML_TYPE_F32;
    Shape shape;
    const std::byte * data = nullptr;
    std::shared_ptr<const void> keeps;

    size_t count() const { return element_count(shape, 1); }
    size_t nbytes() const { return count() / static_cast<size_t>(ggml_blck_size(type)) * ggml_type_size(type); }
    const float * floats() const { return reinterpret_cast<const float *>(data); }
};

/// New numbers, at a multiple of 64 bytes, and where to write them. Throws Error if they do not fit memory.
std::pair<Values, std::byte *> new_values(ggml_type type, Shape shape);

/// The numbers as float32. Throws Error for whole numbers.
Values float32(const Values & values);

/// float32 numbers as a weight of that type is stored. Throws Error for what the type has nothing like.
Values narrowed(const Values & values, ggml_type type);

/// Kernels [outputs, channels, 3, 3] that meet an image each of whose pixels is there twice along each line, and each line twice, as
/// those that meet the pixels themselves, [4, outputs, channels, 2, 2] of float32: for even lines and columns of the result, even lines
/// and odd columns, and so on. Throws Error for other shapes.
Values undoubled(const Values & kernels);

// What recipes are made of. All throw Error for what does not fit, and those that may give more elements than they take for more than
// `most`. Movements keep the type where no block is cut, else the result is float32; functions take float32 and give it.

Values reshaped(const Values & x, const Shape & shape);
Values transposed(const Values & x, const std::vector<int64_t> & perm);
Values sliced(const Values & x, const std::vector<int64_t> & starts, const Shape & sizes, const std::vector<int64_t> & steps);
Values concatenated(const std::vector<Values> & parts, int64_t axis, size_t most);
Values rows_of(const Values & x, const Values & indices, int64_t axis, size_t most);
Values unary(const Values & x, float (*function)(float));
Values binary(const Values & a, const Values & b, float (*function)(float, float), size_t most);

}  // namespace graphc
