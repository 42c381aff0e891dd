#include "graphc/mapping.h"

#include "graphc/error.h"
#include "graphc/paths.h"

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <cerrno>
#include <cstring>
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
}

Mapping::~Mapping() { UnmapViewOfFile(data_); }

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
    const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (file.number < 0) throw Error(text_of(path) + " cannot be opened: " + std::strerror(errno));
    struct stat status {};
    if (fstat(file.number, &status) != 0 || !S_ISREG(status.st_mode)) throw Error(text_of(path) + " is not a file");
    if (status.st_size == 0) throw Error(text_of(path) + " is empty");
    size_ = static_cast<size_t>(status.st_size);
    void * address = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number, 0);
    if (address == MAP_FAILED) throw Error(text_of(path) + " cannot be mapped: " + std::strerror(errno));
    data_ = static_cast<const std::byte *>(address);
}

Mapping::~Mapping() { munmap(const_cast<std::byte *>(data_), size_); }

#endif

}  // namespace graphc
