// Samplers of CFG++: from the estimate with guidance, back along the noise of the negative prompt.
//
// Chung, Kim, Park, Nam, Ye, CFG++: Manifold-constrained Classifier Free Guidance for Diffusion Models (2024), in ComfyUI's forms.
#ifndef GRAPHC_IMAGES_SAMPLERS_CFG_PP_HPP
#define GRAPHC_IMAGES_SAMPLERS_CFG_PP_HPP

#include <utility>

#include "dpmpp.hpp"
#include "multistep.hpp"

namespace graphc::images::samplers {

GRAPHC_ROUNDED

/// `step_down` from where there is noise alone.
inline Down flat_down(double level, double eta) {
    const double up = std::min(level, eta * level);
    return {std::sqrt(square(level) - square(up)), 1.0, up};
}

/// Euler's method, with part of the noise made anew.
inline Array euler_ancestral_cfg_pp_by(double eta, const PairModel & model, Array x, const Sigmas & sigmas, const Noise & noise,
                                       const Settings & settings) {
    const Path & path = settings.path;
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const auto [denoised, negative] = model(x, sigma);
        if (sigma_next == 0) {
            x = denoised;
        } else {
            const double alpha = path.alpha(sigma), alpha_next = path.alpha(sigma_next), level = sigma_next / alpha_next;
            const Array slope = (x - negative * alpha) / sigma;
            const Down step = alpha != 0 ? step_down(sigma / alpha, level, eta) : flat_down(level, eta);
            x = denoised * alpha_next + slope * (alpha_next * step.level);
            if (step.up != 0 && settings.s_noise > 0) x = x + noise(sigma, sigma_next) * (alpha_next * step.up * settings.s_noise);
        }
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

inline Array euler_ancestral_cfg_pp(const PairModel & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    return euler_ancestral_cfg_pp_by(settings.eta.value_or(1.0), model, std::move(x), sigmas, noise, settings);
}

/// Euler's method.
inline Array euler_cfg_pp(const PairModel & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    return euler_ancestral_cfg_pp_by(0.0, model, std::move(x), sigmas, noise, settings);
}

/// DPM-Solver++ of order 2 by the estimate in the middle; the noise is that of the negative prompt, at its newest.
inline Array dpmpp_2s_ancestral_cfg_pp(const PairModel & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const auto [denoised, negative] = model(x, sigma);
        const Down step = step_down(sigma, sigma_next, settings.eta.value_or(1.0));
        if (step.level == 0) {
            x = denoised;
        } else {
            const double middle = std::sqrt(sigma * step.level);
            const Array halfway = sde_move(x + (denoised - negative), denoised, sigma, middle, 0, {}).first;
            const auto [second, newest] = model(halfway, middle);
            x = sde_move(x + (denoised - newest), second, sigma, step.level, 0, {}).first;
        }
        if (step.up != 0) x = x + noise(sigma, sigma_next) * (step.up * settings.s_noise);
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// DPM-Solver++ of order 2 from the negative estimate of the step before.
inline Array dpmpp_2m_cfg_pp(const PairModel & model, Array x, const Sigmas & sigmas, const Noise &, const Settings & settings) {
    Array before;
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const auto [denoised, negative] = model(x, sigma);
        const double ratio = sigma_next / sigma;
        Array moved = denoised + (x - negative) * ratio;
        if (index > 0 && sigma_next > 0) {
            const double last = std::log(sigmas[index - 1] / sigma) / std::log(sigma / sigma_next);
            moved = moved + (denoised - before) * ((1 - ratio) / (2 * last));
        }
        x = moved;
        before = negative;
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// RES of order 2 from the negative estimates; eta is 0.
inline Array res_multistep_cfg_pp(const PairModel & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    Array before;
    double down_before = 0;
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const auto [denoised, negative] = model(x, sigma);
        const Down step = step_down(sigma, sigma_next, settings.eta.value_or(0.0));
        if (step.level == 0 || index == 0) {
            x = denoised + (x - negative) * (step.level / sigma);
        } else {
            const auto [newest, last] = res_factors(sigma, step.level, sigmas[index - 1], down_before);
            x = (x + (denoised - negative)) * (step.level / sigma) + negative * newest + before * last;
        }
        if (step.up != 0) x = x + noise(sigma, sigma_next) * (step.up * settings.s_noise);
        before = negative;
        down_before = step.level;
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// RES with all of the noise made anew.
inline Array res_multistep_ancestral_cfg_pp(const PairModel & model, Array x, const Sigmas & sigmas, const Noise & noise,
                                            const Settings & settings) {
    Settings changed = settings;
    changed.eta = 1.0;
    return res_multistep_cfg_pp(model, std::move(x), sigmas, noise, changed);
}

/// Permenter and Yuan's overshot Euler, along the noise of the negative prompt.
inline Array gradient_estimation_cfg_pp(const PairModel & model, Array x, const Sigmas & sigmas, const Noise &, const Settings & settings) {
    const double gamma = 2.0;
    Array slope_before;
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const auto [denoised, negative] = model(x, sigma);
        const Array slope = (x - negative) / sigma;
        x = denoised + slope * sigma_next;
        if (sigma_next > 0 && index > 0) x = x + (slope - slope_before) * ((gamma - 1) * (sigma_next - sigma));
        slope_before = slope;
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images::samplers

#endif
