#pragma once

#include "graphc/model.h"

/// A compiled model: the folder of its case, and what opens its engine.
struct Entry {
    const char * name;
    std::unique_ptr<graphc::Model> (*open)(const std::filesystem::path & engine, const graphc::Options & options);
};

/// Every model of the program. Each file of models adds its own before `main` runs.
std::vector<Entry> & models();

/// Adds a model class.
template <class M> bool add(const char * name) {
    models().push_back({name, [](const std::filesystem::path & engine, const graphc::Options & options) {
        return std::unique_ptr<graphc::Model>(std::make_unique<M>(engine, options));
    }});
    return true;
}
