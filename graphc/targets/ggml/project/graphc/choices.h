#pragma once

#include <filesystem>
#include <string>

namespace graphc {

/// Ways of computing calls that were measured to be the fastest on a device: the text of a file that `graphc tune --output FILE` wrote
/// (see `graphc_builder_choose`). Throws Error if it cannot be read, or holds anything but choices between known ways.
std::string read_choices(const std::filesystem::path & file);

}  // namespace graphc
