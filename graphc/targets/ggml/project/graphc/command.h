#pragma once

#include "graphc/model.h"

#include <functional>
#include <memory>

namespace graphc {

/// A model that a command line runs.
struct Runnable {
    ModelInfo info;
    std::function<std::unique_ptr<Model>(Engine engine, const Options & options)> open;
    std::string name = {};                    // what the command line calls it, where there may be several
    std::function<Engine()> engine = {};      // the one that comes with the program; without it, the option --engine says which
    std::function<void()> verify = {};        // throws Error unless every byte of that engine is as it was written
};

/// A generated model class as a command line runs it.
template <class M> Runnable runnable() {
    const auto open = [](Engine engine, const Options & options) { return std::make_unique<M>(std::move(engine), options); };
    return {M::describe(), open};
}

/// A command line around models: .npy files in, .npy files out. Of several models, the first word is the name of one.
/// Returns the exit status; errors go to stderr.
int run_command(int argc, char ** argv, const std::vector<Runnable> & models);

/// The command line of a generated model class.
template <class M> int run_command(int argc, char ** argv) { return run_command(argc, argv, {runnable<M>()}); }

}  // namespace graphc
