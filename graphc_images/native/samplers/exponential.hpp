// Exponential integrators with several evaluations in a step, over the logarithm of alpha / sigma.
#ifndef GRAPHC_IMAGES_SAMPLERS_EXPONENTIAL_HPP
#define GRAPHC_IMAGES_SAMPLERS_EXPONENTIAL_HPP

#include "linear_algebra.hpp"
#include "multistep.hpp"

namespace graphc::images::samplers {

GRAPHC_ROUNDED

struct Estimate {
    double factor;
    const Array & array;
};

/// One step's way to places within it; the noise of the way is added up, as SEEDS does.
struct Stages {
    const Array & x;
    double sigma, sigma_next, eta;
    const Noise & noise;
    const Settings & settings;
    double start = settings.path.half_log_snr(sigma), length = settings.path.half_log_snr(sigma_next) - start;
    double share = 0, level = sigma;
    Array added = {};

    /// The noise level after a share of the step.
    double level_at(double place) const { return settings.path.sigma_at(start + place * length); }

    /// What the factors of estimates at a share of the step depend on.
    double exponent(double place) const { return -place * length * (1 + eta); }

    /// x at a share of the step, with the estimates times their factors, and the noise from the last place to here.
    Array move(double place, double to, const std::vector<Estimate> & estimates) {
        Array moved = x * (to / sigma * std::exp(-place * length * eta));
        for (const auto & [factor, estimate] : estimates) moved = moved - estimate * (settings.path.alpha(to) * factor);
        if (eta > 0 && settings.s_noise > 0) {
            const double way = (share - place) * length * eta;
            const Array fresh = noise(level, to) * std::sqrt(-std::expm1(2 * way));
            added = added.empty() ? fresh : added * std::exp(way) + fresh;
            moved = moved + added * (to * settings.s_noise);
            share = place;
            level = to;
        }
        return moved;
    }
};

/// Gonzalez et al., SEEDS: Exponential SDE Solvers (2023), two stages, the second at the share `r`; of its factors, the second
/// solver's (`of_phi_2`) or the first's.
inline Array seeds_2_by(double eta, double r, bool of_phi_2, const Model & model, Array x, const Sigmas & sigmas, const Noise & noise,
                        const Settings & settings) {
    for (const auto & [index, sigma, sigma_next] : pairs(settings.path.started(sigmas))) {
        const Array denoised = model(x, sigma);
        if (sigma_next == 0) {
            x = denoised;
        } else {
            Stages stages{x, sigma, sigma_next, eta, noise, settings};
            const double middle = stages.level_at(r);
            const Array halfway = stages.move(r, middle, {{std::expm1(stages.exponent(r)), denoised}});
            const Array second = model(halfway, middle);
            const double h = stages.exponent(1);
            const double of_second = of_phi_2 ? h * phi_2(h) / r : std::expm1(h) / (2 * r);
            x = stages.move(1, sigma_next, {{std::expm1(h) - of_second, denoised}, {of_second, second}});
        }
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// ComfyUI's defaults.
inline Array seeds_2(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    return seeds_2_by(settings.eta.value_or(1.0), 0.5, false, model, std::move(x), sigmas, noise, settings);
}

/// Heun's method as an exponential integrator (ComfyUI): the second evaluation at the end of the step, no noise.
inline Array exp_heun_2_x0(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    return seeds_2_by(0.0, 1.0, true, model, std::move(x), sigmas, noise, settings);
}

/// The same with noise.
inline Array exp_heun_2_x0_sde(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    return seeds_2_by(settings.eta.value_or(1.0), 1.0, true, model, std::move(x), sigmas, noise, settings);
}

/// Gonzalez et al., SEEDS (2023), three stages, the later ones at a third and two thirds; ComfyUI's defaults.
inline Array seeds_3(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    const double r_1 = 1.0 / 3, r_2 = 2.0 / 3;
    for (const auto & [index, sigma, sigma_next] : pairs(settings.path.started(sigmas))) {
        const Array denoised = model(x, sigma);
        if (sigma_next == 0) {
            x = denoised;
        } else {
            Stages stages{x, sigma, sigma_next, settings.eta.value_or(1.0), noise, settings};
            const double first = stages.level_at(r_1), second = stages.level_at(r_2);
            const Array estimate_1 = model(stages.move(r_1, first, {{std::expm1(stages.exponent(r_1)), denoised}}), first);
            double h = stages.exponent(r_2);
            const double of_1 = r_2 / r_1 * h * phi_2(h);
            const Array to_second = stages.move(r_2, second, {{std::expm1(h) - of_1, denoised}, {of_1, estimate_1}});
            const Array estimate_2 = model(to_second, second);
            h = stages.exponent(1);
            const double of_2 = h * phi_2(h) / r_2;
            x = stages.move(1, sigma_next, {{std::expm1(h) - of_2, denoised}, {of_2, estimate_2}});
        }
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// RES of Zhang et al. (2023) in two evaluations, the second in the middle; stable-diffusion.cpp. eta is 0.
inline Array res_2s(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const Array denoised = model(x, sigma);
        const auto [down, scale, up] = step_down(sigma, sigma_next, settings.eta.value_or(0.0), settings.path);
        if (down == 0) {
            x = denoised;
        } else {
            const double h = std::log(sigma / down), middle = sigma * std::exp(-h / 2);
            const Array second = model(toward(x, denoised, middle / sigma), middle);
            const double of_second = 2 * phi_2(-h);
            x = x + ((denoised - x) * (phi_1(-h) - of_second) + (second - x) * of_second) * h;
        }
        if (up != 0) x = x * scale + noise(sigma, sigma_next) * (up * settings.s_noise);
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// How much noise ER-SDE makes anew at a ratio sigma / alpha.
inline double er_scale(double level) { return level * (std::exp(std::pow(level, 0.3)) + 10.0); }

/// Cui, Zhang, Lu, Liao, Elucidating the Solution Space of Extended Reverse-Time SDE for Diffusion Models (2023); stage 3.
inline Array er_sde(const Model & model, Array x, const Sigmas & all, const Noise & noise, const Settings & settings) {
    constexpr int points = 200;
    const Path & path = settings.path;
    const Sigmas sigmas = path.started(all);
    Sigmas ratios;
    for (const double sigma : sigmas) ratios.push_back(sigma / path.alpha(sigma));
    Array estimate_before, slope_before;
    for (const auto & [index, sigma, sigma_next] : pairs(sigmas)) {
        const Array denoised = model(x, sigma);
        if (sigma_next == 0) {
            x = denoised;
        } else {
            const double now = ratios[index], then = ratios[index + 1], alpha = path.alpha(sigma_next);
            const double scale = er_scale(then), r = scale / er_scale(now);
            x = x * (alpha / path.alpha(sigma) * r) + denoised * (alpha * (1 - r));
            std::vector<double> weights, moments;
            for (int i = 0; i < points; ++i) {
                const double place = then + i * ((now - then) / points);
                weights.push_back((now - then) / points / er_scale(place));
                moments.push_back(weights.back() * (place - now));
            }
            if (index > 0) {
                const Array slope = (denoised - estimate_before) / (now - ratios[index - 1]);
                x = x + slope * (alpha * (then - now + total(weights) * scale));
                if (index > 1) {
                    const Array bend = (slope - slope_before) / ((now - ratios[index - 2]) / 2);
                    x = x + bend * (alpha * (square(then - now) / 2 + total(moments) * scale));
                }
                slope_before = slope;
            }
            if (settings.s_noise > 0) {
                const double anew = std::sqrt(std::max(square(then) - square(now * r), 0.0));
                x = x + noise(sigma, sigma_next) * (alpha * settings.s_noise * anew);
            }
        }
        estimate_before = denoised;
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images::samplers

#endif
