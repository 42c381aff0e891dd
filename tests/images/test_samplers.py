"""Every sampler: the numbers of the programs it follows, its order, its types."""

import math
from itertools import pairwise

import numpy as np
import pytest
from oracles import ORACLES
from toys import Gaussian, Sine, SineNoise, flow, half, karras

from graphc_images.errors import SettingError
from graphc_images.sampling.levels import Path, flow_levels, scaled_linear
from graphc_images.sampling.samplers import (
    cfg_pp,
    dpm_solver,
    dpmpp,
    euler,
    exponential,
    multistep,
    restart,
    runge_kutta,
    times,
    unipc,
)
from graphc_images.sampling.samplers import sa_solver as sa

RF = Path(flow=True, largest=flow_levels("sd3").sigma_at(1e-4))
VE_NOISY, RF_NOISY = (5.0924, 0.5712), (0.9231, 0.4285)
"""Between these levels SA-Solver makes noise in ComfyUI."""

VE = {
    "euler": (euler.euler, {}, 0.4547239, 10),
    "euler_ancestral": (euler.euler_ancestral, {"noise": half}, 0.4843580, 10),
    "heun": (runge_kutta.heun, {}, 0.4773876, 19),
    "heunpp2": (runge_kutta.heunpp2, {}, 0.4592597, 27),
    "dpm_2": (runge_kutta.dpm_2, {}, 0.4787707, 19),
    "dpm_2_ancestral": (runge_kutta.dpm_2_ancestral, {"noise": half}, 0.4836412, 19),
    "lms of k-diffusion": (multistep.lms, {}, 0.4720232, 10),
    "lms of ComfyUI": (multistep.lms, {"last_denoised": True}, 0.4768870, 10),
    "dpm_fast": (dpm_solver.dpm_fast, {}, 0.4628998, 10),
    "dpm_adaptive": (dpm_solver.dpm_adaptive, {}, 0.4917109, 24),
    "dpmpp_2s_ancestral": (dpmpp.dpmpp_2s_ancestral, {"noise": half}, 0.4887475, 19),
    "dpmpp_sde": (dpmpp.dpmpp_sde, {"noise": half}, 0.5040190, 19),
    "dpmpp_2m": (dpmpp.dpmpp_2m, {}, 0.4986301, 10),
    "dpmpp_2m_sde": (dpmpp.dpmpp_2m_sde, {"noise": half}, 0.5219669, 10),
    "dpmpp_2m_sde_heun": (dpmpp.dpmpp_2m_sde, {"noise": half, "solver": "heun"}, 0.5323826, 10),
    "dpmpp_3m_sde": (dpmpp.dpmpp_3m_sde, {"noise": half}, 0.4262815, 10),
    "unipc bh1": (unipc.unipc, {}, 0.4434803, 10),
    "unipc bh2": (unipc.unipc, {"variant": "bh2"}, 0.4464531, 10),
    "lcm": (euler.lcm, {"noise": half}, 0.3783427, 10),
    "ddpm": (euler.ddpm, {"noise": half}, 0.4843580, 10),
    "ipndm": (multistep.ipndm, {}, 0.4768260, 10),
    "ipndm_v": (multistep.ipndm_v, {}, 0.4803154, 10),
    "deis": (multistep.deis, {}, 0.4838540, 10),
    "res_multistep": (multistep.res_multistep, {}, 0.5044501, 10),
    "res_multistep_ancestral": (multistep.res_multistep, {"noise": half, "eta": 1.0}, 0.5323826, 10),
    "er_sde": (exponential.er_sde, {"noise": half}, 0.5995823, 10),
    "gradient_estimation": (multistep.gradient_estimation, {}, 0.4932884, 10),
    "seeds_2": (exponential.seeds_2, {"noise": half}, 0.5553024, 19),
    "seeds_3": (exponential.seeds_3, {"noise": half}, 0.5840652, 28),
    "exp_heun_2_x0": (exponential.exp_heun_2_x0, {}, 0.4702912, 19),
    "sa_solver": (sa.sa_solver, {}, 0.4592054, 10),
    "euler_cfg_pp": (cfg_pp.euler_cfg_pp, {}, 0.7420001, 10),
    "euler_ancestral_cfg_pp": (cfg_pp.euler_ancestral_cfg_pp, {"noise": half}, 0.5872245, 10),
    "dpmpp_2m_cfg_pp": (cfg_pp.dpmpp_2m_cfg_pp, {}, 0.9330424, 10),
    "res_multistep_cfg_pp": (cfg_pp.res_multistep_cfg_pp, {}, 0.3631876, 10),
    "res_multistep_ancestral_cfg_pp": (cfg_pp.res_multistep_cfg_pp, {"noise": half, "eta": 1.0}, 0.1287525, 10),
    "dpmpp_2s_ancestral_cfg_pp": (cfg_pp.dpmpp_2s_ancestral_cfg_pp, {"noise": half}, 0.6875245, 19),
    "gradient_estimation_cfg_pp": (cfg_pp.gradient_estimation_cfg_pp, {}, 0.5256393, 10),
    "sa_solver with noise": (sa.sa_solver, {"noise": half, "noisy": VE_NOISY}, 0.4788314, 10),
    "sa_solver_pece": (sa.sa_solver, {"noise": half, "noisy": VE_NOISY, "evaluate_twice": True}, 0.4858788, 19),
}
"""On Karras' ten levels, from x = the highest; every draw of noise is 0.5."""

