// THREADS: runs each model from four threads at once, with so many threads for all runs, for different inputs and sizes, and compares
// every result with that of a model which runs alone with one thread.
#include "decoder/model.h"
#include "encoder/model.h"
#include "graphc/random.h"
#include "repeated/model.h"
#include "replaced/model.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

namespace {

struct Case {
    std::vector<graphc::Array> inputs, outputs;

    std::vector<const graphc::Array *> given() const {
        std::vector<const graphc::Array *> pointers;
        for (const graphc::Array & each : inputs) pointers.push_back(&each);
        return pointers;
    }

    bool is(const std::vector<graphc::Array> & found) const {
        bool same = found.size() == outputs.size();
        for (size_t i = 0; same && i < found.size(); ++i) {
            same = found[i].shape() == outputs[i].shape() && found[i].bytes() == outputs[i].bytes();
        }
        return same;
    }
};

constexpr size_t callers = 4, rounds = 6;

std::vector<char> read(const std::string & path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// Cases of each of these sizes, with what a model that runs alone makes of them.
template <class M> std::vector<Case> cases_of(const M & alone, const std::vector<std::vector<int64_t>> & sizes) {
    std::vector<Case> cases(2 * sizes.size() + 1);
    for (size_t i = 0; i < cases.size(); ++i) {
        const auto shapes = alone.input_shapes(sizes[i % sizes.size()]);
        for (size_t k = 0; k < shapes.size(); ++k) {
            cases[i].inputs.push_back(graphc::random_array(alone.info().inputs[k], shapes[k], i, k));
        }
        cases[i].outputs = alone.run_in_order(cases[i].given());
    }
    return cases;
}

/// How many results are wrong; the engine is a file, or its bytes at an odd address.
template <class M> int check(const std::string & path, int threads_of_all, const std::vector<std::vector<int64_t>> & sizes) {
    graphc::Options one;
    one.threads = 1;
    const std::vector<Case> cases = cases_of(M(path, one), sizes);
    const std::vector<char> bytes = read(path);
    std::vector<char> odd(1, 0);
    odd.insert(odd.end(), bytes.begin(), bytes.end());
    std::atomic<int> wrong{0};
    for (const int contexts : {0, 1, 4}) {
        graphc::Options options;
        options.threads = threads_of_all;
        options.contexts = contexts;
        const M model(contexts == 1 ? graphc::Engine(odd.data() + 1, bytes.size()) : graphc::Engine(path), options);
        std::vector<std::thread> threads;
        for (size_t caller = 0; caller < callers; ++caller) {
            threads.emplace_back([&, caller] {
                for (size_t round = 0; round < rounds; ++round) {
                    const Case & each = cases[(3 * caller + round) % cases.size()];
                    if (!each.is(model.run_in_order(each.given()))) ++wrong;
                }
            });
        }
        for (std::thread & each : threads) each.join();
    }
    std::printf("%s: %d wrong\n", path.c_str(), wrong.load());
    return wrong;
}

}  // namespace

int main(int, char ** argv) {
    try {
        const int threads = std::atoi(argv[1]);
        int wrong = check<encoder::Encoder>("encoder.gguf", threads, {{3}, {1}, {8}});
        wrong += check<decoder::Decoder>("decoder.gguf", threads, {{5}, {2}});
        wrong += check<repeated::Repeated>("repeated.gguf", threads, {{3}, {1}});
        wrong += check<replaced::Replaced>("replaced.gguf", threads, {{}});
        return wrong == 0 ? 0 : 1;
    } catch (const graphc::Error & error) {
        std::printf("error: %s\n", error.what());
        return 1;
    }
}
