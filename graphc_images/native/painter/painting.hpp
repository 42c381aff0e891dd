#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "model.hpp"

namespace graphc::images {

/// A picture, as it was asked for; what is not said is what the model is usually used with.
struct Asked {
    std::string prompt;
    std::string negative;
    std::optional<std::string> sampler = {};
    std::optional<std::string> scheduler = {};
    std::string generator = "gpu";
    std::optional<int> width = {}, height = {}, steps = {};
    std::optional<double> cfg = {};
    std::optional<int64_t> seed = {};
    int clip_skip = 1;
};

/// The same with the model's usual values in place of nothing, and a seed by chance. Throws SettingError for what cannot be.
Asked resolved(Asked asked, const Facts & facts);

/// Called after each step: how many are done, of how many.
using OnStep = std::function<void(int done, int steps)>;

/// The picture of settings that are resolved. Throws SettingError and graphc::Error.
Picture paint(const ImageModel & model, const Asked & asked, const OnStep & on_step);

/// A1111's text about it.
std::string described(const Asked & asked, const Facts & facts);

}  // namespace graphc::images
