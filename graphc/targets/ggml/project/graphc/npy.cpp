#include "graphc/npy.h"

#include "graphc/paths.h"

#include <cctype>
#include <cstring>
#include <fstream>
#include <optional>

namespace graphc {

namespace {

struct Description {
    const char * text;
    DType dtype;
};

constexpr Description descriptions[] = {
    {"<f4", DType::float32}, {"<f2", DType::float16}, {"<V2", DType::bfloat16}, {"|V2", DType::bfloat16},
    {"<f8", DType::float64}, {"|i1", DType::int8},    {"|u1", DType::uint8},    {"|b1", DType::boolean},
    {"<i2", DType::int16},   {"<u2", DType::uint16},  {"<i4", DType::int32},    {"<u4", DType::uint32},
    {"<i8", DType::int64},   {"<u8", DType::uint64},   {"|V1", DType::void8},    {"<V1", DType::void8},
    {"<f1", DType::void8},
};

constexpr char magic[] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};
constexpr size_t longest_header = 1 << 16;
constexpr size_t header_alignment = 64;

/// Reads the header: a Python dictionary with the keys 'descr', 'fortran_order' and 'shape'.
class HeaderParser {
  public:
    explicit HeaderParser(const std::string & text) : text_(text) {}

    std::string descr;
    bool fortran_order = false;
    Shape shape;

    void parse() {
        expect('{');
        while (!accept('}')) {
            const std::string key = string();
            expect(':');
            if (key == "descr") descr = string();
            else if (key == "fortran_order") fortran_order = boolean();
            else if (key == "shape") shape = tuple();
            else throw Error("has an unknown header entry");
            if (!accept(',')) {
                expect('}');
                break;
            }
        }
        if (descr.empty()) throw Error("has a header without an element type");
    }

  private:
    void skip_space() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    }

    bool accept(char wanted) {
        skip_space();
        if (at_ >= text_.size() || text_[at_] != wanted) return false;
        ++at_;
        return true;
    }

    void expect(char wanted) {
        if (!accept(wanted)) throw Error("has a damaged header");
    }

    std::string string() {
        skip_space();
        const char quote = at_ < text_.size() ? text_[at_] : '\0';
        if (quote == '[') throw Error("holds records, not plain numbers");
        const size_t end = quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string::npos;
        if (end == std::string::npos) throw Error("has a damaged header");
        const std::string found = text_.substr(at_ + 1, end - at_ - 1);
        at_ = end + 1;
        return found;
    }

    bool boolean() {
        skip_space();
        for (const char * word : {"True", "False"}) {
            if (text_.compare(at_, std::strlen(word), word) == 0) {
                at_ += std::strlen(word);
                return word[0] == 'T';
            }
        }
        throw Error("has a damaged header");
    }

    Shape tuple() {
        Shape sizes;
        expect('(');
        while (!accept(')')) {
            sizes.push_back(integer());
            if (!accept(',')) {
                expect(')');
                break;
            }
        }
        return sizes;
    }

    int64_t integer() {
        skip_space();
        const size_t start = at_;
        int64_t value = 0;
        while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) && at_ - start < 18) {
            value = value * 10 + (text_[at_++] - '0');
        }
        if (at_ == start) throw Error("has a damaged header");
        return value;
    }

    const std::string & text_;
    size_t at_ = 0;
};

/// Reads exactly `size` bytes.
std::string take(std::istream & file, size_t size) {
    std::string bytes(size, '\0');
    if (!file.read(bytes.data(), static_cast<std::streamsize>(size))) throw Error("is truncated");
    return bytes;
}

std::string read_header(std::istream & file) {
    const std::string start = take(file, 8);
    if (std::memcmp(start.data(), magic, sizeof magic) != 0) throw Error("is not a .npy file");
    const int version = start[6];
    if (version < 1 || version > 3) throw Error("is of an unknown .npy version");
    const std::string length = take(file, version == 1 ? 2 : 4);
    size_t size = 0;
    for (size_t i = length.size(); i-- > 0;) size = size << 8 | static_cast<unsigned char>(length[i]);
    if (size > longest_header) throw Error("has a header that is too long");
    return take(file, size);
}

