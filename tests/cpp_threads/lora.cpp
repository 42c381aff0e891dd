// FOLDER FILE...: gives a model each LoRA, before and after its parameters are known from a checkpoint, and takes it off again. Writes
// the outputs with it, or prints why it does not fit.
#include "graphc/npy.h"
#include "several/model.h"

#include <cstdio>

using Outputs = std::map<std::string, graphc::Array>;

int main(int argc, char ** argv) {
    try {
        const std::filesystem::path folder = argv[1];
        graphc::Options options;
        options.threads = 1;
        several::Several model(folder / "several.gguf", options);
        Outputs inputs;
        for (const char * name : {"ids", "image"}) inputs[name] = graphc::load_npy(folder / (std::string(name) + ".npy"));
        const Outputs first = model.run(inputs);
        const auto compare = [&](const char * what) {
            for (const auto & [name, array] : model.run(inputs)) {
                if (array.bytes() != first.at(name).bytes()) std::printf("%s: %s has changed\n", what, name.c_str());
            }
        };
        for (const bool known : {false, true}) {
            if (known) model.load_weights(folder / "own.safetensors");
            for (int i = 2; i < argc; ++i) {
                try {
                    for (const std::string & each : model.load_lora("one", argv[i], 0.5f)) std::printf("no %s\n", each.c_str());
                    for (const auto & [name, array] : model.run(inputs)) {
                        graphc::save_npy(folder / (std::to_string(known) + "_" + std::to_string(i - 2) + "_" + name + ".npy"), array);
                    }
                    model.set_lora("one", 0);
                    compare("without strength");
                    model.set_lora("one", 1);
                    model.unload_lora("one");
                    std::printf("done\n");
                } catch (const graphc::Error & error) {
                    std::printf("%s\n", error.what());
                }
                compare("without");
            }
        }
        return 0;
    } catch (const graphc::Error & error) {
        std::printf("error: %s\n", error.what());
        return 1;
    }
}
