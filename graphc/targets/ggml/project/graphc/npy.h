#pragma once

#include "graphc/array.h"

#include <filesystem>
#include <functional>
#include <ostream>
#include <string>

namespace graphc {

/// Read a .npy file (format 1 to 3, little-endian, C order). NumPy writes `ml_dtypes.bfloat16` as "V2", and the narrow types
/// as "V1", which is read as `void8`.
/// Throws Error if the file is missing, damaged, or of another kind.
Array load_npy(const std::filesystem::path & path);

/// Write a .npy file: beside it first, so that a full disk leaves nothing half-written. Throws Error.
void save_npy(const std::filesystem::path & path, const Array & array);

/// What a .npy file of an array has before its elements.
std::string npy_header(const Array & array);

/// Write a file: beside it first, and then in its place. Throws Error with the file's name.
void write_file(const std::filesystem::path & path, const std::function<void(std::ostream & file)> & write);

}  // namespace graphc
