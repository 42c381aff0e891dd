// Schedulers: which noise levels a sampler goes through; graphc_images/sampling/schedulers.py in C++, with the same levels.
//
//     const auto levels = graphc::images::scaled_linear();
//     std::vector<float> sigmas = graphc::images::schedule("karras", 20, levels);  // 21 levels, the last is 0
//
// Each is a short function from `Wanted` to levels in descending order, nearly always with a 0 at the end. What differs between
// A1111 with Forge and ComfyUI stands in the function under `mode`; stable-diffusion.cpp mostly follows ComfyUI. The programs
// compute in float32; so do these, where the order of its roundings shows (Brownian noise depends on the sixth digit).
#ifndef GRAPHC_IMAGES_SCHEDULES_HPP
#define GRAPHC_IMAGES_SCHEDULES_HPP

#include <cmath>
#include <string>
#include <vector>

#include "level_tables.hpp"
#include "levels.hpp"
#include "names.hpp"

namespace graphc::images {

GRAPHC_ROUNDED

/// What a schedule is asked for besides steps and levels; the defaults are usual.
struct ScheduleSettings {
    Mode mode = Mode::a1111;
    /// The lowest and the highest noise level; 0 for those of the training.
    double low = 0, high = 0;
    /// Of Karras (0: 7) and polyexponential (0: 1).
    double rho = 0;
    /// Of the beta distribution.
    double alpha = 0.6, beta = 0.6;
    /// Whose table: sd1, sdxl, svd; flux, wan, chroma.
    std::string family = "sd1";
    /// How many tokens the image has (pieces of 2 x 2 latent pixels), for schedules that depend on its size.
    int tokens = 4096;
    /// ComfyUI's, for SDTurboScheduler alone.
    double denoise = 1.0;
};

namespace schedulers {

struct Wanted : ScheduleSettings {
    int steps;
    const Levels & levels;

    Wanted(int count, const Levels & of_model, const ScheduleSettings & settings)
        : ScheduleSettings(settings), steps(count), levels(of_model) {
        if (low <= 0) low = levels.lowest();
        if (high <= 0) high = levels.highest();
    }

