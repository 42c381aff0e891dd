"""Names, and what a request means: where pictures start, which levels their samplers go through, in both modes."""

import math
from itertools import pairwise

import numpy as np
import pytest
from toys import Gaussian, Sine, half

from graphc_images.errors import SettingError
from graphc_images.modes import mode_of
from graphc_images.noise import brownian_noise, noise_source
from graphc_images.sampling.levels import flow_levels, scaled_linear
from graphc_images.sampling.names import SAMPLERS, SCHEDULERS, find_sampler, find_scheduler
from graphc_images.sampling.plan import Request, model_for, plan
from graphc_images.sampling.predictions import EPS
from graphc_images.sampling.samplers import euler, times, unipc

SD, SD3, FLUX = scaled_linear(), flow_levels("sd3"), flow_levels("flux")
ONE = np.ones((1, 4, 2, 2))


def planned(name, mode="a1111", scheduler=None, levels=SD, **settings):
    sampler, from_name = find_sampler(name, mode)
    chosen = find_scheduler(scheduler) if scheduler else from_name
    return plan(sampler, chosen, levels, Request(**({"steps": 20, "mode": mode} | settings)))


@pytest.mark.parametrize(
    ("name", "mode", "found", "scheduler"),
    [
        ("Euler a", "a1111", "euler_ancestral", None),
        ("k_euler_a", "comfyui", "euler_ancestral", None),
        ("DPM++ 2M Karras", "a1111", "dpmpp_2m", "karras"),
        ("DPM++ 2M SDE Heun Exponential", "a1111", "dpmpp_2m_sde_heun", "exponential"),
        ("dpm++ sde karras", "a1111", "dpmpp_sde", "karras"),
        ("DPM2 a Karras", "a1111", "dpm_2_ancestral", "karras"),
        ("Euler SGM Uniform", "a1111", "euler", "sgm_uniform"),
        ("dpmpp_3m_sde_gpu", "comfyui", "dpmpp_3m_sde_gpu", None),
        ("DPMSolverMultistepScheduler", "comfyui", "dpmpp_2m", None),
        ("EulerDiscrete", "a1111", "euler", None),
        ("dpm++2mv2", "comfyui", "dpmpp_2m_v2", None),
        ("euler_a_cfg_pp", "comfyui", "euler_ancestral_cfg_pp", None),
        ("DDIM", "a1111", "ddim", None),
        ("ddim", "comfyui", "ddim", None),
        ("FlowMatchEulerDiscreteScheduler", "comfyui", "euler", None),
        ("UniPC", "a1111", "unipc", None),
        ("UniPC", "comfyui", "uni_pc", None),
        ("LCM", "a1111", "lcm", None),
    ],
)
def test_names_of_samplers(name, mode, found, scheduler):
    sampler, of_name = find_sampler(name, mode)
    assert sampler.name == found
    assert (of_name.name if of_name else None) == scheduler


def test_every_name_is_found_and_means_one_thing():
    for mode in ("a1111", "comfyui"):
        for sampler in SAMPLERS:
            for name in sampler.names:
                found, _ = find_sampler(name, mode)
                if sampler.only in (None, mode):
                    assert found.name == sampler.name or found.only == mode, (name, found.name)
    for scheduler in SCHEDULERS:
        for name in scheduler.names:
            assert find_scheduler(name) is scheduler
    for a1111 in (
        "Euler",
        "Heun",
        "LMS",
        "DPM fast",
        "DPM adaptive",
        "Restart",
        "PLMS",
        "DDIM CFG++",
        "HeunPP2",
        "DEIS",
        "DDPM",
    ):
        assert find_sampler(a1111, "a1111")[0].label == a1111


@pytest.mark.parametrize(("name", "finder"), [("Euler b", find_sampler), ("DPM++ 9M Karras", find_sampler)])
def test_unknown_samplers(name, finder):
    with pytest.raises(SettingError, match="no sampler"):
        finder(name, "a1111")


def test_unknown_schedulers_and_modes():
    with pytest.raises(SettingError, match="'Kerras'"):
        find_scheduler("Kerras")
    with pytest.raises(SettingError, match="'a111'"):
        mode_of("a111")
    assert mode_of("comfyui") == "comfyui"


