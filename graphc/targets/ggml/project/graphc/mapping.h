#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

namespace graphc {

/// Bytes to read: a whole file, mapped into memory, of which pages are read when they are first used; or bytes that lie there.
class Mapping {
  public:
    /// Throws Error if the file is missing or cannot be mapped.
    explicit Mapping(const std::filesystem::path & path);

    /// Bytes of the caller's, which outlive this. They are copied if they do not lie at a multiple of `alignment`.
    Mapping(const void * data, size_t size);

    ~Mapping();
    Mapping(Mapping && other) noexcept;
    Mapping & operator=(Mapping &&) = delete;

    /// Where ggml takes a tensor's elements to lie.
    static constexpr size_t alignment = 32;

    const std::byte * data() const { return data_; }
    size_t size() const { return size_; }

  private:
    void unmap();

    const std::byte * data_ = nullptr;
    size_t size_ = 0;
    bool mapped_ = false;
    std::unique_ptr<std::byte[]> copy_;
};

/// Have Linux use huge pages for this memory, which on most machines it does only where it is asked.
void prefer_huge_pages(void * data, size_t size);

}  // namespace graphc
