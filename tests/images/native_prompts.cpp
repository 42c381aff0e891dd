// Reads texts, each with its number of bytes and of evaluations before it, and prints what the native program makes of them: token
// ids, then each part of a prompt, its stages, and their chunks.
#include <cstdio>
#include <iostream>
#include <string>

#include "arrays.hpp"
#include "prompt.hpp"
#include "text.hpp"

using namespace graphc::images;

int main() {
    const ClipTokenizer tokenizer;
    size_t size;
    int evaluations;
    while (std::cin >> size >> evaluations) {
        std::string bytes(size, ' ');
        std::cin.get();
        std::cin.read(bytes.data(), static_cast<std::streamsize>(size));
        const auto text = decoded(bytes);
        if (!text) {
            std::puts("no UTF-8");
            continue;
        }
        for (const int id : tokenizer.encode(*text)) std::printf("%d ", id);
        try {
            for (const Part & part : read_prompt(*text, evaluations, false)) {
                std::printf(" ; %a", part.weight);
                for (const Stage & stage : part.stages) {
                    std::printf(" , %d", stage.until);
                    for (const Chunk & chunk : chunk_prompt(stage.text, tokenizer, 0)) {
                        std::printf(" |");
                        for (size_t i = 0; i < chunk.ids.size(); ++i) std::printf(" %d*%a", chunk.ids[i], chunk.weights[i]);
                    }
                }
            }
            std::puts("");
        } catch (const SettingError & error) {
            std::puts("refused");
        }
    }
}
