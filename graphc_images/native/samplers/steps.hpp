// What samplers share: their settings, a step, the noise levels of steps that add noise, and churn.
#ifndef GRAPHC_IMAGES_SAMPLERS_STEPS_HPP
#define GRAPHC_IMAGES_SAMPLERS_STEPS_HPP

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../arrays.hpp"
#include "../levels.hpp"

namespace graphc::images {

/// A model as samplers see it: (x, its noise level) -> an estimate of the picture without noise, as large as x.
using Model = std::function<Array(const Array & x, double sigma)>;

/// A model with guidance, which tells apart what it estimates with the prompt and without it: (x, its noise level) -> the estimate
/// with guidance, and the one for the negative prompt alone.
using PairModel = std::function<std::pair<Array, Array>(const Array & x, double sigma)>;

/// Normal noise as large as x, for the way from one noise level to another.
using Noise = std::function<Array(double sigma, double sigma_next)>;

/// What samplers can be told; the defaults are usual, and a sampler takes what it has.
struct SamplerSettings {
    /// How much of the noise is made anew in each step: 0 to 1; empty for the sampler's own.
    std::optional<double> eta;
    /// The factor of noise that is added.
    double s_noise = 1.0;
    /// Karras et al. (2022), algorithm 2, of Euler, Heun and DPM2: noise that is added while the level lies between two others.
    double s_churn = 0.0, s_tmin = 0.0, s_tmax = INFINITE;
    /// LMS and IPNDM end with the model's estimate in ComfyUI; DPM fast and DPM adaptive make noise in A1111.
    Mode mode = Mode::a1111;
    /// How picture and noise mix (`path_of`): for samplers that add noise to a flow.
    Path path;
    /// SA-Solver adds noise while the level is at most the first and above the second.
    double noisy_from = 0.0, noisy_to = 0.0;
    /// The model's table of levels, which TCD needs.
    const DiscreteLevels * levels = nullptr;
    /// Called after each step: its number from 0, the noise level at which it began, x, what the picture was taken to be.
    std::function<void(std::size_t index, double sigma, const Array & x, const Array & denoised)> watch;
};

namespace samplers {

GRAPHC_ROUNDED

using Sigmas = std::vector<double>;
using Settings = SamplerSettings;

/// The source of noise; where there is none, one that says that the sampler needs it.
inline Noise needed(const Noise & noise, const std::string & sampler) {
    if (noise) return noise;
    return [sampler](double, double) -> Array {
        throw SettingError("the sampler " + sampler + " adds noise: it needs a source");
    };
}

struct Pair {
    std::size_t index;
    double sigma, sigma_next;
};

/// Each step: its number, the noise level where it begins and where it ends.
inline std::vector<Pair> pairs(const Sigmas & sigmas) {
    std::vector<Pair> found;
    for (std::size_t i = 0; i + 1 < sigmas.size(); ++i) found.push_back({i, sigmas[i], sigmas[i + 1]});
    return found;
}

inline void show(const Settings & settings, std::size_t index, double sigma, const Array & x, const Array & denoised) {
    if (settings.watch) settings.watch(index, sigma, x, denoised);
}

/// On the line from the picture (0) to x (1): Euler's step, where `ratio` is that of the noise levels.
inline Array toward(const Array & x, const Array & denoised, double ratio) { return denoised + (x - denoised) * ratio; }

inline double square(double value) { return value * value; }

/// A step that lets go of some noise and adds as much anew: the level to go down to, the factor of x, that of the new noise.
struct Down {
    double level, scale = 1.0, up = 0.0;
};

/// Song, Meng, Ermon, Denoising Diffusion Implicit Models (2021), equation 16, by noise levels; for flows as ComfyUI.
inline Down step_down(double sigma, double sigma_next, double eta, const Path & path = {}) {
    if (eta == 0 || sigma_next == 0) return {sigma_next};
    if (path.flow) {
        const double down = sigma_next * (1 + (sigma_next / sigma - 1) * eta);
        const double scale = path.alpha(sigma_next) / path.alpha(down);
        return {down, scale, std::sqrt(std::max(square(sigma_next) - square(down * scale), 0.0))};
    }
    const double anew = square(sigma_next) * (square(sigma) - square(sigma_next)) / square(sigma);
    const double up = std::min(sigma_next, eta * std::sqrt(std::max(anew, 0.0)));
    return {std::sqrt(square(sigma_next) - square(up)), 1.0, up};
}

/// Churn: x with some noise before a step, and its noise level. k-diffusion draws outside of the levels too, so this does.
inline double churn(Array & x, double sigma, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    if (settings.s_churn == 0) return sigma;
    const Array eps = noise(sigma, sigma);
    if (sigma < settings.s_tmin || sigma > settings.s_tmax) return sigma;
    const auto steps = static_cast<double>(sigmas.size() - 1);
    const double raised = sigma * (1 + std::min(settings.s_churn / steps, std::sqrt(2.0) - 1));
    x = x + eps * (settings.s_noise * std::sqrt(square(raised) - square(sigma)));
    return raised;
}

/// The sum of arrays times their factors.
inline Array combined(const std::vector<double> & factors, const std::vector<Array> & arrays) {
    Array total = arrays[0] * factors[0];
    for (std::size_t i = 1; i < std::min(factors.size(), arrays.size()); ++i) total = total + arrays[i] * factors[i];
    return total;
}

/// Puts the newest before the others, of which so many are kept that there are `most`.
template <typename Item>
void remember(std::vector<Item> & newest_first, Item item, std::size_t most) {
    newest_first.insert(newest_first.begin(), std::move(item));
    if (newest_first.size() > most) newest_first.resize(most);
}

GRAPHC_ROUNDED_END

}  // namespace samplers

}  // namespace graphc::images

#endif
