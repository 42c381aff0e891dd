// Samplers: the ways from noise to a picture, each one short function beside its paper; graphc_images/sampling/samplers in C++,
// with the same operations in the same order, so that the same model gives the same bits.
//
//     std::vector<float> picture = graphc::images::sample("Euler a", model, x, sigmas, noise);
//
// `model(x, sigma)` estimates the picture without noise, `x` is noise times sigmas[0], `noise(sigma, sigma_next)` gives more of it.
// Samplers by A1111's times (its DDIM, PLMS and UniPC) are in samplers/times.hpp.
#ifndef GRAPHC_IMAGES_SAMPLERS_HPP
#define GRAPHC_IMAGES_SAMPLERS_HPP

#include "names.hpp"
#include "samplers/cfg_pp.hpp"
#include "samplers/dpm_solver.hpp"
#include "samplers/dpmpp.hpp"
#include "samplers/euler.hpp"
#include "samplers/exponential.hpp"
#include "samplers/multistep.hpp"
#include "samplers/restart.hpp"
#include "samplers/runge_kutta.hpp"
#include "samplers/sa_solver.hpp"
#include "samplers/times.hpp"
#include "samplers/unipc.hpp"

namespace graphc::images {

/// A sampler by noise levels, and how programs use it.
template <typename ModelKind>
struct SamplerOf {
    using Function = Array (*)(const ModelKind &, Array, const std::vector<double> &, const Noise &, const SamplerSettings &);

