#include "png.hpp"

#include <array>
#include <algorithm>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "graphc/paths.h"
#include "text.hpp"

// Portable Network Graphics (ISO/IEC 15948), zlib (RFC 1950) and deflate (RFC 1951).
namespace graphc::images {
namespace {

/// Bits, of which the first is the lowest of the first byte.
class Bits {
public:
    /// A number, its lowest bit first.
    void number(uint32_t value, int count) {
        held_ |= static_cast<uint64_t>(value) << held_count_;
        held_count_ += count;
        while (held_count_ >= 8) {
            bytes_ += static_cast<char>(held_ & 0xFF);
            held_ >>= 8;
            held_count_ -= 8;
        }
    }

    /// A code, its highest bit first.
    void code(uint32_t value, int count) {
        for (int bit = count - 1; bit >= 0; --bit) number(value >> bit & 1, 1);
    }

    std::string finished() {
        if (held_count_ > 0) number(0, 8 - held_count_);
        return std::move(bytes_);
    }

private:
    std::string bytes_;
    uint64_t held_ = 0;
    int held_count_ = 0;
};

/// Literals and lengths by deflate's fixed codes.
void fixed_code(Bits & bits, int symbol) {
    if (symbol < 144) return bits.code(0x30 + symbol, 8);
    if (symbol < 256) return bits.code(0x190 + symbol - 144, 9);
    if (symbol < 280) return bits.code(symbol - 256, 7);
    bits.code(0xC0 + symbol - 280, 8);
}

/// Lengths and distances are a class, whose least there is here, and as many bits as make up the rest.
struct Class {
    int least, bits;
};

template <size_t count> std::array<Class, count> classes(int first, int alone) {
    std::array<Class, count> found{};
    for (int each = 0, least = first; each < static_cast<int>(count); ++each) {
        const int bits = each < 2 * alone ? 0 : each / alone - 1;
        found[static_cast<size_t>(each)] = {least, bits};
        least += 1 << bits;
    }
    return found;
}

template <size_t count> int class_of(const std::array<Class, count> & table, int value) {
    int found = static_cast<int>(count) - 1;
    while (table[static_cast<size_t>(found)].least > value) --found;
    return found;
}

constexpr int longest = 257, farthest = 32768, tries = 32;  // a match of 258 has a class of its own, which is not used

/// Deflate: what was there before is named by its distance and length; with the fixed codes.
std::string deflated(const std::string & data) {
    static const auto lengths = classes<28>(3, 4);
    static const auto distances = classes<30>(1, 2);
    constexpr int none = -1;
    const int size = static_cast<int>(data.size());
    std::vector<int> latest(1 << 15, none), before(data.size(), none);
    const auto hash = [&](int place) {
        uint32_t three = 0;
        std::memcpy(&three, data.data() + place, 3);
        return (three * 0x9E3779B1u) >> 17;
    };
    Bits bits;
    bits.number(1, 1);  // the last block
    bits.number(1, 2);  // of fixed codes
    const auto remember = [&](int place) {
        if (place + 3 > size) return;
        before[static_cast<size_t>(place)] = latest[hash(place)];
        latest[hash(place)] = place;
    };
    for (int place = 0; place < size;) {
        int length = 0, distance = 0;
        const int most = std::min(longest, size - place);
        int candidate = most >= 3 ? latest[hash(place)] : none;
        for (int left = tries; candidate != none && place - candidate <= farthest && left > 0; --left) {
            int same = 0;
            while (same < most && data[static_cast<size_t>(candidate + same)] == data[static_cast<size_t>(place + same)]) ++same;
            if (same > length) length = same, distance = place - candidate;
            candidate = before[static_cast<size_t>(candidate)];
        }
        if (length < 3) {
            fixed_code(bits, static_cast<unsigned char>(data[static_cast<size_t>(place)]));
            length = 1;
        } else {
            const int kind = class_of(lengths, length), away = class_of(distances, distance);
            const Class of_length = lengths[static_cast<size_t>(kind)], of_distance = distances[static_cast<size_t>(away)];
            fixed_code(bits, 257 + kind);
            bits.number(static_cast<uint32_t>(length - of_length.least), of_length.bits);
            bits.code(static_cast<uint32_t>(away), 5);
            bits.number(static_cast<uint32_t>(distance - of_distance.least), of_distance.bits);
        }
        for (const int end = place + length; place < end; ++place) remember(place);
    }
    fixed_code(bits, 256);
    return bits.finished();
}

std::string big_endian(uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
    return bytes;
}

uint32_t adler32(const std::string & data) {
    uint32_t sum = 1, sums = 0;
    for (const char byte : data) {
        sum = (sum + static_cast<unsigned char>(byte)) % 65521;
        sums = (sums + sum) % 65521;
    }
    return sums << 16 | sum;
}

uint32_t crc32(const std::string & data) {
    uint32_t rest = 0xFFFFFFFF;
    for (const char byte : data) {
        rest ^= static_cast<unsigned char>(byte);
        for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? 0xEDB88320 : 0);
    }
    return ~rest;
}

std::string chunk(const std::string & kind, const std::string & data) {
    return big_endian(static_cast<uint32_t>(data.size())) + kind + data + big_endian(crc32(kind + data));
}

/// The pixels' rows, each less what is left of it.
std::string filtered(const Picture & picture) {
    constexpr size_t left = 3;
    const size_t row = static_cast<size_t>(picture.width) * 3;
    std::string data;
    data.reserve((row + 1) * static_cast<size_t>(picture.height));
    for (size_t start = 0; start < picture.pixels.size(); start += row) {
        data += '\1';
        for (size_t each = start; each < start + row; ++each) {
            const int before = each < start + left ? 0 : picture.pixels[each - left];
            data += static_cast<char>(picture.pixels[each] - before);
        }
    }
    return data;
}

std::string text_chunk(const std::string & name, const std::string & text) {
    const auto characters = decoded(text);
    std::string latin;
    for (const char32_t each : characters.value_or(U"\x100")) {
        if (each >= 0x100) return chunk("iTXt", name + std::string(5, '\0') + text);
        latin += static_cast<char>(each);
    }
    return chunk("tEXt", name + '\0' + latin);
}

}  // namespace

std::string png_of(const Picture & picture, const std::string & name, const std::string & text) {
    const std::string data = filtered(picture);
    const std::string size = big_endian(static_cast<uint32_t>(picture.width)) + big_endian(static_cast<uint32_t>(picture.height));
    return "\x89PNG\r\n\x1a\n" + chunk("IHDR", size + std::string("\x08\x02\0\0\0", 5)) + text_chunk(name, text) +
           chunk("IDAT", "\x78\x01" + deflated(data) + big_endian(adler32(data))) + chunk("IEND", "");
}

void write_file(const std::filesystem::path & path, const std::string & bytes) {
    std::filesystem::path unfinished = path;
    unfinished += ".unfinished";
    std::ofstream file(unfinished, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    std::error_code problem;
    if (file) std::filesystem::rename(unfinished, path, problem);
    if (!file || problem) {
        std::error_code none;
        std::filesystem::remove(unfinished, none);
        const std::string why = problem ? ": " + problem.message() : "";
        throw std::runtime_error(text_of(path) + ": the picture cannot be written" + why);
    }
}

}  // namespace graphc::images