FLOW = {
    "euler": (euler.euler, {}, 0.4362430),
    "euler_ancestral": (euler.euler_ancestral, {"noise": half, "path": RF}, 0.4631513),
    "heun": (runge_kutta.heun, {}, 0.4362509),
    "dpm_2": (runge_kutta.dpm_2, {}, 0.4365658),
    "dpm_2_ancestral": (runge_kutta.dpm_2_ancestral, {"noise": half, "path": RF}, 0.4630382),
    "dpmpp_2s_ancestral": (dpmpp.dpmpp_2s_ancestral, {"noise": half, "path": RF}, 0.4634090),
    "dpmpp_sde": (dpmpp.dpmpp_sde, {"noise": half, "path": RF}, 0.4301973),
    "dpmpp_2m": (dpmpp.dpmpp_2m, {}, 0.4372912),
    "dpmpp_2m_sde": (dpmpp.dpmpp_2m_sde, {"noise": half, "path": RF}, 0.4229130),
    "dpmpp_2m_sde_heun": (dpmpp.dpmpp_2m_sde, {"noise": half, "path": RF, "solver": "heun"}, 0.4231577),
    "dpmpp_3m_sde": (dpmpp.dpmpp_3m_sde, {"noise": half, "path": RF}, 0.4167280),
    "lcm": (euler.lcm, {"noise": half, "path": RF}, 0.2410890),
    "ipndm": (multistep.ipndm, {}, 0.4367260),
    "deis": (multistep.deis, {}, 0.4366684),
    "res_multistep": (multistep.res_multistep, {}, 0.4373537),
    "er_sde": (exponential.er_sde, {"noise": half, "path": RF}, 0.5439202),
    "seeds_2": (exponential.seeds_2, {"noise": half, "path": RF}, 0.5270403),
    "seeds_3": (exponential.seeds_3, {"noise": half, "path": RF}, 0.5920767),
    "sa_solver": (sa.sa_solver, {"path": RF}, 0.4366875),
    "euler_cfg_pp": (cfg_pp.euler_cfg_pp, {"path": RF}, 0.6067119),
    "euler_ancestral_cfg_pp": (cfg_pp.euler_ancestral_cfg_pp, {"path": RF, "noise": half}, 0.4805571),
    "dpmpp_2m_cfg_pp": (cfg_pp.dpmpp_2m_cfg_pp, {}, 0.7861031),
    "res_multistep_ancestral": (multistep.res_multistep, {"noise": half, "eta": 1.0}, 0.6404209),
    "res_multistep_ancestral_cfg_pp": (cfg_pp.res_multistep_cfg_pp, {"noise": half, "eta": 1.0}, 0.6778341),
    "dpmpp_2s_ancestral_cfg_pp": (cfg_pp.dpmpp_2s_ancestral_cfg_pp, {"noise": half}, 0.7735624),
    "gradient_estimation": (multistep.gradient_estimation, {}, 0.4373171),
    "gradient_estimation_cfg_pp": (cfg_pp.gradient_estimation_cfg_pp, {}, 0.7926840),
    "sa_solver with noise": (sa.sa_solver, {"noise": half, "noisy": RF_NOISY, "path": RF}, 0.4480354),
    "sa_solver_pece": (sa.sa_solver, {"noise": half, "noisy": RF_NOISY, "path": RF, "evaluate_twice": True}, 0.4471432),
    "heunpp2": (runge_kutta.heunpp2, {}, 0.4365350),
    "ddpm": (euler.ddpm, {"noise": half}, 0.6257308),
    "ipndm_v": (multistep.ipndm_v, {}, 0.4436279),
    "lms of ComfyUI": (multistep.lms, {"last_denoised": True}, 0.4366226),
}
"""On SD 3's ten levels, from x = 1."""