    /// Its own, then those of A1111, ComfyUI, diffusers and stable-diffusion.cpp, in any case of letters.
    std::vector<std::string> names;
    Function function;
    /// What A1111 takes for "Automatic".
    std::string scheduler = "uniform";
    /// True if its noise is Brownian.
    bool brownian = false;
    /// Where the penultimate noise level is left out of the schedule.
    bool discard_a1111 = false, discard_comfyui = false;
};

using Sampler = SamplerOf<Model>;

/// A sampler of CFG++, which goes back along the noise of the negative prompt.
using PairSampler = SamplerOf<PairModel>;

inline const std::vector<Sampler> & sampler_table() {
    using namespace samplers;
    static const std::vector<Sampler> table = {
        {{"euler", "k_euler", "EulerDiscrete", "FlowMatchEulerDiscrete", "ddim"}, euler},
        {{"euler_ancestral", "Euler a", "EulerAncestralDiscrete", "euler_a", "k_euler_a", "k_euler_ancestral"}, euler_ancestral},
        {{"heun", "k_heun", "HeunDiscrete", "FlowMatchHeunDiscrete"}, heun},
        {{"heunpp2"}, heunpp2},
        {{"dpm_2", "DPM2", "KDPM2Discrete", "k_dpm_2"}, dpm_2, "karras", false, true, true},
        {{"dpm_2_ancestral", "DPM2 a", "KDPM2AncestralDiscrete", "k_dpm_2_a"}, dpm_2_ancestral, "karras", false, true, true},
        {{"lms", "LMSDiscrete", "k_lms"}, lms},
        {{"dpm_fast", "DPM fast", "k_dpm_fast"}, dpm_fast},
        {{"dpm_adaptive", "DPM adaptive", "k_dpm_ad"}, dpm_adaptive},
        {{"dpmpp_2s_ancestral", "DPM++ 2S a", "dpm++2s_a", "k_dpmpp_2s_a", "DPMSolverSinglestep"}, dpmpp_2s_ancestral, "karras"},
        {{"dpmpp_sde", "DPM++ SDE", "DPMSolverSDE", "k_dpmpp_sde", "dpmpp_sde_gpu"}, dpmpp_sde, "karras", true},
        {{"dpmpp_2m", "DPM++ 2M", "DPMSolverMultistep", "dpm++2m", "k_dpmpp_2m"}, dpmpp_2m, "karras"},
        {{"dpmpp_2m_v2", "dpm++2mv2"}, dpmpp_2m_v2, "karras"},
        {{"dpmpp_2m_sde", "DPM++ 2M SDE", "dpm++2m_sde", "k_dpmpp_2m_sde", "dpm++2m_sde_bt", "dpmpp_2m_sde_gpu"}, dpmpp_2m_sde, "exponential", true},
        {{"dpmpp_2m_sde_heun", "DPM++ 2M SDE Heun", "k_dpmpp_2m_sde_heun", "dpmpp_2m_sde_heun_gpu"}, dpmpp_2m_sde_heun, "exponential", true},
        {{"dpmpp_3m_sde", "DPM++ 3M SDE", "k_dpmpp_3m_sde", "dpmpp_3m_sde_gpu"}, dpmpp_3m_sde, "exponential", true, true},
        {{"restart"}, restart, "karras"},
        {{"ddim_trailing"}, ddim_trailing, "simple"},
        {{"uni_pc", "UniPC", "UniPCMultistep"}, unipc_bh1, "uniform", false, false, true},
        {{"uni_pc_bh2"}, unipc_bh2, "uniform", false, false, true},
        {{"lcm", "k_lcm", "FlowMatchLCM"}, lcm},
        {{"ddpm"}, ddpm},
        {{"ipndm"}, ipndm},
        {{"ipndm_v"}, ipndm_v},
        {{"deis", "DEISMultistep"}, deis},
        {{"res_multistep", "Res Multistep"}, res_multistep},
        {{"res_multistep_ancestral", "Res Multistep a"}, res_multistep_ancestral},
        {{"res_2s"}, res_2s},
        {{"er_sde", "ER SDE"}, er_sde},
        {{"gradient_estimation", "Gradient Estimation", "euler_ge"}, gradient_estimation},
        {{"seeds_2", "SEEDS 2"}, seeds_2},
        {{"seeds_3", "SEEDS 3"}, seeds_3},
        {{"exp_heun_2_x0"}, exp_heun_2_x0},
        {{"exp_heun_2_x0_sde"}, exp_heun_2_x0_sde},
        {{"sa_solver", "SA Solver", "SASolver"}, sa_solver},
        {{"sa_solver_pece"}, sa_solver_pece},
        {{"tcd"}, tcd, "turbo"},
    };
    return table;
}

inline const std::vector<PairSampler> & pair_sampler_table() {
    using namespace samplers;
    static const std::vector<PairSampler> table = {
        {{"euler_cfg_pp", "Euler CFG++"}, euler_cfg_pp},
        {{"euler_ancestral_cfg_pp", "Euler a CFG++", "euler_a_cfg_pp"}, euler_ancestral_cfg_pp},
        {{"dpmpp_2s_ancestral_cfg_pp", "DPM++ 2S a CFG++"}, dpmpp_2s_ancestral_cfg_pp},
        {{"dpmpp_2m_cfg_pp", "DPM++ 2M CFG++"}, dpmpp_2m_cfg_pp},
        {{"res_multistep_cfg_pp", "Res Multistep CFG++"}, res_multistep_cfg_pp},
        {{"res_multistep_ancestral_cfg_pp"}, res_multistep_ancestral_cfg_pp},
        {{"gradient_estimation_cfg_pp"}, gradient_estimation_cfg_pp},
    };
    return table;
}

/// The sampler of this name.
inline const Sampler & find_sampler(const std::string & name) { return named(sampler_table(), name, "sampler"); }

/// How a sampler takes a model's levels: in A1111's mode all but Euler a and DPM2 a of Flux' kind take flows as others.
inline Path path_of(const Sampler & sampler, const Levels & levels, Mode mode) {
    const auto * flow = dynamic_cast<const FlowLevels *>(&levels);
    const bool known = sampler.function == samplers::euler_ancestral || sampler.function == samplers::dpm_2_ancestral;
    return mode == Mode::comfyui || (flow != nullptr && flow->of_flux && known) ? levels.path : Path{};
}

/// A sampler's picture; see `sample`.
template <typename ModelKind>
Array sample_by(const SamplerOf<ModelKind> & sampler, const ModelKind & model, Array x, const std::vector<float> & sigmas,
                const Noise & noise, const SamplerSettings & settings) {
    for (std::size_t i = 0; i < sigmas.size(); ++i) {
        if (!(sigmas[i] >= 0) || (i > 0 && sigmas[i] >= sigmas[i - 1])) {
            throw SettingError("noise levels must fall and end at 0 or above; number " + std::to_string(i) + " is " +
                               std::to_string(sigmas[i]));
        }
    }
    if (sigmas.size() < 2) return x;
    const std::vector<double> exact(sigmas.begin(), sigmas.end());
    return sampler.function(model, std::move(x), exact, samplers::needed(noise, sampler.names.front()), settings);
}

/// From x at the first of the noise levels, which descend, to the last: the picture, if that is 0. `noise` may be empty for
/// samplers that add none. With fewer than two levels there is nothing to do.
inline Array sample(const std::string & name, const Model & model, Array x, const std::vector<float> & sigmas,
                    const Noise & noise = {}, const SamplerSettings & settings = {}) {
    return sample_by(find_sampler(name), model, std::move(x), sigmas, noise, settings);
}

/// The same with a sampler of CFG++ and a model that tells the negative estimate too.
inline Array sample(const std::string & name, const PairModel & model, Array x, const std::vector<float> & sigmas,
                    const Noise & noise = {}, const SamplerSettings & settings = {}) {
    return sample_by(named(pair_sampler_table(), name, "sampler of CFG++"), model, std::move(x), sigmas, noise, settings);
}

}  // namespace graphc::images

#endif
