#include "graphc/command.h"

#include "graphc/npy.h"
#include "graphc/paths.h"
#include "graphc/random.h"
#include "graphc/variants.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>

#include <shellapi.h>
#endif

namespace graphc {

namespace {

constexpr const char * usage =
    "usage: %s --engine FILE [options]\n"
    "  --engine FILE        the engine (.gguf) that was compiled together with this program\n"
    "  --weights FILE       other weights, of a safetensors or GGUF file\n"
    "  --lora FILE          a LoRA, with its full strength; once for each\n"
    "  --input NAME=FILE    an input, from a .npy file; once for each\n"
    "  --random SEED        seeded random numbers for the inputs that are not given\n"
    "  --dim NAME=SIZE      a named size, for random inputs\n"
    "  --output DIR         write every output into a folder, as NAME.npy\n"
    "  --output NAME=FILE   write one output\n"
    "  --threads N          threads of the CPU (default: one for each processor)\n"
    "  --device NAME,...    where to compute (default: cpu; gpu is the first graphics processor)\n"
    "  --memory SIZE,...    what each device may use, as 512MiB or 4GiB (default: what is free)\n"
    "  --fast               let the device multiply float32 in float16 or TF32\n"
    "  --ways FILE          what graphc tune wrote for this device\n"
    "  --repeat N           run N times and print the fastest\n"
    "  --list               print inputs, outputs and devices\n";

struct Arguments {
    std::string engine;
    std::vector<std::string> loras;
    Options options;
    std::vector<std::string> inputs;
    std::map<std::string, int64_t> dims;
    std::vector<std::string> outputs;
    bool random = false;
    uint64_t seed = 0;
    int64_t repeat = 1;
    bool list = false;
    bool help = false;
};

int64_t parse_number(const std::string & option, const std::string & text, int64_t low) {
    char * end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || errno != 0 || value < low) {
        throw Error(option + " takes a whole number from " + std::to_string(low) + ", not '" + text + "'");
    }
    return value;
}

std::pair<std::string, std::string> parse_pair(const std::string & option, const std::string & text) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) throw Error(option + " takes NAME=VALUE, not '" + text + "'");
    return {text.substr(0, equals), text.substr(equals + 1)};
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
    {"--help", [](Arguments & a) { a.help = true; }},
    {"-h", [](Arguments & a) { a.help = true; }},
};

