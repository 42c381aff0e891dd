// Samplers that evaluate the model twice and more in a step.
#ifndef GRAPHC_IMAGES_SAMPLERS_RUNGE_KUTTA_HPP
#define GRAPHC_IMAGES_SAMPLERS_RUNGE_KUTTA_HPP

#include "steps.hpp"

namespace graphc::images::samplers {

GRAPHC_ROUNDED

/// A step along the direction at its start and, by `share`, that at its end; to no noise, along the first alone.
inline Array heun_step(const Model & model, const Array & x, const Array & denoised, double sigma, double sigma_next,
                       double share = 0.5) {
    const Array slope = (x - denoised) / sigma;
    const Array ahead = x + slope * (sigma_next - sigma);
    if (sigma_next == 0) return ahead;
    const Array slope_ahead = (ahead - model(ahead, sigma_next)) / sigma_next;
    return x + (slope * (1 - share) + slope_ahead * share) * (sigma_next - sigma);
}

/// Heun's method: Karras et al. (2022), algorithm 2.
inline Array heun(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const double raised = churn(x, sigma, sigmas, noise, settings);
        const Array denoised = model(x, raised);
        x = heun_step(model, x, denoised, raised, sigma_next);
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// Heun++ (HeunPP2, of Forge and ComfyUI): three directions, the later two by the share of their levels in the first one.
inline Array heunpp2(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    const double first = sigmas.front(), end = sigmas.back();
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const double raised = churn(x, sigma, sigmas, noise, settings);
        const Array denoised = model(x, raised);
        if (sigma_next == end) {
            x = toward(x, denoised, sigma_next / raised);
        } else if (sigmas[index + 2] == end) {
            x = heun_step(model, x, denoised, raised, sigma_next, sigma_next / (2 * first));
        } else {
            const double sigma_after = sigmas[index + 2];
            const Array slope = (x - denoised) / raised;
            const Array second = x + slope * (sigma_next - raised);
            const Array slope_2 = (second - model(second, sigma_next)) / sigma_next;
            const Array third = second + slope_2 * (sigma_after - sigma_next);
            const Array slope_3 = (third - model(third, sigma_after)) / sigma_after;
            const double share_2 = sigma_next / (3 * first), share_3 = sigma_after / (3 * first);
            const Array mean = slope * (1 - share_2 - share_3) + slope_2 * share_2 + slope_3 * share_3;
            x = x + mean * (sigma_next - raised);
        }
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// A step along the direction in its middle, which is that of the logarithms; to no noise, along the first.
inline Array dpm_2_step(const Model & model, const Array & x, const Array & denoised, double sigma, double sigma_next) {
    if (sigma_next == 0) return denoised;
    const double middle = std::sqrt(sigma * sigma_next);
    const Array halfway = toward(x, denoised, middle / sigma);
    return x + (halfway - model(halfway, middle)) * ((sigma_next - sigma) / middle);
}

/// Lu et al., DPM-Solver (2022), order 2, with the churn of Karras et al. (2022); k-diffusion.
inline Array dpm_2(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const double raised = churn(x, sigma, sigmas, noise, settings);
        const Array denoised = model(x, raised);
        x = dpm_2_step(model, x, denoised, raised, sigma_next);
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// DPM-Solver's second order, with part of the noise made anew in each step; k-diffusion, and ComfyUI for flows.
inline Array dpm_2_ancestral(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const Array denoised = model(x, sigma);
        const auto [down, scale, up] = step_down(sigma, sigma_next, settings.eta.value_or(1.0), settings.path);
        x = dpm_2_step(model, x, denoised, sigma, down);
        if (up != 0 && down != 0) x = x * scale + noise(sigma, sigma_next) * (up * settings.s_noise);
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images::samplers

#endif