UNIPC = [
    ("bh1", "time_uniform", 10, False, [3.128646, -0.594041]),
    ("bh1", "time_uniform", 5, True, [0.948004, -0.439917]),
    ("bh1", "time_quadratic", 10, False, [3.111741, -0.600135]),
    ("bh1", "time_quadratic", 5, True, [0.957141, -0.446108]),
    ("bh1", "logSNR", 10, False, [3.113437, -0.599501]),
    ("bh1", "logSNR", 5, True, [0.956453, -0.446449]),
    ("bh2", "time_uniform", 10, False, [3.130788, -0.591455]),
    ("bh2", "time_uniform", 5, True, [0.946377, -0.438958]),
    ("bh2", "time_quadratic", 10, False, [3.143543, -0.594353]),
    ("bh2", "time_quadratic", 5, True, [0.953191, -0.443731]),
    ("bh2", "logSNR", 10, False, [3.134552, -0.597729]),
    ("bh2", "logSNR", 5, True, [0.948147, -0.44116]),
    ("vary_coeff", "time_uniform", 10, False, [3.032933, -0.586993]),
    ("vary_coeff", "time_uniform", 5, True, [0.945126, -0.438217]),
    ("vary_coeff", "time_quadratic", 10, False, [3.008225, -0.588522]),
    ("vary_coeff", "time_quadratic", 5, True, [0.952115, -0.443082]),
    ("vary_coeff", "logSNR", 10, False, [2.998549, -0.58777]),
    ("vary_coeff", "logSNR", 5, True, [0.948825, -0.441652]),
]
"""A1111's uni_pc.py itself, in float64: variant, skip, how many of ten times, whether from a picture; from x = 1 and -0.5."""


def last(steps):
    return list(steps)[-1].x


@pytest.mark.parametrize(("sampler", "settings", "value", "evaluations"), VE.values(), ids=VE)
def test_the_programs_values(sampler, settings, value, evaluations):
    model, sigmas = Sine(), karras(10)
    found = last(sampler(model, np.array([sigmas[0]]), sigmas, **settings))
    np.testing.assert_allclose(found, [value], rtol=0, atol=6e-8)
    assert model.evaluations == evaluations


@pytest.mark.parametrize(("sampler", "settings", "value"), FLOW.values(), ids=FLOW)
def test_the_programs_values_for_flows(sampler, settings, value):
    np.testing.assert_allclose(last(sampler(Sine(), np.array([1.0]), flow(), **settings)), [value], rtol=0, atol=6e-8)


