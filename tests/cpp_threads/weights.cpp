// FOLDER BAD...: gives a model other weights, and back, also while three threads run it. Writes the outputs with the other weights,
// and prints why the other checkpoints do not fit.
#include "graphc/npy.h"
#include "several/model.h"

#include <atomic>
#include <cstdio>
#include <thread>

namespace {

using Outputs = std::map<std::string, graphc::Array>;

bool same(const Outputs & a, const Outputs & b) {
    for (const auto & [name, array] : a) {
        if (array.bytes() != b.at(name).bytes()) return false;
    }
    return a.size() == b.size();
}

}  // namespace

int main(int argc, char ** argv) {
    try {
        const std::filesystem::path folder = argv[1];
        graphc::Options options;
        options.threads = 1;
        options.contexts = 3;
        several::Several model(folder / "several.gguf", options);
        Outputs inputs;
        for (const char * name : {"ids", "image"}) inputs[name] = graphc::load_npy(folder / (std::string(name) + ".npy"));
        const graphc::Checkpoint own(folder / "own.safetensors"), other(folder / "other.safetensors");
        const Outputs first = model.run(inputs);
        model.load_weights(other);
        const Outputs second = model.run(inputs);
        for (const auto & [name, array] : second) graphc::save_npy(folder / (name + ".npy"), array);
        options.weights = folder / "other.safetensors";
        if (!same(second, several::Several(folder / "stripped.gguf", options).run(inputs))) std::printf("wrong\n");
        model.load_weights(own);
        if (same(first, second) || !same(first, model.run(inputs))) std::printf("wrong\n");

        std::atomic<bool> going{true};
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; ++i) {
            threads.emplace_back([&] {
                while (going) {
                    const Outputs found = model.run(inputs);
                    if (!same(found, first) && !same(found, second)) ++wrong;
                }
            });
        }
        for (int i = 0; i < 20; ++i) model.load_weights(i % 2 == 0 ? other : own);
        going = false;
        for (std::thread & each : threads) each.join();
        std::printf("%d wrong\n", wrong.load());

        for (int i = 2; i < argc; ++i) {
            try {
                model.load_weights(graphc::Checkpoint(argv[i]));
                std::printf("loaded\n");
            } catch (const graphc::Error & error) {
                std::printf("%s\n", error.what());
            }
            if (!same(first, model.run(inputs))) std::printf("changed\n");
        }
        return 0;
    } catch (const graphc::Error & error) {
        std::printf("error: %s\n", error.what());
        return 1;
    }
}
