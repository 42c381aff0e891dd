#pragma once

#include "ggml.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace graphc {

/// Ways of computing calls that were measured to be the fastest on a device: what `graphc tune --output FILE` writes. For calls
/// that it does not know, fixed rules decide.
class Choices {
  public:
    Choices() = default;

    /// Throws Error if the file cannot be read, or holds anything but choices between ways that there are.
    explicit Choices(const std::filesystem::path & file);

    /// The way of a call that has a key; empty if none was chosen.
    std::string way(const std::string & key) const;

  private:
    std::map<std::string, std::string> ways_;
};

/// What the choice for a convolution depends on: its kernel, its image, and its strides, pads and dilations.
std::string convolution_key(const ggml_tensor * kernel, const ggml_tensor * image, const int32_t * settings);

/// What the choice for attention depends on; `v` has the keys along its rows, `mask` may be null.
std::string attention_key(const ggml_tensor * k, const ggml_tensor * q, const ggml_tensor * v, const ggml_tensor * mask);

/// Bytes of a matrix of columns, or of scores, above which it is not made by choice.
constexpr size_t column_limit = size_t{256} << 20;

}  // namespace graphc
