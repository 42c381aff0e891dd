#pragma once

#include "graphc/model.h"

#include <functional>
#include <memory>

namespace graphc {

using OpenModel = std::function<std::unique_ptr<Model>(const std::filesystem::path & engine, const Options & options)>;

/// A command line around a model: .npy files in, .npy files out. Returns the exit status; errors go to stderr.
int run_command(int argc, char ** argv, const ModelInfo & info, const OpenModel & open);

/// The command line of a generated model class.
template <class M> int run_command(int argc, char ** argv) {
    return run_command(argc, argv, M::describe(), [](const std::filesystem::path & engine, const Options & options) {
        return std::make_unique<M>(engine, options);
    });
}

}  // namespace graphc