    bool comfyui() const { return mode == Mode::comfyui; }
    int last() const { return static_cast<int>(levels.sigmas.size()) - 1; }
};

using Sigmas = std::vector<double>;
using Scheduler = Sigmas (*)(const Wanted &);

/// torch.linspace in float32: from both ends to the middle, products and sums rounded once.
inline Sigmas linspace(double start, double end, int count) {
    const double low = rounded(start), high = rounded(end);
    Sigmas numbers(static_cast<std::size_t>(count), low);
    if (count < 2) return numbers;
    const double step = (static_cast<float>(end) - static_cast<float>(start)) / static_cast<float>(count - 1);
    for (int i = 0; i < count; ++i) {
        numbers[static_cast<std::size_t>(i)] = rounded(i < count / 2 ? step * i + low : high - step * (count - 1 - i));
    }
    return numbers;
}

/// Each number changed by a function.
template <typename Change>
Sigmas each(Sigmas numbers, Change change) {
    for (double & number : numbers) number = change(number);
    return numbers;
}

/// The numbers of the steps, 0, 1, ..., changed by a function.
template <typename Change>
Sigmas each_step(int steps, Change change) {
    Sigmas numbers;
    for (int step = 0; step < steps; ++step) numbers.push_back(change(step));
    return numbers;
}

/// Rounded to float32, and no noise at the end.
inline Sigmas with_zero(Sigmas sigmas) {
    sigmas = each(std::move(sigmas), rounded);
    sigmas.push_back(0.0);
    return sigmas;
}

/// The noise levels at model times, then 0.
inline Sigmas at_times(const Wanted & want, const Sigmas & times) {
    return with_zero(each(times, [&](double time) { return want.levels.sigma(time); }));
}

inline Sigmas without_last(Sigmas sigmas) {
    sigmas.pop_back();
    return sigmas;
}

/// Karras et al., Elucidating the Design Space of Diffusion-Based Generative Models (2022), equation 5; rho is 7.
inline Sigmas karras(const Wanted & want) {
    const double rho = want.rho > 0 ? want.rho : 7.0;
    const double low = std::pow(want.low, 1 / rho), high = std::pow(want.high, 1 / rho);
    return with_zero(each(linspace(0, 1, want.steps), [&](double share) {
        return std::pow(rounded(rounded(high) + rounded(share * rounded(low - high))), rho);
    }));
}

/// Even in the logarithm.
inline Sigmas exponential(const Wanted & want) {
    return with_zero(each(linspace(std::log(want.high), std::log(want.low), want.steps), [](double x) { return std::exp(x); }));
}

/// A polynomial in the logarithm; rho is 1.
inline Sigmas polyexponential(const Wanted & want) {
    const double rho = want.rho > 0 ? want.rho : 1.0, length = std::log(want.high / want.low), low = std::log(want.low);
    return with_zero(each(linspace(1, 0, want.steps), [&](double x) { return std::exp(std::pow(x, rho) * length + low); }));
}

/// Even in the model's times, both ends included; where the last would be no noise, it takes the 0's place.
inline Sigmas normal(const Wanted & want) {
    const double start = want.levels.timestep(want.high), end = want.levels.timestep(want.low);
    if (want.comfyui() && std::abs(want.levels.sigma(end)) < 1e-5) {
        return at_times(want, without_last(linspace(start, end, want.steps + 1)));
    }
    return at_times(want, linspace(start, end, want.steps));
}

/// Even in the model's times, both ends of the training included (k-diffusion's get_sigmas).
inline Sigmas uniform(const Wanted & want) {
    const bool discrete = dynamic_cast<const DiscreteLevels *>(&want.levels) != nullptr;
    return discrete ? at_times(want, linspace(want.last(), 0, want.steps)) : normal(want);
}

/// Even in the model's times, without the last of one more.
inline Sigmas sgm_uniform(const Wanted & want) {
    const double start = want.levels.timestep(want.high), end = want.levels.timestep(want.low);
    return at_times(want, without_last(linspace(start, end, want.steps + 1)));
}

/// Levels at even distances in the table, from the highest.
inline Sigmas simple(const Wanted & want) {
    const auto & table = want.levels.sigmas;
    const double distance = static_cast<double>(table.size()) / want.steps;
    return with_zero(each_step(want.steps, [&](int step) {
        return table[table.size() - 1 - static_cast<std::size_t>(step * distance)];
    }));
}

/// Levels at even distances in the table, counted from the second lowest; it may be some steps more.
inline Sigmas ddim_uniform(const Wanted & want) {
    const auto & table = want.levels.sigmas;
    const bool empty = want.comfyui() && std::abs(table[1]) < 1e-5;
    const std::size_t distance = std::max<std::size_t>(table.size() / static_cast<std::size_t>(want.steps + empty), 1);
    Sigmas chosen;
    for (std::size_t i = 1; i < table.size(); i += distance) chosen.insert(chosen.begin(), table[i]);
    return empty ? chosen : with_zero(chosen);
}

/// The beta distribution's quantiles, by halving; the incomplete beta function by Lentz's method (Numerical Recipes 6.4).
struct BetaDistribution {
    double a, b;

    double density(double x) const {
        const double scale = std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b);
        return std::exp(scale + (a - 1) * std::log(x) + (b - 1) * std::log1p(-x));
    }

    double fraction(double x) const {
        double c = 1.0, d = 1 / std::max(1 - (a + b) * x / (a + 1), 1e-300), result = d;
        for (int m = 1; m < 1000; ++m) {
            for (const double numerator : {m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                                           -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))}) {
                d = 1 / (1 + numerator * d);
                c = 1 + numerator / c;
                result *= c * d;
            }
            if (std::abs(c * d - 1) < 1e-15) break;
        }
        return result;
    }

    double cumulative(double x) const {
        if (x <= 0 || x >= 1) return x >= 1;
        if (x > (a + 1) / (a + b + 2)) return 1 - BetaDistribution{b, a}.cumulative(1 - x);
        return density(x) * x * (1 - x) / a * fraction(x);
    }

    double quantile(double share) const {
        if (share <= 0 || share >= 1) return share >= 1;
        double low = 0, high = 1;
        while (true) {
            const double middle = 0.5 * (low + high);
            if (middle == low || middle == high) return middle;
            (cumulative(middle) < share ? low : high) = middle;
        }
    }
};

