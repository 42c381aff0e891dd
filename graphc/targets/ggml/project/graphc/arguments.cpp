#include "graphc/arguments.h"

#include "graphc/paths.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>

#include <shellapi.h>
#endif

namespace graphc {

std::pair<std::string, std::string> parse_pair(const std::string & option, const std::string & text) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) throw Error(option + " takes NAME=VALUE, not '" + text + "'");
    return {text.substr(0, equals), text.substr(equals + 1)};
}

namespace {

int64_t parse_number(const std::string & option, const std::string & text, int64_t low) {
    char * end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || errno != 0 || value < low) {
        throw Error(option + " takes a whole number from " + std::to_string(low) + ", not '" + text + "'");
    }
    return value;
}

using Setter = std::function<void(Arguments &, const std::string & option, const std::string & value)>;

/// What each option with a value does.
const std::map<std::string, Setter> setters = {
    {"--engine", [](Arguments & a, const std::string &, const std::string & v) { a.engine = v; }},
    {"--weights", [](Arguments & a, const std::string &, const std::string & v) { a.options.weights = path_of(v); }},
    {"--lora", [](Arguments & a, const std::string &, const std::string & v) { a.loras.push_back(v); }},
    {"--device", [](Arguments & a, const std::string &, const std::string & v) { a.options.device = v; }},
    {"--ways", [](Arguments & a, const std::string &, const std::string & v) { a.options.ways = path_of(v); }},
    {"--memory", [](Arguments & a, const std::string &, const std::string & v) { a.options.memory = v; }},
    {"--output", [](Arguments & a, const std::string &, const std::string & v) { a.outputs.push_back(v); }},
    {"-o", [](Arguments & a, const std::string &, const std::string & v) { a.outputs.push_back(v); }},
    {"--input", [](Arguments & a, const std::string & o, const std::string & v) { parse_pair(o, v), a.inputs.push_back(v); }},
    {"--threads",
     [](Arguments & a, const std::string & o, const std::string & v) {
         a.options.threads = static_cast<int>(std::min<int64_t>(parse_number(o, v, 1), GGML_MAX_N_THREADS + 1));
     }},
    {"--repeat", [](Arguments & a, const std::string & o, const std::string & v) { a.repeat = parse_number(o, v, 1); }},
    {"--random",
     [](Arguments & a, const std::string & o, const std::string & v) {
         a.random = true;
         a.seed = static_cast<uint64_t>(parse_number(o, v, 0));
     }},
    {"--dim",
     [](Arguments & a, const std::string & o, const std::string & v) {
         const auto [name, size] = parse_pair(o, v);
         a.dims[name] = parse_number(o + " " + name, size, 0);
     }},
};

/// What each option without a value does.
const std::map<std::string, std::function<void(Arguments &)>> flags = {
    {"--fast", [](Arguments & a) { a.options.fast = true; }},
    {"--list", [](Arguments & a) { a.list = true; }},
    {"--verify", [](Arguments & a) { a.verify = true; }},
    {"--help", [](Arguments & a) { a.help = true; }},
    {"-h", [](Arguments & a) { a.help = true; }},
};

}  // namespace

std::vector<std::string> command_words(int argc, char ** argv) {
#ifdef _WIN32  // where `main` gets them in a code page that lacks most characters
    SetConsoleOutputCP(CP_UTF8);
    (void) argv;
    wchar_t ** wide = CommandLineToArgvW(GetCommandLineW(), &argc);
    std::vector<std::string> arguments;
    for (int i = 1; i < argc; ++i) arguments.push_back(text_of(wide[i]));
    LocalFree(wide);
    return arguments;
#else
    return {argv + std::min(argc, 1), argv + argc};
#endif
}

Arguments parse_arguments(const std::vector<std::string> & words) {
    Arguments arguments;
    for (size_t i = 0; i < words.size(); ++i) {
        const std::string & option = words[i];
        if (const auto flag = flags.find(option); flag != flags.end()) {
            flag->second(arguments);
        } else if (option.empty() || option[0] != '-') {
            arguments.files.push_back(option);
        } else {
            const auto setter = setters.find(option);
            if (setter == setters.end()) throw Error("unknown option '" + option + "'; --help lists them");
            if (i + 1 == words.size()) throw Error(option + " needs a value");
            setter->second(arguments, option, words[++i]);
        }
    }
    return arguments;
}

}  // namespace graphc
