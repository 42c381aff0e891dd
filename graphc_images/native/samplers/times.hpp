// A1111's samplers on the model's times: DDIM, its CFG++, PLMS and UniPC.
//
// Here x is as the model was trained to see it, picture and noise in shares whose squares add up to 1; the model predicts noise.
//
//     const auto levels = graphc::images::scaled_linear(false, true);
//     std::vector<float> picture = graphc::images::sample_on_times("DDIM", model, x, a1111_timesteps(20), levels);
#ifndef GRAPHC_IMAGES_SAMPLERS_TIMES_HPP
#define GRAPHC_IMAGES_SAMPLERS_TIMES_HPP

#include <functional>
#include <utility>

#include "../names.hpp"
#include "multistep.hpp"
#include "unipc.hpp"

namespace graphc::images {

GRAPHC_ROUNDED

/// The times of `steps` steps, ascending: at even distances, from 1; there may be more than `steps`.
inline std::vector<int> a1111_timesteps(int steps, int count = 1000) {
    if (steps < 1) throw SettingError("the number of steps must be 1 or more, not " + std::to_string(steps));
    std::vector<int> times;
    for (int time = 0; time < count; time += std::max(count / steps, 1)) times.push_back(std::min(time + 1, count - 1));
    return times;
}

namespace samplers {

/// The noise in x at a time, with guidance and that of the negative prompt.
using PairNetwork = std::function<std::pair<Array, Array>(const Array & x, double time)>;

/// What samplers on times go through: the model's times, ascending, and at each of all times the square of the picture's share.
struct Times {
    std::vector<int> times;
    std::vector<double> alphas;
    /// From a picture: UniPC then starts at the last of the times, and not at 1.
    bool from_picture = false;