/// Lee et al., Beta Sampling is All You Need (2024): by the beta distribution, in times (ComfyUI) or in levels (Forge).
inline Sigmas beta(const Wanted & want) {
    const BetaDistribution distribution{want.alpha, want.beta};
    if (!want.comfyui()) {
        return with_zero(each(even(0, 1, static_cast<std::size_t>(want.steps)), [&](double share) {
            return want.low + distribution.quantile(1 - share) * (want.high - want.low);
        }));
    }
    Sigmas found;
    double before = -1;
    for (int step = 0; step < want.steps; ++step) {
        const double share = 1 - static_cast<double>(step) / want.steps;
        const double time = std::nearbyint(distribution.quantile(share) * want.last());
        if (time != before) found.push_back(want.levels.sigmas[static_cast<std::size_t>(time)]);
        before = time;
    }
    return with_zero(found);
}

/// Sabour et al., Align Your Steps (2024), appendix: even in the arcus tangent. A1111's list has no 0 at its end.
inline Sigmas kl_optimal(const Wanted & want) {
    const int last = want.comfyui() ? std::max(want.steps - 1, 1) : want.steps;
    const int count = want.steps > 1 || !want.comfyui() ? last + 1 : 1;
    const Sigmas sigmas = each_step(count, [&](int step) {
        const double share = static_cast<double>(step) / last;
        return std::tan(share * std::atan(want.low) + (1 - share) * std::atan(want.high));
    });
    return want.comfyui() ? with_zero(sigmas) : each(sigmas, rounded);
}

/// Forge's Turbo: even in times, the highest among them.
inline Sigmas turbo(const Wanted & want) {
    const float distance = static_cast<float>(1000.0 / want.steps);
    return at_times(want, each_step(want.steps, [&](int step) {
        const float time = distance * static_cast<float>(want.steps - step);
        return std::min(std::max(std::nearbyint(static_cast<double>(time)) - 1, 0.0), 999.0);
    }));
}

/// ComfyUI's SDTurboScheduler: of ten even times, the first ones; with `denoise`, later ones.
inline Sigmas sd_turbo(const Wanted & want) {
    const int start = 10 - static_cast<int>(10 * want.denoise), steps = std::min(want.steps, 10 - start);
    return at_times(want, each_step(steps, [&](int step) { return (10 - start - step) * 100 - 1.0; }));
}

/// A descending table at another number of points, its logarithms interpolated linearly.
inline Sigmas log_linear(const Table & table, int count) {
    const Sigmas places = even(0, 1, table.size());
    const Sigmas logarithms = each(table, [](double sigma) { return std::log(sigma); });
    return each(even(0, 1, static_cast<std::size_t>(count)),
                [&](double place) { return std::exp(interpolated(place, places, logarithms)); });
}

/// The family's table.
inline const Table & table_of(const Wanted & want, const Tables & known) {
    const auto found = known.find(want.family);
    if (found == known.end()) throw SettingError("this schedule has no noise levels for \"" + want.family + "\"");
    return found->second;
}

/// As Forge stretches tables: to `steps` levels, then 0.
inline Sigmas from_table(const Wanted & want, const Table & table) {
    return with_zero(static_cast<std::size_t>(want.steps) == table.size() ? table : log_linear(table, want.steps));
}

/// As ComfyUI stretches tables: to one level more than steps, of which the last becomes 0.
inline Sigmas from_table_to_zero(const Wanted & want, const Table & table) {
    const bool fits = static_cast<std::size_t>(want.steps) + 1 == table.size();
    return with_zero(without_last(fits ? table : log_linear(table, want.steps + 1)));
}

/// Sabour, Fidler, Kreis, Align Your Steps (2024).
inline Sigmas align_your_steps(const Wanted & want) {
    return want.comfyui() ? from_table_to_zero(want, table_of(want, align_your_steps_exact_table()))
                          : from_table(want, table_of(want, align_your_steps_table()));
}

/// Forge's.
inline Sigmas align_your_steps_gits(const Wanted & want) {
    return from_table(want, table_of(want, align_your_steps_gits_table()));
}

/// Forge's: the published table.
inline Sigmas align_your_steps_11(const Wanted & want) {
    return from_table(want, table_of(want, align_your_steps_table()));
}

/// Forge's.
inline Sigmas align_your_steps_32(const Wanted & want) {
    return from_table(want, table_of(want, align_your_steps_32_table()));
}

/// Pei, Hu, Gu, Optimal Stepsize for Diffusion Sampling (2025); ComfyUI's OptimalStepsScheduler.
inline Sigmas optimal_steps(const Wanted & want) {
    return from_table_to_zero(want, table_of(want, optimal_steps_table()));
}

