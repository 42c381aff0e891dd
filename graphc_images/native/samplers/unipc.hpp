// Zhao, Bai, Rao, Zhou, Lu, UniPC: A Unified Predictor-Corrector Framework for Fast Sampling of Diffusion Models (2023).
#ifndef GRAPHC_IMAGES_SAMPLERS_UNIPC_HPP
#define GRAPHC_IMAGES_SAMPLERS_UNIPC_HPP

#include "linear_algebra.hpp"
#include "steps.hpp"

namespace graphc::images::samplers {

GRAPHC_ROUNDED

/// Which of the paper's functions B(h).
enum class Variant { bh1, bh2 };

/// The factors of the differences to the newest estimate, for steps in log(sigma) whose ratios to `h` are given; h is below 0.
inline std::vector<double> unipc_factors(const std::vector<double> & ratios, double h, Variant variant) {
    if (ratios.size() < 2) return {0.5 * (variant == Variant::bh1 ? h : std::expm1(h))};
    Matrix matrix;
    std::vector<double> wanted;
    double factorial = 1, integral = std::expm1(h) / h - 1;
    for (std::size_t power = 0; power < ratios.size(); ++power) {
        std::vector<double> row;
        for (const double ratio : ratios) row.push_back(std::pow(ratio, static_cast<double>(power)));
        matrix.push_back(row);
        wanted.push_back(integral * factorial);
        factorial *= static_cast<double>(power) + 2;
        integral = integral / h - 1 / factorial;
    }
    return solved(matrix, wanted);
}

/// Predictor and corrector of at most this order over noise levels above 0; `estimate` is the model at the level of a number.
template <typename Estimate>
Array unipc_steps(const Estimate & estimate, Array x, const Sigmas & sigmas, std::size_t order, Variant variant,
                  const Settings & settings) {
    const std::size_t steps = sigmas.size() - 1;
    order = std::max<std::size_t>(std::min(order, steps), 1);
    std::vector<Array> estimates = {estimate(x, std::size_t{0})};  // the newest first
    std::vector<double> known = {sigmas[0]};
    for (std::size_t step = 1; step <= steps; ++step) {
        const std::size_t used = step < order ? step : std::min(order, steps + 1 - step);
        const double sigma = known[0], sigma_next = sigmas[step], h = std::log(sigma_next / sigma);
        std::vector<double> ratios;
        std::vector<Array> changes;
        for (std::size_t back = 1; back < std::min(used, known.size()); ++back) {
            ratios.push_back(std::log(known[back] / sigma) / h);
            changes.push_back((estimates[back] - estimates[0]) / ratios.back());
        }
        const Array moved = x * (sigma_next / sigma) - estimates[0] * std::expm1(h);
        x = changes.empty() ? moved : moved - combined(unipc_factors(ratios, h, variant), changes);
        const Array denoised = estimates[0];
        if (step < steps) {
            const Array newest = estimate(x, step);
            ratios.push_back(1.0);
            changes.push_back(newest - estimates[0]);
            x = moved - combined(unipc_factors(ratios, h, variant), changes);
            remember(estimates, newest, order);
            remember(known, sigma_next, order);
        }
        show(settings, step - 1, sigma, x, denoised);
    }
    return x;
}

/// UniPC over the schedule's levels; where that goes to 0 it stops at 0.001. Its order is 3, and at most one less than the steps.
inline Array unipc_by(Variant variant, const Model & model, Array x, Sigmas sigmas, const Settings & settings) {
    if (sigmas.back() == 0) sigmas.back() = 0.001;
    const auto estimate = [&](const Array & at, std::size_t step) { return model(at, sigmas[step]); };
    return unipc_steps(estimate, std::move(x), sigmas, std::min<std::size_t>(3, sigmas.size() - 2), variant, settings);
}

/// ComfyUI's uni_pc.
inline Array unipc_bh1(const Model & model, Array x, const Sigmas & sigmas, const Noise &, const Settings & settings) {
    return unipc_by(Variant::bh1, model, std::move(x), sigmas, settings);
}

/// ComfyUI's uni_pc_bh2.
inline Array unipc_bh2(const Model & model, Array x, const Sigmas & sigmas, const Noise &, const Settings & settings) {
    return unipc_by(Variant::bh2, model, std::move(x), sigmas, settings);
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images::samplers

#endif
