#pragma once

#include "graphc/model.h"

#include <map>
#include <string>
#include <vector>

namespace graphc {

/// What a command line around a model asks for.
struct Arguments {
    std::string engine;
    std::vector<std::string> loras;
    Options options;
    std::vector<std::string> inputs;
    std::vector<std::string> files;  // of inputs without a name
    std::map<std::string, int64_t> dims;
    std::vector<std::string> outputs;
    bool random = false;
    uint64_t seed = 0;
    int64_t repeat = 1;
    bool list = false;
    bool verify = false;
    bool help = false;
};

/// The words behind the program's name, in UTF-8.
std::vector<std::string> command_words(int argc, char ** argv);

/// Throws Error for what is no option, or has no value or a wrong one.
Arguments parse_arguments(const std::vector<std::string> & words);

/// What is before the first "=" and behind it. Throws Error without one.
std::pair<std::string, std::string> parse_pair(const std::string & option, const std::string & text);

}  // namespace graphc
