"""Noise levels of training and of sampling: the programs' numbers (diffusers' are in test_diffusers.py)."""

import math
from itertools import pairwise

import numpy as np
import pytest

from graphc_images.errors import SettingError
from graphc_images.sampling import level_tables, schedulers
from graphc_images.sampling.beta_distribution import quantile
from graphc_images.sampling.levels import (
    FLOWS,
    ContinuousLevels,
    FlowLevels,
    flow_levels,
    flux2_mu,
    flux_mu,
    levels_of_model,
    scaled_linear,
)
from graphc_images.sampling.names import SCHEDULERS
from graphc_images.sampling.predictions import (
    EPS,
    FLOW,
    PREDICTIONS,
    OnTimes,
    V,
    denoiser,
    edm,
    lcm_denoiser,
    prediction_of,
)

SD = scaled_linear()
SD3, FLUX, EVEN = flow_levels("sd3"), flow_levels("flux"), FlowLevels(1.0)


def numbers(text):
    return [float(number) for number in text.split()]


TEN = {
    "karras": "14.61464 9.10293 5.47839 3.1686 1.74942 .91407 .44692 .2014 .08191 .02917 0",
    "exponential": "14.61464 7.32487 3.67123 1.84002 .92222 .46222 .23166 .11611 .05819 .02917 0",
    "polyexponential": "14.61464 7.32487 3.67123 1.84002 .92222 .46222 .23166 .11611 .05819 .02917 0",
    "uniform": "14.61464 7.83988 4.60917 2.91831 1.95016 1.34493 .93236 .62498 .36866 .02917 0",
    "normal": "14.61464 7.83988 4.60917 2.91831 1.95016 1.34493 .93236 .62498 .36866 .02917 0",
    "sgm_uniform": "14.61464 8.30717 5.09241 3.32507 2.27973 1.61558 1.16286 .83188 .57119 .3437 0",
    "simple": "14.61464 8.3028 5.08776 3.32108 2.27646 1.61289 1.16058 .82986 .56928 .34167 0",
    "ddim_uniform": "8.39069 5.13443 3.34776 2.29285 1.62369 1.16822 .83565 .57405 .34619 .04131 0",
    "bong_tangent": "14.61464 14.29442 13.85519 13.21906 12.22795 10.52829 7.3219 3.7839 1.74239 .66021 0",
}
EACH = {
    ("beta", "a1111"): "14.61464 13.92778 12.49098 10.59761 8.44244 6.20137 4.0462 2.15283 .71602 .02917 0",
    ("beta", "comfyui"): "14.61464 11.54277 7.37184 4.3728 2.61524 1.61828 1.02733 .65489 .39551 .19906 0",
    ("kl_optimal", "a1111"): "14.61464 4.56504 2.63289 1.78645 1.29477 .96159 .71163 .50942 .33564 .17835 .02917",
    ("kl_optimal", "comfyui"): "14.61464 4.23235 2.39372 1.59707 1.133 .81524 .57291 .37248 .19529 .02917 0",
}


def schedule(name, steps=10, levels=SD, mode="a1111", **settings):
    want = schedulers.Wanted(steps, levels, levels.lowest, levels.highest, mode)
    want = schedulers.Wanted(**{**want.__dict__, **settings})
    return getattr(schedulers, name)(want)


@pytest.mark.parametrize("mode", ["a1111", "comfyui"])
@pytest.mark.parametrize("name", TEN)
def test_ten_steps(name, mode):
    np.testing.assert_allclose(schedule(name, mode=mode), numbers(TEN[name]), rtol=0, atol=6e-6)


@pytest.mark.parametrize(("name", "mode"), EACH)
def test_ten_steps_where_programs_differ(name, mode):
    np.testing.assert_allclose(schedule(name, mode=mode), numbers(EACH[name, mode]), rtol=0, atol=6e-6)


