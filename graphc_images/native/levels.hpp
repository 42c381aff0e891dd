// The noise levels that a model was trained on, its own times for them, and where on the way to the picture they lie:
// graphc_images/sampling/levels.py in C++.
//
// A noise level (sigma) is the standard deviation of the noise. Where noise is added to the picture ("exploding": eps and v
// models) it goes up to 14.6 and more; where noise takes the picture's place (rectified flow), from 0 to 1.
#ifndef GRAPHC_IMAGES_LEVELS_HPP
#define GRAPHC_IMAGES_LEVELS_HPP

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "arrays.hpp"

namespace graphc::images {

GRAPHC_ROUNDED

/// A1111 with Forge, or ComfyUI: what differs between them on purpose.
enum class Mode { a1111, comfyui };

constexpr double INFINITE = std::numeric_limits<double>::infinity();

/// How picture and noise mix at a noise level: x = alpha * picture + sigma * noise.
struct Path {
    /// True if alpha is 1 - sigma; else it is 1.
    bool flow = false;
    /// The largest noise level at which something of the picture is left; samplers that need its share start there, not at 1.
    double largest = INFINITE;

    /// The picture's factor.
    double alpha(double sigma) const { return flow ? 1 - sigma : 1.0; }

    /// log(alpha / sigma).
    double half_log_snr(double sigma) const { return sigma > 0 ? std::log(alpha(sigma) / sigma) : INFINITE; }

    /// The noise level with this logarithm of alpha / sigma.
    double sigma_at(double half_log_snr) const {
        return flow ? 1 / (1 + std::exp(half_log_snr)) : std::exp(-half_log_snr);
    }

    /// The noise levels, the first one lowered where nothing of the picture would be in it.
    std::vector<double> started(std::vector<double> sigmas) const {
        if (flow && !sigmas.empty() && sigmas[0] >= 1) {
            const double second = sigmas.size() > 1 ? *std::max_element(sigmas.begin() + 1, sigmas.end()) : 0.0;
            sigmas[0] = largest > second ? largest : (1 + second) / 2;
        }
        return sigmas;
    }

    /// The picture at a noise level.
    Array noised(const Array & picture, const Array & noise, double sigma) const {
        return picture * alpha(sigma) + noise * sigma;
    }
};

/// A double that float32 has: what the programs that are followed compute in.
inline double rounded(double value) { return static_cast<double>(static_cast<float>(value)); }

/// The value at x of the line through the points, of which xs ascend; outside of them, that at the end.
inline double interpolated(double x, const std::vector<double> & xs, const std::vector<double> & ys) {
    if (x <= xs.front()) return ys.front();
    if (x >= xs.back()) return ys.back();
    const auto after = static_cast<std::size_t>(std::upper_bound(xs.begin(), xs.end(), x) - xs.begin()), at = after - 1;
    if (x == xs[at]) return ys[at];
    return (ys[after] - ys[at]) / (xs[after] - xs[at]) * (x - xs[at]) + ys[at];
}

/// `count` numbers at even distances, both ends included.
inline std::vector<double> even(double start, double end, std::size_t count) {
    std::vector<double> numbers(count, start);
    const double step = count > 1 ? (end - start) / static_cast<double>(count - 1) : 0.0;
    for (std::size_t i = 1; i < count; ++i) numbers[i] = static_cast<double>(i) * step + start;
    if (count > 1) numbers.back() = end;
    return numbers;
}

/// A model's noise levels in ascending order, and its times.
struct Levels {
    /// Each is a float32 number.
    std::vector<double> sigmas;
    Path path;

    virtual ~Levels() = default;
    double lowest() const { return sigmas.front(); }
    double highest() const { return sigmas.back(); }

    /// What the model is told for a noise level. `whole`: the nearest of its times (ComfyUI, Forge); else between them (A1111).
    virtual double timestep(double sigma, bool whole = true) const = 0;

    /// The noise level at a time, which need not be whole.
    virtual double sigma(double timestep) const = 0;

