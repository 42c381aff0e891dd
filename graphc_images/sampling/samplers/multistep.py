"""Samplers of one evaluation a step that go by the directions of the steps before."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphc_images.sampling.predictions import Denoiser
from graphc_images.sampling.samplers.steps import Noise, Step, Trajectory, pairs, step_down, toward

ADAMS_BASHFORTH = ((1.0,), (3 / 2, -1 / 2), (23 / 12, -16 / 12, 5 / 12), (55 / 24, -59 / 24, 37 / 24, -9 / 24))
"""Factors of the newest direction and those before, for even steps."""


def combined(factors: Sequence[float], newest_first: Sequence[np.ndarray]) -> np.ndarray:
    """The sum of arrays times their factors."""
    total = newest_first[0] * factors[0]
    for factor, array in zip(factors[1:], newest_first[1:], strict=False):
        total = total + array * factor
    return total


def lagrange_integrals(points: Sequence[float], start: float, end: float) -> list[float]:
    """The integral from `start` to `end` of each polynomial that is 1 at one of the points and 0 at the others."""
    found = []
    for own in points:
        others = [point - start for point in points if point != own]
        polynomial = np.poly1d(np.poly(others) / math.prod(own - start - other for other in others))
        found.append(float(polynomial.integ()(end - start)))
    return found


def lms(
    model: Denoiser, x: np.ndarray, sigmas: Sequence[float], *, order: int = 4, last_denoised: bool = False
) -> Trajectory:
    """A linear multistep method over the noise level: polynomials through the last directions, integrated (k-diffusion).

    `last_denoised`: the step to no noise is the model's estimate, as in ComfyUI.
    """
    slopes: list[np.ndarray] = []
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        slopes = [(x - denoised) / sigma, *slopes][:order]
        if last_denoised and sigma_next == 0:
            x = denoised
        else:
            points = [float(sigmas[index - back]) for back in range(len(slopes))]
            x = x + combined(lagrange_integrals(points, sigma, sigma_next), slopes)
        yield Step(index, sigma, x, denoised)


def ipndm(
    model: Denoiser, x: np.ndarray, sigmas: Sequence[float], *, max_order: int = 4, last_denoised: bool = True
) -> Trajectory:
    """Zhang, Chen, Fast Sampling of Diffusion Models with Exponential Integrator (2022), iPNDM: Adams and Bashforth's factors.

    `last_denoised`: the step to no noise is the model's estimate, as in ComfyUI; not so in Forge and stable-diffusion.cpp.
    """
    slopes: list[np.ndarray] = []
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        slopes = [(x - denoised) / sigma, *slopes][:max_order]
        factors = (1.0,) if last_denoised and sigma_next == 0 else ADAMS_BASHFORTH[len(slopes) - 1]
        x = x + combined(factors, slopes) * (sigma_next - sigma)
        yield Step(index, sigma, x, denoised)


def variable_factors(steps: Sequence[float]) -> tuple[float, ...]:
    """Adams and Bashforth's factors for steps of unlike length, newest first, as zju-pi/diff-sampler has them.

    The first of its terms for orders 3 and 4 is not the textbook's, which would multiply where this subtracts; kept, because
    ComfyUI and Forge compute so.
    """
    if len(steps) == 1:
        return (1.0,)
    h, h_1 = steps[:2]
    first, second = 1 + h / h_1 / 2, -h / h_1 / 2
    if len(steps) == 2:
        return first, second
    h_2 = steps[2]
    a = (1 - h / (3 * (h + h_1)) * (h * (h + h_1)) / (h_1 * (h_1 + h_2))) / 2
    if len(steps) == 3:
        return first + a, second - (1 + h_1 / h_2) * a, a * h_1 / h_2
    h_3 = steps[3]
    b = (1 - h / (3 * (h + h_1))) / 2 + (1 - h / (2 * (h + h_1))) * h / (6 * (h + h_1 + h_2))
    b *= (h * (h + h_1) * (h + h_1 + h_2)) / (h_1 * (h_1 + h_2) * (h_1 + h_2 + h_3))
    ratio, far = h_1 / h_2, h_1 * (h_1 + h_2) / (h_2 * (h_2 + h_3))
    return (
        first + a + b,
        second - (1 + ratio) * a - (1 + ratio + far) * b,
        a * ratio + (ratio + far * (1 + h_2 / h_3)) * b,
        -b * far * ratio,
    )


def ipndm_v(
    model: Denoiser, x: np.ndarray, sigmas: Sequence[float], *, max_order: int = 4, last_denoised: bool = True
) -> Trajectory:
    """iPNDM with factors for steps of unlike length (zju-pi/diff-sampler); `last_denoised` as in `ipndm`."""
    slopes: list[np.ndarray] = []
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        slopes = [(x - denoised) / sigma, *slopes][:max_order]
        steps = [float(sigmas[index + 1 - back] - sigmas[index - back]) for back in range(len(slopes))]
        factors = (1.0,) if last_denoised and sigma_next == 0 else variable_factors(steps)
        x = x + combined(factors, slopes) * (sigma_next - sigma)
        yield Step(index, sigma, x, denoised)


DEIS_POINTS = 10000
DEIS_FIRST, DEIS_LOW, DEIS_HIGH = 1e-3, 0.002, 80.0


class DeisTimes:
    """The times of a variance-preserving process over which DEIS integrates, from EDM's noise levels."""

    def __init__(self) -> None:
        low, high = math.log(DEIS_LOW**2 + 1), math.log(DEIS_HIGH**2 + 1)
        self.slope = 2 * (low / DEIS_FIRST - high) / (DEIS_FIRST - 1)
        self.base = high - self.slope / 2

    def time(self, sigma: float) -> float:
        """The time of a noise level."""
        return (math.sqrt(self.base**2 + 2 * self.slope * math.log(sigma**2 + 1)) - self.base) / self.slope

    def weight(self, time: np.ndarray) -> np.ndarray:
        """What the direction is integrated with."""
        alpha = np.exp(-0.5 * time**2 * self.slope - time * self.base)
        return np.asarray(0.5 * (time * self.slope + self.base) / np.sqrt(alpha * (1 - alpha)))

    def factors(self, times: Sequence[float], end: float) -> list[float]:
        """Factors of the directions at `times`, newest first, for a step from the first of them to `end`."""
        places = np.linspace(times[0], end, DEIS_POINTS)
        weights = self.weight(places) * ((end - times[0]) / DEIS_POINTS)
        found = []
        for own in times:
            polynomial = np.ones_like(places)
            for other in times:
                if other != own:
                    polynomial *= (places - other) / (own - other)
            found.append(float((weights * polynomial).sum()))
        return found


