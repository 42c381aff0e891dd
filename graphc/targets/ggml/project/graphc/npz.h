#pragma once

#include "graphc/array.h"

#include <filesystem>
#include <map>

namespace graphc {

/// Write a .npz file, which numpy.load reads: a ZIP archive of .npy files by their names, not compressed, of any size. The same arrays
/// give the same bytes. Throws Error.
void save_npz(const std::filesystem::path & path, const std::map<std::string, const Array *> & arrays);

}  // namespace graphc
