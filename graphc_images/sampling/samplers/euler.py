"""Samplers of one evaluation a step that remember nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphc_images.sampling.levels import EXPLODING, DiscreteLevels, Path
from graphc_images.sampling.predictions import Denoiser
from graphc_images.sampling.samplers.steps import Noise, Step, Trajectory, churn_of, pairs, step_down, toward


def euler(
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
    """Euler's method. Karras et al. (2022), algorithm 2 without its second half; k-diffusion's defaults."""
    churn = churn_of(sigmas, s_churn, s_tmin, s_tmax, s_noise, noise)
    for index, sigma, sigma_next in pairs(sigmas):
        x, raised = churn(x, sigma)
        denoised = model(x, raised)
        x = toward(x, denoised, sigma_next / raised)
        yield Step(index, sigma, x, denoised)


def euler_ancestral(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise,
    eta: float = 1.0,
    s_noise: float = 1.0,
    path: Path = EXPLODING,
) -> Trajectory:
    """Euler's method, with part of the noise made anew in each step; k-diffusion, and ComfyUI for flows.

    With `eta` 1 it is Ho, Jain, Abbeel, Denoising Diffusion Probabilistic Models (2020), with 0 it is DDIM and Euler.
    """
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        down, scale, up = step_down(sigma, sigma_next, eta, path)
        x = toward(x, denoised, down / sigma)
        if up:
            x = x * scale + noise(sigma, sigma_next) * (up * s_noise)
        yield Step(index, sigma, x, denoised)


def ddpm(model: Denoiser, x: np.ndarray, sigmas: Sequence[float], *, noise: Noise) -> Trajectory:
    """Ho, Jain, Abbeel, Denoising Diffusion Probabilistic Models (2020): Euler's ancestral step with all of the noise."""
    return euler_ancestral(model, x, sigmas, noise=noise)


def lcm(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise,
    path: Path = EXPLODING,
    s_noise: float = 1.0,
) -> Trajectory:
    """Luo et al., Latent Consistency Models (2023), algorithm 3: the picture at once, then noise again."""
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        x = denoised
        if sigma_next > 0:
            x = path.noised(denoised, noise(sigma, sigma_next) * s_noise, sigma_next)
        yield Step(index, sigma, x, denoised)


def tcd(
    model: Denoiser, x: np.ndarray, sigmas: Sequence[float], *, noise: Noise, levels: DiscreteLevels, eta: float = 0.0
) -> Trajectory:
    """Zheng et al., Trajectory Consistency Distillation (2024), algorithm 4; eta is the paper's gamma.

    Each step goes down to the level at (1 - eta) of the next time, then adds noise up to the next level.
    """
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        nearest = int(np.abs(levels.sigmas - sigma_next).argmin())
        alpha, alpha_next = float(levels.alphas[math.floor((1 - eta) * nearest)]), 1 / (sigma_next**2 + 1)
        direction = (x - denoised) / sigma
        x = denoised * math.sqrt(alpha / alpha_next) + direction * math.sqrt((1 - alpha) / alpha_next)
        if eta > 0 and sigma_next > 0:
            added = math.sqrt(max(1 / alpha_next - 1 / alpha, 0.0))
            x = x * math.sqrt(alpha_next / alpha) + noise(sigma, sigma_next) * added
        yield Step(index, sigma, x, denoised)
