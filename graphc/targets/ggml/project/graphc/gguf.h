#pragma once

#include "graphc/mapping.h"

#include "ggml.h"

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace graphc {

/// Sizes in ggml's order, the innermost axis first.
using Sizes4 = std::array<int64_t, 4>;

/// A tensor of a GGUF file: what it is, and where in the file its elements lie. Sizes from `rank` on are 1.
struct StoredTensor {
    std::string name;
    ggml_type type = GGML_TYPE_F32;
    Sizes4 ne = {1, 1, 1, 1};
    const std::byte * data = nullptr;
    size_t nbytes = 0;
    uint32_t rank = 4;
};

/// What is in a GGUF file: its tensors, sorted by name, and of its metadata the texts and the numbers of 32 bits. It lies in the file.
struct Gguf {
    std::vector<StoredTensor> tensors;
    std::map<std::string, std::string_view> texts;
    std::map<std::string, uint32_t> numbers;
};

/// Files come from strangers: every size is compared with what is left before it is used. Throws Error whose message follows the
/// file's name, for a file that is damaged or none.
Gguf read_gguf(const Mapping & mapping);

}  // namespace graphc
