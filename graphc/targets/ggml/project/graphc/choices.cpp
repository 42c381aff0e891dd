#include "graphc/choices.h"

#include "graphc/build.h"
#include "graphc/error.h"
#include "graphc/paths.h"

#include <fstream>
#include <iterator>

namespace graphc {

std::string read_choices(const std::filesystem::path & file) {
    if (is_special(file)) throw Error(text_of(file) + " is not a file");
    std::ifstream stream(file, std::ios::binary);
    if (!stream) throw Error(text_of(file) + " cannot be read");
    std::string text(std::istreambuf_iterator<char>(stream), {});
    const int line = graphc_builder_choose(nullptr, text.data(), text.size());
    if (line != 0) throw Error(text_of(file) + ": line " + std::to_string(line) + " is not a choice that this program knows");
    return text;
}

}  // namespace graphc