def test_automatic_is_the_samplers_own():
    karras = planned("DPM++ 2M", scheduler="Karras").sigmas
    assert planned("DPM++ 2M").sigmas == planned("DPM++ 2M Karras").sigmas == karras
    assert planned("DPM++ 2M", scheduler="Automatic").sigmas == karras
    assert planned("Euler").sigmas == planned("Euler", scheduler="Uniform").sigmas
    assert planned("DPM++ 2M SDE").sigmas == planned("DPM++ 2M SDE", scheduler="Exponential").sigmas
    assert planned("Euler", levels=FLUX).sigmas == planned("Euler", levels=FLUX, scheduler="Simple").sigmas
    assert planned("LCM", steps=4).sigmas == pytest.approx([14.61464, 2.99106, 0.97283, 0.13445, 0], abs=6e-6)
    assert planned("lcm", "comfyui", "sgm_uniform", steps=4).sigmas[1] == pytest.approx(SD.sigma(999 * 0.75), rel=1e-6)


def test_the_penultimate_level_is_left_out():
    for name, mode in (("DPM2", "a1111"), ("dpm_2", "comfyui"), ("DPM++ 3M SDE", "a1111"), ("uni_pc", "comfyui")):
        found = planned(name, mode, "karras").sigmas
        longer = planned("Euler", mode, "karras", steps=21).sigmas
        assert found == [*longer[:-2], 0.0], name
    for name, mode in (("Euler", "a1111"), ("dpmpp_3m_sde", "comfyui")):
        assert len(planned(name, mode, "karras").sigmas) == 21
        assert planned(name, mode, "karras").sigmas[-2] == pytest.approx(SD.lowest)
    always = planned("Euler", scheduler="karras", discard_penultimate=True).sigmas
    assert always == planned("DPM2").sigmas
    assert planned("DDIM", discard_penultimate=True).timesteps[1] == 1 + 1000 // 21


def test_starting_noise():
    assert planned("Euler").start(ONE)[0, 0, 0, 0] == pytest.approx(SD.highest)
    assert planned("Euler", more_noise=True).start(ONE)[0, 0, 0, 0] == pytest.approx(math.hypot(1, SD.highest))
    assert planned("euler", "comfyui", "normal").start(ONE)[0, 0, 0, 0] == pytest.approx(math.hypot(1, SD.highest))
    below = planned("euler", "comfyui", "ddim_uniform")
    assert below.start(ONE)[0, 0, 0, 0] == pytest.approx(below.sigmas[0])
    assert planned("DDIM").start(ONE)[0, 0, 0, 0] == 1
    assert planned("euler", "comfyui", "simple", SD3).start(ONE)[0, 0, 0, 0] == 1


def test_from_a_picture_in_a1111s_way():
    whole = planned("Euler").sigmas
    found = planned("Euler", denoise=0.75)
    assert found.sigmas == whole[4:]
    assert len(found.sigmas) - 1 == 16
    assert found.whole == whole
    x = found.start(ONE, 2 * ONE, extra=0.5)
    assert x[0, 0, 0, 0] == pytest.approx(2 + found.sigmas[0] + 0.5)
    fixed = planned("Euler", denoise=0.75, fix_steps=True)
    assert len(fixed.sigmas) - 1 == 20
    assert fixed.whole == planned("Euler", steps=26).sigmas
    assert len(planned("Euler", denoise=1.0).sigmas) - 1 == 20
    assert len(planned("Euler", denoise=0.0).sigmas) - 1 == 1
    nothing = planned("Euler", denoise=0.0, fix_steps=True)
    np.testing.assert_array_equal(nothing.start(ONE, 2 * ONE), 2 * ONE)
    assert list(nothing.run(Sine(), ONE, half)) == []


def test_from_a_picture_in_comfyuis_way():
    found = planned("euler", "comfyui", "karras", denoise=0.75)
    longer = planned("euler", "comfyui", "karras", steps=26)
    assert found.sigmas == found.whole == longer.sigmas[-21:]
    assert found.start(ONE, 2 * ONE)[0, 0, 0, 0] == pytest.approx(2 + found.sigmas[0])
    assert planned("euler", "comfyui", "karras", denoise=1.0).sigmas == planned("euler", "comfyui", "karras").sigmas
    assert planned("euler", "comfyui", "karras", denoise=0.0).sigmas == []
    flow = planned("euler", "comfyui", "simple", SD3, denoise=0.5)
    assert flow.start(ONE, 3 * ONE)[0, 0, 0, 0] == pytest.approx(flow.sigmas[0] + 3 * (1 - flow.sigmas[0]))


