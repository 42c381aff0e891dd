// Samplers of one evaluation a step that remember nothing.
#ifndef GRAPHC_IMAGES_SAMPLERS_EULER_HPP
#define GRAPHC_IMAGES_SAMPLERS_EULER_HPP

#include "steps.hpp"

namespace graphc::images::samplers {

GRAPHC_ROUNDED

/// Euler's method. Karras et al., Elucidating the Design Space of Diffusion-Based Generative Models (2022), algorithm 2 without
/// its second half; k-diffusion's defaults.
inline Array euler(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const double raised = churn(x, sigma, sigmas, noise, settings);
        const Array denoised = model(x, raised);
        x = toward(x, denoised, sigma_next / raised);
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// Euler's method, with part of the noise made anew in each step; k-diffusion, and ComfyUI for flows.
///
/// With eta 1 it is Ho, Jain, Abbeel, Denoising Diffusion Probabilistic Models (2020), with 0 it is DDIM and Euler.
inline Array euler_ancestral(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const Array denoised = model(x, sigma);
        const auto [down, scale, up] = step_down(sigma, sigma_next, settings.eta.value_or(1.0), settings.path);
        x = toward(x, denoised, down / sigma);
        if (up != 0) x = x * scale + noise(sigma, sigma_next) * (up * settings.s_noise);
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// Ho, Jain, Abbeel, Denoising Diffusion Probabilistic Models (2020): Euler's ancestral step with all of the noise.
inline Array ddpm(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    Settings whole;
    whole.watch = settings.watch;
    return euler_ancestral(model, std::move(x), sigmas, noise, whole);
}

/// DDIM with the schedule "simple" in stable-diffusion.cpp: Euler's ancestral step without noise.
inline Array ddim_trailing(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    Settings changed = settings;
    changed.eta = 0.0;
    return euler_ancestral(model, std::move(x), sigmas, noise, changed);
}

/// Luo et al., Latent Consistency Models (2023), algorithm 3: the picture at once, then noise again.
inline Array lcm(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const Array denoised = model(x, sigma);
        x = denoised;
        if (sigma_next > 0) x = settings.path.noised(denoised, noise(sigma, sigma_next) * settings.s_noise, sigma_next);
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// Zheng et al., Trajectory Consistency Distillation (2024), algorithm 4; eta (0) is the paper's gamma.
///
/// Each step goes down to the level at (1 - eta) of the next time, then adds noise up to the next level.
inline Array tcd(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    if (settings.levels == nullptr) throw SettingError("TCD needs a model with a table of times, in its settings' levels");
    const Sigmas & table = settings.levels->sigmas;
    const Sigmas alphas = settings.levels->alphas();
    const double eta = settings.eta.value_or(0.0);
    for (const Pair & step : pairs(sigmas)) {
        const Array denoised = model(x, step.sigma);
        const auto nearer = [&](double a, double b) { return std::abs(a - step.sigma_next) < std::abs(b - step.sigma_next); };
        const auto nearest = std::min_element(table.begin(), table.end(), nearer) - table.begin();
        const double alpha = alphas[static_cast<std::size_t>((1 - eta) * static_cast<double>(nearest))];
        const double alpha_next = 1 / (square(step.sigma_next) + 1);
        const Array direction = (x - denoised) / step.sigma;
        x = denoised * std::sqrt(alpha / alpha_next) + direction * std::sqrt((1 - alpha) / alpha_next);
        if (eta > 0 && step.sigma_next > 0) {
            const double added = std::sqrt(std::max(1 / alpha_next - 1 / alpha, 0.0));
            x = x * std::sqrt(alpha_next / alpha) + noise(step.sigma, step.sigma_next) * added;
        }
        show(settings, step.index, step.sigma, x, denoised);
    }
    return x;
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images::samplers

#endif
