#include "graphc/npz.h"

#include "graphc/npy.h"

#include <array>

namespace graphc {

namespace {

// The format is PKWARE's APPNOTE.TXT. Sizes and offsets are all in the fields of 64 bits that it calls ZIP64.

constexpr uint32_t in_zip64 = 0xffffffff;  // in place of a number of 32 bits
constexpr uint16_t zip64_version = 45;
constexpr uint16_t utf8_names = 1 << 11;
constexpr uint16_t first_day = 1 << 5 | 1;  // 1 January 1980

/// Numbers as bytes, little-endian.
class Bytes {
  public:
    template <class T> Bytes & add(T value) {
        for (size_t i = 0; i < sizeof value; ++i) text += static_cast<char>(static_cast<uint64_t>(value) >> 8 * i);
        return *this;
    }
    std::string text;
};

constexpr std::array<uint32_t, 256> crc_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? 0xedb88320 ^ value >> 1 : value >> 1;
        table[i] = value;
    }
    return table;
}

/// The CRC-32 of ZIP, over bytes behind those that gave `crc`.
uint32_t crc32(uint32_t crc, const void * data, size_t size) {
    static constexpr std::array<uint32_t, 256> table = crc_table();
    const unsigned char * bytes = static_cast<const unsigned char *>(data);
    crc = ~crc;
    for (size_t i = 0; i < size; ++i) crc = table[(crc ^ bytes[i]) & 0xff] ^ crc >> 8;
    return ~crc;
}

/// What both headers of a member have between their first fields and its name.
void add_common(Bytes & bytes, uint32_t crc, size_t name, uint16_t extra) {
    bytes.add(zip64_version).add(utf8_names).add<uint16_t>(0);  // stored as it is
    bytes.add<uint16_t>(0).add(first_day).add(crc).add(in_zip64).add(in_zip64);
    bytes.add(static_cast<uint16_t>(name)).add(extra);
}

void write_text(std::ostream & file, const std::string & text) { file.write(text.data(), static_cast<std::streamsize>(text.size())); }

}  // namespace

void save_npz(const std::filesystem::path & path, const std::map<std::string, const Array *> & arrays) {
    write_file(path, [&](std::ostream & file) {
        Bytes directory;
        uint64_t at = 0;
        for (const auto & [name, array] : arrays) {
            const std::string header = npy_header(*array);
            const uint64_t size = header.size() + array->bytes().size();
            const uint32_t crc = crc32(crc32(0, header.data(), header.size()), array->bytes().data(), array->bytes().size());
            directory.add<uint32_t>(0x02014b50).add(zip64_version);
            add_common(directory, crc, name.size(), 28);
            directory.add<uint16_t>(0).add<uint16_t>(0).add<uint16_t>(0).add<uint32_t>(0).add(in_zip64).text += name;
            directory.add<uint16_t>(1).add<uint16_t>(24).add(size).add(size).add(at);
            Bytes local;
            local.add<uint32_t>(0x04034b50);
            add_common(local, crc, name.size(), 20);
            local.text += name;
            local.add<uint16_t>(1).add<uint16_t>(16).add(size).add(size);
            write_text(file, local.text);
            write_text(file, header);
            file.write(reinterpret_cast<const char *>(array->bytes().data()), static_cast<std::streamsize>(array->bytes().size()));
            at += local.text.size() + size;
        }
        const uint64_t count = arrays.size(), length = directory.text.size();
        Bytes end;
        end.add<uint32_t>(0x06064b50).add<uint64_t>(44).add(zip64_version).add(zip64_version).add<uint32_t>(0).add<uint32_t>(0);
        end.add(count).add(count).add(length).add(at);
        end.add<uint32_t>(0x07064b50).add<uint32_t>(0).add(at + length).add<uint32_t>(1);
        end.add<uint32_t>(0x06054b50).add<uint16_t>(0).add<uint16_t>(0).add<uint16_t>(0xffff).add<uint16_t>(0xffff);
        end.add(in_zip64).add(in_zip64).add<uint16_t>(0);
        write_text(file, directory.text);
        write_text(file, end.text);
    });
}

}  // namespace graphc
