// Runs the models that are compiled into it: `runner FOLDER PART PARTS` runs every PARTS-th of them.
//
// The folder of a model holds its engine, model.gguf, and its inputs, in0.npy, in1.npy, ... A model runs in a process of its own,
// so that a crash is one failed case. It leaves out0.npy, out1.npy, ... or says in failed.txt why not.

#include "runner.h"

#include "graphc/npy.h"

#include <cstdlib>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr unsigned time_limit = 60;  // seconds for one model

void run_model(const Entry & entry, const std::filesystem::path & folder, const graphc::Options & options) {
    const std::unique_ptr<graphc::Model> model = entry.open(folder / "model.gguf", options);
    std::vector<graphc::Array> arrays;
    for (const graphc::InputInfo & info : model->info().inputs) {
        arrays.push_back(graphc::load_npy(folder / ("in" + std::to_string(arrays.size()) + ".npy")));
        arrays.back().interpret(info.dtype);
    }
    std::vector<const graphc::Array *> inputs;
    for (const graphc::Array & array : arrays) inputs.push_back(&array);
    const std::vector<graphc::Array> outputs = model->run_in_order(inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
        graphc::save_npy(folder / ("out" + std::to_string(i) + ".npy"), outputs[i]);
    }
}

void fail(const std::filesystem::path & folder, const std::string & message) {
    std::ofstream(folder / "failed.txt") << message;
}

[[noreturn]] void child(const Entry & entry, const std::filesystem::path & folder, const graphc::Options & options) {
    alarm(time_limit);
    try {
        run_model(entry, folder, options);
    } catch (const graphc::Error & error) {
        fail(folder, std::string("error: ") + error.what());
    }
    std::_Exit(0);
}

}  // namespace

std::vector<Entry> & models() {
    static std::vector<Entry> list;
    return list;
}

int main(int argc, char ** argv) {
    if (argc != 4) return 2;
    const std::filesystem::path folder = argv[1];
    const size_t part = std::strtoul(argv[2], nullptr, 10), parts = std::strtoul(argv[3], nullptr, 10);
    const graphc::Options options{"cpu", 1};
    const graphc::Backends tables(options.device, options.threads);  // what ggml computes once, the children inherit
    for (size_t i = part; i < models().size(); i += parts) {
        const Entry & entry = models()[i];
        const pid_t pid = fork();
        if (pid < 0) return 1;
        if (pid == 0) child(entry, folder / entry.name, options);
        int status = 0;
        if (waitpid(pid, &status, 0) == pid && WIFSIGNALED(status)) {
            fail(folder / entry.name, "crash: signal " + std::to_string(WTERMSIG(status)));
        }
    }
    return 0;
}
