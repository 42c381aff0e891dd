#include "graphc/command.h"

#include "graphc/arguments.h"
#include "graphc/npy.h"
#include "graphc/npz.h"
#include "graphc/paths.h"
#include "graphc/random.h"
#include "graphc/variants.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <set>

namespace graphc {

namespace {

constexpr const char * options_text =
    "  FILE.npy ...         the inputs, in their order\n"
    "  --input NAME=FILE    an input by its name, from a .npy file; once for each\n"
    "  --random SEED        seeded random numbers for the inputs that are not given\n"
    "  --dim NAME=SIZE      a named size, for random inputs\n"
    "  -o, --output FILE    write the outputs: all into FILE.npz, or the only one into FILE.npy\n"
    "  --output DIR         write every output into a folder, as NAME.npy\n"
    "  --output NAME=FILE   write one output into a .npy file\n"
    "  --engine FILE        %s\n"
    "  --weights FILE       other weights, of a safetensors or GGUF file\n"
    "  --lora FILE          a LoRA, with its full strength; once for each\n"
    "  --threads N          threads of the CPU (default: one for each processor)\n"
    "  --device NAME,...    where to compute (default: cpu; gpu is the first graphics processor)\n"
    "  --memory SIZE,...    what each device may use, as 512MiB or 4GiB (default: what is free)\n"
    "  --fast               let float32 be multiplied as float16, TF32 or bfloat16\n"
    "  --ways FILE          what graphc tune wrote for this device\n"
    "  --repeat N           run N times and print the fastest\n"
    "  --list               print inputs, outputs and devices\n";

/// "from 1 to 64, a multiple of 8"
std::string range_text(const Symbol & symbol) {
    std::string text = "from " + std::to_string(symbol.low);
    if (symbol.high != std::numeric_limits<int64_t>::max()) text += " to " + std::to_string(symbol.high);
    return symbol.multiple == 1 ? text : text + ", a multiple of " + std::to_string(symbol.multiple);
}

void describe(const Runnable & model) {
    std::printf("%s\ninputs:\n", model.name.empty() ? model.info.name : model.name.c_str());
    for (const InputInfo & each : model.info.inputs) {
        std::printf("  %s: %s%s\n", each.name.c_str(), dtype_name(each.dtype), each.shape.c_str());
    }
    std::printf("outputs:\n");
    for (const OutputInfo & each : model.info.outputs) {
        std::printf("  %s: %s%s\n", each.name.c_str(), dtype_name(each.dtype), each.shape.c_str());
    }
    if (!model.info.symbols.empty()) std::printf("sizes:\n");
    for (const Symbol & each : model.info.symbols) std::printf("  %s: %s\n", each.name, range_text(each).c_str());
}

void list(const std::vector<const Runnable *> & models) {
    for (const Runnable * each : models) describe(*each);
    std::printf("devices:\n");
    for (const DeviceInfo & each : devices()) {
        std::printf("  %s: %s, %zu of %zu MiB free\n", each.name.c_str(), each.description.c_str(), each.free_bytes >> 20,
                    each.total_bytes >> 20);
    }
    std::printf("code for the CPU: %s\n", cpu_variant().name);
}

void help(const char * program, const std::vector<const Runnable *> & models, bool named) {
    const bool whole = static_cast<bool>(models.front()->engine);
    std::printf("usage: %s%s%s [FILE.npy ...] [options]\n\n", program, named ? " MODEL" : "", whole ? "" : " --engine FILE");
    for (const Runnable * each : models) {
        describe(*each);
        std::printf("\n");
    }
    std::printf("options:\n");
    std::printf(options_text, whole ? "another engine of the same program, with other weights"
                                    : "the engine (.gguf) that was compiled together with this program");
    if (whole) std::printf("  --verify             compare the engines with their checksums\n");
}

/// Sizes that were asked for, else those of the example with which the model was exported.
std::vector<int64_t> sizes_for_random(const ModelInfo & info, const Arguments & arguments, const std::map<std::string, int64_t> & example) {
    std::vector<int64_t> sizes;
    std::set<std::string> known;
    for (const Symbol & symbol : info.symbols) {
        known.insert(symbol.name);
        const auto found = arguments.dims.find(symbol.name);
        const auto usual = example.find(symbol.name);
        if (found == arguments.dims.end() && usual == example.end()) {
            throw Error(std::string("random inputs need --dim ") + symbol.name + "=SIZE");
        }
        sizes.push_back(found == arguments.dims.end() ? usual->second : found->second);
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

/// The inputs by name, and the file of each: those with names, and then the others, in their order.
std::vector<std::pair<std::string, std::string>> input_files(const ModelInfo & info, const Arguments & arguments) {
    std::vector<std::pair<std::string, std::string>> found;
    std::set<std::string> named;
    for (const std::string & text : arguments.inputs) {
        found.push_back(split(text, info.inputs));
        named.insert(found.back().first);
    }
    auto input = info.inputs.begin();
    for (const std::string & file : arguments.files) {
        while (input != info.inputs.end() && named.count(input->name) != 0) ++input;
        if (input == info.inputs.end()) {
            throw Error("'" + file + "' is one file too many: the model has no more inputs");
        }
        found.emplace_back((input++)->name, file);
    }
    return found;
}

std::map<std::string, Array> read_inputs(const Model & model, const Arguments & arguments, const std::map<std::string, int64_t> & example) {
    std::map<std::string, Array> inputs;
    for (const auto & [name, path] : input_files(model.info(), arguments)) {
        Array array = load_npy(path_of(path));
        for (const InputInfo & info : model.info().inputs) {
            if (info.name == name) array.interpret(info.dtype);
        }
        inputs[name] = std::move(array);
    }
    if (!arguments.random) return inputs;
    const std::vector<Shape> shapes = model.input_shapes(sizes_for_random(model.info(), arguments, example));
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

/// A different file name for each output.
std::map<std::string, std::string> file_names(const ModelInfo & info) {
    std::map<std::string, std::string> found;
    std::set<std::string> taken;
    for (const OutputInfo & output : info.outputs) {
        std::string name = file_name(output.name);
        while (!taken.insert(name).second) name = "_" + name;
        found.emplace(output.name, name);
    }
    return found;
}

/// Where outputs go: files by output, and archives of all.
struct Targets {
    std::map<std::string, std::filesystem::path> files;
    std::vector<std::filesystem::path> archives;
};

/// Makes folders that are asked for. Throws Error for an unknown name.
Targets targets(const ModelInfo & info, const std::vector<std::string> & options) {
    Targets found;
    for (const std::string & option : options) {
        const std::filesystem::path path = path_of(option);
        if (option.find('=') != std::string::npos) {
            const auto [name, file] = split(option, info.outputs);
            if (!has_output(info, name)) throw Error("the model has no output named '" + name + "'");
            found.files[name] = path_of(file);
        } else if (path.extension() == ".npz") {
            found.archives.push_back(path);
        } else if (path.extension() == ".npy") {
            if (info.outputs.size() != 1) {
                throw Error(option + " takes one output, and the model has " + std::to_string(info.outputs.size()) +
                            "; write a folder or a .npz file, or --output NAME=FILE.npy");
            }
            found.files[info.outputs[0].name] = path;
        } else {
            for (const auto & [output, own] : file_names(info)) found.files.emplace(output, path / own);
            std::error_code problem;
            std::filesystem::create_directories(path, problem);
            if (!std::filesystem::is_directory(path)) throw Error(option + " is not a folder, and none can be made there");
        }
    }
    return found;
}

void write(const ModelInfo & info, const std::map<std::string, Array> & outputs, const Targets & targets) {
    for (const auto & [name, path] : targets.files) save_npy(path, outputs.at(name));
    std::map<std::string, const Array *> members;
    for (const auto & [name, file] : file_names(info)) members[file] = &outputs.at(name);
    for (const std::filesystem::path & path : targets.archives) save_npz(path, members);
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

/// The engine that is asked for, or the program's own. Throws Error without either.
Engine engine_of(const Runnable & model, const Arguments & arguments) {
    if (!arguments.engine.empty()) return path_of(arguments.engine);
    if (!model.engine) throw Error("--engine is missing; --help lists the options");
    return model.engine();
}

void execute(const Arguments & arguments, const Runnable & runnable) {
    const auto start = std::chrono::steady_clock::now();
    Engine engine = engine_of(runnable, arguments);
    const std::map<std::string, int64_t> example = engine.example();
    const std::unique_ptr<Model> model = runnable.open(std::move(engine), arguments.options);
    for (const std::string & lora : arguments.loras) {
        for (const std::string & module : model->load_lora(lora, path_of(lora))) {
            std::fprintf(stderr, "warning: the model has no %s, which %s changes\n", module.c_str(), lora.c_str());
        }
    }
    const Targets written = targets(model->info(), arguments.outputs);
    std::printf("load: %.3f ms on %s\n", seconds_since(start) * 1e3, model->device_name().c_str());
    const std::map<std::string, Array> outputs = timed_runs(*model, read_inputs(*model, arguments, example), arguments.repeat);
    for (const std::string & line : model->memory().text()) std::printf("%s\n", line.c_str());
    for (const OutputInfo & info : model->info().outputs) {
        const Array & array = outputs.at(info.name);
        std::printf("%s: %s%s\n", info.name.c_str(), dtype_name(array.dtype()), to_string(array.shape()).c_str());
    }
    write(model->info(), outputs, written);
}

/// The model that the first word names, which is taken away then; nullptr if it names none.
const Runnable * chosen(std::vector<std::string> & words, const std::vector<Runnable> & models) {
    for (const Runnable & each : models) {
        if (!words.empty() && !each.name.empty() && words.front() == each.name) {
            words.erase(words.begin());
            return &each;
        }
    }
    return models.size() == 1 ? &models.front() : nullptr;
}

void command(const char * program, std::vector<std::string> words, const std::vector<Runnable> & models) {
    const Runnable * model = chosen(words, models);
    std::vector<const Runnable *> all;
    std::string names;
    for (const Runnable & each : models) {
        if (model == nullptr || model == &each) all.push_back(&each);
        names += (names.empty() ? "" : ", ") + each.name;
    }
    if (model == nullptr && !words.empty() && words.front().compare(0, 1, "-") != 0) {
        throw Error("there is no model '" + words.front() + "'; there is " + names);
    }
    const Arguments arguments = parse_arguments(words);
    if (arguments.help) {
        help(program, all, models.size() > 1);
    } else if (arguments.list) {
        list(all);
    } else if (arguments.verify) {
        for (const Runnable * each : all) {
            if (!each->verify) throw Error("--verify is for programs that bring their engine");
            each->verify();
            std::printf("%s: as it was written\n", each->name.c_str());
        }
    } else if (model == nullptr) {
        throw Error("say which model, with the first word: " + names + "; --help describes them");
    } else {
        execute(arguments, *model);
    }
}

/// ggml ends the process where a condition of its own fails: then this is the message, as of any other error.
void fail(const char * message) {
    std::fprintf(stderr, "error: %s\n", message);
    std::_Exit(1);
}

}  // namespace

int run_command(int argc, char ** argv, const std::vector<Runnable> & models) {
    ggml_set_abort_callback(fail);
    try {
        command(argc > 0 ? argv[0] : "model", command_words(argc, argv), models);
        return 0;
    } catch (const std::exception & error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
}

}  // namespace graphc
