#include "text.hpp"

#include "tables.hpp"

#include <algorithm>
#include <cstdlib>

namespace graphc::images {
namespace {

/// The value of the row of ranges that a character is in.
unsigned value_in(const tables::List<tables::Range> & ranges, char32_t character) {
    const auto after = std::upper_bound(ranges.begin(), ranges.end(), character,
                                        [](char32_t wanted, const tables::Range & row) { return wanted < row.first; });
    return after == ranges.begin() ? 0 : (after - 1)->value;
}

const tables::Spelling * spelling_in(const tables::List<tables::Spelling> & rows, char32_t character) {
    const auto found = std::lower_bound(rows.begin(), rows.end(), character,
                                        [](const tables::Spelling & row, char32_t wanted) { return row.character < wanted; });
    return found != rows.end() && found->character == character ? found : nullptr;
}

void append(std::u32string & text, const tables::Spelling & row) {
    for (const char32_t each : row.spelled) {
        if (each != 0) text += each;
    }
}

/// Hangul's syllables are composed by arithmetic (Unicode Standard, 3.12).
constexpr char32_t syllables = 0xAC00, leading = 0x1100, vowels = 0x1161, trailing = 0x11A7;
constexpr char32_t leading_count = 19, vowel_count = 21, trailing_count = 28;
constexpr char32_t syllable_count = leading_count * vowel_count * trailing_count;

void decompose(std::u32string & text, char32_t character) {
    if (character >= syllables && character < syllables + syllable_count) {
        const char32_t number = character - syllables;
        text += leading + number / (vowel_count * trailing_count);
        text += vowels + number % (vowel_count * trailing_count) / trailing_count;
        if (number % trailing_count != 0) text += trailing + number % trailing_count;
    } else if (const tables::Spelling * row = spelling_in(tables::decompositions, character)) {
        append(text, *row);
    } else {
        text += character;
    }
}

/// What two characters are together; 0 for nothing.
char32_t together(char32_t first, char32_t second) {
    if (first >= leading && first < leading + leading_count && second >= vowels && second < vowels + vowel_count) {
        return syllables + ((first - leading) * vowel_count + (second - vowels)) * trailing_count;
    }
    const bool open = first >= syllables && first < syllables + syllable_count && (first - syllables) % trailing_count == 0;
    if (open && second > trailing && second < trailing + trailing_count) return first + (second - trailing);
    const auto & rows = tables::compositions;
    const auto before = [](const tables::Composition & row, const std::pair<char32_t, char32_t> & wanted) {
        return std::pair(row.first, row.second) < wanted;
    };
    const auto found = std::lower_bound(rows.begin(), rows.end(), std::pair(first, second), before);
    return found != rows.end() && found->first == first && found->second == second ? found->composed : 0;
}

}  // namespace

std::optional<std::u32string> decoded(std::string_view utf8) {
    std::u32string text;
    for (size_t place = 0; place < utf8.size();) {
        const auto byte = static_cast<unsigned char>(utf8[place]);
        const size_t more = byte < 0x80 ? 0 : byte >> 5 == 6 ? 1 : byte >> 4 == 14 ? 2 : byte >> 3 == 30 ? 3 : 4;
        if (more == 4 || utf8.size() - place <= more) return std::nullopt;
        char32_t character = more == 0 ? byte : byte & (0x3F >> more);
        for (size_t next = place + 1; next <= place + more; ++next) {
            const auto part = static_cast<unsigned char>(utf8[next]);
            if (part >> 6 != 2) return std::nullopt;
            character = character << 6 | (part & 0x3F);
        }
        constexpr char32_t least[] = {0, 0x80, 0x800, 0x10000};
        const bool surrogate = character >= 0xD800 && character < 0xE000;
        if (character < least[more] || character > 0x10FFFF || surrogate) return std::nullopt;
        text += character;
        place += more + 1;
    }
    return text;
}

std::string encoded(std::u32string_view text) {
    std::string utf8;
    for (const char32_t each : text) {
        const auto byte = [&](char32_t bits) { utf8 += static_cast<char>(bits); };
        if (each < 0x80) {
            byte(each);
            continue;
        }
        if (each < 0x800) {
            byte(0xC0 | each >> 6);
        } else {
            if (each < 0x10000) {
                byte(0xE0 | each >> 12);
            } else {
                byte(0xF0 | each >> 18);
                byte(0x80 | (each >> 12 & 0x3F));
            }
            byte(0x80 | (each >> 6 & 0x3F));
        }
        byte(0x80 | (each & 0x3F));
    }
    return utf8;
}

unsigned kind_of(char32_t character) { return value_in(tables::kinds, character); }

bool is_space(char32_t character) { return (kind_of(character) & tables::space) != 0; }

bool in_word(char32_t character) { return (kind_of(character) & tables::in_word) != 0; }

int digit_of(char32_t character) {
    if ((kind_of(character) & tables::decimal) == 0) return -1;
    return static_cast<int>(character - *(std::upper_bound(tables::zeros.begin(), tables::zeros.end(), character) - 1));
}

std::u32string composed(std::u32string_view text) {
    std::u32string apart;
    for (const char32_t each : text) decompose(apart, each);
    std::vector<unsigned> classes(apart.size());
    for (size_t place = 0; place < apart.size(); ++place) classes[place] = value_in(tables::combining_classes, apart[place]);
    for (size_t place = 1; place < apart.size(); ++place) {  // marks of one letter in the order of their classes
        for (size_t left = place; left > 0 && classes[left] != 0 && classes[left - 1] > classes[left]; --left) {
            std::swap(apart[left - 1], apart[left]);
            std::swap(classes[left - 1], classes[left]);
        }
    }
    std::u32string result;
    size_t starter = std::u32string::npos;
    unsigned last = 0;  // the class of what stands behind the starter, and was not joined to it
    for (size_t place = 0; place < apart.size(); ++place) {
        const bool adjacent = starter != std::u32string::npos && starter + 1 == result.size();
        if (starter != std::u32string::npos && (adjacent || (last != 0 && last < classes[place]))) {
            if (const char32_t one = together(result[starter], apart[place])) {
                result[starter] = one;
                continue;
            }
        }
        last = classes[place];
        if (last == 0) starter = result.size();
        result += apart[place];
    }
    return result;
}

std::u32string lower(std::u32string_view text) {
    std::u32string result;
    for (const char32_t each : text) {
        if (const tables::Spelling * row = spelling_in(tables::lower_cases, each)) {
            append(result, *row);
        } else {
            result += each;
        }
    }
    return result;
}

std::u32string_view stripped(std::u32string_view text) {
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    return text;
}

double number_of(std::u32string_view text) {
    std::string ascii;
    for (const char32_t each : text) {
        const int digit = digit_of(each);
        ascii += digit < 0 ? static_cast<char>(each) : static_cast<char>('0' + digit);
    }
    return std::strtod(ascii.c_str(), nullptr);
}

}  // namespace graphc::images
