// DPM-Solver++: exponential integrators over the logarithm of the noise level, for the estimate of the picture.
//
// Lu, Zhou, Bao, Chen, Li, Zhu, DPM-Solver++: Fast Solver for Guided Sampling of Diffusion Probabilistic Models (2022), in the
// forms of k-diffusion (Crowson). Those with noise go by the logarithm of alpha / sigma, as in ComfyUI: so they hold for flows
// too.
#ifndef GRAPHC_IMAGES_SAMPLERS_DPMPP_HPP
#define GRAPHC_IMAGES_SAMPLERS_DPMPP_HPP

#include <tuple>
#include <utility>

#include "steps.hpp"

namespace graphc::images::samplers {

GRAPHC_ROUNDED

/// Order 2, by the estimate in the middle of the step, with part of the noise made anew.
inline Array dpmpp_2s_ancestral(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    const Path & path = settings.path;
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const Array denoised = model(x, sigma);
        const auto [down, scale, up] = step_down(sigma, sigma_next, settings.eta.value_or(1.0), path);
        Array estimate = denoised;
        if (down > 0) {
            double middle = 0.9999;
            if (!path.flow || sigma < 1) middle = path.sigma_at((path.half_log_snr(sigma) + path.half_log_snr(down)) / 2);
            estimate = model(toward(x, denoised, middle / sigma), middle);
        }
        x = toward(x, estimate, down / sigma);
        if (up != 0) x = x * scale + noise(sigma, sigma_next) * (up * settings.s_noise);
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// x at the level to go down to, before noise is added, and that noise's factor; the levels are of a `path`.
inline std::pair<Array, double> sde_move(const Array & x, const Array & estimate, double sigma, double sigma_next, double eta,
                                         const Path & path) {
    const double alpha = path.alpha(sigma), alpha_next = path.alpha(sigma_next);
    const Down step = step_down(sigma / alpha, sigma_next / alpha_next, eta);
    const double ratio = step.level * alpha / sigma;
    return {x * (alpha_next / alpha * ratio) + estimate * (alpha_next * (1 - ratio)), alpha_next * step.up};
}

/// A stochastic solver of order 2 in two evaluations, the second in the middle of the step; Brownian noise.
inline Array dpmpp_sde(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    const Path & path = settings.path;
    const double eta = settings.eta.value_or(1.0), r = 0.5, share = 1 / (2 * r);
    for (const auto & [index, sigma, sigma_next] : pairs(path.started(sigmas))) {
        const Array denoised = model(x, sigma);
        if (sigma_next == 0) {
            x = denoised;
        } else {
            const double start = path.half_log_snr(sigma), end = path.half_log_snr(sigma_next);
            const double middle = path.sigma_at(start + r * (end - start));
            auto [halfway, up] = sde_move(x, denoised, sigma, middle, eta, path);
            if (up != 0) halfway = halfway + noise(sigma, middle) * (up * settings.s_noise);
            const Array estimate = denoised * (1 - share) + model(halfway, middle) * share;
            std::tie(x, up) = sde_move(x, estimate, sigma, sigma_next, eta, path);
            if (up != 0) x = x + noise(sigma, sigma_next) * (up * settings.s_noise);
        }
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// Order 2 from the estimate of the step before.
inline Array dpmpp_2m(const Model & model, Array x, const Sigmas & sigmas, const Noise &, const Settings & settings) {
    Array before;
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const Array denoised = model(x, sigma);
        Array estimate = denoised;
        if (index > 0 && sigma_next > 0) {
            const double last = std::log(sigmas[index - 1] / sigma) / std::log(sigma / sigma_next);
            estimate = denoised + (denoised - before) / (2 * last);
        }
        x = toward(x, estimate, sigma_next / sigma);
        before = denoised;
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// stable-diffusion.cpp's dpm++2mv2: steps of unlike length are taken as if they had their mean length.
inline Array dpmpp_2m_v2(const Model & model, Array x, const Sigmas & sigmas, const Noise &, const Settings & settings) {
    Array before;
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const Array denoised = model(x, sigma);
        if (index == 0 || sigma_next == 0) {
            x = toward(x, denoised, sigma_next / sigma);
        } else {
            const double last = std::log(sigmas[index - 1] / sigma), now = std::log(sigma / sigma_next);
            const Array estimate = denoised + (denoised - before) * (std::min(last, now) / (2 * std::max(last, now)));
            x = x * (sigma_next / sigma) - estimate * std::expm1(-(last + now) / 2);
        }
        before = denoised;
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// x with the noise of a step, `length` of it as eta times the step in log(alpha / sigma).
inline Array with_sde_noise(const Array & x, const Noise & noise, double sigma, double sigma_next, double length, double s_noise) {
    if (length <= 0 || s_noise <= 0) return x;
    return x + noise(sigma, sigma_next) * (sigma_next * std::sqrt(-std::expm1(-2 * length)) * s_noise);
}

/// The stochastic solver of order 2 from the estimate of the step before, by the midpoint or by Heun; Brownian noise.
inline Array dpmpp_2m_sde_by(bool heun, const Model & model, Array x, const Sigmas & sigmas, const Noise & noise,
                             const Settings & settings) {
    const Path & path = settings.path;
    const double eta = settings.eta.value_or(1.0);
    Array before;
    double last = 0;
    for (const auto & [index, sigma, sigma_next] : pairs(path.started(sigmas))) {
        const Array denoised = model(x, sigma);
        if (sigma_next == 0) {
            x = denoised;
        } else {
            const double step = path.half_log_snr(sigma_next) - path.half_log_snr(sigma);
            const double both = step * (1 + eta), alpha = path.alpha(sigma_next);
            x = x * (sigma_next / sigma * std::exp(-step * eta)) - denoised * (alpha * std::expm1(-both));
            if (index > 0) {
                const double factor = heun ? std::expm1(-both) / both + 1 : -std::expm1(-both) / 2;
                x = x + (denoised - before) * (alpha * factor * step / last);
            }
            x = with_sde_noise(x, noise, sigma, sigma_next, step * eta, settings.s_noise);
            last = step;
        }
        before = denoised;
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// By the midpoint.
inline Array dpmpp_2m_sde(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    return dpmpp_2m_sde_by(false, model, std::move(x), sigmas, noise, settings);
}

/// By Heun.
inline Array dpmpp_2m_sde_heun(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    return dpmpp_2m_sde_by(true, model, std::move(x), sigmas, noise, settings);
}

/// The stochastic solver of order 3 from the estimates of the two steps before; Brownian noise.
inline Array dpmpp_3m_sde(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    const Path & path = settings.path;
    const double eta = settings.eta.value_or(1.0);
    std::vector<Array> estimates;  // the newest first
    std::vector<double> lengths;
    for (const auto & [index, sigma, sigma_next] : pairs(path.started(sigmas))) {
        const Array denoised = model(x, sigma);
        if (sigma_next == 0) {
            x = denoised;
        } else {
            const double step = path.half_log_snr(sigma_next) - path.half_log_snr(sigma);
            const double both = step * (1 + eta), alpha = path.alpha(sigma_next);
            x = x * (sigma_next / sigma * std::exp(-step * eta)) - denoised * (alpha * std::expm1(-both));
            const double phi_2 = std::expm1(-both) / both + 1;
            if (lengths.size() > 1) {
                const double r_0 = lengths[0] / step, r_1 = lengths[1] / step;
                const Array slope = (denoised - estimates[0]) / r_0;
                const Array bend = (slope - (estimates[0] - estimates[1]) / r_1) / (r_0 + r_1);
                x = x + (slope + bend * r_0) * (alpha * phi_2) - bend * (alpha * (phi_2 / both - 0.5));
            } else if (lengths.size() == 1) {
                x = x + (denoised - estimates[0]) * (alpha * phi_2 * step / lengths[0]);
            }
            x = with_sde_noise(x, noise, sigma, sigma_next, step * eta, settings.s_noise);
            remember(lengths, step, 2);
        }
        remember(estimates, denoised, 2);
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images::samplers

#endif