def test_the_restart_sampler_and_its_plan():
    model = Sine()
    found = last(restart.restart(model, np.array([karras(20)[0]]), karras(20), noise=half))
    np.testing.assert_allclose(found, [0.4007433], rtol=0, atol=6e-8)
    assert model.evaluations == 39
    short = karras(19)
    np.testing.assert_array_equal(
        last(restart.restart(Sine(), np.array([short[0]]), short, noise=half)),
        last(runge_kutta.heun(Sine(), np.array([short[0]]), short)),
    )
    for steps, jumps in ((19, 0), (20, 1), (35, 1), (36, 2), (80, 2)):
        plan = restart.restart_plan(karras(steps))
        assert len(plan) == steps
        assert sum(end < start for (_, end), (start, _) in pairwise(plan)) == jumps


def test_comfyuis_unipc_leaves_out_the_penultimate_level():
    for variant, value in (("bh1", 0.4765435), ("bh2", 0.4775679)):
        sigmas = karras(11)
        del sigmas[-2]
        found = last(unipc.unipc(Sine(), np.array([sigmas[0]]), sigmas, variant=variant))
        np.testing.assert_allclose(found, [value], rtol=0, atol=6e-8)


def test_samplers_on_times():
    alphas, steps = scaled_linear(narrow=True).alphas, times.a1111_timesteps(10)
    for sampler, value, evaluations in ((times.ddim, 2.0049302, 9), (times.plms, 2.0605386, 10)):
        model = SineNoise()
        found = last(sampler(model, np.array([1.0]), steps, alphas))
        np.testing.assert_allclose(found, [value], rtol=0, atol=2e-6)
        assert model.evaluations == evaluations
    model = SineNoise()
    assert len(list(unipc.unipc_times(model, np.array([1.0]), steps, alphas))) == 10
    assert model.evaluations == 10


@pytest.mark.parametrize(("variant", "skip", "count", "img2img", "values"), UNIPC)
def test_a1111s_unipc(variant, skip, count, img2img, values):
    alphas, timesteps = scaled_linear().alphas, times.a1111_timesteps(10)[:count]
    x = np.array([1.0, -0.5])
    found = last(unipc.unipc_times(SineNoise(), x, timesteps, alphas, variant=variant, skip=skip, img2img=img2img))
    np.testing.assert_allclose(found, values, rtol=0, atol=4e-6)


def test_the_times_of_a1111():
    assert times.a1111_timesteps(20) == list(range(1, 1000, 50))
    assert times.a1111_timesteps(1) == [1]
    assert times.a1111_timesteps(2000)[-1] == 999


def test_ddim_is_euler_on_other_coordinates():
    """With a model that knows its pictures, DDIM on times is Euler on noise levels."""
    levels, steps = scaled_linear(), times.a1111_timesteps(20)
    model = Gaussian()

    def eps(x, timestep):
        sigma = float(levels.sigmas[int(timestep)])
        x = x * math.hypot(1, sigma)
        return (x - model(x, sigma)) / sigma

    x = np.array([1.5, -0.2])
    sigmas = [float(levels.sigmas[time]) for time in steps][::-1]
    found = last(times.ddim(eps, x, steps, levels.alphas)) * math.hypot(1, sigmas[-1])
    np.testing.assert_allclose(found, last(euler.euler(model, x * math.hypot(1, sigmas[0]), sigmas)), rtol=1e-9)
    same = last(times.ddim_cfg_pp(lambda x, t: (eps(x, t), eps(x, t)), x, steps, levels.alphas))
    np.testing.assert_allclose(same, last(times.ddim(eps, x, steps, levels.alphas)), rtol=1e-12)


@pytest.mark.parametrize("case", ORACLES["samplers"], ids=lambda case: f"{case['sampler']}-{len(case['sigmas'])}")
def test_k_diffusion_with_other_settings(case):
    draws = iter(0.5 ** np.arange(100))
    name, settings = case["sampler"], dict(case["settings"])
    sampler, defaults, *_ = VE.get(name) or VE["lms of k-diffusion"]
    if "noise" in defaults or "s_churn" in settings:
        settings["noise"] = lambda *_: np.full(2, next(draws))
    x = np.array([1.0, -0.3]) * case["sigmas"][0]
    np.testing.assert_allclose(last(sampler(Sine(), x, case["sigmas"], **settings)), case["x"], rtol=1e-6)


