#pragma once

#include <cstddef>
#include <filesystem>

namespace graphc {

/// A whole file, mapped read-only into memory; its pages are read when they are first used.
class Mapping {
  public:
    /// Throws Error if the file is missing or cannot be mapped.
    explicit Mapping(const std::filesystem::path & path);
    ~Mapping();
    Mapping(const Mapping &) = delete;
    Mapping & operator=(const Mapping &) = delete;

    const std::byte * data() const { return data_; }
    size_t size() const { return size_; }

  private:
    const std::byte * data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace graphc
