// DPM-Solver with steps of its own choice: Lu, Zhou, Bao, Chen, Li, Zhu, DPM-Solver (2022), as k-diffusion has it.
#ifndef GRAPHC_IMAGES_SAMPLERS_DPM_SOLVER_HPP
#define GRAPHC_IMAGES_SAMPLERS_DPM_SOLVER_HPP

#include <map>
#include <utility>

#include "steps.hpp"

namespace graphc::images::samplers {

GRAPHC_ROUNDED

/// Steps of order 1, 2 and 3 from one level, over time t = -log(sigma). What was evaluated is kept for the higher order.
struct Solver {
    const Model & model;
    Array x;
    double t;
    std::map<double, Array> evaluated = {};

    /// The model's noise at a time, evaluated once.
    const Array & noise(const Array & at, double time) {
        const auto found = evaluated.find(time);
        if (found != evaluated.end()) return found->second;
        const double sigma = std::exp(-time);
        return evaluated[time] = (at - model(at, sigma)) / sigma;
    }

    const Array & eps() { return noise(x, t); }

    /// Along the noise at the beginning.
    Array order_1(double end) { return x - eps() * (std::exp(-end) * std::expm1(end - t)); }

    /// With a second evaluation at the share r.
    Array order_2(double end, double r = 0.5) {
        const double place = t + r * (end - t);
        const Array & second = noise(order_1(place), place);
        return order_1(end) - (second - eps()) * (std::exp(-end) / (2 * r) * std::expm1(end - t));
    }

    /// With two more evaluations, at a third and two thirds.
    Array order_3(double end) {
        const double r_1 = 1.0 / 3, r_2 = 2.0 / 3, h = end - t;
        const double first = t + r_1 * h, second = t + r_2 * h;
        const Array & eps_1 = noise(order_1(first), first);
        const double bend = std::exp(-second) * (r_2 / r_1) * (std::expm1(r_2 * h) / (r_2 * h) - 1);
        const Array & eps_2 = noise(order_1(second) - (eps_1 - eps()) * bend, second);
        return order_1(end) - (eps_2 - eps()) * (std::exp(-end) / r_2 * (std::expm1(h) / h - 1));
    }
};

/// The time to go to and the noise to add, so that with it the level is that of `end`.
inline std::pair<double, double> lowered(double t, double end, double eta, double last) {
    if (eta == 0) return {end, 0.0};
    const double down = step_down(std::exp(-t), std::exp(-end), eta).level;
    const double further = down != 0 ? std::min(last, -std::log(down)) : last;
    return {further, std::sqrt(std::exp(-2 * end) - std::exp(-2 * further))};
}

/// The times of the first level and of the last above 0.
inline std::pair<double, double> ends_of(const Sigmas & sigmas) {
    const double last = sigmas.back() > 0 ? sigmas.back() : sigmas[sigmas.size() - 2];
    if (last >= sigmas.front()) {
        throw SettingError("DPM fast and DPM adaptive need two noise levels above 0: ask for two steps or more");
    }
    return {-std::log(sigmas.front()), -std::log(last)};
}

/// A1111 makes noise where others do not.
inline double eta_of_dpm(const Settings & settings) {
    return settings.eta.value_or(settings.mode == Mode::a1111 ? 1.0 : 0.0);
}

/// As many evaluations as the schedule has steps, in steps of order 3, even in log(sigma); of the levels, the ends count.
inline Array dpm_fast(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    const auto [start, last] = ends_of(sigmas);
    const std::size_t evaluations = sigmas.size() - 1, count = evaluations / 3 + 1;
    std::vector<std::size_t> orders(count, 3);
    orders[count - 1] = evaluations % 3 == 0 ? 1 : evaluations % 3;
    if (evaluations % 3 == 0) orders[count - 2] = 2;
    const Sigmas times = even(start, last, count + 1);
    for (std::size_t index = 0; index < count; ++index) {
        const double t = times[index], end = times[index + 1], sigma = std::exp(-t);
        const auto [further, up] = lowered(t, end, eta_of_dpm(settings), last);
        Solver solver{model, x, t};
        const Array denoised = x - solver.eps() * sigma;
        x = orders[index] == 1 ? solver.order_1(further) : orders[index] == 2 ? solver.order_2(further) : solver.order_3(further);
        if (up != 0) x = x + noise(sigma, std::exp(-end)) * (up * settings.s_noise);
        show(settings, index, sigma, x, denoised);
    }
    return x;
}

/// An integrating controller of the step's length (Soederlind, Digital Filters in Adaptive Time-Stepping, 2003).
struct Controller {
    double h, order;

    /// True if a step with this error is taken; the next one's length follows from it.
    bool accepts(double error) {
        const double factor = 1 + std::atan(std::pow(1 / (error + 1e-8), 1.0 / order) - 1);
        h *= factor;
        return factor >= 0.81;
    }
};

/// Steps as long as two orders agree (DPM-Solver-23); of the levels, the first and the last above 0 count.
inline Array dpm_adaptive(const Model & model, Array x, const Sigmas & sigmas, const Noise & noise, const Settings & settings) {
    const auto [start, last] = ends_of(sigmas);
    const double eta = eta_of_dpm(settings);
    Controller controller{0.05, eta != 0 ? 1.5 : 3.0};
    Array before = x;
    std::size_t index = 0;
    for (double t = start; t < last - 1e-5;) {
        const double end = std::min(last, t + controller.h);
        const auto [further, up] = lowered(t, end, eta, last);
        Solver solver{model, x, t};
        const Array low = solver.order_2(further, 1.0 / 3), high = solver.order_3(further);
        double squares = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            const float allowed = std::max(0.0078f, 0.05f * std::max(std::abs(low[i]), std::abs(before[i])));
            squares += square(static_cast<double>((low[i] - high[i]) / allowed));
        }
        if (controller.accepts(std::sqrt(squares) / std::sqrt(static_cast<double>(x.size())))) {
            const double sigma = std::exp(-t);
            const Array denoised = x - solver.eps() * sigma;
            before = low;
            x = high;
            if (up != 0) x = x + noise(sigma, std::exp(-end)) * (up * settings.s_noise);
            t = end;
            show(settings, index++, sigma, x, denoised);
        }
    }
    return x;
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images::samplers

#endif
