#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Texts as Python has them: code points.
namespace graphc::images {

/// The code points of UTF-8; nothing if it is none.
std::optional<std::u32string> decoded(std::string_view utf8);

/// As UTF-8.
std::string encoded(std::u32string_view text);

/// Bits of `tables::Kind`.
unsigned kind_of(char32_t character);

/// True for what Python's `str.isspace` and `\s` take for white space.
bool is_space(char32_t character);

/// True for what a word of `\w` has.
bool in_word(char32_t character);

/// The value of a decimal digit of any script; -1 for other characters.
int digit_of(char32_t character);

/// Unicode's normal form C.
std::u32string composed(std::u32string_view text);

/// Each character's lower case by itself, as Python's `str.lower` has it.
std::u32string lower(std::u32string_view text);

/// Without white space at both ends.
std::u32string_view stripped(std::u32string_view text);

/// A number as Python's `float` reads it: digits of any script, a point, an exponent, a sign. The text must be one.
double number_of(std::u32string_view text);

}  // namespace graphc::images