def deis(model: Denoiser, x: np.ndarray, sigmas: Sequence[float], *, max_order: int = 3) -> Trajectory:
    """Zhang, Chen, Fast Sampling of Diffusion Models with Exponential Integrator (2022), tAB-DEIS (zju-pi/diff-sampler)."""
    times = DeisTimes()
    slopes: list[np.ndarray] = []
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        slopes = [(x - denoised) / sigma, *slopes][:max_order]
        if sigma_next <= 0 or len(slopes) == 1:
            x = toward(x, denoised, sigma_next / sigma)
        else:
            known = [times.time(float(sigmas[index - back])) for back in range(len(slopes))]
            x = x + combined(times.factors(known, times.time(sigma_next)), slopes)
        yield Step(index, sigma, x, denoised)


def phi_1(h: float) -> float:
    """(e**h - 1) / h."""
    return math.expm1(h) / h if h else 1.0


def phi_2(h: float) -> float:
    """(phi_1(h) - 1) / h."""
    return (phi_1(h) - 1) / h if h else 0.5


def res_multistep(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise | None = None,
    eta: float = 0.0,
    s_noise: float = 1.0,
) -> Trajectory:
    """Zhang et al., Improved Order Analysis and Design of Exponential Integrator for Diffusion Models Sampling (2023): RES."""
    before, down_before = None, 0.0
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        down, _, up = step_down(sigma, sigma_next, eta)
        if down == 0 or before is None:
            x = toward(x, denoised, down / sigma)
        else:
            factors = res_factors(sigma, down, float(sigmas[index - 1]), down_before)
            x = x * (down / sigma) + denoised * factors[0] + before * factors[1]
        if up and noise is not None:
            x = x + noise(sigma, sigma_next) * (up * s_noise)
        before, down_before = denoised, down
        yield Step(index, sigma, x, denoised)


def res_factors(sigma: float, down: float, sigma_before: float, down_before: float) -> tuple[float, float]:
    """RES' factors of the newest estimate and the one before, for a step from `sigma` to `down`."""
    h = math.log(sigma / down)
    c_2 = math.log(down_before / sigma_before) / h
    second = phi_2(-h) / c_2 if c_2 else 0.0
    return h * (phi_1(-h) - second if c_2 else 0.0), h * second


def gradient_estimation(model: Denoiser, x: np.ndarray, sigmas: Sequence[float], *, gamma: float = 2.0) -> Trajectory:
    """Permenter, Yuan, Interpreting and Improving Diffusion Models from an Optimization Perspective (2024): Euler, overshot."""
    slope_before = None
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        slope = (x - denoised) / sigma
        if sigma_next == 0:
            x = denoised
        elif slope_before is None:
            x = x + slope * (sigma_next - sigma)
        else:
            x = x + (slope * gamma - slope_before * (gamma - 1)) * (sigma_next - sigma)
        slope_before = slope
        yield Step(index, sigma, x, denoised)