def test_from_a_picture_on_times():
    found = planned("DDIM", denoise=0.75)
    assert found.timesteps == list(range(1, 751, 50))
    assert found.start_time == 751
    alpha = float(SD.alphas[751])
    assert found.start(ONE, 2 * ONE)[0, 0, 0, 0] == pytest.approx(2 * math.sqrt(alpha) + math.sqrt(1 - alpha))
    extra = found.start(ONE, 2 * ONE, extra=0.5) - found.start(ONE, 2 * ONE)
    np.testing.assert_allclose(extra, 0.5 * math.sqrt(alpha))
    model = Sine()
    assert len(list(found.run(model, ONE, half))) == model.evaluations == 14
    for name in ("UniPC", "DDIM", "PLMS"):
        assert list(planned(name, steps=1, denoise=1.0).run(model, ONE, half)) == []
    for name in ("DDIM", "TCD"):
        with pytest.raises(SettingError, match=f"{name} needs"):
            planned(name, levels=SD3)


def test_levels_of_ones_own():
    own = [10.0, 5.0, 1.0, 0.0]
    assert planned("DPM2", sigmas=own).sigmas == own
    for wrong in ([5.0], [5.0, 6.0, 0.0], [5.0, 5.0], [5.0, -1.0], [math.inf, 1.0], [math.nan, 0.0]):
        with pytest.raises(SettingError, match="noise levels must fall"):
            planned("Euler", sigmas=wrong)
    low = planned("Euler", scheduler="karras", low=0.1, high=10.0, rho=5.0).sigmas
    assert (low[0], low[-2]) == pytest.approx((10.0, 0.1))
    with pytest.raises(SettingError, match="steps must be 1"):
        planned("Euler", steps=0)
    with pytest.raises(SettingError, match="between 0 and 1"):
        planned("Euler", denoise=1.5)


def test_no_step_has_no_length():
    found = planned("euler", "comfyui", "laplace", steps=30).sigmas
    assert found == sorted(set(found), reverse=True)
    assert len(planned("euler", "comfyui", "simple", steps=3000).sigmas) == 1001


@pytest.mark.parametrize("flow", [False, True])
@pytest.mark.parametrize("mode", ["a1111", "comfyui"])
def test_any_falling_levels_give_finite_pictures(flow, mode):
    """Levels far apart, near each other, of a flow up to 1; with and without the last step to no noise."""

    class Known(Gaussian):
        def pair(self, x, sigma):
            return self(x, sigma), 0.9 * self(x, sigma)

    random = np.random.default_rng(2)
    levels = SD3 if flow else SD
    for _ in range(6):
        own = random.uniform(0.001, 1, 5) if flow else np.exp(random.uniform(-8, 9, 5))
        own = np.sort(own)[::-1]
        own[1] = own[0] * (1 - 1e-7)
        own[0] = 1.0 if flow and random.random() < 0.5 else own[0]
        sigmas = [*map(float, np.float32(own)), *([0.0] if random.random() < 0.5 else [])]
        if any(later >= earlier for earlier, later in pairwise(sigmas)):
            continue
        for sampler in SAMPLERS:
            if sampler.on_times or "levels" in sampler.takes:
                continue
            found = plan(sampler, None, levels, Request(5, mode, sigmas=sigmas))
            x = random.standard_normal((1, 2, 2, 2)).astype(np.float32) * np.float32(sigmas[0])
            noise = lambda *_: random.standard_normal((1, 2, 2, 2)).astype(np.float32)  # noqa: E731
            steps = list(found.run(Known(flow=flow), x, noise))
            assert np.isfinite(steps[-1].x).all(), (sampler.name, sigmas)


def test_dpm_fast_in_a1111_goes_by_the_models_ends_and_makes_noise():
    found = planned("DPM fast", scheduler="karras", high=10.0)
    assert (found.sigmas[0], found.sigmas[-2]) == pytest.approx((SD.highest, SD.lowest))
    drawn = []
    model = Sine()
    list(found.run(model, ONE, lambda *way: drawn.append(way) or 0 * ONE))
    assert model.evaluations == 20
    assert drawn
    drawn.clear()
    list(planned("dpm_fast", "comfyui", "karras").run(model, ONE, lambda *way: drawn.append(way) or 0 * ONE))
    assert not drawn