    /// The noise level after a share of the way from noise (0) to picture (1), as ComfyUI counts it.
    virtual double sigma_at(double share) const = 0;
};

/// The noise level of 0% of the way: above all others.
constexpr double NEVER = 999999999.9;

/// A table of noise levels, whose numbers are the times: Stable Diffusion 1 and 2, SDXL and their like.
struct DiscreteLevels : Levels {
    std::vector<double> logarithms;

    DiscreteLevels() = default;

    /// Of levels that ascend and are above 0.
    explicit DiscreteLevels(const std::vector<double> & exact) {
        for (const double each : exact) {
            sigmas.push_back(rounded(each));
            logarithms.push_back(rounded(std::log(each)));
        }
    }

    double timestep(double sigma, bool whole = true) const override {
        if (!whole) return interpolated(std::log(sigma), logarithms, numbers());
        const double logarithm = rounded(std::log(sigma));
        const auto nearer = [&](double a, double b) { return std::abs(a - logarithm) < std::abs(b - logarithm); };
        return static_cast<double>(std::min_element(logarithms.begin(), logarithms.end(), nearer) - logarithms.begin());
    }

    double sigma(double timestep) const override { return std::exp(interpolated(timestep, numbers(), logarithms)); }

    double sigma_at(double share) const override {
        if (share <= 0) return NEVER;
        return share >= 1 ? 0.0 : sigma((1 - share) * static_cast<double>(sigmas.size() - 1));
    }

    /// The squares of the picture's factors in the form in which the model sees it (alphas_cumprod).
    std::vector<double> alphas() const {
        std::vector<double> found;
        for (const double sigma : sigmas) found.push_back(1 / (sigma * sigma + 1));
        return found;
    }

private:
    std::vector<double> numbers() const { return even(0, static_cast<double>(sigmas.size() - 1), sigmas.size()); }
};

/// Noise levels of EDM, between two ends, with a quarter of the logarithm as the time: Playground 2.5, CosXL.
struct ContinuousLevels : Levels {
    /// Both above 0.
    ContinuousLevels(double lowest, double highest) {
        for (const double logarithm : even(std::log(lowest), std::log(highest), 1000)) {
            sigmas.push_back(rounded(std::exp(logarithm)));
        }
    }

    double timestep(double sigma, bool = true) const override { return 0.25 * std::log(sigma); }
    double sigma(double timestep) const override { return std::exp(4 * timestep); }

    double sigma_at(double share) const override {
        if (share <= 0) return NEVER;
        const double low = std::log(lowest()), high = std::log(highest());
        return share >= 1 ? 0.0 : std::exp((high - low) * (1 - share) + low);
    }
};

/// Rectified flow, whose even times are shifted towards the noise: SD 3, Flux and most models since. They see the level.
struct FlowLevels : Levels {
    double shift;
    bool of_flux;

    /// `by` is the factor a in a * t / (1 + (a - 1) * t), which for Flux is e**mu; `flux`: one of Flux' kind.
    explicit FlowLevels(double by = 1.0, bool flux = false) : shift(by), of_flux(flux) {
        if (!(shift > 0)) throw SettingError("the shift of the noise levels must be above 0, not " + std::to_string(shift));
        const int count = of_flux ? 10000 : 1000;
        for (int i = 1; i <= count; ++i) sigmas.push_back(rounded(sigma(static_cast<double>(i) / count)));
        path = {true, sigma_at(1e-4)};
    }

    /// The level itself, never rounded. What SD 3 sees is a thousand times it.
    double timestep(double sigma, bool = true) const override { return sigma; }

    /// The noise level at an even time from 0 to 1. `timestep` is not its inverse.
    double sigma(double timestep) const override { return shift * timestep / (1 + (shift - 1) * timestep); }

