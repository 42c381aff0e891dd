"""Samplers that evaluate the model twice and more in a step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphc_images.sampling.levels import EXPLODING, Path
from graphc_images.sampling.predictions import Denoiser
from graphc_images.sampling.samplers.steps import Noise, Step, Trajectory, churn_of, pairs, step_down, toward


def heun_step(
    model: Denoiser, x: np.ndarray, denoised: np.ndarray, sigma: float, sigma_next: float, share: float = 0.5
) -> np.ndarray:
    """A step along the direction at its start and, by `share`, that at its end; to no noise, along the first alone."""
    slope = (x - denoised) / sigma
    ahead = x + slope * (sigma_next - sigma)
    if sigma_next == 0:
        return np.asarray(ahead)
    slope_ahead = (ahead - model(ahead, sigma_next)) / sigma_next
    return np.asarray(x + (slope * (1 - share) + slope_ahead * share) * (sigma_next - sigma))


def heun(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise | None = None,
    s_churn: float = 0.0,
    s_tmin: float = 0.0,
    s_tmax: float = math.inf,
    s_noise: float = 1.0,
) -> Trajectory:
    """Heun's method: Karras et al. (2022), algorithm 2."""
    churn = churn_of(sigmas, s_churn, s_tmin, s_tmax, s_noise, noise)
    for index, sigma, sigma_next in pairs(sigmas):
        x, raised = churn(x, sigma)
        denoised = model(x, raised)
        x = heun_step(model, x, denoised, raised, sigma_next)
        yield Step(index, sigma, x, denoised)


def heunpp2(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise | None = None,
    s_churn: float = 0.0,
    s_tmin: float = 0.0,
    s_tmax: float = math.inf,
    s_noise: float = 1.0,
) -> Trajectory:
    """Heun++ (HeunPP2, of Forge and ComfyUI): three directions, the later two by the share of their levels in the first one."""
    churn = churn_of(sigmas, s_churn, s_tmin, s_tmax, s_noise, noise)
    first, end = float(sigmas[0]), float(sigmas[-1])
    for index, sigma, sigma_next in pairs(sigmas):
        x, raised = churn(x, sigma)
        denoised = model(x, raised)
        if sigma_next == end:
            x = toward(x, denoised, sigma_next / raised)
        elif sigmas[index + 2] == end:
            x = heun_step(model, x, denoised, raised, sigma_next, sigma_next / (2 * first))
        else:
            sigma_after = float(sigmas[index + 2])
            slope = (x - denoised) / raised
            second = x + slope * (sigma_next - raised)
            slope_2 = (second - model(second, sigma_next)) / sigma_next
            third = second + slope_2 * (sigma_after - sigma_next)
            slope_3 = (third - model(third, sigma_after)) / sigma_after
            share_2, share_3 = sigma_next / (3 * first), sigma_after / (3 * first)
            mean = slope * (1 - share_2 - share_3) + slope_2 * share_2 + slope_3 * share_3
            x = x + mean * (sigma_next - raised)
        yield Step(index, sigma, x, denoised)


def dpm_2_step(model: Denoiser, x: np.ndarray, denoised: np.ndarray, sigma: float, sigma_next: float) -> np.ndarray:
    """A step along the direction in its middle, which is that of the logarithms; to no noise, along the first."""
    if sigma_next == 0:
        return denoised
    middle = math.sqrt(sigma * sigma_next)
    halfway = toward(x, denoised, middle / sigma)
    return x + (halfway - model(halfway, middle)) * ((sigma_next - sigma) / middle)


def dpm_2(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise | None = None,
    s_churn: float = 0.0,
    s_tmin: float = 0.0,
    s_tmax: float = math.inf,
    s_noise: float = 1.0,
) -> Trajectory:
    """Lu et al., DPM-Solver (2022), order 2, with the churn of Karras et al. (2022); k-diffusion."""
    churn = churn_of(sigmas, s_churn, s_tmin, s_tmax, s_noise, noise)
    for index, sigma, sigma_next in pairs(sigmas):
        x, raised = churn(x, sigma)
        denoised = model(x, raised)
        x = dpm_2_step(model, x, denoised, raised, sigma_next)
        yield Step(index, sigma, x, denoised)


def dpm_2_ancestral(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise,
    eta: float = 1.0,
    s_noise: float = 1.0,
    path: Path = EXPLODING,
) -> Trajectory:
    """DPM-Solver's second order, with part of the noise made anew in each step; k-diffusion, and ComfyUI for flows."""
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        down, scale, up = step_down(sigma, sigma_next, eta, path)
        x = dpm_2_step(model, x, denoised, sigma, down)
        if up and down:
            x = x * scale + noise(sigma, sigma_next) * (up * s_noise)
        yield Step(index, sigma, x, denoised)
