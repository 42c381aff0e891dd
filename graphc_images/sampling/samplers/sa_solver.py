"""Xue et al., SA-Solver: Stochastic Adams Solver for Fast Sampling of Diffusion Models (2023), as ComfyUI has it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphc_images.sampling.levels import EXPLODING, Path
from graphc_images.sampling.predictions import Denoiser
from graphc_images.sampling.samplers.multistep import combined
from graphc_images.sampling.samplers.steps import Noise, Step, Trajectory, pairs


def adams_factors(points: Sequence[float], start: float, end: float, tau: float) -> list[float]:
    """Factors of estimates at the `points`, for a step in log(alpha / sigma): equations 15 and 18, without alpha.

    Integrals of the polynomials that are 1 at a point and 0 at the others, times (1 + tau**2) exp((1 + tau**2) (u - end)). Their
    moments follow from each other by integration by parts; counted from `end`, so that large logarithms do not cancel.
    """
    rate, length = 1 + tau**2, end - start
    moments: list[float] = []
    for power in range(len(points)):
        boundary = float(power == 0) - (-length) ** power * math.exp(-rate * length)
        moments.append(boundary - (power / rate * moments[-1] if moments else 0.0))
    powers = np.vander(np.array(points) - end, len(points), increasing=True).T
    return [float(factor) for factor in np.linalg.solve(powers, moments)]


@dataclass
class Memory:
    """The newest first: estimates and where they were made."""

    estimates: list[np.ndarray]
    places: list[float]

    def move(self, x: np.ndarray, levels: tuple[float, float], order: int, tau: float, path: Path) -> np.ndarray:
        """x from one noise level to another, without noise, by the newest estimates; of which the first may be at the end."""
        start, end = (path.half_log_snr(level) for level in levels)
        factors = adams_factors(self.places[:order], start, end, tau)
        kept = levels[1] / levels[0] * math.exp(-(tau**2) * (end - start))
        return x * kept + combined(factors, self.estimates[:order]) * path.alpha(levels[1])


def sa_solver(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise | None = None,
    noisy: tuple[float, float] = (0.0, 0.0),
    s_noise: float = 1.0,
    predictor_order: int = 3,
    corrector_order: int = 4,
    evaluate_twice: bool = False,
    path: Path = EXPLODING,
) -> Trajectory:
    """Adams' methods, predictor then corrector. Noise is added while the level is at most `noisy[0]` and above `noisy[1]`.

    `evaluate_twice` evaluates again after the corrector (PECE). ComfyUI's noise lies between 20% and 80% of the way.
    """
    sigmas = path.started(sigmas)
    memory = Memory([], [])
    last = len(sigmas) - 1
    ends_clean = sigmas[-1] == 0
    corrected, added, tau = x, None, 0.0
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        memory.estimates = [denoised, *memory.estimates][: max(predictor_order, corrector_order)]
        memory.places = [path.half_log_snr(sigma), *memory.places][: max(predictor_order, corrector_order)]
        predictor, corrector = (min(order, len(memory.places)) for order in (predictor_order, corrector_order))
        if ends_clean:
            predictor, corrector = min(predictor, last - 1 - index), min(corrector, last - index)
        if index == 0 or (sigma_next == 0 and not evaluate_twice):
            corrected = x
        else:
            corrected = memory.move(corrected, (float(sigmas[index - 1]), sigma), corrector, tau, path)
            corrected = corrected if added is None else corrected + added
            if evaluate_twice:
                denoised = memory.estimates[0] = model(corrected, sigma)
        if sigma_next == 0:
            x = denoised
        else:
            tau = 1.0 if noise is not None and noisy[0] >= sigma_next > noisy[1] else 0.0
            x = memory.move(corrected, (sigma, sigma_next), predictor, tau, path)
            added = None
            if tau and noise is not None:
                length = path.half_log_snr(sigma_next) - path.half_log_snr(sigma)
                added = noise(sigma, sigma_next) * (sigma_next * math.sqrt(-math.expm1(-2 * tau**2 * length)) * s_noise)
                x = x + added
        yield Step(index, sigma, x, denoised)
