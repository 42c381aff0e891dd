// What a network predicts, what estimate of the picture follows from it, and guidance; graphc_images/sampling/predictions.py in
// C++.
//
// Karras, Aittala, Aila, Laine, Elucidating the Design Space of Diffusion-Based Generative Models (2022), section 5, for the
// form: the network sees `scale * x`, and the estimate is `skip * x + out * prediction`.
#ifndef GRAPHC_IMAGES_PREDICTIONS_HPP
#define GRAPHC_IMAGES_PREDICTIONS_HPP

#include <cmath>
#include <functional>
#include <string>

#include "arrays.hpp"
#include "levels.hpp"
#include "names.hpp"

namespace graphc::images {

GRAPHC_ROUNDED

/// A model as it was trained: (its input, its time) -> its prediction, an array as large as the input.
using Network = std::function<Array(const Array & x, double time)>;

/// How the picture follows from a network's prediction at a noise level.
struct Prediction {
    std::vector<std::string> names;
    /// What x is multiplied by before the network sees it.
    double (*scale)(double sigma);
    double (*skip)(double sigma);
    double (*out)(double sigma);

    /// The estimate of the picture.
    Array denoised(const Array & x, const Array & prediction, double sigma) const {
        return x * skip(sigma) + prediction * out(sigma);
    }
};

/// The prediction of this name: "eps", "v", "edm", "flow", or what stable-diffusion.cpp and diffusers call them.
inline const Prediction & prediction_of(const std::string & name) {
    static const auto one = [](double) { return 1.0; };
    static const auto minus = [](double sigma) { return -sigma; };
    static const auto unit = [](double sigma) { return 1 / std::hypot(sigma, 1.0); };
    static const std::vector<Prediction> table = {
        // the noise: nearly all of Stable Diffusion 1 and SDXL
        {{"eps", "epsilon"}, unit, one, minus},
        // Salimans, Ho, Progressive Distillation (2022): Stable Diffusion 2, v-prediction checkpoints, CosXL
        {{"v", "v_prediction", "edm_v"},
         unit,
         [](double sigma) { return 1 / (sigma * sigma + 1); },
         [](double sigma) { return -sigma / std::hypot(sigma, 1.0); }},
        // Karras et al. (2022), for pictures with the standard deviation 0.5: Playground 2.5
        {{"edm"},
         [](double sigma) { return 1 / std::hypot(sigma, 0.5); },
         [](double sigma) { return 0.25 / (sigma * sigma + 0.25); },
         [](double sigma) { return sigma * 0.5 / std::hypot(sigma, 0.5); }},
        // Liu, Gong, Liu, Flow Straight and Fast (2022): the direction from picture to noise
        {{"flow", "sd3_flow", "flux_flow", "flow_prediction"}, one, one, minus},
    };
    return named(table, name, "prediction");
}

/// A network as samplers see it, which take what this gives for their model. `whole`: its times are rounded (ComfyUI, Forge), else
/// lie between (A1111). The levels have to live as long.
inline std::function<Array(const Array & x, double sigma)> denoiser(Network network, const Prediction & prediction,
                                                                    const Levels & levels, bool whole) {
    return [network = std::move(network), &prediction, &levels, whole](const Array & x, double sigma) {
        const Array predicted = network(x * prediction.scale(sigma), levels.timestep(sigma, whole));
        return prediction.denoised(x, predicted, sigma);
    };
}

/// What A1111's LCM sampler makes of a model: the nearest of the 50 levels, and the consistency model's boundary condition.
///
/// Luo, Tan, Huang, Li, Zhao, Latent Consistency Models (2023), equation 9; A1111 modules/sd_samplers_lcm.py.
class ConsistencyModel {
public:
    explicit ConsistencyModel(const DiscreteLevels & levels)
        : few_(lcm_levels(levels)), skipped_(static_cast<double>(levels.sigmas.size() / 50)) {}

    /// The time of a noise level.
    double time(double sigma) const { return few_.timestep(sigma) * skipped_ + skipped_ - 1; }

    /// The network's estimate at a time, of x.
    Array bounded(const Array & x, const Array & estimate, double time) const {
        const double scaled = time * 10;
        return estimate * (scaled / std::hypot(scaled, 0.5)) + x * (0.25 / (scaled * scaled + 0.25));
    }

private:
    DiscreteLevels few_;
    double skipped_;
};

/// `denoiser` for A1111's LCM sampler.
inline std::function<Array(const Array & x, double sigma)> lcm_denoiser(Network network, const Prediction & prediction,
                                                                        const DiscreteLevels & levels) {
    return [network = std::move(network), &prediction, lcm = ConsistencyModel(levels)](const Array & x, double sigma) {
        const double time = lcm.time(sigma);
        return lcm.bounded(x, prediction.denoised(x, network(x * prediction.scale(sigma), time), sigma), time);
    };
}

/// Ho, Salimans, Classifier-Free Diffusion Guidance (2022): from the negative estimate through the positive one, as far as the
/// scale says.
inline Array guided(const Array & positive, const Array & negative, double scale) {
    return negative + (positive - negative) * scale;
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images

#endif