def test_levels_of_stable_diffusion():
    assert SD.alphas[[0, 999]] == pytest.approx([0.99915, 0.0046600985], rel=1e-6)
    assert SD.sigmas[[0, 500, 999]] == pytest.approx([0.0291671585, 1.6182789, 14.6146412], rel=1e-7)
    assert scaled_linear(narrow=True).lowest == pytest.approx(0.0291675329, rel=1e-7)
    assert scaled_linear(zero_snr=True).sigmas[:-3:-1] == pytest.approx([4518.7637, 2254.2354], rel=3e-6)
    karras = schedule("karras", 20)
    assert karras[:3] + karras[-4:-1] == pytest.approx(
        [14.61464, 11.72537, 9.3402, 0.07786, 0.04848, 0.02917], abs=6e-6
    )
    old = schedule("karras", low=0.1, high=10.0)
    assert old[:3] == pytest.approx([10, 6.80216, 4.5242], abs=6e-6)
    assert schedule("karras", rho=3.0)[1] == pytest.approx(10.8, abs=0.1)


def test_times_and_levels():
    for levels in (SD, ContinuousLevels(0.002, 120.0)):
        for sigma in (0.05, 1.0, 14.0):
            assert levels.sigma(levels.timestep(sigma, whole=False)) == pytest.approx(sigma, rel=1e-9)
    assert [SD.timestep(sigma) for sigma in (14.7, 0.001, 1.6182789)] == [999, 0, 500]
    assert SD.timestep(1.6185, whole=False) == pytest.approx(500.05, abs=0.05)
    assert [SD.sigma_at(share) for share in (0, 1)] == [999999999.9, 0]
    assert SD.sigma_at(0.5) == pytest.approx(SD.sigma(499.5))
    assert ContinuousLevels(0.002, 120.0).sigma_at(0.5) == pytest.approx(math.sqrt(0.24))
    assert [ContinuousLevels(0.002, 120.0).sigma_at(share) for share in (0, 1)] == [999999999.9, 0]
    assert SD3.timestep(0.5) == 0.5
    assert [SD3.sigma_at(share) for share in (0, 0.5, 1)] == [1, 0.75, 0]
    assert SD3.sigmas[0] == pytest.approx(0.002994, abs=1e-6)
    assert len(FLUX.sigmas) == 10000
    assert FLUX.timestep(0.5) == 0.5
    for family in FLOWS:
        assert flow_levels(family).highest == pytest.approx(1)
    assert flow_levels("flux_schnell", "a1111").shift == pytest.approx(math.e)
    assert flow_levels("wan", shift=5.0).shift == 5


def test_flows():
    expected = "1 .96429 .92308 .875 .81818 .75 .66667 .5625 .42857 .25 0"
    np.testing.assert_allclose(schedule("simple", levels=SD3), numbers(expected), atol=6e-6)
    expected = "1 .9644 .92334 .87547 .81892 .75112 .66833 .56495 .43223 .25559 0"
    np.testing.assert_allclose(schedule("sgm_uniform", levels=SD3), numbers(expected), atol=6e-6)
    assert schedule("normal", levels=SD3)[-2] == pytest.approx(0.00893, abs=6e-6)
    expected = "1 .97805 .94793 .90432 .83637 .71983 .5 .25743 .11746 .04327 0"
    np.testing.assert_allclose(schedule("bong_tangent", levels=EVEN, low=0.0, high=1.0), numbers(expected), atol=6e-6)
    expected = "1 .995 .99 .985 .98 .975 .932 .813 .618 .347 0"
    np.testing.assert_allclose(schedule("linear_quadratic", levels=EVEN), numbers(expected), atol=1e-6)
    expected = (
        "1 .98361 .96601 .94708 .92665 .90453 .88051 .85434 .8257 .79424 .75951 "
        ".72098 .67799 .62971 .5751 .51284 .4412 .35787 .25976 .14253 0"
    )
    for name in ("flux", "simple"):
        np.testing.assert_allclose(schedule(name, 20, FLUX), numbers(expected), atol=6e-6)
    np.testing.assert_allclose(schedule("flux", 4, FLUX, tokens=1024), numbers("1 .84923 .65249 .38494 0"), atol=6e-6)
    np.testing.assert_allclose(schedule("simple", 4, flow_levels("flux_schnell")), [1, 0.75, 0.5, 0.25, 0], atol=1e-6)


