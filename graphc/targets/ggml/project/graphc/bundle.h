#pragma once

// A program that brings its engines with it, as `graphc bundle` makes them.

#include "graphc/command.h"

namespace graphc {

/// A model of such a program, and its engine: how many bytes it has, and their SHA-256.
struct Bundled {
    std::string name;
    Runnable model;
    uint64_t size;
    std::string sha256;
};

/// Where the engines lie: behind the program, in its own file, or as NAME.gguf in its folder.
///
/// In its own file each begins at a multiple of `bundle_alignment` bytes, in the order of the models, so that it is used where it is
/// mapped. At the end are `bundle_mark` and, in 8 bytes, little-endian, where the first begins. Up to `bundle_signature` bytes may
/// follow, of a signature of the program.
enum class Engines { behind, beside };

constexpr uint64_t bundle_alignment = 1 << 16;  // of pages on every system, and of what Windows maps
constexpr uint64_t bundle_signature = 1 << 16;
constexpr char bundle_mark[] = "\ngraphc's bundle";

/// The command line around them. Returns the exit status; errors go to stderr.
int run_bundle(int argc, char ** argv, const std::vector<Bundled> & models, Engines engines);

}  // namespace graphc
