"""Samplers of CFG++: from the estimate with guidance, back along the noise of the negative prompt.

Chung, Kim, Park, Nam, Ye, CFG++: Manifold-constrained Classifier Free Guidance for Diffusion Models (2024), in ComfyUI's forms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphc_images.sampling.levels import EXPLODING, Path
from graphc_images.sampling.samplers.dpmpp import sde_move
from graphc_images.sampling.samplers.multistep import res_factors
from graphc_images.sampling.samplers.steps import Noise, PairDenoiser, Step, Trajectory, pairs, step_down


def euler_ancestral_cfg_pp(
    model: PairDenoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise | None = None,
    eta: float = 1.0,
    s_noise: float = 1.0,
    path: Path = EXPLODING,
) -> Trajectory:
    """Euler's method, with part of the noise made anew."""
    for index, sigma, sigma_next in pairs(sigmas):
        denoised, negative = model.pair(x, sigma)
        if sigma_next == 0:
            x = denoised
        else:
            alpha, alpha_next = path.alpha(sigma), path.alpha(sigma_next)
            slope = (x - negative * alpha) / sigma
            ratio = sigma / alpha if alpha else math.inf
            down, _, up = (
                step_down(ratio, sigma_next / alpha_next, eta) if alpha else flat_down(sigma_next / alpha_next, eta)
            )
            x = denoised * alpha_next + slope * (alpha_next * down)
            if up and s_noise > 0 and noise is not None:
                x = x + noise(sigma, sigma_next) * (alpha_next * up * s_noise)
        yield Step(index, sigma, x, denoised)


def flat_down(level: float, eta: float) -> tuple[float, float, float]:
    """`step_down` from where there is noise alone."""
    up = min(level, eta * level)
    return math.sqrt(level**2 - up**2), 1.0, up


def euler_cfg_pp(model: PairDenoiser, x: np.ndarray, sigmas: Sequence[float], *, path: Path = EXPLODING) -> Trajectory:
    """Euler's method."""
    return euler_ancestral_cfg_pp(model, x, sigmas, eta=0.0, path=path)


def dpmpp_2s_ancestral_cfg_pp(
    model: PairDenoiser, x: np.ndarray, sigmas: Sequence[float], *, noise: Noise, eta: float = 1.0, s_noise: float = 1.0
) -> Trajectory:
    """DPM-Solver++ of order 2 by the estimate in the middle; the noise is that of the negative prompt, at its newest."""
    for index, sigma, sigma_next in pairs(sigmas):
        denoised, negative = model.pair(x, sigma)
        down, _, up = step_down(sigma, sigma_next, eta)
        if down == 0:
            x = denoised
        else:
            middle = math.sqrt(sigma * down)
            halfway, _ = sde_move(x + (denoised - negative), denoised, sigma, middle, 0, EXPLODING)
            second, negative = model.pair(halfway, middle)
            x, _ = sde_move(x + (denoised - negative), second, sigma, down, 0, EXPLODING)
        if up:
            x = x + noise(sigma, sigma_next) * (up * s_noise)
        yield Step(index, sigma, x, denoised)


def dpmpp_2m_cfg_pp(model: PairDenoiser, x: np.ndarray, sigmas: Sequence[float]) -> Trajectory:
    """DPM-Solver++ of order 2 from the negative estimate of the step before."""
    before = None
    for index, sigma, sigma_next in pairs(sigmas):
        denoised, negative = model.pair(x, sigma)
        ratio = sigma_next / sigma
        moved = denoised + (x - negative) * ratio
        if before is not None and sigma_next > 0:
            last = math.log(sigmas[index - 1] / sigma) / math.log(sigma / sigma_next)
            moved = moved + (denoised - before) * ((1 - ratio) / (2 * last))
        x, before = moved, negative
        yield Step(index, sigma, x, denoised)


def res_multistep_cfg_pp(
    model: PairDenoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise | None = None,
    eta: float = 0.0,
    s_noise: float = 1.0,
) -> Trajectory:
    """RES of order 2 from the negative estimates."""
    before, down_before = None, 0.0
    for index, sigma, sigma_next in pairs(sigmas):
        denoised, negative = model.pair(x, sigma)
        down, _, up = step_down(sigma, sigma_next, eta)
        if down == 0 or before is None:
            x = denoised + (x - negative) * (down / sigma)
        else:
            factors = res_factors(sigma, down, float(sigmas[index - 1]), down_before)
            x = (x + (denoised - negative)) * (down / sigma) + negative * factors[0] + before * factors[1]
        if up and noise is not None:
            x = x + noise(sigma, sigma_next) * (up * s_noise)
        before, down_before = negative, down
        yield Step(index, sigma, x, denoised)


def gradient_estimation_cfg_pp(
    model: PairDenoiser, x: np.ndarray, sigmas: Sequence[float], *, gamma: float = 2.0
) -> Trajectory:
    """Permenter and Yuan's overshot Euler, along the noise of the negative prompt."""
    slope_before = None
    for index, sigma, sigma_next in pairs(sigmas):
        denoised, negative = model.pair(x, sigma)
        slope = (x - negative) / sigma
        x = denoised + slope * sigma_next
        if sigma_next > 0 and slope_before is not None:
            x = x + (slope - slope_before) * ((gamma - 1) * (sigma_next - sigma))
        slope_before = slope
        yield Step(index, sigma, x, denoised)
