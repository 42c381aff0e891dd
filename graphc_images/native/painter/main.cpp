// A picture from words: the program `painter`, beside which a model's engines lie.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "graphc/paths.h"
#include "options.hpp"

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>

#include <io.h>
#include <shellapi.h>
#define isatty _isatty
#else
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#else
#include <sys/auxv.h>
#endif
#endif

#include "ggml.h"

namespace graphc::images {
namespace {

namespace fs = std::filesystem;

/// The arguments, in UTF-8. What `main` gets is on Windows in a code page that lacks most characters.
std::vector<std::string> arguments(int argc, char ** argv) {
#ifdef _WIN32
    SetConsoleOutputCP(CP_UTF8);
    (void) argv;
    wchar_t ** wide = CommandLineToArgvW(GetCommandLineW(), &argc);
    std::vector<std::string> words;
    for (int each = 1; each < argc; ++each) words.push_back(::graphc::text_of(fs::path(wide[each])));
    LocalFree(wide);
    return words;
#else
    return {argv + std::min(argc, 1), argv + argc};
#endif
}

/// The folder that this program lies in.
fs::path own_folder() {
#ifdef _WIN32
    std::wstring path(32768, L'\0');
    path.resize(GetModuleFileNameW(nullptr, path.data(), static_cast<DWORD>(path.size())));
    return fs::path(path).parent_path();
#elif defined(__APPLE__)
    uint32_t size = 0;
    _NSGetExecutablePath(nullptr, &size);
    std::string path(size, '\0');
    _NSGetExecutablePath(path.data(), &size);
    return fs::canonical(path.c_str()).parent_path();
#else
    std::error_code none;
    const fs::path path = fs::read_symlink("/proc/self/exe", none);
    if (!none) return path.parent_path();
    const auto begun = getauxval(AT_EXECFN);  // where there is no /proc: the path by which it was begun
    return begun == 0 ? fs::path() : fs::path(reinterpret_cast<const char *>(begun)).parent_path();
#endif
}

/// GNU OpenMP's threads, which ggml may use, wait for each other by spinning, for milliseconds if nobody says otherwise: where other
/// programs need the processors too, each step of a model then waits for a thread that was put aside. It is read when the program
/// is loaded, so the program is begun again with what Python has there.
void wait_for_a_moment([[maybe_unused]] char ** argv) {
#ifdef __linux__
    if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
    setenv("GOMP_SPINCOUNT", "4000", 1);
    execv("/proc/self/exe", argv);  // where that cannot be, it goes on as it is
#endif
}

/// One more than the largest number of five digits or more that a name in the current folder begins with.
long long next_number() {
    long long next = 0;
    std::error_code none;
    for (const fs::directory_entry & each : fs::directory_iterator(fs::current_path(), none)) {
        const std::string name = ::graphc::text_of(each.path().filename());
        const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
        if (digits >= 5 && digits <= 18) next = std::max(next, std::stoll(name.substr(0, digits)) + 1);
    }
    return next;
}

/// The file of a picture: a new name, or the one that was given, with a number behind it if there are several.
fs::path file_of(const Command & command, int place, int64_t seed) {
    if (command.output.empty()) {
        char name[64];
        std::snprintf(name, sizeof name, "%05lld-%lld.png", next_number(), static_cast<long long>(seed));
        return name;
    }
    fs::path path = ::graphc::path_of(command.output);
    if (command.count > 1) {
        fs::path name = path.stem();
        name += "-" + std::to_string(place + 1);
        name += path.extension();
        path.replace_filename(name);
    }
    return path;
}

/// Throws SettingError if a picture cannot be written there: before it is made, which may take long.
void check_target(const std::string & output) {
    if (output.empty()) return;
    const fs::path path = ::graphc::path_of(output);
    std::string ending = ::graphc::text_of(path.extension());
    std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
    if (ending != ".png") throw SettingError(output + ": pictures are written as .png");
    std::error_code none;
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (!fs::is_directory(folder, none)) throw SettingError(output + ": the picture cannot be written: there is no such folder");
    if (fs::is_directory(path, none)) throw SettingError(output + ": the picture cannot be written: it is a folder");
}

void run(const Command & command) {
    const fs::path folder = command.model.empty() ? own_folder() : ::graphc::path_of(command.model);
    Facts facts(folder / "model.txt");
    if (command.version) {
        std::printf("painter of graphc %s, with %s\n", facts.text("graphc").c_str(), facts.text("Model").c_str());
        return;
    }
    Asked asked = resolved(command.asked, facts);
    check_target(command.output);
    const ImageModel model(folder, std::move(facts), command.threads);
    const bool shown = isatty(2) != 0;
    for (int place = 0; place < command.count; ++place, asked.seed = (*asked.seed + 1) % 4294967296) {
        const Picture picture = paint(model, asked, [&](int done, int steps) {
            if (shown) std::fprintf(stderr, "\r%d of %d steps%s", done, steps, done < steps ? "" : "\r                    \r");
        });
        const fs::path path = file_of(command, place, *asked.seed);
        write_file(path, png_of(picture, "parameters", described(asked, model.facts())));
        std::printf("%s: seed %lld\n", ::graphc::text_of(path).c_str(), static_cast<long long>(*asked.seed));
        std::fflush(stdout);
    }
}

int failed(const char * message, int status) {
    std::fprintf(stderr, "error: %s\n", message);
    return status;
}

}  // namespace
}  // namespace graphc::images

int main(int argc, char ** argv) {
    using namespace graphc::images;
    wait_for_a_moment(argv);
    // ggml ends the process where a condition of its own fails: then this is the message, as of any other error.
    ggml_set_abort_callback([](const char * message) { std::_Exit(failed(message, 1)); });
    try {
        const Command command = parsed(arguments(argc, argv));
        if (command.help || argc < 2) {
            std::fputs(usage().c_str(), stdout);
        } else {
            run(command);
        }
        return 0;
    } catch (const UsageError & error) {
        return failed(error.what(), 2);
    } catch (const std::exception & error) {
        return failed(error.what(), 1);
    }
}