DType parse_descr(const std::string & descr) {
    for (const Description & each : descriptions) {
        if (descr == each.text) return each.dtype;
    }
    if (!descr.empty() && descr[0] == '>') throw Error("is big-endian; convert it to little-endian");
    throw Error("holds elements of type '" + descr + "', which a model cannot take");
}

size_t remaining(std::istream & file) {
    const auto here = file.tellg();
    file.seekg(0, std::ios::end);
    const auto end = file.tellg();
    file.seekg(here);
    return static_cast<size_t>(end - here);
}

Array read(std::istream & file) {
    const std::string text = read_header(file);
    HeaderParser header(text);
    header.parse();
    const DType dtype = parse_descr(header.descr);
    if (header.fortran_order && header.shape.size() > 1) {
        throw Error("is in Fortran order; write it with numpy.ascontiguousarray");
    }
    if (element_count(header.shape, dtype_size(dtype)) * dtype_size(dtype) != remaining(file)) {
        throw Error("does not have the size that its header gives");
    }
    Array array(dtype, header.shape);
    if (!file.read(reinterpret_cast<char *>(array.bytes().data()), static_cast<std::streamsize>(array.bytes().size()))) {
        throw Error("is truncated");
    }
    return array;
}

}  // namespace

std::string npy_header(const Array & array) {
    const char * descr = "|V1";
    for (const Description & each : descriptions) {
        if (each.dtype == array.dtype()) {
            descr = each.text;
            break;
        }
    }
    std::string text = std::string("{'descr': '") + descr;
    text += "', 'fortran_order': False, 'shape': (";
    for (int64_t size : array.shape()) text += std::to_string(size) + (array.shape().size() == 1 ? "," : ", ");
    if (array.shape().size() > 1) text.resize(text.size() - 2);
    text += "), }";
    const size_t prefix = sizeof magic + 4;
    text.append((header_alignment - (prefix + text.size() + 1) % header_alignment) % header_alignment, ' ');
    text += '\n';
    const char version_and_length[] = {1, 0, static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
    return std::string(magic, sizeof magic) + std::string(version_and_length, sizeof version_and_length) + text;
}

Array load_npy(const std::filesystem::path & path) {
    try {
        if (std::filesystem::is_directory(path)) throw Error("is a folder");
        if (is_special(path)) throw Error("is not a file");
        std::ifstream file(path, std::ios::binary);
        if (!file) throw Error("cannot be opened");
        return read(file);
    } catch (const std::exception & error) {
        throw Error(text_of(path) + " " + error.what());
    }
}

void write_file(const std::filesystem::path & path, const std::function<void(std::ostream & file)> & write) {
    const auto written = [&](const std::filesystem::path & place) {
        std::ofstream file(place, std::ios::binary);
        write(file);
        file.close();
        if (!file) throw Error("cannot be written");
    };
    std::error_code ignored;
    std::filesystem::path target = path;
    for (int links = 0; links < 40 && std::filesystem::is_symlink(target, ignored); ++links) {
        target = target.parent_path() / std::filesystem::read_symlink(target, ignored);
    }
    const bool device = std::filesystem::is_character_file(path, ignored);
    std::filesystem::path beside = target;
    beside += ".part";
    try {
        if (device) return written(path);
        if (is_special(path)) throw Error("is not a file");
        written(beside);
        std::filesystem::rename(beside, target);
    } catch (const Error & error) {
        std::filesystem::remove(beside, ignored);
        throw Error(text_of(path) + " " + error.what());
    } catch (const std::exception &) {
        std::filesystem::remove(beside, ignored);
        throw Error(text_of(path) + " cannot be written");
    }
}

void save_npy(const std::filesystem::path & path, const Array & array) {
    write_file(path, [&](std::ostream & file) {
        const std::string header = npy_header(array);
        file.write(header.data(), static_cast<std::streamsize>(header.size()));
        file.write(reinterpret_cast<const char *>(array.bytes().data()), static_cast<std::streamsize>(array.bytes().size()));
    });
}

}  // namespace graphc
