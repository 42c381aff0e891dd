// Runs a model for sizes that are always others, and prints by how many MiB its memory has grown since the first of them; then
// compares what it gives for small ones with what another gives that has seen nothing else.
#include "decoder/model.h"

#include <cstdio>
#include <sys/resource.h>

namespace {

constexpr int64_t width = 32, most = 50000, count = 24;

decoder::Inputs inputs_of(int64_t rows) {
    decoder::Inputs inputs;
    inputs.states = graphc::Array::zeros<float>({rows, width});
    for (int64_t i = 0; i < rows * width; ++i) inputs.states.data<float>()[i] = static_cast<float>((i * 37 + rows) % 29 - 14);
    return inputs;
}

/// What the process had of memory at most, in MiB.
int64_t peak() {
    rusage found;
    getrusage(RUSAGE_SELF, &found);
    return found.ru_maxrss >> 10;
}

}  // namespace

int main(int, char ** argv) {
    try {
        graphc::Options options;
        options.threads = 1;
        const decoder::Decoder model(argv[1], options);
        decoder::Outputs outputs;
        decoder::Inputs inputs = inputs_of(most);
        model.run(inputs, outputs);
        const int64_t before = peak();
        for (int64_t i = 1; i < count; ++i) {
            inputs.states.become(graphc::DType::float32, {most - 7 * i, width});
            model.run(inputs, outputs);
        }
        for (int64_t i = 1; i < count; ++i) {
            inputs.states.become(graphc::DType::float32, {most + 7 * i, width});
            model.run(inputs, outputs);
        }
        std::printf("%lld MiB more\n", static_cast<long long>(peak() - before));

        int wrong = 0;
        for (const int64_t rows : {3, 40, 2, 40, 3, 41}) {
            const decoder::Decoder other(argv[1], options);
            inputs = inputs_of(rows);
            model.run(inputs, outputs);
            wrong += outputs.scores.bytes() != other.run(inputs).scores.bytes();
        }
        std::printf("%d wrong\n", wrong);
    } catch (const graphc::Error & error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
