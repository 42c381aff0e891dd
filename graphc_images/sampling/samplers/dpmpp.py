"""DPM-Solver++: exponential integrators over the logarithm of the noise level, for the estimate of the picture.

Lu, Zhou, Bao, Chen, Li, Zhu, DPM-Solver++: Fast Solver for Guided Sampling of Diffusion Probabilistic Models (2022), in the
forms of k-diffusion (Crowson). Those with noise go by the logarithm of alpha / sigma, as in ComfyUI: so they hold for flows too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.sampling.levels import EXPLODING, Path
from graphc_images.sampling.predictions import Denoiser
from graphc_images.sampling.samplers.steps import Noise, Step, Trajectory, pairs, step_down, toward


def dpmpp_2s_ancestral(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise,
    eta: float = 1.0,
    s_noise: float = 1.0,
    path: Path = EXPLODING,
) -> Trajectory:
    """Order 2, by the estimate in the middle of the step, with part of the noise made anew."""
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        down, scale, up = step_down(sigma, sigma_next, eta, path)
        estimate = denoised
        if down > 0:
            middle = 0.9999
            if not path.flow or sigma < 1:
                middle = path.sigma_at((path.half_log_snr(sigma) + path.half_log_snr(down)) / 2)
            estimate = model(toward(x, denoised, middle / sigma), middle)
        x = toward(x, estimate, down / sigma)
        if up:
            x = x * scale + noise(sigma, sigma_next) * (up * s_noise)
        yield Step(index, sigma, x, denoised)


def sde_move(
    x: np.ndarray, estimate: np.ndarray, sigma: float, sigma_next: float, eta: float, path: Path
) -> tuple[np.ndarray, float]:
    """x at the level to go down to, before noise is added, and that noise's factor; the levels are of a `path`."""
    alpha, alpha_next = path.alpha(sigma), path.alpha(sigma_next)
    down, _, up = step_down(sigma / alpha, sigma_next / alpha_next, eta)
    ratio = down * alpha / sigma
    return x * (alpha_next / alpha * ratio) + estimate * (alpha_next * (1 - ratio)), alpha_next * up


def dpmpp_sde(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise,
    eta: float = 1.0,
    s_noise: float = 1.0,
    r: float = 0.5,
    path: Path = EXPLODING,
) -> Trajectory:
    """A stochastic solver of order 2 in two evaluations, the second at the share `r` of the step; Brownian noise."""
    for index, sigma, sigma_next in pairs(path.started(sigmas)):
        denoised = model(x, sigma)
        if sigma_next == 0:
            x = denoised
        else:
            start, end = path.half_log_snr(sigma), path.half_log_snr(sigma_next)
            middle = path.sigma_at(start + r * (end - start))
            halfway, up = sde_move(x, denoised, sigma, middle, eta, path)
            if up:
                halfway = halfway + noise(sigma, middle) * (up * s_noise)
            share = 1 / (2 * r)
            estimate = denoised * (1 - share) + model(halfway, middle) * share
            x, up = sde_move(x, estimate, sigma, sigma_next, eta, path)
            if up:
                x = x + noise(sigma, sigma_next) * (up * s_noise)
        yield Step(index, sigma, x, denoised)


def dpmpp_2m(model: Denoiser, x: np.ndarray, sigmas: Sequence[float]) -> Trajectory:
    """Order 2 from the estimate of the step before."""
    before: np.ndarray | None = None
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        estimate = denoised
        if before is not None and sigma_next > 0:
            last = math.log(sigmas[index - 1] / sigma) / math.log(sigma / sigma_next)
            estimate = denoised + (denoised - before) / (2 * last)
        x = toward(x, estimate, sigma_next / sigma)
        before = denoised
        yield Step(index, sigma, x, denoised)


