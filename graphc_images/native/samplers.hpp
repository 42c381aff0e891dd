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
#include "samplers/dpm_solver.hpp"
#include "samplers/dpmpp.hpp"
#include "samplers/euler.hpp"
#include "samplers/exponential.hpp"
#include "samplers/multistep.hpp"
#include "samplers/restart.hpp"
#include "samplers/runge_kutta.hpp"
#include "samplers/sa_solver.hpp"
#include "samplers/unipc.hpp"

namespace graphc::images {

/// A sampler by noise levels, and how programs use it.
struct Sampler {
    using Function = Array (*)(const Model &, Array, const std::vector<double> &, const Noise &, const SamplerSettings &);

    /// Its own, then those of A1111, ComfyUI, diffusers and stable-diffusion.cpp, in any case of letters.
    std::vector<std::string> names;
    Function function;
    /// What A1111 takes for "Automatic".
    std::string scheduler = "uniform";
    /// Whether its noise is Brownian.
    bool brownian = false;
    /// Where the penultimate noise level is left out of the schedule.
    bool discard_a1111 = false, discard_comfyui = false;
};

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

/// The sampler of this name.
inline const Sampler & find_sampler(const std::string & name) { return named(sampler_table(), name, "sampler"); }

/// How a sampler takes a model's levels: in A1111's mode all but Euler a and DPM2 a of Flux' kind take flows as others.
inline Path path_of(const Sampler & sampler, const Levels & levels, Mode mode) {
    const auto * flow = dynamic_cast<const FlowLevels *>(&levels);
    const bool known = sampler.function == samplers::euler_ancestral || sampler.function == samplers::dpm_2_ancestral;
    return mode == Mode::comfyui || (flow != nullptr && flow->of_flux && known) ? levels.path : Path{};
}

/// From x at the first of the noise levels, which descend, to the last: the picture, if that is 0. `noise` may be empty for
/// samplers that add none. With fewer than two levels there is nothing to do.
inline Array sample(const std::string & name, const Model & model, Array x, const std::vector<float> & sigmas, const Noise & noise = {},
                    const SamplerSettings & settings = {}) {
    const Sampler & sampler = find_sampler(name);
    if (sigmas.size() < 2) return x;
    for (std::size_t i = 0; i < sigmas.size(); ++i) {
        if (!(sigmas[i] >= 0) || (i > 0 && sigmas[i] >= sigmas[i - 1])) {
            throw SettingError("noise levels must fall and end at 0 or above; number " + std::to_string(i) + " is " + std::to_string(sigmas[i]));
        }
    }
    const Noise drawn = noise ? noise : [&](double, double) -> Array {
        throw SettingError("the sampler " + sampler.names.front() + " adds noise: it needs a source");
    };
    return sampler.function(model, std::move(x), std::vector<double>(sigmas.begin(), sigmas.end()), drawn, settings);
}

}  // namespace graphc::images

#endif