/// Genmo's for Mochi: even small steps for the first half, then quadratic; ComfyUI.
inline Sigmas linear_quadratic(const Wanted & want) {
    if (want.steps == 1) return with_zero({want.high});
    const double threshold = 0.025;
    const int steps = want.steps, linear = steps / 2, rest = steps - linear;
    const double missing = linear - threshold * steps;
    const double quadratic = missing / (linear * rest * rest), slope = threshold / linear - 2 * missing / (rest * rest);
    return with_zero(each_step(steps, [&](int step) {
        const double part = step < linear ? step * threshold / linear
                                          : quadratic * (step * step) + slope * step + quadratic * (linear * linear);
        return (1 - part) * want.high;
    }));
}

/// An arcus tangent from `start` to `end`, steepest at `pivot`.
inline Sigmas half_bong(int count, double slope, int pivot, double start, double end) {
    if (count < 2) return Sigmas(static_cast<std::size_t>(count), start);
    const Sigmas curve = each_step(count, [&](int step) { return (2 / 3.141592653589793 * std::atan(-slope * (step - pivot)) + 1) / 2; });
    return each(curve, [&](double y) { return (y - curve.back()) / (curve.front() - curve.back()) * (start - end) + end; });
}

/// RES4LYF's: two arcus tangents that meet halfway; pivots 0.6, slopes 0.2 at 40 steps.
inline Sigmas bong_tangent(const Wanted & want) {
    const int count = want.steps + 2, pivot = static_cast<int>(count * 0.6);
    const double slope = 0.2 / (count / 40.0), middle = want.low + (want.high - want.low) / 2;
    Sigmas sigmas = half_bong(pivot, slope, pivot, want.high, middle);
    if (!sigmas.empty()) sigmas.pop_back();
    const Sigmas second = half_bong(count - pivot, slope, 0, middle, want.low);
    sigmas.insert(sigmas.end(), second.begin(), second.end());
    sigmas.resize(static_cast<std::size_t>(want.steps));
    return with_zero(sigmas);
}

/// stable-diffusion.cpp's: times by 3 u**2 - 2 u**3.
inline Sigmas smoothstep(const Wanted & want) {
    return at_times(want, each_step(want.steps, [&](int step) {
        const double share = 1 - static_cast<double>(step) / want.steps;
        return std::nearbyint(share * share * (3 - 2 * share) * want.last());
    }));
}

/// stable-diffusion.cpp's: the times on which latent consistency models are distilled.
inline Sigmas lcm(const Wanted & want) {
    return at_times(want, each_step(want.steps, [&](int step) { return (50 - 50 * step / want.steps) * 20 - 1.0; }));
}

/// A1111's LCM sampler with the Automatic scheduler: even in times, between levels of the fifty.
inline Sigmas lcm_sampler(const Wanted & want) {
    const auto * levels = dynamic_cast<const DiscreteLevels *>(&want.levels);
    if (levels == nullptr) throw SettingError("A1111's LCM sampler needs a model with a table of noise levels");
    const DiscreteLevels few = lcm_levels(*levels);
    return with_zero(each(linspace(49, 0, want.steps), [&](double time) { return few.sigma(time); }));
}

/// Even times of a flow from 1, shifted by e**mu.
inline Sigmas shifted(double mu, const Wanted & want) {
    const FlowLevels levels(std::exp(mu), true);
    return at_times(Wanted(want.steps, levels, {}), without_last(linspace(1, 0, want.steps + 1)));
}

/// Levels from 1 to a 0, of which the one before the 0 is moved to `last`, and those between in proportion.
inline Sigmas stretched(const Sigmas & levels, double last) {
    const Sigmas sigmas = without_last(levels);
    if (sigmas.size() < 2) return with_zero(sigmas);
    return with_zero(each(sigmas, [&](double sigma) { return 1 - (1 - sigma) * (1 - last) / (1 - sigmas.back()); }));
}

/// Flux' own and diffusers': shifted by the number of tokens.
inline Sigmas flux(const Wanted & want) { return shifted(flux_mu(want.tokens), want); }

/// Flux.2's own: shifted by the number of tokens and of steps.
inline Sigmas flux2(const Wanted & want) { return shifted(flux2_mu(want.tokens, want.steps), want); }

/// LTX Video's, for models of its kind: shifted by the number of tokens, then stretched so that the last level is 0.1.
inline Sigmas ltx2(const Wanted & want) {
    return stretched(shifted(0.95 + (2.05 - 0.95) * (want.tokens - 1024) / (4096 - 1024), want), 0.1);
}

