// Runs a model whose outputs have to do with one another, again and again with other arrays, or with the same, and prints how many
// numbers are wrong.
#include "shared/model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <thread>
#include <vector>

namespace {

constexpr int64_t width = 8;

struct Run {
    std::vector<float> x;
    shared::Outputs found;
};

std::vector<float> numbers(int64_t count, int64_t seed) {
    std::vector<float> found;
    for (int64_t i = 0; i < count; ++i) found.push_back(static_cast<float>((i * 37 + seed * 101) % 29 - 14) / 8.0f);
    return found;
}

/// How many numbers of a result are not what `of` says for their place.
template <class F> int wrong(const graphc::Array & array, size_t count, F && of) {
    if (array.size() != count) return 1;
    int found = 0;
    for (size_t i = 0; i < count; ++i) found += array.data<float>()[i] != of(i);
    return found;
}

int wrong(const Run & run) {
    const std::vector<float> & x = run.x;
    const auto same = [&](size_t i) { return x[i]; };
    const auto positive = [&](size_t i) { return std::fmax(x[i], 0.0f); };
    int found = 0;
    for (const graphc::Array * each : {&run.found.positive, &run.found.line, &run.found.again}) found += wrong(*each, x.size(), positive);
    for (const graphc::Array * each : {&run.found.same, &run.found.x_line}) found += wrong(*each, x.size(), same);
    found += wrong(run.found.first, 2 * width, same) + wrong(run.found.negative, 2 * width, [&](size_t i) { return -x[i]; });
    for (size_t i = 0; i < width * width; ++i) {
        const float one = i % (width + 1) == 0 ? 1.0f : 0.0f;
        found += run.found.constant.data<float>()[i] != one;
        found += std::fabs(run.found.sum.data<float>()[i] - run.found.product.data<float>()[i] - one) > 1e-5f;
    }
    return found;
}

/// Results of many runs, of which none may change those before; the inputs are overwritten after each.
int check(const shared::Shared & model, int64_t seed) {
    std::vector<Run> runs;
    for (const int64_t rows : {3, 3, 5, 3, 5, 3}) {
        shared::Inputs inputs;
        Run run;
        run.x = numbers(rows * width, ++seed);
        inputs.x = graphc::Array::of<float>({rows, width}, run.x);
        inputs.y = graphc::Array::of<float>({rows, width}, numbers(rows * width, seed + 7));
        run.found = model.run(inputs);
        for (size_t i = 0; i < run.x.size(); ++i) inputs.x.data<float>()[i] = inputs.y.data<float>()[i] = std::numeric_limits<float>::quiet_NaN();
        runs.push_back(std::move(run));
    }
    int found = 0;
    for (const Run & run : runs) found += wrong(run);
    return found;
}

/// The same where outputs have the memory of those before: what is wrong, and arrays that were made anew though there was room.
int check_again(const shared::Shared & model, int64_t seed) {
    int found = 0;
    Run run;
    shared::Inputs inputs;
    const void * line = nullptr, * product = nullptr;
    for (const int64_t rows : {5, 3, 5, 2, 3, 5}) {
        run.x = numbers(rows * width, ++seed);
        inputs.x = graphc::Array::of<float>({rows, width}, run.x);
        inputs.y = graphc::Array::of<float>({rows, width}, numbers(rows * width, seed + 7));
        model.run(inputs, run.found);
        found += wrong(run);
        found += line != nullptr && (line != run.found.line.bytes().data() || product != run.found.product.bytes().data());
        line = run.found.line.bytes().data(), product = run.found.product.bytes().data();
    }
    for (const int64_t rows : {6, 7}) {  // what an output had becomes an input, and the other way round
        std::swap(inputs.x, run.found.positive);
        run.x = numbers(rows * width, ++seed);
        inputs.x = graphc::Array::of<float>({rows, width}, run.x);
        inputs.y.become(graphc::DType::float32, {rows, width});
        std::copy(run.x.begin(), run.x.end(), inputs.y.data<float>());
        model.run(inputs, run.found);
        found += wrong(run);
    }
    return found;
}

}  // namespace

int main(int, char ** argv) {
    try {
        graphc::Options options;
        options.threads = 1;
        options.contexts = 3;
        const shared::Shared model(argv[1], options);
        int found[3] = {0, 0, 0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; ++i) {
            threads.emplace_back([&, i] { found[i] = check(model, 10 * i) + check_again(model, 50 * i); });
        }
        for (std::thread & each : threads) each.join();
        std::printf("%d wrong\n", found[0] + found[1] + found[2] + check(model, 100));
    } catch (const graphc::Error & error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