    /// The number of steps.
    std::size_t steps() const { return times.size() - 1; }
    /// The time at which a step begins; each ends at the time of the next.
    int at(std::size_t step) const { return times[times.size() - 1 - step]; }
    double alpha(std::size_t step) const { return alphas[static_cast<std::size_t>(at(step))]; }
};

/// x without its noise.
inline Array picture_of(const Array & x, const Array & noise, double alpha) {
    return (x - noise * std::sqrt(1 - alpha)) / std::sqrt(alpha);
}

/// Song, Meng, Ermon, Denoising Diffusion Implicit Models (2021), equation 12; eta is 0.
///
/// Chung et al., CFG++: Manifold-constrained Classifier Free Guidance (2024): the way back is along the second noise.
inline Array ddim(const PairNetwork & model, Array x, const Times & times, const Noise & noise, const Settings & settings) {
    for (std::size_t step = 0; step < times.steps(); ++step) {
        const double alpha = times.alpha(step), alpha_next = times.alpha(step + 1);
        const auto [predicted, direction] = model(x, times.at(step));
        const Array denoised = picture_of(x, predicted, alpha);
        const double amount = settings.eta.value_or(0.0) * std::sqrt((1 - alpha_next) / (1 - alpha) * (1 - alpha / alpha_next));
        x = denoised * std::sqrt(alpha_next) + direction * std::sqrt(1 - alpha_next - square(amount));
        if (amount != 0) x = x + noise(alpha, alpha_next) * amount;
        show(settings, step, std::sqrt(1 / alpha - 1), x, denoised);
    }
    return x;
}

/// Liu, Ren, Lin, Zhao, Pseudo Numerical Methods for Diffusion Models on Manifolds (2022): Adams and Bashforth's, order 4.
///
/// The first step evaluates twice, which makes it one of order 2.
inline Array plms(const PairNetwork & model, Array x, const Times & times, const Noise &, const Settings & settings) {
    std::vector<Array> predictions;
    for (std::size_t step = 0; step < times.steps(); ++step) {
        const double alpha = times.alpha(step), alpha_next = times.alpha(step + 1);
        const auto moved = [&](const Array & noise) {
            return picture_of(x, noise, alpha) * std::sqrt(alpha_next) + noise * std::sqrt(1 - alpha_next);
        };
        remember(predictions, model(x, times.at(step)).first, 4);
        const Array mean = step == 0 ? (predictions[0] + model(moved(predictions[0]), times.at(1)).first) / 2
                                     : combined(adams_bashforth(predictions.size()), predictions);
        const Array denoised = picture_of(x, mean, alpha);
        x = moved(mean);
        show(settings, step, std::sqrt(1 / alpha - 1), x, denoised);
    }
    return x;
}

/// A1111's UniPC: bh1, order 3, even times of its own, between which the logarithm of the picture's factor is linear.
inline Array unipc_times(const PairNetwork & model, Array x, const Times & known, const Noise &, const Settings & settings) {
    const auto count = static_cast<double>(known.alphas.size());
    Sigmas logarithms, places, shares, sigmas;
    for (const double alpha : known.alphas) {
        logarithms.push_back(0.5 * std::log(alpha));
        places.push_back(static_cast<double>(places.size() + 1) / count);
    }
    const Sigmas times = even(known.from_picture ? (known.times.back() + 1) / count : 1.0, 1 / count, known.times.size() + 1);
    for (const double time : times) {
        shares.push_back(std::exp(interpolated(time, places, logarithms)));
        sigmas.push_back(std::sqrt(1 / square(shares.back()) - 1));
    }
    const auto estimate = [&](const Array & at, std::size_t step) {
        return at - model(at * shares[step], (times[step] - 1 / count) * 1000).first * sigmas[step];
    };
    Settings scaled = settings;
    scaled.watch = [&](std::size_t step, double sigma, const Array & now, const Array & denoised) {
        show(settings, step, sigma, now * shares[step + 1], denoised);
    };
    return unipc_steps(estimate, x / shares[0], sigmas, 3, Variant::bh1, scaled) * shares.back();
}

}  // namespace samplers

/// A sampler by A1111's times and its names.
struct SamplerOnTimes {
    using Function = Array (*)(const samplers::PairNetwork &, Array, const samplers::Times &, const Noise &, const SamplerSettings &);
    std::vector<std::string> names;
    Function function;
};

inline const std::vector<SamplerOnTimes> & samplers_on_times() {
    static const std::vector<SamplerOnTimes> table = {
        {{"ddim"}, samplers::ddim},
        {{"ddim_cfg_pp", "DDIM CFG++", "ddim_cfgpp"}, samplers::ddim},
        {{"plms", "PNDM"}, samplers::plms},
        {{"unipc"}, samplers::unipc_times},
    };
    return table;
}

/// From x at the highest of the times to the lowest: the picture. Text to image starts with the noise itself. The model is one as
/// samplers by noise levels take it; only DDIM CFG++ sees the estimate for the negative prompt by itself.
inline Array sample_on_times(const std::string & name, const PairModel & model, Array x, const std::vector<int> & times,
                             const DiscreteLevels & levels, const Noise & noise = {}, const SamplerSettings & settings = {},
                             bool from_picture = false) {
    const SamplerOnTimes & sampler = named(samplers_on_times(), name, "sampler on times");
    const bool apart = sampler.names.front() == "ddim_cfg_pp";
    if (times.empty()) return x;
    for (std::size_t i = 0; i < times.size(); ++i) {
        if (times[i] < 0 || static_cast<std::size_t>(times[i]) >= levels.sigmas.size() || (i > 0 && times[i] <= times[i - 1])) {
            throw SettingError("times must rise within those of the model; number " + std::to_string(i) + " is " + std::to_string(times[i]));
        }
    }
    const samplers::PairNetwork network = [&](const Array & seen, double time) {
        const double sigma = levels.sigma(time);
        const Array at = seen * std::hypot(1, sigma);
        const auto [denoised, negative] = model(at, sigma);
        const Array predicted = (at - denoised) / sigma;
        return std::make_pair(predicted, apart ? (at - negative) / sigma : predicted);
    };
    return sampler.function(network, std::move(x), {times, levels.alphas(), from_picture},
                            samplers::needed(noise, sampler.names.front()), settings);
}

/// The same with a model that has one estimate.
inline Array sample_on_times(const std::string & name, const Model & model, Array x, const std::vector<int> & times,
                             const DiscreteLevels & levels, const Noise & noise = {}, const SamplerSettings & settings = {},
                             bool from_picture = false) {
    if (named(samplers_on_times(), name, "sampler on times").names.front() == "ddim_cfg_pp") {
        throw SettingError("DDIM CFG++ needs a model that tells the negative estimate too");
    }
    const PairModel both = [&](const Array & at, double sigma) {
        const Array denoised = model(at, sigma);
        return std::make_pair(denoised, denoised);
    };
    return sample_on_times(name, both, std::move(x), times, levels, noise, settings, from_picture);
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images

#endif