ORDERS = {
    "euler": (1, euler.euler, {}),
    "euler_cfg_pp": (1, cfg_pp.euler_cfg_pp, {}),
    "heun": (2, runge_kutta.heun, {}),
    "dpm_2": (2, runge_kutta.dpm_2, {}),
    "dpmpp_2m": (2, dpmpp.dpmpp_2m, {}),
    "dpmpp_2m_sde": (2, dpmpp.dpmpp_2m_sde, {"eta": 0.0, "noise": half}),
    "dpmpp_2m_sde_heun": (2, dpmpp.dpmpp_2m_sde, {"eta": 0.0, "noise": half, "solver": "heun"}),
    "dpmpp_sde": (2, dpmpp.dpmpp_sde, {"eta": 0.0, "noise": half}),
    "dpmpp_2s": (2, dpmpp.dpmpp_2s_ancestral, {"eta": 0.0, "noise": half}),
    "res_multistep": (2, multistep.res_multistep, {}),
    "res_2s": (2, exponential.res_2s, {}),
    "seeds_2": (2, exponential.seeds_2, {"eta": 0.0}),
    "exp_heun": (2, exponential.exp_heun_2_x0, {}),
    "dpmpp_3m": (3, dpmpp.dpmpp_3m_sde, {"eta": 0.0, "noise": half}),
    "seeds_3": (3, exponential.seeds_3, {"eta": 0.0}),
    "unipc": (3, unipc.unipc, {"lower_order_final": False}),
    "deis": (2, multistep.deis, {"max_order": 2}),
    "lms": (3, multistep.lms, {}),
    "sa_solver": (3, sa.sa_solver, {}),
}
"""The order to which each sampler follows the flow of probability of a model that is known exactly, at the least."""


class Alike(Gaussian):
    """The estimates with and without a prompt are the same."""

    def pair(self, x, sigma):
        return self(x, sigma), self(x, sigma)


def error(sampler, settings, count):
    sigmas = np.exp(np.linspace(math.log(8.0), math.log(0.5), count + 1))
    model, x = Alike(), np.array([6.0, -9.0, 0.4])
    exact = [model.result(x, 8.0), 0.5]
    end = model.mean + (exact[0] - model.mean) * math.hypot(model.deviation, exact[1]) / model.deviation
    return float(np.abs(last(sampler(model, x, sigmas, **settings)) - end).max())


@pytest.mark.parametrize(("order", "sampler", "settings"), ORDERS.values(), ids=ORDERS)
def test_samplers_converge_at_their_order(order, sampler, settings):
    steps = 10 if sampler is dpmpp.dpmpp_3m_sde else 40  # its error goes through 0 at about 60
    coarse, fine = error(sampler, settings, steps), error(sampler, settings, 2 * steps)
    assert fine < 2e-2
    assert math.log2(coarse / fine) > order - 0.35


@pytest.mark.parametrize("flow_of_noise", [False, True])
def test_noise_keeps_the_spread(flow_of_noise):
    """A model that knows its pictures gives pictures with their mean and deviation, whatever noise is made anew."""
    path = RF if flow_of_noise else Path()
    sigmas = flow(60) if flow_of_noise else karras(60)
    random = np.random.default_rng(0)
    noise = lambda *_: random.standard_normal(20000)  # noqa: E731
    for sampler in (
        euler.euler_ancestral,
        runge_kutta.dpm_2_ancestral,
        dpmpp.dpmpp_2s_ancestral,
        dpmpp.dpmpp_sde,
        dpmpp.dpmpp_2m_sde,
        dpmpp.dpmpp_3m_sde,
        exponential.er_sde,
        exponential.seeds_2,
        exponential.seeds_3,
    ):
        x = random.standard_normal(20000) * sigmas[0]
        found = last(sampler(Gaussian(flow=flow_of_noise), x, sigmas, noise=noise, path=path))
        assert abs(found.mean() - 0.3) < 0.04, sampler
        assert abs(found.std() - 0.7) < 0.06, sampler


