#pragma once

#include "graphc/array.h"

#include <filesystem>

namespace graphc {

/// Read a .npy file (format 1 to 3, little-endian, C order). NumPy writes `ml_dtypes.bfloat16` as "V2", and the narrow types
/// as "V1", which is read as `void8`.
/// Throws Error if the file is missing, damaged, or of another kind.
Array load_npy(const std::filesystem::path & path);

/// Write a .npy file: beside it first, so that a full disk leaves nothing half-written. Throws Error.
void save_npy(const std::filesystem::path & path, const Array & array);

}  // namespace graphc
