#pragma once

#include <string>
#include <vector>

#include "painting.hpp"

namespace graphc::images {

/// What was typed is none of the command's options, or no value of one.
struct UsageError : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

/// The command line.
struct Command {
    Asked asked;
    std::string output;  // a file; nothing for a new name
    std::string model;   // a folder; nothing for that of the program
    int threads = 0;
    int count = 1;
    bool help = false;
    bool version = false;
};

/// Throws UsageError.
Command parsed(const std::vector<std::string> & words);

/// What `--help` prints.
std::string usage();

}  // namespace graphc::images
