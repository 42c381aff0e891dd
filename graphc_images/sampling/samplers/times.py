"""A1111's samplers on the model's times: DDIM, its CFG++ and PLMS.

Here x is as the model was trained to see it, picture and noise in shares whose squares add up to 1; `model` predicts noise,
`timesteps` ascend, and `alphas` is the square of the picture's share at each of the model's times (alphas_cumprod).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from graphc_images.sampling.predictions import Network
from graphc_images.sampling.samplers.multistep import ADAMS_BASHFORTH, combined
from graphc_images.sampling.samplers.steps import Noise, Step, Trajectory

PairNetwork = Callable[[np.ndarray, float], tuple[np.ndarray, np.ndarray]]
"""A model that predicts noise with guidance, and for the negative prompt alone."""


def a1111_timesteps(steps: int, count: int = 1000) -> list[int]:
    """The times of `steps` steps, ascending: at even distances, from 1; there may be more than `steps`."""
    return [min(time + 1, count - 1) for time in range(0, count, max(count // steps, 1))]


def ways(timesteps: Sequence[int], alphas: np.ndarray) -> Iterator[tuple[int, int, float, float]]:
    """Each step from the highest time: its number, its place in the list, alpha where it begins and where it ends."""
    for index in range(len(timesteps) - 1):
        place = len(timesteps) - 1 - index
        yield index, place, float(alphas[timesteps[place]]), float(alphas[timesteps[place - 1]])


def picture_of(x: np.ndarray, noise: np.ndarray, alpha: float) -> np.ndarray:
    """x without its noise."""
    return (x - noise * math.sqrt(1 - alpha)) / math.sqrt(alpha)


def ddim_pairs(
    model: PairNetwork, x: np.ndarray, timesteps: Sequence[int], alphas: np.ndarray, noise: Noise | None, eta: float
) -> Trajectory:
    """DDIM with one prediction for the picture and another for the direction back."""
    for index, place, alpha, alpha_next in ways(timesteps, alphas):
        predicted, direction = model(x, float(timesteps[place]))
        denoised = picture_of(x, predicted, alpha)
        amount = eta * math.sqrt((1 - alpha_next) / (1 - alpha) * (1 - alpha / alpha_next))
        x = denoised * math.sqrt(alpha_next) + direction * math.sqrt(1 - alpha_next - amount**2)
        if amount and noise is not None:
            x = x + noise(alpha, alpha_next) * amount
        yield Step(index, math.sqrt(1 / alpha - 1), x, denoised)


def ddim(
    model: Network,
    x: np.ndarray,
    timesteps: Sequence[int],
    alphas: np.ndarray,
    *,
    noise: Noise | None = None,
    eta: float = 0.0,
) -> Trajectory:
    """Song, Meng, Ermon, Denoising Diffusion Implicit Models (2021), equation 12."""

    def both(x: np.ndarray, timestep: float) -> tuple[np.ndarray, np.ndarray]:
        predicted = model(x, timestep)
        return predicted, predicted

    return ddim_pairs(both, x, timesteps, alphas, noise, eta)


def ddim_cfg_pp(
    model: PairNetwork,
    x: np.ndarray,
    timesteps: Sequence[int],
    alphas: np.ndarray,
    *,
    noise: Noise | None = None,
    eta: float = 0.0,
) -> Trajectory:
    """Chung et al., CFG++: Manifold-constrained Classifier Free Guidance (2024): back along the noise of the negative prompt.

    A1111 divides the guidance scale by 12.5, so that it goes from 0 to 1.
    """
    return ddim_pairs(model, x, timesteps, alphas, noise, eta)


def plms(model: Network, x: np.ndarray, timesteps: Sequence[int], alphas: np.ndarray) -> Trajectory:
    """Liu, Ren, Lin, Zhao, Pseudo Numerical Methods for Diffusion Models on Manifolds (2022): Adams and Bashforth's, order 4.

    The first step evaluates twice, which makes it one of order 2.
    """
    predictions: list[np.ndarray] = []
    for index, place, alpha, alpha_next in ways(timesteps, alphas):

        def moved(x: np.ndarray, noise: np.ndarray, alpha: float = alpha, alpha_next: float = alpha_next) -> np.ndarray:
            return picture_of(x, noise, alpha) * math.sqrt(alpha_next) + noise * math.sqrt(1 - alpha_next)

        predicted = model(x, float(timesteps[place]))
        predictions = [predicted, *predictions][:4]
        if index == 0:
            mean = (predicted + model(moved(x, predicted), float(timesteps[max(place - 1, 0)]))) / 2
        else:
            mean = combined(ADAMS_BASHFORTH[len(predictions) - 1], predictions)
        denoised = picture_of(x, mean, alpha)
        x = moved(x, mean)
        yield Step(index, math.sqrt(1 / alpha - 1), x, denoised)