def dpmpp_2m_v2(model: Denoiser, x: np.ndarray, sigmas: Sequence[float]) -> Trajectory:
    """stable-diffusion.cpp's dpm++2mv2: steps of unlike length are taken as if they had their mean length."""
    before: np.ndarray | None = None
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        if before is None or sigma_next == 0:
            x = toward(x, denoised, sigma_next / sigma)
        else:
            lengths = math.log(sigmas[index - 1] / sigma), math.log(sigma / sigma_next)
            estimate = denoised + (denoised - before) * (min(lengths) / (2 * max(lengths)))
            x = x * (sigma_next / sigma) - estimate * math.expm1(-sum(lengths) / 2)
        before = denoised
        yield Step(index, sigma, x, denoised)


def dpmpp_2m_sde(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise,
    eta: float = 1.0,
    s_noise: float = 1.0,
    solver: str = "midpoint",
    path: Path = EXPLODING,
) -> Trajectory:
    """The stochastic solver of order 2 from the estimate of the step before; `solver` is "midpoint" or "heun"; Brownian noise."""
    if solver not in ("midpoint", "heun"):
        raise SettingError(f'the solver of DPM++ 2M SDE is "midpoint" or "heun", not {solver!r}')
    before, last = None, 0.0
    for index, sigma, sigma_next in pairs(path.started(sigmas)):
        denoised = model(x, sigma)
        if sigma_next == 0:
            x = denoised
        else:
            step = path.half_log_snr(sigma_next) - path.half_log_snr(sigma)
            both, alpha = step * (1 + eta), path.alpha(sigma_next)
            x = x * (sigma_next / sigma * math.exp(-step * eta)) - denoised * (alpha * math.expm1(-both))
            if before is not None:
                factor = -math.expm1(-both) / 2 if solver == "midpoint" else math.expm1(-both) / both + 1
                x = x + (denoised - before) * (alpha * factor * step / last)
            x = x + sde_noise(noise, sigma, sigma_next, step * eta, s_noise)
            last = step
        before = denoised
        yield Step(index, sigma, x, denoised)


def sde_noise(noise: Noise, sigma: float, sigma_next: float, length: float, s_noise: float) -> np.ndarray | float:
    """The noise of a step, `length` of it as eta times the step in log(alpha / sigma)."""
    if length <= 0 or s_noise <= 0:
        return 0.0
    return noise(sigma, sigma_next) * (sigma_next * math.sqrt(-math.expm1(-2 * length)) * s_noise)


def dpmpp_3m_sde(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise,
    eta: float = 1.0,
    s_noise: float = 1.0,
    path: Path = EXPLODING,
) -> Trajectory:
    """The stochastic solver of order 3 from the estimates of the two steps before; Brownian noise."""
    estimates: list[np.ndarray] = []
    lengths: list[float] = []
    for index, sigma, sigma_next in pairs(path.started(sigmas)):
        denoised = model(x, sigma)
        if sigma_next == 0:
            x = denoised
        else:
            step = path.half_log_snr(sigma_next) - path.half_log_snr(sigma)
            both, alpha = step * (1 + eta), path.alpha(sigma_next)
            x = x * (sigma_next / sigma * math.exp(-step * eta)) - denoised * (alpha * math.expm1(-both))
            phi_2 = math.expm1(-both) / both + 1
            if len(lengths) > 1:
                r_0, r_1 = lengths[-1] / step, lengths[-2] / step
                slope = (denoised - estimates[-1]) / r_0
                bend = (slope - (estimates[-1] - estimates[-2]) / r_1) / (r_0 + r_1)
                x = x + (slope + bend * r_0) * (alpha * phi_2) - bend * (alpha * (phi_2 / both - 0.5))
            elif lengths:
                x = x + (denoised - estimates[-1]) * (alpha * phi_2 * step / lengths[-1])
            x = x + sde_noise(noise, sigma, sigma_next, step * eta, s_noise)
            lengths = [*lengths, step][-2:]
        estimates = [*estimates, denoised][-2:]
        yield Step(index, sigma, x, denoised)
