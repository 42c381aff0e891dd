#include "options.hpp"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <functional>

namespace graphc::images {
namespace {

using Setter = std::function<void(Command &, const std::string & option, const std::string & value)>;

/// An option: its names, what stands for its value in the help, and what it does.
struct Option {
    std::vector<std::string> names;
    std::string value;
    std::string help;
    Setter set;
};

int64_t whole(const std::string & option, const std::string & text, int64_t low, int64_t high) {
    char * end = nullptr;
    errno = 0;
    const long long number = std::strtoll(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || errno != 0 || number < low || number > high) {
        throw UsageError(option + ": '" + text.substr(0, 40) + "' is not a whole number from " + std::to_string(low) + " to " +
                         std::to_string(high));
    }
    return number;
}

double number(const std::string & option, const std::string & text, double low, double high) {
    char * end = nullptr;
    const double found = std::strtod(text.c_str(), &end);
    const bool written = !text.empty() && text.find_first_not_of("+-.0123456789eE") == std::string::npos;
    if (!written || *end != '\0' || !(found >= low && found <= high)) {
        throw UsageError(option + ": '" + text.substr(0, 40) + "' is not a number from " + std::to_string(static_cast<int>(low)) +
                         " to " + std::to_string(static_cast<int>(high)));
    }
    return found;
}

template <class Field> Setter whole_of(Field field, int64_t low, int64_t high) {
    return [=](Command & command, const std::string & option, const std::string & value) {
        field(command) = static_cast<int>(whole(option, value, low, high));
    };
}

template <class Field> Setter text_of(Field field) {
    return [=](Command & command, const std::string &, const std::string & value) { field(command) = value; };
}

const std::vector<Option> & options() {
    constexpr int64_t largest_seed = 4294967295;
    static const std::vector<Option> table = {
        {{"--output", "-o"}, "FILE", "the picture, PNG; replaced if it is there (a new name, with the seed, if not given)",
         text_of([](Command & c) -> auto & { return c.output; })},
        {{"--negative", "-n"}, "TEXT", "what is not to be seen", text_of([](Command & c) -> auto & { return c.asked.negative; })},
        {{"--width", "-W"}, "N", "in pixels", whole_of([](Command & c) -> auto & { return c.asked.width; }, 8, 65536)},
        {{"--height", "-H"}, "N", "in pixels", whole_of([](Command & c) -> auto & { return c.asked.height; }, 8, 65536)},
        {{"--seed", "-s"}, "N", "-1 for any; further pictures have the seeds that follow",
         [](Command & c, const std::string & option, const std::string & value) {
             c.asked.seed = whole(option, value, -1, largest_seed);
         }},
        {{"--count"}, "N", "how many pictures", whole_of([](Command & c) -> auto & { return c.count; }, 1, 1 << 20)},
        {{"--steps"}, "N", "steps of the sampler", whole_of([](Command & c) -> auto & { return c.asked.steps; }, 1, 1 << 14)},
        {{"--sampler"}, "NAME", "the sampler, by any name that it has", text_of([](Command & c) -> auto & { return c.asked.sampler; })},
        {{"--scheduler"}, "NAME", "the scheduler", text_of([](Command & c) -> auto & { return c.asked.scheduler; })},
        {{"--cfg", "--cfg-scale"}, "X", "how strongly the prompt guides",
         [](Command & c, const std::string & option, const std::string & value) { c.asked.cfg = number(option, value, -1e4, 1e4); }},
        {{"--clip-skip"}, "N", "which layer of CLIP counts, from the end",
         whole_of([](Command & c) -> auto & { return c.asked.clip_skip; }, 1, 64)},
        {{"--generator"}, "NAME", "where random numbers come from: gpu (as A1111 on CUDA) or cpu (as PyTorch)",
         text_of([](Command & c) -> auto & { return c.asked.generator; })},
        {{"--threads"}, "N", "of the CPU; all processors if not given",
         whole_of([](Command & c) -> auto & { return c.threads; }, 1, 512)},
        {{"--model"}, "DIR", "the folder of another model that was made with this program (its own if not given)",
         text_of([](Command & c) -> auto & { return c.model; })},
        {{"--version"}, "", "the version", [](Command & c, const std::string &, const std::string &) { c.version = true; }},
        {{"--help", "-h"}, "", "this", [](Command & c, const std::string &, const std::string &) { c.help = true; }},
    };
    return table;
}

const Option * find(const std::string & name) {
    for (const Option & option : options()) {
        for (const std::string & each : option.names) {
            if (each == name) return &option;
        }
    }
    return nullptr;
}

}  // namespace

Command parsed(const std::vector<std::string> & words) {
    Command command;
    bool prompted = false, only_words = false;
    for (size_t place = 0; place < words.size(); ++place) {
        const std::string & word = words[place];
        if (!only_words && word == "--") {
            only_words = true;
            continue;
        }
        if (only_words || word.size() < 2 || word[0] != '-') {
            if (prompted) throw UsageError("'" + word.substr(0, 40) + "': there is a prompt already; put quotes around all of it");
            command.asked.prompt = word;
            prompted = true;
            continue;
        }
        const size_t equals = word.compare(0, 2, "--") == 0 ? word.find('=') : std::string::npos;
        const std::string name = word.substr(0, equals);
        const Option * option = find(name);
        if (option == nullptr) throw UsageError("there is no option " + name.substr(0, 40) + "; --help lists them");
        if (option->value.empty()) {
            if (equals != std::string::npos) throw UsageError(name + " takes no value");
            option->set(command, name, "");
        } else if (equals != std::string::npos) {
            option->set(command, name, word.substr(equals + 1));
        } else {
            if (place + 1 == words.size()) throw UsageError(name + " needs a value: " + option->value);
            option->set(command, name, words[++place]);
        }
    }
    return command;
}

std::string usage() {
    std::string text = "usage: painter PROMPT [options]\n";
    for (const Option & option : options()) {
        std::string names = "  ";
        for (const std::string & name : option.names) names += (names.size() > 2 ? ", " : "") + name;
        names += option.value.empty() ? "" : " " + option.value;
        text += names + std::string(names.size() < 26 ? 26 - names.size() : 1, ' ') + option.help + "\n";
    }
    return text;
}

}  // namespace graphc::images
