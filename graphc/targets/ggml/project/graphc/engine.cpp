#include "graphc/engine.h"

#include "graphc/error.h"
#include "graphc/json.h"
#include "graphc/paths.h"

#include <algorithm>

namespace graphc {

namespace {

constexpr const char * format_key = "graphc.version";
constexpr uint32_t engine_format = 1;
constexpr const char * program_key = "graphc.program.sha256";
constexpr const char * recipes_key = "graphc.recipes";
constexpr const char * growth_key = "graphc.growth.program";

std::string text(const Gguf & found, const char * key) {
    const auto given = found.texts.find(key);
    return given == found.texts.end() ? "" : std::string(given->second);
}

uint32_t number(const Gguf & found, const char * key) {
    const auto given = found.numbers.find(key);
    return given == found.numbers.end() ? 0 : given->second;
}

}  // namespace

bool has_no_elements(const Sizes4 & ne) { return std::find(ne.begin(), ne.end(), 0) != ne.end(); }

Engine::Engine(const std::filesystem::path & path) : Engine(text_of(path), Mapping(path)) {}

Engine::Engine(std::string path, Mapping mapping) : path_(std::move(path)), mapping_(std::move(mapping)) {
    try {
        contents_ = read_gguf(mapping_);
    } catch (const std::exception & error) {
        throw Error(path_ + " " + error.what());
    }
    program_ = text(contents_, program_key);
    growth_ = {text(contents_, growth_key), number(contents_, "graphc.growth.weight"), number(contents_, "graphc.growth.input"),
               number(contents_, "graphc.growth.rows")};
}

Growth Engine::growth_of(const std::string & sha256) const {
    if (program_.empty()) throw Error(path_ + " is not an engine: it holds no program");
    const uint32_t format = number(contents_, format_key);
    if (format != engine_format) {
        throw Error(path_ + " is an engine of format " + std::to_string(format) + ", and this program reads format " +
                    std::to_string(engine_format) + "; compile the engine and this code by one graphc");
    }
    if (program_ == sha256) return {};
    if (growth_.program == sha256) return growth_;
    throw Error(path_ + " is the engine of another program; use the one that was compiled together with this code");
}

std::string_view Engine::recipes() const {
    const auto found = contents_.texts.find(recipes_key);
    if (found == contents_.texts.end()) throw Error(path_ + " does not say how its weights are made; compile it again");
    return found->second;
}

std::map<std::string, int64_t> Engine::example() const {
    const auto found = contents_.texts.find("graphc.example");
    std::map<std::string, int64_t> sizes;
    if (found == contents_.texts.end()) return sizes;
    try {
        const Json document = Json::parse(found->second);
        for (const auto & [name, size] : document.object()) sizes[name] = size.integer();
    } catch (const Error & error) {
        throw Error(path_ + " is damaged: the sizes of its example: " + error.what());
    }
    return sizes;
}

std::string_view Engine::kernels(const std::string & target) const {
    const auto found = contents_.texts.find("graphc.kernels." + target);
    if (found == contents_.texts.end()) throw Error(path_ + " has no kernels for " + target + ", which this code needs; compile it again");
    return found->second;
}

const StoredTensor * Engine::find(const std::string & name) const {
    const std::vector<StoredTensor> & tensors = contents_.tensors;
    const auto found = std::lower_bound(tensors.begin(), tensors.end(), name, [](const StoredTensor & each, const std::string & wanted) {
        return each.name < wanted;
    });
    return found != tensors.end() && found->name == name ? &*found : nullptr;
}

}  // namespace graphc
