#pragma once

// Paths as text in UTF-8, on every system and in every version of C++ from 17 on.

#include <filesystem>
#include <string>
#include <system_error>

namespace graphc {

/// A path as text.
inline std::string text_of(const std::filesystem::path & path) {
    const auto text = path.u8string();  // characters of a type of their own since C++20
    return {text.begin(), text.end()};
}

/// The path that a text says.
inline std::filesystem::path path_of(const std::string & text) {
#ifdef __cpp_char8_t
    return std::u8string(text.begin(), text.end());
#else
    return std::filesystem::u8path(text);
#endif
}

/// True if something is there that is not a regular file: a folder, a device, a pipe that one would wait for.
inline bool is_special(const std::filesystem::path & path) {
    std::error_code none;
    const std::filesystem::file_status status = std::filesystem::status(path, none);
    return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

}  // namespace graphc
