// FOLDER CHECKPOINT...: puts LoRAs beside weights in blocks, writes the outputs with them as y<i>.npy, and takes them off again, also while
// threads run the model; prints why others do not fit. Then one stays while the model takes the weights of other checkpoints.
#include "graphc/npy.h"
#include "wide/model.h"

#include <atomic>
#include <cstdio>
#include <thread>

int main(int argc, char ** argv) {
    try {
        const std::filesystem::path folder = argv[1];
        graphc::Options options;
        options.threads = 1;
        options.contexts = 3;
        wide::Wide model(folder / "wide.gguf", options);
        wide::Inputs inputs;
        inputs.x = graphc::load_npy(folder / "x.npy");
        inputs.ids = graphc::load_npy(folder / "ids.npy");
        const auto same = [&](const graphc::Array & wanted) { return model.run(inputs).y.bytes() == wanted.bytes(); };
        const auto file = [&](const char * name) { return graphc::Checkpoint(folder / (std::string(name) + ".safetensors")); };
        int count = 0;
        const auto saved = [&] {
            graphc::Array found = model.run(inputs).y;
            graphc::save_npy(folder / ("y" + std::to_string(count++) + ".npy"), found);
            return found;
        };
        const graphc::Array plain = model.run(inputs).y;
        const graphc::Checkpoint a = file("a"), b = file("b");
        model.load_lora("b", b, 0.5f);
        saved();
        model.load_lora("a", a);
        const graphc::Array both = saved();
        model.set_lora("b", -0.25f);
        const graphc::Array less = saved();
        model.unload_lora("a");
        model.unload_lora("b");
        std::printf("taken off: %d wrong\n", !same(plain));

        for (const char * name : {"rows", "nan"}) {
            try {
                model.load_lora(name, file(name));
            } catch (const graphc::Error & error) {
                std::printf("%s\n", error.what());
            }
        }
        std::printf("refused: %d wrong\n", !same(plain));

        std::atomic<bool> going{true};
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        model.load_lora("b", b, 0.5f);
        const graphc::Array one = model.run(inputs).y;
        for (int i = 0; i < 3; ++i) {
            threads.emplace_back([&] {
                while (going) {
                    const graphc::Array found = model.run(inputs).y;
                    const auto is = [&](const graphc::Array & each) { return found.bytes() == each.bytes(); };
                    if (!is(one) && !is(both) && !is(less)) ++wrong;
                }
            });
        }
        for (int i = 0; i < 10; ++i) {
            model.load_lora("a", a);
            model.unload_lora("a");
        }
        going = false;
        for (std::thread & each : threads) each.join();
        std::printf("threads: %d wrong\n", wrong.load());

        model.set_lora("b", -0.25f);
        for (int i = 2; i < argc; ++i) {
            model.load_weights(argv[i]);
            saved();
        }
        model.unload_lora("b");
        saved();
        return 0;
    } catch (const graphc::Error & error) {
        std::printf("error: %s\n", error.what());
        return 1;
    }
}
