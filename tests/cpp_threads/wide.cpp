// FOLDER FILE...: gives a model whose weight is in blocks each file's weights, and writes its output as y<i>.npy.
#include "graphc/npy.h"
#include "wide/model.h"

#include <cstdio>

int main(int argc, char ** argv) {
    try {
        const std::filesystem::path folder = argv[1];
        graphc::Options options;
        options.threads = 1;
        wide::Wide model(folder / "wide.gguf", options);
        wide::Inputs inputs;
        inputs.x = graphc::load_npy(folder / "x.npy");
        inputs.ids = graphc::load_npy(folder / "ids.npy");
        for (int i = 2; i < argc; ++i) {
            model.load_weights(argv[i]);
            graphc::save_npy(folder / ("y" + std::to_string(i - 2) + ".npy"), model.run(inputs).y);
        }
        return 0;
    } catch (const graphc::Error & error) {
        std::printf("error: %s\n", error.what());
        return 1;
    }
}
