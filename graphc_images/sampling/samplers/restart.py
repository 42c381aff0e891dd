"""Xu, Deng, Cheng, Tian, Liu, Jaakkola, Restart Sampling for Improving Generative Processes (2023), with A1111's plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from graphc_images.sampling.predictions import Denoiser
from graphc_images.sampling.samplers.runge_kutta import heun_step
from graphc_images.sampling.samplers.steps import Noise, Step, Trajectory

LOW, HIGH = 0.1, 2.0
"""At the level nearest to the first, there is noise again up to the level nearest to the second."""


def karras_between(count: int, low: float, high: float) -> list[float]:
    """Karras' levels from high to low, both included."""
    roots = np.linspace(high ** (1 / 7), low ** (1 / 7), count)
    return [float(level) for level in roots**7]


def restart_plan(sigmas: Sequence[float]) -> list[tuple[float, float]]:
    """The steps, from one level to another. Below 20 steps there is no restart."""
    steps = len(sigmas) - 1
    if steps < 20:
        return [(float(start), float(end)) for start, end in pairwise(sigmas)]
    again, times = (steps // 4, 2) if steps >= 36 else (9, 1)
    levels = [*karras_between(steps - again * times, float(sigmas[-2]), float(sigmas[0])), 0.0]
    bottom, top = (int(np.abs(np.array(levels) - level).argmin()) for level in (LOW, HIGH))
    plan = list(pairwise(levels))
    if top < bottom:
        loop = list(pairwise(karras_between(again + 1, levels[bottom], levels[top])))
        plan[bottom:bottom] = loop * times
    return plan


def restart(
    model: Denoiser, x: np.ndarray, sigmas: Sequence[float], *, noise: Noise, s_noise: float = 1.0
) -> Trajectory:
    """Heun's method, with noise added at each jump back to a higher level."""
    at: float | None = None
    for index, (sigma, sigma_next) in enumerate(restart_plan(sigmas)):
        if at is not None and at < sigma:
            x = x + noise(at, sigma) * (math.sqrt(sigma**2 - at**2) * s_noise)
        denoised = model(x, sigma)
        x = heun_step(model, x, denoised, sigma, sigma_next)
        at = sigma_next
        yield Step(index, sigma, x, denoised)
