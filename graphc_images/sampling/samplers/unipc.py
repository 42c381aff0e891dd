"""Zhao, Bai, Rao, Zhou, Lu, UniPC: A Unified Predictor-Corrector Framework for Fast Sampling of Diffusion Models (2023)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.sampling.predictions import Denoiser, Network
from graphc_images.sampling.samplers.multistep import combined
from graphc_images.sampling.samplers.steps import Step, Trajectory

LAST = 0.001
"""ComfyUI stops at this noise level where the schedule goes to 0."""

VARIANTS = ("bh1", "bh2", "vary_coeff")


def factors(ratios: Sequence[float], h: float, variant: str, corrector: bool = False) -> list[float]:
    """The factors of the differences to the newest estimate, for steps in log(sigma) whose ratios to `h` are given; h is below 0.

    The `corrector` of "vary_coeff" leaves out the last row of its matrix, as the authors' program and A1111's do.
    """
    count = len(ratios)
    if count == 0:
        return []
    integrals, factorial, integral = [], 1, math.expm1(h) / h - 1
    for power in range(1, count + 1):
        integrals.append(integral)
        factorial *= power + 1
        integral = integral / h - 1 / factorial
    if variant == "vary_coeff":
        scales = [1 / math.factorial(power + 1) for power in range(count)]
        matrix = np.array([[ratio**power * scales[power] for power in range(count)] for ratio in ratios])
        inverse = np.linalg.inv(matrix)
        if corrector:
            known = np.array(integrals[:-1]) @ inverse[:-1, :-1]
            return [*map(float, known), float(integrals[-1] * inverse[max(count - 2, 0), -1])]
        return [float(factor) for factor in np.array(integrals) @ inverse]
    if count == 1:
        return [0.5 * (h if variant == "bh1" else math.expm1(h))]
    matrix = np.array([[ratio**power for ratio in ratios] for power in range(count)])
    wanted = [integral * math.factorial(power + 1) for power, integral in enumerate(integrals)]
    return [float(factor) for factor in np.linalg.solve(matrix, wanted)]


def unipc_steps(
    estimate: Callable[[np.ndarray, int], np.ndarray],
    x: np.ndarray,
    sigmas: Sequence[float],
    order: int,
    variant: str,
    lower_order_final: bool,
) -> Trajectory:
    """Predictor and corrector over noise levels above 0; `estimate` is the model at the level of a number."""
    if variant not in VARIANTS:
        raise SettingError(f"there is no variant {variant!r} of UniPC; there are {', '.join(VARIANTS)}")
    steps = len(sigmas) - 1
    order = max(min(order, steps), 1)
    estimates, known = [estimate(x, 0)], [float(sigmas[0])]
    for step in range(1, steps + 1):
        used = step if step < order else min(order, steps + 1 - step) if lower_order_final else order
        sigma, sigma_next = known[0], float(sigmas[step])
        h = math.log(sigma_next / sigma)
        ratios = [math.log(old / sigma) / h for old in known[1:used]]
        changes = [(old - estimates[0]) / ratio for old, ratio in zip(estimates[1:used], ratios, strict=False)]
        moved = x * (sigma_next / sigma) - estimates[0] * math.expm1(h)
        x = moved - combined(factors(ratios, h, variant), changes) if changes else moved
        denoised = estimates[0]
        if step < steps:
            newest = estimate(x, step)
            corrections = combined(factors([*ratios, 1.0], h, variant, True), [*changes, newest - estimates[0]])
            x = moved - corrections
            estimates, known = [newest, *estimates][:order], [sigma_next, *known][:order]
        yield Step(step - 1, sigma, x, denoised)


def unipc(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    order: int = 3,
    variant: str = "bh1",
    lower_order_final: bool = True,
) -> Trajectory:
    """UniPC over the schedule's levels, as ComfyUI's uni_pc and uni_pc_bh2; its order is at most one less than the steps."""
    levels = [*map(float, sigmas[:-1]), float(sigmas[-1]) or LAST]
    return unipc_steps(
        lambda x, step: model(x, levels[step]), x, levels, min(order, len(levels) - 2), variant, lower_order_final
    )


SKIPS: dict[str, Callable[[float, float, int], np.ndarray]] = {
    "time_uniform": lambda start, end, count: np.linspace(start, end, count),
    "time_quadratic": lambda start, end, count: np.linspace(start**0.5, end**0.5, count) ** 2,
}


def unipc_times(
    model: Network,
    x: np.ndarray,
    timesteps: Sequence[int],
    alphas: np.ndarray,
    *,
    img2img: bool = False,
    order: int = 3,
    variant: str = "bh1",
    skip: str = "time_uniform",
    lower_order_final: bool = True,
) -> Trajectory:
    """A1111's UniPC. `model` predicts noise from x as it was trained to see it; of `timesteps` (ascending) the length counts.

    `alphas` is the square of the picture's factor at each of the model's times (alphas_cumprod).
    It evaluates at times of its own, from 1 (of `img2img`: from the last timestep) to 1/1000, between which the logarithm of
    the picture's factor is linear. `skip` is "time_uniform", "time_quadratic" or "logSNR".
    """
    count = len(alphas)
    logarithms = 0.5 * np.log(alphas)
    known = np.arange(1, count + 1) / count
    start = (timesteps[-1] + 1) / count if img2img else 1.0
    end = 1 / count
    if skip == "logSNR":
        snr = logarithms - 0.5 * np.log1p(-np.exp(2 * logarithms))
        first, last = (float(np.interp(time, known, snr)) for time in (start, end))
        wanted = -0.5 * np.logaddexp(0, -2 * np.linspace(first, last, len(timesteps) + 1))
        times = np.interp(wanted, logarithms[::-1], known[::-1])
    elif skip in SKIPS:
        times = SKIPS[skip](start, end, len(timesteps) + 1)
    else:
        raise SettingError(f"UniPC's times are by {', '.join(SKIPS)} or logSNR, not {skip!r}")
    shares = np.exp(np.interp(times, known, logarithms)).tolist()
    sigmas = [math.sqrt(1 / share**2 - 1) for share in shares]

    def estimate(x: np.ndarray, step: int) -> np.ndarray:
        seen = x * shares[step]
        noise = model(seen, (float(times[step]) - 1 / count) * 1000)
        return x - noise * sigmas[step]

    for step in unipc_steps(estimate, x / shares[0], sigmas, order, variant, lower_order_final):
        yield Step(step.index, step.sigma, step.x * shares[step.index + 1], step.denoised)
