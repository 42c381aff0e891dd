"""diffusers' schedulers beside our samplers, where they are the same: levels, steps, and noise from the same seed."""

import math

import numpy as np
import pytest

from graphc_images.noise import TorchCpu
from graphc_images.sampling import schedulers
from graphc_images.sampling.levels import FlowLevels, flow_levels, flux_mu, scaled_linear
from graphc_images.sampling.names import find_sampler
from graphc_images.sampling.predictions import EPS, FLOW, OnTimes, V, denoiser
from graphc_images.sampling.samplers import euler, times

pytestmark = pytest.mark.torch
SD = scaled_linear()
TRAINED = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
START = np.array(
    [[[[1.0, -0.3], [0.2, 2.0], [0.1, 0.4], [-1.0, -0.6], [0.9, 1.1], [0.5, 0.0], [1.4, -2.0], [0.3, -0.1]]]]
)
"""Sixteen numbers: as many as PyTorch makes at once."""


def levels_of(name, count, levels=SD, mode="a1111", **settings):
    return getattr(schedulers, name)(schedulers.Wanted(count, levels, levels.lowest, levels.highest, mode, **settings))


def network(x, timestep):
    return np.sin(x * 1.5) * 0.9


def theirs(scheduler, x, count, **settings):
    """The result of a scheduler's own first steps (all, if `count` is None), with the network."""
    import torch

    x = torch.from_numpy(x)
    for timestep in scheduler.timesteps[:count]:
        seen = scheduler.scale_model_input(x, timestep) if hasattr(scheduler, "scale_model_input") else x
        x = scheduler.step(torch.sin(seen * 1.5) * 0.9, timestep, x, **settings).prev_sample
    return x.numpy()


def ours(name, sigmas, prediction=EPS, levels=SD, **settings):
    model = denoiser(network, prediction, levels)
    sampler = find_sampler(name, "comfyui")[0]
    x = START * sigmas[0] if prediction is FLOW else START * math.hypot(1, sigmas[0])
    return list(sampler.function(model, x, sigmas, **settings))[-1].x


@pytest.mark.parametrize(
    ("setting", "name"),
    [("use_karras_sigmas", "karras"), ("use_exponential_sigmas", "exponential"), ("use_beta_sigmas", "beta")],
)
def test_levels(setting, name):
    from diffusers import EulerDiscreteScheduler

    scheduler = EulerDiscreteScheduler(**TRAINED, **{setting: True})
    scheduler.set_timesteps(12)
    np.testing.assert_allclose(levels_of(name, 12), scheduler.sigmas.numpy(), rtol=2e-5, atol=1e-6)


def test_trailing_and_dynamic_levels():
    from diffusers import EulerDiscreteScheduler, FlowMatchEulerDiscreteScheduler

    scheduler = EulerDiscreteScheduler(**TRAINED, timestep_spacing="trailing")
    scheduler.set_timesteps(10)
    np.testing.assert_allclose(levels_of("turbo", 10), scheduler.sigmas.numpy(), rtol=2e-5)
    scheduler = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, shift=3.0)
    scheduler.set_timesteps(sigmas=np.linspace(1, 1 / 20, 20), mu=flux_mu(1024))
    found = levels_of("flux", 20, flow_levels("flux"), tokens=1024)
    np.testing.assert_allclose(found, scheduler.sigmas.numpy(), rtol=1e-5)


