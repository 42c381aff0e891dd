"""What samplers share: a step, the noise levels of steps that add noise, and churn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from graphc_images.sampling.levels import EXPLODING, Path

Noise = Callable[[float, float], np.ndarray]
"""Normal noise as large as x, for the way from one noise level to another."""

Trajectory = Iterator["Step"]


@dataclass(frozen=True)
class Step:
    """Where a sampler is after a step."""

    index: int
    """Counts from 0."""

    sigma: float
    """The noise level at which the step began."""

    x: np.ndarray
    """The picture so far, at the next noise level."""

    denoised: np.ndarray
    """What the model took the picture to be: for previews."""


class PairDenoiser(Protocol):
    """A model with guidance, which tells apart what it estimates with the prompt and without it."""

    def __call__(self, x: np.ndarray, sigma: float) -> np.ndarray:
        """The estimate, guidance included."""
        ...

    def pair(self, x: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
        """The estimate with guidance, and the one for the negative prompt alone."""
        ...


def pairs(sigmas: Sequence[float]) -> Iterator[tuple[int, float, float]]:
    """Each step: its number, the noise level where it begins and where it ends."""
    return ((index, float(sigmas[index]), float(sigmas[index + 1])) for index in range(len(sigmas) - 1))


def toward(x: np.ndarray, denoised: np.ndarray, ratio: float) -> np.ndarray:
    """On the line from the picture (0) to x (1): Euler's step, where `ratio` is that of the noise levels."""
    return np.asarray(denoised + (x - denoised) * ratio)


def step_down(sigma: float, sigma_next: float, eta: float, path: Path = EXPLODING) -> tuple[float, float, float]:
    """A step that lets go of some noise and adds as much anew: the level to go down to, the factor of x, that of the new noise.

    Song, Meng, Ermon, Denoising Diffusion Implicit Models (2021), equation 16, by noise levels; for flows as ComfyUI.
    """
    if not eta or not sigma_next:
        return sigma_next, 1.0, 0.0
    if path.flow:
        down = sigma_next * (1 + (sigma_next / sigma - 1) * eta)
        scale = path.alpha(sigma_next) / path.alpha(down)
        return down, scale, math.sqrt(max(sigma_next**2 - (down * scale) ** 2, 0.0))
    up = min(sigma_next, eta * math.sqrt(max(sigma_next**2 * (sigma**2 - sigma_next**2) / sigma**2, 0.0)))
    return math.sqrt(sigma_next**2 - up**2), 1.0, up


@dataclass(frozen=True)
class Churn:
    """Karras et al. (2022), algorithm 2: some noise is added before a step, while the level lies between two others."""

    amount: float
    lowest: float
    highest: float
    factor: float
    steps: int
    noise: Noise | None

    def __call__(self, x: np.ndarray, sigma: float) -> tuple[np.ndarray, float]:
        """x with the noise, and its noise level. k-diffusion draws outside of the levels too, so this does."""
        if not self.amount or self.noise is None:
            return x, sigma
        eps = self.noise(sigma, sigma)
        if not self.lowest <= sigma <= self.highest:
            return x, sigma
        raised = sigma * (1 + min(self.amount / self.steps, math.sqrt(2) - 1))
        return x + eps * (self.factor * math.sqrt(raised**2 - sigma**2)), raised


def churn_of(
    sigmas: Sequence[float], s_churn: float, s_tmin: float, s_tmax: float, s_noise: float, noise: Noise | None
) -> Churn:
    """Churn by k-diffusion's names."""
    return Churn(s_churn, s_tmin, s_tmax, s_noise, len(sigmas) - 1, noise)
