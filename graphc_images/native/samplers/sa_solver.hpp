// Xue et al., SA-Solver: Stochastic Adams Solver for Fast Sampling of Diffusion Models (2023), as ComfyUI has it.
#ifndef GRAPHC_IMAGES_SAMPLERS_SA_SOLVER_HPP
#define GRAPHC_IMAGES_SAMPLERS_SA_SOLVER_HPP

#include "linear_algebra.hpp"
#include "steps.hpp"

namespace graphc::images::samplers {

GRAPHC_ROUNDED

/// Factors of estimates at the `points`, for a step in log(alpha / sigma): equations 15 and 18, without alpha.
///
/// Integrals of the polynomials that are 1 at a point and 0 at the others, times (1 + tau**2) exp((1 + tau**2) (u - end)). Their
/// moments follow from each other by integration by parts; counted from `end`, so that large logarithms do not cancel.
inline std::vector<double> adams_factors(const std::vector<double> & points, double start, double end, double tau) {
    const double rate = 1 + square(tau), length = end - start;
    std::vector<double> moments;
    Matrix powers;
    for (std::size_t power = 0; power < points.size(); ++power) {
        const double exponent = static_cast<double>(power);
        const double boundary = (power == 0) - std::pow(-length, exponent) * std::exp(-rate * length);
        moments.push_back(boundary - (power > 0 ? exponent / rate * moments.back() : 0.0));
        std::vector<double> row;
        for (std::size_t i = 0; i < points.size(); ++i) row.push_back(power > 0 ? powers.back()[i] * (points[i] - end) : 1.0);
        powers.push_back(row);
    }
    return solved(powers, moments);
}

/// x from one noise level to another, without noise, by the newest estimates and the places where they were made.
inline Array adams_move(const Array & x, const std::vector<Array> & estimates, std::vector<double> places, double sigma,
                        double sigma_next, std::size_t order, double tau, const Path & path) {
    const double start = path.half_log_snr(sigma), end = path.half_log_snr(sigma_next);
    places.resize(order);
    const double kept = sigma_next / sigma * std::exp(-square(tau) * (end - start));
    return x * kept + combined(adams_factors(places, start, end, tau), estimates) * path.alpha(sigma_next);
}

/// Adams' methods, a predictor of order 3, then a corrector of order 4. Noise is added while the level is at most `noisy_from` and
/// above `noisy_to`; ComfyUI's lies between 20% and 80% of the way. `twice`: the model is evaluated after the corrector too.
inline Array sa_solver_by(bool twice, const Model & model, Array x, const Sigmas & all, const Noise & noise, const Settings & settings) {
    const Path & path = settings.path;
    const Sigmas sigmas = path.started(all);
    const std::size_t last = sigmas.size() - 1;
    std::vector<Array> estimates;  // the newest first
    std::vector<double> places;
    Array corrected = x, added;
    double tau = 0;
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        Array denoised = model(x, sigma);
        remember(estimates, denoised, 4);
        remember(places, path.half_log_snr(sigma), 4);
        std::size_t predictor = std::min<std::size_t>(3, places.size()), corrector = places.size();
        if (sigmas[last] == 0) {
            predictor = std::min(predictor, last - 1 - index);
            corrector = std::min(corrector, last - index);
        }
        if (index == 0 || (sigma_next == 0 && !twice)) {
            corrected = x;
        } else {
            corrected = adams_move(corrected, estimates, places, sigmas[index - 1], sigma, corrector, tau, path);
            if (!added.empty()) corrected = corrected + added;
            if (twice) denoised = estimates[0] = model(corrected, sigma);
        }
        if (sigma_next == 0) {
            x = denoised;
        } else {
            tau = settings.noisy_from >= sigma_next && sigma_next > settings.noisy_to ? 1.0 : 0.0;
            x = adams_move(corrected, estimates, places, sigma, sigma_next, predictor, tau, path);
            added.clear();
            if (tau != 0) {
                const double length = path.half_log_snr(sigma_next) - path.half_log_snr(sigma);
                added = noise(sigma, sigma_next) *
                        (sigma_next * std::sqrt(-std::expm1(-2 * square(tau) * length)) * settings.s_noise);
                x = x + added;
            }
        }
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// With one evaluation a step.
inline Array sa_solver(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    return sa_solver_by(false, model, std::move(x), sigmas, noise, settings);
}

/// With two (PECE).
inline Array sa_solver_pece(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    return sa_solver_by(true, model, std::move(x), sigmas, noise, settings);
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images::samplers

#endif