def test_zero_terminal_snr():
    from diffusers import EulerDiscreteScheduler

    scheduler = EulerDiscreteScheduler(**TRAINED, rescale_betas_zero_snr=True, timestep_spacing="trailing")
    alphas = scheduler.alphas_cumprod.numpy()
    np.testing.assert_allclose(scaled_linear(zero_snr=True).alphas[:-1], alphas[:-1], rtol=2e-4)


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
@pytest.mark.parametrize("name", ["EulerDiscrete", "HeunDiscrete", "DPMSolverMultistep", "LMSDiscrete"])
def test_deterministic_samplers(name, prediction):
    """On Karras' levels, from the same noise."""
    import diffusers

    if name == "LMSDiscrete" and prediction == "v_prediction":
        prediction = "epsilon"  # its conversion is that of Euler's
    more = {"euler_at_final": True} if name == "DPMSolverMultistep" else {}
    scheduler = getattr(diffusers, f"{name}Scheduler")(
        **TRAINED, **more, use_karras_sigmas=True, prediction_type=prediction
    )
    scheduler.set_timesteps(8)
    sigmas = levels_of("karras", 8)
    factor = 1 if scheduler.init_noise_sigma == 1 else math.hypot(1, sigmas[0])
    expected = theirs(scheduler, START * factor, None)
    found = ours(name, sigmas, EPS if prediction == "epsilon" else V)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_ancestral_noise_comes_from_the_same_seed():
    import torch
    from diffusers import EulerAncestralDiscreteScheduler

    scheduler = EulerAncestralDiscreteScheduler(**TRAINED, timestep_spacing="trailing")
    scheduler.set_timesteps(8)
    generator = torch.Generator().manual_seed(7)
    sigmas = levels_of("turbo", 8)
    expected = theirs(scheduler, np.float32(START * math.hypot(1, sigmas[0])), None, generator=generator)
    source = TorchCpu(7)
    found = ours("EulerAncestralDiscrete", sigmas, noise=lambda *_: source.normal(START.shape))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("name", "scheduler"), [("Euler", "FlowMatchEulerDiscrete"), ("LCM", "FlowMatchLCM")])
def test_flows(name, scheduler):
    import diffusers
    import torch

    scheduler = getattr(diffusers, f"{scheduler}Scheduler")(shift=3.0)
    scheduler.set_timesteps(6)
    sigmas = [float(sigma) for sigma in scheduler.sigmas]
    settings = {"generator": torch.Generator().manual_seed(3)}
    expected = theirs(scheduler, np.float32(START), None, **settings)
    source = TorchCpu(3)
    levels = flow_levels("sd3")
    drawn = {"noise": lambda *_: source.normal(START.shape), "path": levels.path} if name == "LCM" else {}
    found = ours(name, sigmas, FLOW, levels, **drawn)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_ddim_and_its_times():
    """diffusers' leading times with an offset of 1 are A1111's; all steps but the last, which A1111 does not take."""
    from diffusers import DDIMScheduler

    scheduler = DDIMScheduler(**TRAINED, steps_offset=1, clip_sample=False, set_alpha_to_one=False)
    scheduler.set_timesteps(20)
    steps = times.a1111_timesteps(20)
    assert scheduler.timesteps.tolist() == steps[::-1]
    model = OnTimes(denoiser(network, EPS, SD, whole=False), SD)
    found = list(times.ddim(model, START, steps, SD.alphas))[-1].x
    np.testing.assert_allclose(found, theirs(scheduler, START, 19), rtol=0, atol=2e-5)


def test_plms_and_its_times():
    """From the second step on, diffusers' PNDM without Runge and Kutta's steps is A1111's PLMS."""
    from diffusers import PNDMScheduler

    scheduler = PNDMScheduler(**TRAINED, steps_offset=1, skip_prk_steps=True, set_alpha_to_one=False)
    scheduler.set_timesteps(20)
    model = OnTimes(denoiser(network, EPS, SD, whole=False), SD)
    found = list(times.plms(model, START, times.a1111_timesteps(20), SD.alphas))
    expected = theirs(scheduler, START, 20)  # the first step takes two of its times
    np.testing.assert_allclose(found[18].x, expected, rtol=0, atol=2e-5)


def test_tcd():
    import torch
    from diffusers import TCDScheduler

    scheduler = TCDScheduler(**TRAINED)
    scheduler.set_timesteps(timesteps=[999, 759, 499, 259])
    expected = theirs(scheduler, np.float32(START), 3, eta=0.3, generator=torch.Generator().manual_seed(5))
    source = TorchCpu(5)
    sigmas = [float(SD.sigmas[time]) for time in (999, 759, 499, 259)]
    steps = euler.tcd(
        denoiser(network, EPS, SD),
        START * math.hypot(1, sigmas[0]),
        sigmas,
        noise=lambda *_: source.normal(START.shape),
        levels=SD,
        eta=0.3,
    )
    np.testing.assert_allclose(list(steps)[-1].x / math.hypot(1, sigmas[-1]), expected, rtol=0, atol=2e-5)


def test_shifts():
    from diffusers import FlowMatchEulerDiscreteScheduler

    for shift in (1.0, 3.0, 5.0):
        scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
        np.testing.assert_allclose(FlowLevels(shift).sigmas[::-1], scheduler.sigmas.numpy(), rtol=1e-6)
