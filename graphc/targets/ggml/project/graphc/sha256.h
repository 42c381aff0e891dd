#pragma once

#include <string>
#include <string_view>

namespace graphc {

/// The SHA-256 of bytes (FIPS 180-4), in hexadecimal.
std::string sha256(std::string_view bytes);

}  // namespace graphc
