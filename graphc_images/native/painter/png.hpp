#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace graphc::images {

/// Red, green and blue of each pixel, from the left, row by row from the top.
struct Picture {
    int width, height;
    std::vector<uint8_t> pixels;
};

/// The file of a picture with a text chunk (its name, and UTF-8), as Pillow writes it: tEXt if Latin-1 has all characters, else iTXt.
std::string png_of(const Picture & picture, const std::string & name, const std::string & text);

/// Write a file whole or not at all. Throws std::runtime_error that says why not.
void write_file(const std::filesystem::path & path, const std::string & bytes);

}  // namespace graphc::images