def test_mu():
    for tokens, mu in ((256, 0.5), (1024, 0.63), (2304, 0.84667), (4096, 1.15), (6144, 1.49667)):
        assert flux_mu(tokens) == pytest.approx(mu, abs=6e-6)
    for tokens, steps, mu in ((4096, 28, 2.15144), (4096, 50, 2.02335), (1024, 4, 2.03069)):
        assert flux2_mu(tokens, steps) == pytest.approx(mu, abs=6e-6)
    assert flux2_mu(4301, 4) == flux2_mu(4301, 50)
    assert schedule("flux2", 4, FLUX, tokens=1024)[1] == pytest.approx(1 / (1 + math.exp(-2.03069) / 3), abs=1e-5)


def test_few_steps():
    np.testing.assert_allclose(schedule("turbo", 4), numbers("14.61464 4.08173 1.61289 .6932 0"), atol=6e-6)
    np.testing.assert_allclose(schedule("lcm", 4), numbers("14.61464 4.26056 1.61289 .71938 0"), atol=6e-6)
    np.testing.assert_allclose(schedule("lcm_sampler", 4), numbers("14.61464 2.99106 .97283 .13445 0"), atol=6e-6)
    assert schedule("sd_turbo", 1) == pytest.approx([SD.highest, 0])
    assert schedule("sd_turbo", 2, denoise=0.5) == pytest.approx([SD.sigma(499), SD.sigma(399), 0], rel=1e-6)


def test_tables():
    steps = schedule("align_your_steps", 20)
    assert steps[:4] + steps[-3:] == pytest.approx([14.615, 9.52171, 6.30118, 4.80002, 0.06935, 0.029, 0], abs=6e-6)
    steps = schedule("align_your_steps", 20, mode="comfyui")
    rough = [14.615, 9.7279, 6.475, 5.0, 0.152, 0.06639, 0]
    assert steps[:4] + steps[-3:] == pytest.approx(rough, abs=2e-3)  # those of the table with three digits
    assert schedule("align_your_steps", 11)[:-1] == pytest.approx(level_tables.ALIGN_YOUR_STEPS["sd1"])
    assert schedule("align_your_steps", 10, mode="comfyui", family="sdxl")[:2] == pytest.approx([14.6146412, 6.3184485])
    assert schedule("align_your_steps_gits", 11, family="sdxl")[1] == pytest.approx(4.734)
    assert schedule("align_your_steps_32", 32)[:3] == pytest.approx([14.615, 11.23951352, 8.64363081])
    assert len(level_tables.ALIGN_YOUR_STEPS_32["sdxl"]) == 32
    assert schedule("gits", 4) == pytest.approx([14.61464119, 2.36326075, 0.92192322, 0.36617002, 0], abs=1e-6)
    assert schedule("align_your_steps_11", 20) == schedule("align_your_steps", 20)
    assert len(schedule("gits", 25)) == 26
    assert schedule("optimal_steps", 10, levels=FLUX, family="flux")[:2] == pytest.approx([0.9968, 0.9886])
    with pytest.raises(SettingError, match="'flux'"):
        schedule("align_your_steps", family="flux")
    with pytest.raises(SettingError, match=r"0\.80 to 1\.50"):
        schedule("gits", coefficient=2.0)


@pytest.mark.parametrize("mode", ["a1111", "comfyui"])
@pytest.mark.parametrize("scheduler", [each for each in SCHEDULERS if each.function], ids=lambda each: each.name)
def test_every_scheduler_at_every_length(scheduler, mode):
    """Levels fall, are finite, and are as many as steps; the exceptions are named."""
    levels = FLUX if scheduler.name in ("flux", "flux2", "qwen_image", "ltx2", "optimal_steps", "logit_normal") else SD
    family = "flux" if levels is FLUX else "sd1"
    for steps in (1, 2, 3, 5, 8, 20, 50):
        want = schedulers.Wanted(steps, levels, levels.lowest, levels.highest, mode, family=family)
        sigmas = scheduler.function(want)
        assert np.isfinite(sigmas).all()
        assert all(type(sigma) is float for sigma in sigmas)
        assert all(later <= earlier for earlier, later in pairwise(sigmas)), (steps, sigmas)
        ends_above = scheduler.name == "laplace" or (scheduler.name == "kl_optimal" and mode == "a1111")
        assert (sigmas[-1] > 0) == ends_above
        if scheduler.name not in ("ddim", "sd_turbo", "laplace", "bong_tangent") and (scheduler.name, mode) != (
            "beta",
            "comfyui",
        ):
            assert len(sigmas) == steps + 1, (steps, sigmas)