/// The arguments, in UTF-8. What `main` gets is on Windows in a code page that lacks most characters.
std::vector<std::string> utf8_arguments(int argc, char ** argv) {
#ifdef _WIN32
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

Arguments parse(const std::vector<std::string> & words) {
    Arguments arguments;
    for (size_t i = 0; i < words.size(); ++i) {
        const std::string & option = words[i];
        if (const auto flag = flags.find(option); flag != flags.end()) {
            flag->second(arguments);
        } else {
            const auto setter = setters.find(option);
            if (setter == setters.end()) throw Error("unknown option '" + option + "'; --help lists them");
            if (i + 1 == words.size()) throw Error(option + " needs a value");
            setter->second(arguments, option, words[++i]);
        }
    }
    return arguments;
}

void list(const ModelInfo & info) {
    std::printf("%s\ninputs:\n", info.name);
    for (const InputInfo & each : info.inputs) {
        std::printf("  %s: %s%s\n", each.name.c_str(), dtype_name(each.dtype), each.shape.c_str());
    }
    std::printf("outputs:\n");
    for (const OutputInfo & each : info.outputs) {
        std::printf("  %s: %s%s\n", each.name.c_str(), dtype_name(each.dtype), each.shape.c_str());
    }
    std::printf("devices:\n");
    for (const DeviceInfo & each : devices()) {
        std::printf("  %s: %s, %zu of %zu MiB free\n", each.name.c_str(), each.description.c_str(), each.free_bytes >> 20,
                    each.total_bytes >> 20);
    }
    std::printf("code for the CPU: %s\n", cpu_variant().name);
}

std::vector<int64_t> sizes_for_random(const ModelInfo & info, const Arguments & arguments) {
    std::vector<int64_t> sizes;
    std::set<std::string> known;
    for (const Symbol & symbol : info.symbols) {
        known.insert(symbol.name);
        const auto found = arguments.dims.find(symbol.name);
        if (found == arguments.dims.end()) throw Error(std::string("random inputs need --dim ") + symbol.name + "=SIZE");
        sizes.push_back(found->second);
    }
    for (const auto & each : arguments.dims) {
        if (known.count(each.first) == 0) throw Error("the model has no size named " + each.first);
    }
    return sizes;
}

/// NAME=FILE at the end of the longest name that the model has; a name may itself hold what separates them.
template <class Info> std::pair<std::string, std::string> split(const std::string & text, const std::vector<Info> & infos) {
    std::pair<std::string, std::string> found = parse_pair("NAME", text);
    bool known = false;
    for (const Info & each : infos) {
        const size_t length = each.name.size();
        if (text.compare(0, length + 1, each.name + "=") == 0 && (!known || length > found.first.size())) {
            found = {each.name, text.substr(length + 1)};
            known = true;
        }
    }
    return found;
}

std::map<std::string, Array> read_inputs(const Model & model, const Arguments & arguments) {
    std::map<std::string, Array> inputs;
    for (const std::string & text : arguments.inputs) {
        const auto [name, path] = split(text, model.info().inputs);
        Array array = load_npy(path_of(path));
        for (const InputInfo & info : model.info().inputs) {
            if (info.name == name) array.interpret(info.dtype);
        }
        inputs[name] = std::move(array);
    }
    if (!arguments.random) return inputs;
    const std::vector<Shape> shapes = model.input_shapes(sizes_for_random(model.info(), arguments));
    for (size_t i = 0; i < shapes.size(); ++i) {
        const InputInfo & info = model.info().inputs[i];
        if (inputs.count(info.name) == 0) inputs[info.name] = random_array(info, shapes[i], arguments.seed, i);
    }
    return inputs;
}

/// True if Windows takes a name for a device's, whatever its ending.
bool is_device(const std::string & name) {
    std::string stem = name.substr(0, name.find('.'));
    for (char & c : stem) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (stem.size() == 4 && std::isdigit(static_cast<unsigned char>(stem.back()))) stem.back() = '#';
    return std::set<std::string>{"con", "prn", "aux", "nul", "com#", "lpt#"}.count(stem) != 0;
}

/// A file name for an output: a model may call it anything, so what could lead out of the folder is replaced.
std::string file_name(const std::string & output) {
    std::string name = is_device(output) ? "_" : "";
    for (char c : output) {
        const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || (c == '.' && !name.empty());
        name += plain ? c : '_';
    }
    return (name.empty() ? "output" : name) + ".npy";
}

bool has_output(const ModelInfo & info, const std::string & name) {
    return std::any_of(info.outputs.begin(), info.outputs.end(), [&](const OutputInfo & each) { return each.name == name; });
}

/// Where each output goes. Throws Error for an unknown name.
std::map<std::string, std::filesystem::path> targets(const ModelInfo & info, const std::vector<std::string> & options) {
    std::map<std::string, std::filesystem::path> found;
    for (const std::string & option : options) {
        if (option.find('=') != std::string::npos) {
            const auto [name, path] = split(option, info.outputs);
            if (!has_output(info, name)) throw Error("the model has no output named '" + name + "'");
            found[name] = path_of(path);
            continue;
        }
        std::set<std::string> taken;
        for (const OutputInfo & output : info.outputs) {
            std::string name = file_name(output.name);
            while (!taken.insert(name).second) name = "_" + name;
            found.emplace(output.name, path_of(option) / name);
        }
        std::filesystem::create_directories(path_of(option));
    }
    return found;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::map<std::string, Array> timed_runs(Model & model, const std::map<std::string, Array> & inputs, int64_t repeat) {
    std::map<std::string, Array> outputs;
    double best = 0.0;
    for (int64_t i = 0; i < repeat; ++i) {
        const auto start = std::chrono::steady_clock::now();
        outputs = model.run(inputs);
        const double seconds = seconds_since(start);
        if (i == 0) std::printf("run: %.3f ms\n", seconds * 1e3);
        best = i == 0 || seconds < best ? seconds : best;
    }
    if (repeat > 1) std::printf("fastest of %lld: %.3f ms\n", static_cast<long long>(repeat), best * 1e3);
    return outputs;
}

void execute(const Arguments & arguments, const OpenModel & open) {
    if (arguments.engine.empty()) throw Error("--engine is missing; --help lists the options");
    const auto start = std::chrono::steady_clock::now();
    const std::unique_ptr<Model> model = open(path_of(arguments.engine), arguments.options);
    for (const std::string & lora : arguments.loras) {
        for (const std::string & module : model->load_lora(lora, path_of(lora))) {
            std::fprintf(stderr, "warning: the model has no %s, which %s changes\n", module.c_str(), lora.c_str());
        }
    }
    const auto paths = targets(model->info(), arguments.outputs);
    std::printf("load: %.3f ms on %s\n", seconds_since(start) * 1e3, model->device_name().c_str());
    const std::map<std::string, Array> outputs = timed_runs(*model, read_inputs(*model, arguments), arguments.repeat);
    for (const std::string & line : model->memory().text()) std::printf("%s\n", line.c_str());
    for (const OutputInfo & info : model->info().outputs) {
        const Array & array = outputs.at(info.name);
        std::printf("%s: %s%s\n", info.name.c_str(), dtype_name(array.dtype()), to_string(array.shape()).c_str());
        const auto path = paths.find(info.name);
        if (path != paths.end()) save_npy(path->second, array);
    }
}

/// ggml ends the process where a condition of its own fails: then this is the message, as of any other error.
void fail(const char * message) {
    std::fprintf(stderr, "error: %s\n", message);
    std::_Exit(1);
}

}  // namespace

int run_command(int argc, char ** argv, const ModelInfo & info, const OpenModel & open) {
    ggml_set_abort_callback(fail);
    try {
        const Arguments arguments = parse(utf8_arguments(argc, argv));
        if (arguments.help) {
            std::printf(usage, argv[0]);
        } else if (arguments.list) {
            list(info);
        } else {
            execute(arguments, open);
        }
        return 0;
    } catch (const std::exception & error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
}

}  // namespace graphc
