#pragma once

#include "graphc/gguf.h"

#include <map>
#include <string>
#include <type_traits>
#include <vector>

namespace graphc {

/// True if one of the sizes is 0.
bool has_no_elements(const Sizes4 & ne);

/// That an engine's program is the one with the checksum `program`, but a weight has so many more `rows`, which an input numbers.
struct Growth {
    std::string program;
    uint32_t weight = 0;
    uint32_t input = 0;
    uint32_t rows = 0;
};

/// An engine (GGUF, version 3): a file, which is mapped, or bytes in memory. They come from strangers: every size is compared with
/// what is left before it is used.
class Engine {
  public:
    /// A file. Throws Error if it is missing, damaged or no engine.
    template <class Path, class = std::enable_if_t<std::is_convertible_v<const Path &, std::filesystem::path>>>
    Engine(const Path & path) : Engine(std::filesystem::path(path)) {}
    Engine(const std::filesystem::path & path);

    /// Bytes in memory, and what messages call them. They are used where they lie, at a multiple of 32, else copied; they must live
    /// as long as the model. Throws Error if they are damaged or no engine.
    Engine(const void * data, size_t size, std::string name = "the engine in memory") : Engine(std::move(name), Mapping(data, size)) {}

    /// What is more in this engine than in the program with that checksum: usually nothing. Throws Error if it is the engine of
    /// another program.
    Growth growth_of(const std::string & sha256) const;

    /// The tensor with that name, or nullptr.
    const StoredTensor * find(const std::string & name) const;

    /// How each weight is made of parameters: see `Recipes`. Throws Error if the engine does not say it.
    std::string_view recipes() const;

    /// The sizes that the model was exported with, by the names of its symbols; empty if the engine does not say them.
    std::map<std::string, int64_t> example() const;

    /// The code of kernels for a GPU. Throws Error if there is none for that target. Nobody knows who made it.
    std::string_view kernels(const std::string & target) const;

    const Mapping & mapping() const { return mapping_; }
    const std::string & path() const { return path_; }

  private:
    Engine(std::string path, Mapping mapping);

    std::string path_;
    Mapping mapping_;
    std::string program_;
    Growth growth_;
    Gguf contents_;
};

}  // namespace graphc
