// Xu, Deng, Cheng, Tian, Liu, Jaakkola, Restart Sampling for Improving Generative Processes (2023), with A1111's plan.
#ifndef GRAPHC_IMAGES_SAMPLERS_RESTART_HPP
#define GRAPHC_IMAGES_SAMPLERS_RESTART_HPP

#include <utility>

#include "runge_kutta.hpp"

namespace graphc::images::samplers {

GRAPHC_ROUNDED

using Ways = std::vector<std::pair<double, double>>;

/// From each level to the next.
inline Ways ways_through(const Sigmas & levels) {
    Ways found;
    for (const Pair & each : pairs(levels)) found.emplace_back(each.sigma, each.sigma_next);
    return found;
}

/// Karras' levels from high to low, both included.
inline Sigmas karras_between(std::size_t count, double low, double high) {
    Sigmas levels = even(std::pow(high, 1.0 / 7), std::pow(low, 1.0 / 7), count);
    for (double & level : levels) level = std::pow(level, 7.0);
    return levels;
}

/// The steps, from one level to another. At the level nearest to 0.1, there is noise again up to the level nearest to 2; below
/// 20 steps there is no restart.
inline Ways restart_plan(const Sigmas & sigmas) {
    const std::size_t steps = sigmas.size() - 1;
    if (steps < 20) return ways_through(sigmas);
    const std::size_t again = steps >= 36 ? steps / 4 : 9, times = steps >= 36 ? 2 : 1;
    Sigmas levels = karras_between(steps - again * times, sigmas[steps - 1], sigmas[0]);
    levels.push_back(0.0);
    const auto nearest = [&](double wanted) {
        const auto nearer = [&](double a, double b) { return std::abs(a - wanted) < std::abs(b - wanted); };
        return std::min_element(levels.begin(), levels.end(), nearer) - levels.begin();
    };
    const auto bottom = nearest(0.1), top = nearest(2.0);
    Ways plan = ways_through(levels);
    if (top < bottom) {
        const auto level = [&](std::ptrdiff_t place) { return levels[static_cast<std::size_t>(place)]; };
        const Ways loop = ways_through(karras_between(again + 1, level(bottom), level(top)));
        for (std::size_t time = 0; time < times; ++time) plan.insert(plan.begin() + bottom, loop.begin(), loop.end());
    }
    return plan;
}

/// Heun's method, with noise added at each jump back to a higher level.
inline Array restart(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    double at = INFINITE;
    std::size_t index = 0;
    for (const auto & [sigma, sigma_next] : restart_plan(sigmas)) {
        if (at < sigma) x = x + noise(at, sigma) * (std::sqrt(square(sigma) - square(at)) * settings.s_noise);
        const Array denoised = model(x, sigma);
        x = heun_step(model, x, denoised, sigma, sigma_next);
        at = sigma_next;
        show(settings, index++, sigma, x, denoised);
    }
    return x;
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images::samplers

#endif