def test_the_ddim_scheduler_may_give_more_steps():
    assert len(schedule("ddim_uniform", 30)) == 32
    assert len(schedule("ddim_uniform", 20)) == 21


def test_quantiles_of_the_beta_distribution_are_scipys():
    from scipy.stats import beta

    for a, b in ((0.6, 0.6), (1.0, 1.0), (0.3, 2.0), (5.0, 0.5)):
        shares = np.linspace(0, 1, 101)
        np.testing.assert_allclose(
            [quantile(share, a, b) for share in shares], beta.ppf(shares, a, b), rtol=0, atol=1e-9
        )


def test_predictions():
    """From the true prediction, each gives back the picture."""
    random = np.random.default_rng(0)
    picture, noise = random.standard_normal((2, 1, 4, 3, 3))
    for sigma in (0.05, 1.0, 9.0):
        x, root = picture + noise * sigma, math.hypot(1, sigma)
        np.testing.assert_allclose(EPS.denoised(x, noise, sigma), picture, atol=1e-9)
        v = (noise - picture * sigma) / root
        np.testing.assert_allclose(V.denoised(x, v, sigma), picture, atol=1e-9)
        e = edm(0.5)
        out = (picture - x * e.skip(sigma)) / e.out(sigma)
        np.testing.assert_allclose(e.denoised(x, out, sigma), picture, atol=1e-9)
        assert e.scale(sigma) == pytest.approx(1 / math.hypot(sigma, 0.5))
        assert EPS.scale(sigma) == V.scale(sigma) == pytest.approx(1 / root)
    x = picture * 0.3 + noise * 0.7
    np.testing.assert_allclose(FLOW.denoised(x, noise - picture, 0.7), picture, atol=1e-9)
    assert FLOW.scale(0.7) == 1
    assert prediction_of("v_prediction") is PREDICTIONS["v"]
    with pytest.raises(SettingError, match="'x0'"):
        prediction_of("x0")


def test_networks_see_scaled_pictures_at_their_times():
    seen = []

    def network(x, timestep):
        seen.append((x, timestep))
        return x

    x = np.ones((1, 4, 2, 2))
    denoiser(network, EPS, SD)(x, 1.62)
    denoiser(network, EPS, SD, whole=False)(x, 1.62)
    assert seen[0][1] == 500
    assert 500 < seen[1][1] < 501
    np.testing.assert_allclose(seen[0][0], 1 / math.hypot(1, 1.62))
    denoiser(network, FLOW, SD3)(x, 0.5)
    assert seen[2][1] == 0.5
    np.testing.assert_array_equal(seen[2][0], x)
    noise = OnTimes(denoiser(network, EPS, SD, whole=False), SD)(x, 301.0)
    assert seen[3][1] == pytest.approx(301)
    np.testing.assert_allclose(noise, x)
    np.testing.assert_allclose(seen[3][0], x)
    lcm_denoiser(network, EPS, SD)(x, SD.highest)
    assert seen[4][1] == 999


def test_levels_of_models():
    assert levels_of_model("eps", "comfyui").lowest == SD.lowest
    assert levels_of_model("v", "a1111").lowest == scaled_linear(narrow=True).lowest
    assert levels_of_model("v", "comfyui", zero_snr=True).highest == pytest.approx(4518.76, abs=0.01)
    assert levels_of_model("v", "a1111", ends=(0.002, 120.0)).highest == pytest.approx(120)
    assert levels_of_model("flow", "comfyui", "sd3").sigma(0.5) == 0.75
    assert levels_of_model("flow", "comfyui", "sd3", shift=1.0).sigma(0.5) == 0.5


def test_unknown_families():
    with pytest.raises(SettingError, match="'sd9'"):
        flow_levels("sd9")
    with pytest.raises(SettingError, match="shift"):
        FlowLevels(0.0)
