// Runs a model for several sizes, given as numbers of tokens, on a device, and prints a sum of the bytes that it gives for each.
#include "symbolic/model.h"

#include <cstdio>
#include <cstdlib>

namespace {

symbolic::Inputs inputs_of(int64_t tokens) {
    symbolic::Inputs inputs;
    inputs.x = graphc::Array::zeros<float>({1, tokens, 8});
    inputs.mask = graphc::Array::zeros<float>({tokens + 1});
    for (int64_t i = 0; i < 8 * tokens; ++i) inputs.x.data<float>()[i] = static_cast<float>((i * 37 + tokens) % 29 - 14);
    for (int64_t i = 0; i <= tokens; ++i) inputs.mask.data<float>()[i] = static_cast<float>(i % 3);
    return inputs;
}

}  // namespace

int main(int argc, char ** argv) {
    try {
        graphc::Options options;
        options.threads = 1;
        options.device = argv[2];
        const symbolic::Symbolic model(argv[1], options);
        for (int i = 3; i < argc; ++i) {
            const symbolic::Outputs outputs = model.run(inputs_of(std::atoll(argv[i])));
            uint64_t sum = 0;
            for (const std::byte each : outputs.y.bytes()) sum = 31 * sum + static_cast<uint64_t>(each);
            std::printf("%s %llx\n", argv[i], static_cast<unsigned long long>(sum));
        }
    } catch (const graphc::Error & error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