/// Qwen-Image's own, in diffusers: shifted by the number of tokens, then stretched so that the last level is 0.02.
inline Sigmas qwen_image(const Wanted & want) {
    return stretched(shifted(0.5 + (0.9 - 0.5) * (want.tokens - 256) / (8192 - 256), want), 0.02);
}

/// Hang, Gu, Improved Noise Schedule for Diffusion Training (2024); mu 0, beta 0.5, ComfyUI. There is no 0 at its end.
inline Sigmas laplace(const Wanted & want) {
    return each(linspace(0, 1, want.steps), [&](double share) {
        const double sign = share < 0.5 ? 1 : share > 0.5 ? -1 : 0;
        const double logarithm = 0.0 - 0.5 * sign * std::log(1 - 2 * std::abs(0.5 - share) + 1e-5);
        return rounded(std::min(std::max(std::exp(logarithm), want.low), want.high));
    });
}

/// Song et al., Score-Based Generative Modeling (2021): the continuous variance-preserving process, 19.9 and 0.1.
inline Sigmas vp(const Wanted & want) {
    return with_zero(each(linspace(1, 1e-3, want.steps), [](double time) {
        return std::sqrt(std::expm1(19.9 * (time * time) / 2 + 0.1 * time));
    }));
}

/// A scheduler and its names: its own, A1111's, ComfyUI's, stable-diffusion.cpp's.
struct Named {
    std::vector<std::string> names;
    Scheduler function;
};

inline const std::vector<Named> & table() {
    static const std::vector<Named> schedulers = {
        {{"uniform", "Uniform", "discrete"}, uniform},
        {{"karras"}, karras},
        {{"exponential"}, exponential},
        {{"polyexponential"}, polyexponential},
        {{"sgm_uniform", "SGM Uniform", "SGMUniform"}, sgm_uniform},
        {{"kl_optimal", "KL Optimal"}, kl_optimal},
        {{"align_your_steps", "Align Your Steps", "AlignYourSteps", "ays"}, align_your_steps},
        {{"simple"}, simple},
        {{"normal"}, normal},
        {{"ddim", "ddim_uniform"}, ddim_uniform},
        {{"beta", "BetaSampling"}, beta},
        {{"turbo"}, turbo},
        {{"sd_turbo", "SD Turbo", "SDTurbo"}, sd_turbo},
        {{"align_your_steps_GITS", "Align Your Steps GITS"}, align_your_steps_gits},
        {{"align_your_steps_11", "Align Your Steps 11"}, align_your_steps_11},
        {{"align_your_steps_32", "Align Your Steps 32"}, align_your_steps_32},
        {{"optimal_steps", "OptimalSteps"}, optimal_steps},
        {{"linear_quadratic", "Linear Quadratic"}, linear_quadratic},
        {{"bong_tangent", "Bong Tangent"}, bong_tangent},
        {{"smoothstep"}, smoothstep},
        {{"lcm"}, lcm},
        {{"lcm_sampler"}, lcm_sampler},
        {{"flux"}, flux},
        {{"flux2"}, flux2},
        {{"qwen_image"}, qwen_image},
        {{"ltx2", "LTXV"}, ltx2},
        {{"laplace"}, laplace},
        {{"vp"}, vp},
    };
    return schedulers;
}

}  // namespace schedulers

/// The noise levels of so many steps by a scheduler's name ("karras"; "automatic": simple for flows, else uniform), descending.
/// A level that would come twice comes once.
inline std::vector<float> schedule(const std::string & name, int steps, const Levels & levels,
                                   const ScheduleSettings & settings = {}) {
    if (steps < 1) throw SettingError("the number of steps must be 1 or more, not " + std::to_string(steps));
    if (plain(name) == "automatic" || plain(name) == "auto") {
        return schedule(levels.path.flow ? "simple" : "uniform", steps, levels, settings);
    }
    const auto & found = named(schedulers::table(), name, "scheduler");
    std::vector<float> sigmas;
    for (const double sigma : found.function(schedulers::Wanted(steps, levels, settings))) {
        const auto level = static_cast<float>(sigma);
        if (!std::isfinite(level)) throw SettingError("the schedule " + name + " is not finite with this model's noise levels");
        if (std::find(sigmas.begin(), sigmas.end(), level) == sigmas.end()) sigmas.push_back(level);
    }
    return sigmas;
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images

#endif