@pytest.mark.parametrize(("sampler", "settings", "value", "evaluations"), VE.values(), ids=VE)
def test_types_steps_and_short_schedules(sampler, settings, value, evaluations):
    """float32 stays; steps are numbered; one and two steps work, or are refused with a reason."""
    settings = settings | ({"noise": lambda *_: np.full((1, 2), 0.5, np.float32)} if "noise" in settings else {})
    for count in (3, 2):
        sigmas = karras(count)
        x = np.full((1, 2), sigmas[0], np.float32)
        before = x.copy()
        steps = list(sampler(Sine(), x, sigmas, **settings))
        assert [step.index for step in steps] == list(range(len(steps)))
        assert all(step.x.dtype == step.denoised.dtype == np.float32 for step in steps)
        assert np.isfinite(steps[-1].x).all()
        np.testing.assert_array_equal(x, before)
    try:
        steps = list(sampler(Sine(), x, [14.6, 0.0], **settings))
    except SettingError as problem:
        assert "two steps" in str(problem)  # noqa: PT017
    else:
        assert np.isfinite(steps[-1].x).all()


def test_a_sampler_goes_step_by_step():
    """Whoever takes one step pays for one; what was taken stays."""
    model = Sine()
    steps = euler.euler(model, np.array([14.0]), karras(10))
    first = next(steps)
    kept = first.x.copy()
    assert model.evaluations == 1
    next(steps)
    np.testing.assert_array_equal(first.x, kept)


def test_tcd_goes_down_and_up_again():
    levels = scaled_linear()
    sigmas = [float(levels.sigmas[time]) for time in (999, 749, 499, 249)] + [0.0]
    x = np.array([sigmas[0]])
    quiet = last(euler.tcd(Gaussian(), x, sigmas, noise=half, levels=levels, eta=0.0))
    loud = last(euler.tcd(Gaussian(), x, sigmas, noise=lambda *_: np.zeros(1), levels=levels, eta=0.3))
    assert not np.allclose(quiet, loud)
    np.testing.assert_allclose(quiet, last(euler.euler(Gaussian(), x, sigmas)), atol=0.05)


def test_sa_solver_adds_noise_between_its_levels_only():
    drawn = []

    def noise(sigma, sigma_next):
        drawn.append(sigma_next)
        return np.array([0.5])

    sigmas = karras(10)
    last(sa.sa_solver(Sine(), np.array([sigmas[0]]), sigmas, noise=noise, noisy=(6.0, 0.4)))
    assert drawn == [sigma for sigma in sigmas if 6.0 >= sigma > 0.4]
    twice = Sine()
    last(sa.sa_solver(twice, np.array([sigmas[0]]), sigmas, evaluate_twice=True))
    assert twice.evaluations == 19


@pytest.mark.parametrize(
    ("sampler", "settings", "text"),
    [
        (dpmpp.dpmpp_2m_sde, {"noise": half, "solver": "euler"}, "euler"),
        (exponential.seeds_2, {"solver": "phi"}, "phi"),
        (unipc.unipc, {"variant": "bh3"}, "bh3"),
        (dpm_solver.dpm_adaptive, {"order": 4}, "4"),
    ],
)
def test_wrong_settings_are_named(sampler, settings, text):
    with pytest.raises(SettingError, match=text):
        last(sampler(Sine(), np.array([14.6]), karras(5), **settings))
    with pytest.raises(SettingError, match="logSNR"):
        last(unipc.unipc_times(SineNoise(), np.array([1.0]), [1, 500], scaled_linear().alphas, skip="time"))
