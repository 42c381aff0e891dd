#pragma once

#include "graphc/mapping.h"
#include "graphc/values.h"

#include <map>
#include <string>
#include <type_traits>

namespace graphc {

/// The tensors of a file of weights by name: safetensors, or GGUF. It is mapped, and may be closed when it was given to a model: what
/// is used of it stays. Files come from strangers: every size is compared with the file before it is used.
class Checkpoint {
  public:
    /// Throws Error if the file is missing, damaged, or of another kind.
    template <class Path, class = std::enable_if_t<std::is_convertible_v<const Path &, std::filesystem::path>>>
    Checkpoint(const Path & path) : Checkpoint(std::filesystem::path(path)) {}
    Checkpoint(const std::filesystem::path & path);

    /// Bytes in memory, which must live as long as the models that get them. Throws Error.
    Checkpoint(const void * data, size_t size);

    const std::string & path() const { return path_; }
    const std::map<std::string, Values> & tensors() const { return tensors_; }

    /// What is there of types that are not read here, by name, and their types; the elements of 8-bit floats, booleans and the like.
    const std::map<std::string, std::string> & unreadable() const { return unreadable_; }

  private:
    Checkpoint(std::string path, Mapping mapping);
    void read_tensors(const std::shared_ptr<const Mapping> & mapping);
    void read_safetensors(const std::shared_ptr<const Mapping> & mapping);

    std::string path_;
    std::map<std::string, Values> tensors_;
    std::map<std::string, std::string> unreadable_;
};

}  // namespace graphc
