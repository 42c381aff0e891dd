// Samplers of one evaluation a step that go by the directions of the steps before.
#ifndef GRAPHC_IMAGES_SAMPLERS_MULTISTEP_HPP
#define GRAPHC_IMAGES_SAMPLERS_MULTISTEP_HPP

#include <utility>

#include "linear_algebra.hpp"
#include "steps.hpp"

namespace graphc::images::samplers {

GRAPHC_ROUNDED

/// The integral from `start` to `end` of each polynomial that is 1 at one of the points and 0 at the others.
inline std::vector<double> lagrange_integrals(const std::vector<double> & points, double start, double end) {
    std::vector<double> found;
    for (const double own : points) {
        std::vector<double> polynomial = {1.0};  // highest power first
        double scale = 1;
        for (const double point : points) {
            if (point == own) continue;
            const double other = point - start;
            polynomial.push_back(0.0);
            for (std::size_t i = polynomial.size() - 1; i > 0; --i) polynomial[i] -= polynomial[i - 1] * other;
            scale *= own - start - other;
        }
        double integral = 0;
        for (std::size_t i = 0; i < polynomial.size(); ++i) {
            integral = integral * (end - start) + polynomial[i] / scale / static_cast<double>(polynomial.size() - i);
        }
        found.push_back(integral * (end - start));
    }
    return found;
}

/// A linear multistep method over the noise level: polynomials through the last four directions, integrated (k-diffusion).
inline Array lms(const Model & model, Array x, const Sigmas & sigmas, const Noise &, const Settings & settings) {
    std::vector<Array> slopes;
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const Array denoised = model(x, sigma);
        remember(slopes, (x - denoised) / sigma, 4);
        if (settings.mode == Mode::comfyui && sigma_next == 0) {
            x = denoised;
        } else {
            std::vector<double> points;
            for (std::size_t back = 0; back < slopes.size(); ++back) points.push_back(sigmas[index - back]);
            x = x + combined(lagrange_integrals(points, sigma, sigma_next), slopes);
        }
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// Adams and Bashforth's factors of the newest direction and those before, for even steps.
inline std::vector<double> adams_bashforth(std::size_t count) {
    static const std::vector<std::vector<double>> factors = {
        {1.0},
        {3.0 / 2, -1.0 / 2},
        {23.0 / 12, -16.0 / 12, 5.0 / 12},
        {55.0 / 24, -59.0 / 24, 37.0 / 24, -9.0 / 24},
    };
    return factors[count - 1];
}

/// Zhang, Chen, Fast Sampling of Diffusion Models with Exponential Integrator (2022), iPNDM, order 4: Adams and Bashforth's
/// factors.
inline Array ipndm(const Model & model, Array x, const Sigmas & sigmas, const Noise &, const Settings & settings) {
    std::vector<Array> slopes;
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const Array denoised = model(x, sigma);
        remember(slopes, (x - denoised) / sigma, 4);
        const bool last = settings.mode == Mode::comfyui && sigma_next == 0;
        x = x + combined(adams_bashforth(last ? 1 : slopes.size()), slopes) * (sigma_next - sigma);
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// Adams and Bashforth's factors for steps of unlike length, newest first, as zju-pi/diff-sampler has them.
///
/// The first of its terms for orders 3 and 4 is not the textbook's, which would multiply where this subtracts; kept, because
/// ComfyUI and Forge compute so.
inline std::vector<double> variable_factors(const std::vector<double> & steps) {
    if (steps.size() == 1) return {1.0};
    const double h = steps[0], h_1 = steps[1];
    const double first = 1 + h / h_1 / 2, second = -h / h_1 / 2;
    if (steps.size() == 2) return {first, second};
    const double h_2 = steps[2];
    const double a = (1 - h / (3 * (h + h_1)) * (h * (h + h_1)) / (h_1 * (h_1 + h_2))) / 2;
    if (steps.size() == 3) return {first + a, second - (1 + h_1 / h_2) * a, a * h_1 / h_2};
    const double h_3 = steps[3];
    double b = (1 - h / (3 * (h + h_1))) / 2 + (1 - h / (2 * (h + h_1))) * h / (6 * (h + h_1 + h_2));
    b *= (h * (h + h_1) * (h + h_1 + h_2)) / (h_1 * (h_1 + h_2) * (h_1 + h_2 + h_3));
    const double ratio = h_1 / h_2, far = h_1 * (h_1 + h_2) / (h_2 * (h_2 + h_3));
    return {first + a + b, second - (1 + ratio) * a - (1 + ratio + far) * b,
            a * ratio + (ratio + far * (1 + h_2 / h_3)) * b, -b * far * ratio};
}

/// iPNDM with factors for steps of unlike length (zju-pi/diff-sampler).
inline Array ipndm_v(const Model & model, Array x, const Sigmas & sigmas, const Noise &, const Settings & settings) {
    std::vector<Array> slopes;
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const Array denoised = model(x, sigma);
        remember(slopes, (x - denoised) / sigma, 4);
        std::vector<double> steps;
        for (std::size_t back = 0; back < slopes.size(); ++back) steps.push_back(sigmas[index + 1 - back] - sigmas[index - back]);
        const bool last = settings.mode == Mode::comfyui && sigma_next == 0;
        x = x + combined(last ? std::vector<double>{1.0} : variable_factors(steps), slopes) * (sigma_next - sigma);
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// The times of a variance-preserving process over which DEIS integrates, from EDM's noise levels (0.002 to 80).
struct DeisTimes {
    static constexpr double first = 1e-3;
    double low = std::log(square(0.002) + 1), high = std::log(square(80.0) + 1);
    double slope = 2 * (low / first - high) / (first - 1), base = high - slope / 2;

    /// The time of a noise level.
    double time(double sigma) const { return (std::sqrt(square(base) + 2 * slope * std::log(square(sigma) + 1)) - base) / slope; }

    /// What the direction is integrated with.
    double weight(double time) const {
        const double alpha = std::exp(-0.5 * square(time) * slope - time * base);
        return 0.5 * (time * slope + base) / std::sqrt(alpha * (1 - alpha));
    }

    /// Factors of the directions at `times`, newest first, for a step from the first of them to `end`.
    std::vector<double> factors(const std::vector<double> & times, double end) const {
        const std::vector<double> places = even(times[0], end, 10000);
        const double length = (end - times[0]) / 10000;
        std::vector<double> found, terms(places.size());
        for (const double own : times) {
            for (std::size_t i = 0; i < places.size(); ++i) {
                double polynomial = 1;
                for (const double other : times) {
                    if (other != own) polynomial *= (places[i] - other) / (own - other);
                }
                terms[i] = weight(places[i]) * length * polynomial;
            }
            found.push_back(total(terms));
        }
        return found;
    }
};

/// Zhang, Chen, Fast Sampling of Diffusion Models with Exponential Integrator (2022), tAB-DEIS of order 3 (zju-pi/diff-sampler).
inline Array deis(const Model & model, Array x, const Sigmas & sigmas, const Noise &, const Settings & settings) {
    const DeisTimes times;
    std::vector<Array> slopes;
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const Array denoised = model(x, sigma);
        remember(slopes, (x - denoised) / sigma, 3);
        if (sigma_next <= 0 || slopes.size() == 1) {
            x = toward(x, denoised, sigma_next / sigma);
        } else {
            std::vector<double> known;
            for (std::size_t back = 0; back < slopes.size(); ++back) known.push_back(times.time(sigmas[index - back]));
            x = x + combined(times.factors(known, times.time(sigma_next)), slopes);
        }
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// Permenter, Yuan, Interpreting and Improving Diffusion Models from an Optimization Perspective (2024): Euler, overshot.
inline Array gradient_estimation(const Model & model, Array x, const Sigmas & sigmas, const Noise &, const Settings & settings) {
    const double gamma = 2.0;
    Array slope_before;
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const Array denoised = model(x, sigma);
        const Array slope = (x - denoised) / sigma;
        if (sigma_next == 0) {
            x = denoised;
        } else if (index == 0) {
            x = x + slope * (sigma_next - sigma);
        } else {
            x = x + (slope * gamma - slope_before * (gamma - 1)) * (sigma_next - sigma);
        }
        slope_before = slope;
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// (e**h - 1) / h.
inline double phi_1(double h) { return h != 0 ? std::expm1(h) / h : 1.0; }

/// (phi_1(h) - 1) / h.
inline double phi_2(double h) { return h != 0 ? (phi_1(h) - 1) / h : 0.5; }

/// RES' factors of the newest estimate and the one before, for a step from `sigma` to `down`.
inline std::pair<double, double> res_factors(double sigma, double down, double sigma_before, double down_before) {
    const double h = std::log(sigma / down), c_2 = std::log(down_before / sigma_before) / h;
    if (c_2 == 0) return {0.0, 0.0};
    const double second = phi_2(-h) / c_2;
    return {h * (phi_1(-h) - second), h * second};
}

/// Zhang et al., Improved Order Analysis and Design of Exponential Integrator for Diffusion Models Sampling (2023): RES; eta is 0.
inline Array res_multistep(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    Array before;
    double down_before = 0;
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const Array denoised = model(x, sigma);
        const Down step = step_down(sigma, sigma_next, settings.eta.value_or(0.0));
        if (step.level == 0 || index == 0) {
            x = toward(x, denoised, step.level / sigma);
        } else {
            const auto [newest, last] = res_factors(sigma, step.level, sigmas[index - 1], down_before);
            x = x * (step.level / sigma) + denoised * newest + before * last;
        }
        if (step.up != 0) x = x + noise(sigma, sigma_next) * (step.up * settings.s_noise);
        before = denoised;
        down_before = step.level;
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// RES with all of the noise made anew.
inline Array res_multistep_ancestral(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    Settings changed = settings;
    changed.eta = 1.0;
    return res_multistep(model, std::move(x), sigmas, noise, changed);
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images::samplers

#endif