    double sigma_at(double share) const override { return sigma(std::min(std::max(1 - share, 0.0), 1.0)); }
};

/// Stable Diffusion's levels: betas that are linear in their roots, a thousand from 0.00085 to 0.012.
///
/// `narrow`: computed from alphas in float32, as A1111 has them; ComfyUI and Forge compute in float64. `zero_snr`: shifted and
/// scaled so that the last level is noise alone (Lin, Liu, Li, Yang, Common Diffusion Noise Schedules and Sample Steps are Flawed,
/// 2023).
template <typename Float>
DiscreteLevels scaled_linear_in(bool zero_snr) {
    std::vector<Float> alphas, sigmas;
    double product = 1;
    for (const double root : even(std::pow(0.00085, 0.5), std::pow(0.012, 0.5), 1000)) {
        product *= 1 - root * root;
        alphas.push_back(static_cast<Float>(product));
    }
    const auto of_alphas = [&] {
        sigmas.clear();
        for (const Float alpha : alphas) sigmas.push_back(std::sqrt((1 - alpha) / alpha));
    };
    of_alphas();
    if (zero_snr) {
        std::vector<Float> roots;
        for (const Float sigma : sigmas) roots.push_back(std::sqrt(1 / (sigma * sigma + 1)));
        const Float first = roots.front(), last = roots.back();
        for (std::size_t i = 0; i < roots.size(); ++i) {
            const Float root = (roots[i] - last) * (first / (first - last));
            alphas[i] = root * root;
        }
        alphas.back() = static_cast<Float>(4.8973451890853435e-08);  // the picture's share must not be 0
        of_alphas();
    }
    return DiscreteLevels(std::vector<double>(sigmas.begin(), sigmas.end()));
}

inline DiscreteLevels scaled_linear(bool zero_snr = false, bool narrow = false) {
    return narrow ? scaled_linear_in<float>(zero_snr) : scaled_linear_in<double>(zero_snr);
}

/// The 50 levels on which latent consistency models are distilled: every twentieth of a thousand, from the highest.
inline DiscreteLevels lcm_levels(const DiscreteLevels & levels) {
    const std::size_t skipped = levels.sigmas.size() / 50;
    std::vector<double> few;
    for (std::size_t i = skipped - 1; i < levels.sigmas.size(); i += skipped) few.push_back(levels.sigmas[i]);
    return DiscreteLevels(few);
}

/// Flux' mu for an image of so many tokens (2 x 2 latent pixels each): linear through 256 and 4096 tokens.
inline double flux_mu(int tokens) { return 0.5 + (1.15 - 0.5) * (tokens - 256) / (4096 - 256); }

/// Flux.2's mu: from lines that were fitted for 10 and for 200 steps; above 4300 tokens, the second alone.
inline double flux2_mu(int tokens, int steps) {
    const double few = 8.73809524e-5 * tokens + 1.89833333, many = 0.00016927 * tokens + 0.45666666;
    if (tokens > 4300) return many;
    const double slope = (many - few) / 190;
    return slope * steps + many - 200 * slope;
}

/// The levels of a family of flow models, with its own shift or another (above 0).
inline FlowLevels flow_levels(const std::string & family, Mode mode = Mode::comfyui, double shift = 0) {
    struct Flow {
        double shift;
        bool of_flux = false;
    };
    static const std::map<std::string, Flow> flows = {
        {"sd3", {3.0}},
        {"flux", {std::exp(1.15), true}},
        {"flux_schnell", {1.0, true}},
        {"chroma", {std::exp(1.15), true}},
        {"flux2", {std::exp(2.02), true}},
        {"auraflow", {1.73}},
        {"lumina2", {6.0}},
        {"z_image", {3.0}},
        {"qwen_image", {std::exp(1.15), true}},
        {"wan", {8.0}},
        {"hunyuan_video", {7.0}},
        {"hunyuan_image", {5.0}},
        {"hidream", {3.0}},
        {"kandinsky5", {3.0}},
        {"omnigen2", {2.6}},
        {"ltx", {std::exp(2.37), true}},
    };
    const auto found = flows.find(family);
    if (found == flows.end()) throw SettingError("there are no noise levels of \"" + family + "\"");
    const bool forge = mode == Mode::a1111 && (family == "flux_schnell" || family == "chroma");
    return FlowLevels(shift > 0 ? shift : forge ? 2.718281828459045 : found->second.shift, found->second.of_flux);
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images

#endif
