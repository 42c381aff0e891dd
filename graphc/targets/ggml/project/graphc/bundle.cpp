#include "graphc/bundle.h"

#include "graphc/paths.h"
#include "graphc/sha256.h"

#include <algorithm>
#include <optional>

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#elif defined(__APPLE__)
#include <mach-o/dyld.h>
#elif defined(__linux__)
#include <sys/auxv.h>
#endif

namespace graphc {

namespace {

/// The file of the program that runs, through links. Throws Error where the system does not say.
std::filesystem::path own_file() {
#ifdef _WIN32
    std::wstring name(1 << 15, L'\0');
    name.resize(GetModuleFileNameW(nullptr, name.data(), static_cast<DWORD>(name.size())));
    return name;
#elif defined(__APPLE__)
    uint32_t size = 0;
    _NSGetExecutablePath(nullptr, &size);
    std::string name(size, '\0');
    if (_NSGetExecutablePath(name.data(), &size) != 0) throw Error("the system does not say where this program is");
    return std::filesystem::canonical(name.c_str());
#else
    std::error_code none;
    const std::filesystem::path link = "/proc/self/exe";
    const std::filesystem::path file = std::filesystem::read_symlink(link, none);
    if (!none) return std::filesystem::exists(file, none) ? file : link;  // removed, but still there for who runs it
#ifdef __linux__
    if (const auto * name = reinterpret_cast<const char *>(getauxval(AT_EXECFN))) return std::filesystem::canonical(name);
#endif
    throw Error("the system does not say where this program is: /proc is missing");
#endif
}

/// The bytes of engines that lie behind a program.
class Behind {
  public:
    Behind(const std::filesystem::path & program, const std::vector<Bundled> & models) : path_(text_of(program)), file_(program) {
        uint64_t at = start();
        for (const Bundled & each : models) {
            if (at > file_.size() || each.size > file_.size() - at) {
                throw Error(path_ + " is damaged: the engine '" + each.name + "' behind the program is not whole");
            }
            offsets_.push_back(at);
            at += (each.size + bundle_alignment - 1) / bundle_alignment * bundle_alignment;
        }
    }

    const std::byte * data(size_t model) const { return file_.data() + offsets_[model]; }
    const std::string & path() const { return path_; }

  private:
    /// Where the first one begins.
    uint64_t start() const {
        constexpr size_t length = sizeof bundle_mark - 1, footer = length + sizeof(uint64_t);
        const size_t last = static_cast<size_t>(std::min<uint64_t>(file_.size(), bundle_signature + footer));
        const std::string_view end(reinterpret_cast<const char *>(file_.data()) + (file_.size() - last), last);
        const size_t found = end.rfind(std::string_view(bundle_mark, length));
        if (found == std::string_view::npos || end.size() - found < footer) {
            throw Error(path_ + " is damaged: the engines behind the program are missing, or their end is");
        }
        uint64_t start = 0;
        for (size_t i = sizeof start; i-- > 0;) start = start << 8 | static_cast<unsigned char>(end[found + length + i]);
        if (start % bundle_alignment != 0) throw Error(path_ + " is damaged: it does not say where its engines begin");
        return start;
    }

    std::string path_;
    Mapping file_;
    std::vector<uint64_t> offsets_;
};

void require_sha256(const Bundled & model, const std::string & where, const std::byte * data, size_t size) {
    if (size != model.size || sha256({reinterpret_cast<const char *>(data), size}) != model.sha256) {
        throw Error(where + " is damaged: the engine '" + model.name + "' has another checksum than when it was written");
    }
}

}  // namespace

int run_bundle(int argc, char ** argv, const std::vector<Bundled> & models, Engines engines) {
    std::optional<Behind> behind;
    const auto mapped = [&]() -> const Behind & { return behind ? *behind : behind.emplace(own_file(), models); };
    const auto beside = [&](const Bundled & model) { return own_file().parent_path() / path_of(model.name + ".gguf"); };
    std::vector<Runnable> runnables;
    for (size_t i = 0; i < models.size(); ++i) {
        const Bundled & model = models[i];
        Runnable each = model.model;
        each.name = model.name;
        if (engines == Engines::behind) {
            each.engine = [&mapped, &model, i] {
                const std::string name = mapped().path() + ": the engine '" + model.name + "'";
                return Engine(mapped().data(i), static_cast<size_t>(model.size), name);
            };
            each.verify = [&mapped, &model, i] {
                require_sha256(model, mapped().path(), mapped().data(i), static_cast<size_t>(model.size));
            };
        } else {
            each.engine = [&beside, &model] { return Engine(beside(model)); };
            each.verify = [&beside, &model] {
                const Mapping file(beside(model));
                require_sha256(model, text_of(beside(model)), file.data(), file.size());
            };
        }
        runnables.push_back(std::move(each));
    }
    return run_command(argc, argv, runnables);
}

}  // namespace graphc
