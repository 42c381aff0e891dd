#include "graphc/mapping.h"

#include "graphc/error.h"
#include "graphc/paths.h"

#include <cstdint>
#include <cstring>
#include <utility>

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace graphc {

#ifdef _WIN32

Mapping::Mapping(const std::filesystem::path & path) {
    const HANDLE file = CreateFileW(path.c_str(), GENERIC_READ, FILE_SHARE_READ, nullptr, OPEN_EXISTING,
                                    FILE_ATTRIBUTE_NORMAL, nullptr);
    if (file == INVALID_HANDLE_VALUE) throw Error(text_of(path) + " cannot be opened");
    LARGE_INTEGER size{};
    const bool sized = GetFileSizeEx(file, &size) != 0;
    const HANDLE view = sized && size.QuadPart > 0 ? CreateFileMappingW(file, nullptr, PAGE_READONLY, 0, 0, nullptr) : nullptr;
    CloseHandle(file);
    if (view == nullptr) throw Error(text_of(path) + " is empty or cannot be mapped");
    data_ = static_cast<const std::byte *>(MapViewOfFile(view, FILE_MAP_READ, 0, 0, 0));
    CloseHandle(view);
    if (data_ == nullptr) throw Error(text_of(path) + " cannot be mapped into memory");
    size_ = static_cast<size_t>(size.QuadPart);
    mapped_ = true;
}

void Mapping::unmap() { UnmapViewOfFile(data_); }

#else

namespace {

/// Closes a file descriptor at the end of a scope.
struct Descriptor {
    int number;
    ~Descriptor() {
        if (number >= 0) close(number);
    }
};

}  // namespace

Mapping::Mapping(const std::filesystem::path & path) {
    const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file.number < 0) throw Error(text_of(path) + " cannot be opened: " + std::strerror(errno));
    struct stat status {};
    if (fstat(file.number, &status) != 0 || !S_ISREG(status.st_mode)) throw Error(text_of(path) + " is not a file");
    if (status.st_size == 0) throw Error(text_of(path) + " is empty");
    size_ = static_cast<size_t>(status.st_size);
    void * address = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number, 0);
    if (address == MAP_FAILED) throw Error(text_of(path) + " cannot be mapped: " + std::strerror(errno));
    data_ = static_cast<const std::byte *>(address);
    mapped_ = true;
}

void Mapping::unmap() { munmap(const_cast<std::byte *>(data_), size_); }

#endif

Mapping::Mapping(const void * data, size_t size) : data_(static_cast<const std::byte *>(data)), size_(size) {
    if (data == nullptr || size == 0) throw Error("there are no bytes");
    if (reinterpret_cast<uintptr_t>(data) % alignment == 0) return;
    copy_ = std::make_unique<std::byte[]>(size + alignment);
    void * place = copy_.get();
    size_t space = size + alignment;
    std::memcpy(std::align(alignment, size, place, space), data, size);
    data_ = static_cast<const std::byte *>(place);
}

Mapping::~Mapping() {
    if (mapped_) unmap();
}

Mapping::Mapping(Mapping && other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), mapped_(std::exchange(other.mapped_, false)),
      copy_(std::move(other.copy_)) {}

void prefer_huge_pages([[maybe_unused]] void * data, [[maybe_unused]] size_t size) {
#ifdef MADV_HUGEPAGE
    constexpr size_t huge_page = size_t{2} << 20;  // on most processors; twice as many bytes are sure to hold one
    if (size < 2 * huge_page) return;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = reinterpret_cast<uintptr_t>(data), start = (begin + page - 1) / page * page;
    madvise(reinterpret_cast<void *>(start), begin + size - start, MADV_HUGEPAGE);
#endif
}

}  // namespace graphc
