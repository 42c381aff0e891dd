#pragma once

#include "graphc/mapping.h"

#include "ggml.h"

#include <array>
#include <string>
#include <vector>

namespace graphc {

/// Sizes in ggml's order, the innermost axis first.
using Sizes4 = std::array<int64_t, 4>;

/// True if one of the sizes is 0.
bool has_no_elements(const Sizes4 & ne);

/// A tensor of an engine file: what it is, and where in the mapped file its elements lie.
struct StoredTensor {
    std::string name;
    ggml_type type = GGML_TYPE_F32;
    Sizes4 ne = {1, 1, 1, 1};
    const std::byte * data = nullptr;
    size_t nbytes = 0;
};

/// That an engine's program is the one with the checksum `program`, but a weight has so many more `rows`, which an input numbers.
struct Growth {
    std::string program;
    uint32_t weight = 0;
    uint32_t input = 0;
    uint32_t rows = 0;
};

/// An engine file (GGUF, version 3), mapped. Files come from strangers: every size is compared with what is left of the
/// file before it is used.
class Engine {
  public:
    /// Throws Error if the file is missing, damaged or no engine.
    explicit Engine(const std::filesystem::path & path);

    /// What is more in this engine than in the program with that checksum: usually nothing. Throws Error if it is the engine of
    /// another program.
    Growth growth_of(const std::string & sha256) const;

    /// The tensor with that name, or nullptr.
    const StoredTensor * find(const std::string & name) const;

    const Mapping & mapping() const { return mapping_; }
    const std::string & path() const { return path_; }

  private:
    std::string path_;
    Mapping mapping_;
    std::string program_;
    Growth growth_;
    std::vector<StoredTensor> tensors_;  // sorted by name
};

}  // namespace graphc