def test_forge_takes_flows_as_exploding_but_for_two_samplers():
    assert not planned("DPM++ 2S a", levels=FLUX).path.flow
    assert planned("Euler a", levels=FLUX).path.flow
    assert planned("DPM2 a", levels=FLUX).path.flow
    assert not planned("Euler a", levels=SD3).path.flow
    assert planned("dpmpp_2s_ancestral", "comfyui", "simple", SD3).path.flow


def test_evaluations_that_a1111_counts():
    assert planned("Euler").evaluations == 20
    assert planned("DPM++ SDE").evaluations == 40
    assert planned("Euler", denoise=0.5).evaluations == 11


def test_settings_reach_the_samplers_that_have_them():
    class Loud(Sine):
        def __call__(self, x, sigma):
            return super().__call__(x, sigma)

    quiet = list(planned("Euler a", steps=5).run(Loud(), ONE, half, eta=0.0))[-1].x
    np.testing.assert_allclose(quiet, list(planned("Euler", steps=5).run(Loud(), ONE, half, eta=0.3))[-1].x)
    assert not np.allclose(quiet, list(planned("Euler a", steps=5).run(Loud(), ONE, half, eta=None))[-1].x)
    last = [list(planned("lms", mode, "karras", steps=5).run(Sine(), ONE, half))[-1].x for mode in ("a1111", "comfyui")]
    assert not np.allclose(*last)
    churned = [
        list(planned("Euler", steps=5).run(Sine(), ONE, half, s_churn=3.0, s_tmax=top))[-1].x for top in (0, None, 1e-9)
    ]
    np.testing.assert_array_equal(churned[0], churned[1])
    assert not np.allclose(churned[0], churned[2])
    bh = [list(planned(name, "comfyui", "karras").run(Sine(), ONE, half))[-1].x for name in ("uni_pc", "uni_pc_bh2")]
    assert not np.allclose(*bh)


@pytest.mark.parametrize("mode", ["a1111", "comfyui"])
@pytest.mark.parametrize(
    "sampler", SAMPLERS, ids=lambda each: f"{each.name}-{each.names[1] if len(each.names) > 1 else ''}"
)
def test_every_sampler_makes_the_picture(sampler, mode):
    """With a model that knows its pictures, they have the right mean, from text and from a picture; float32 stays."""
    levels = SD
    shape = (1, 4, 32, 32)
    source = noise_source(mode, shape, 5)
    found = plan(sampler, None, levels, Request(30, mode))
    noise = brownian_noise(mode, shape, [5], found.whole) if sampler.brownian and mode == "comfyui" else source

    class Known(Gaussian):
        def pair(self, x, sigma):
            return self(x, sigma), self(x, sigma)

    x = found.start(source.first())
    result = list(found.run(Known(mean=0.3, deviation=0.2), x, noise))[-1].x
    assert result.dtype == np.float32
    assert abs(result.mean() - 0.3) < 0.06
    assert result.std() < 0.5
    part = plan(sampler, None, levels, Request(30, mode, denoise=0.5))
    latent = np.full(shape, 0.3, np.float32)
    result = list(part.run(Known(mean=0.3, deviation=0.2), part.start(source.first(), latent), noise))[-1].x
    assert abs(result.mean() - 0.3) < 0.06


def test_the_model_for_a_plan():
    told = []

    def network(x, timestep):
        told.append(timestep)
        return x

    for name, mode in (("Euler", "a1111"), ("euler", "comfyui"), ("LCM", "a1111")):
        model_for(planned(name, mode, "karras", steps=4), network, EPS)(ONE, 1.62)
    assert 500 < told[0] < 501
    assert told[1] == 500
    assert told[2] == 499


def test_functions_behind_names():
    assert find_sampler("DDIM", "a1111")[0].function is times.ddim
    assert find_sampler("UniPC", "a1111")[0].function is unipc.unipc_times
    assert find_sampler("ddim", "comfyui")[0].function is euler.euler
    assert all(earlier > later for earlier, later in pairwise(planned("Restart").sigmas))
