"""DPM-Solver with steps of its own choice: Lu, Zhou, Bao, Chen, Li, Zhu, DPM-Solver (2022), as k-diffusion has it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.sampling.predictions import Denoiser
from graphc_images.sampling.samplers.steps import Noise, Step, Trajectory, step_down


class Solver:
    """Steps of order 1, 2 and 3 from one level, over time t = -log(sigma). What was evaluated is kept for the higher order."""

    def __init__(self, model: Denoiser, x: np.ndarray, t: float) -> None:
        self.model, self.x, self.t = model, x, t
        self.evaluated: dict[float, np.ndarray] = {}
        self.eps = self.noise(x, t)

    def noise(self, x: np.ndarray, t: float) -> np.ndarray:
        """The model's noise at a time, evaluated once."""
        if t not in self.evaluated:
            sigma = math.exp(-t)
            self.evaluated[t] = (x - self.model(x, sigma)) / sigma
        return self.evaluated[t]

    def order_1(self, end: float) -> np.ndarray:
        """Along the noise at the beginning."""
        return self.x - self.eps * (math.exp(-end) * math.expm1(end - self.t))

    def order_2(self, end: float, r: float = 0.5) -> np.ndarray:
        """With a second evaluation at the share r."""
        place = self.t + r * (end - self.t)
        second = self.noise(self.order_1(place), place)
        bend = math.exp(-end) / (2 * r) * math.expm1(end - self.t)
        return np.asarray(self.order_1(end) - (second - self.eps) * bend)

    def order_3(self, end: float, r_1: float = 1 / 3, r_2: float = 2 / 3) -> np.ndarray:
        """With two more evaluations."""
        h = end - self.t
        first, second = self.t + r_1 * h, self.t + r_2 * h
        eps_1 = self.noise(self.order_1(first), first)
        bend = math.exp(-second) * (r_2 / r_1) * (math.expm1(r_2 * h) / (r_2 * h) - 1)
        eps_2 = self.noise(self.order_1(second) - (eps_1 - self.eps) * bend, second)
        last = math.exp(-end) / r_2 * (math.expm1(h) / h - 1)
        return np.asarray(self.order_1(end) - (eps_2 - self.eps) * last)


def lowered(t: float, end: float, eta: float, last: float) -> tuple[float, float]:
    """The time to go to and the noise to add, so that with it the level is that of `end`."""
    if not eta:
        return end, 0.0
    down, _, _ = step_down(math.exp(-t), math.exp(-end), eta)
    further = min(last, -math.log(down)) if down else last
    return further, math.sqrt(math.exp(-2 * end) - math.exp(-2 * further))


def ends_of(sigmas: Sequence[float]) -> tuple[float, float]:
    """The times of the first level and of the last above 0."""
    positive = [float(sigma) for sigma in sigmas if sigma > 0]
    if len(positive) < 2:
        raise SettingError("DPM fast and DPM adaptive need two noise levels above 0: ask for two steps or more")
    return -math.log(positive[0]), -math.log(positive[-1])


def dpm_fast(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise | None = None,
    eta: float = 0.0,
    s_noise: float = 1.0,
) -> Trajectory:
    """As many evaluations as the schedule has steps, in steps of order 3, even in log(sigma); of the levels, the ends count."""
    start, last = ends_of(sigmas)
    evaluations = len(sigmas) - 1
    count = evaluations // 3 + 1
    orders = [3] * (count - 2) + [2, 1] if evaluations % 3 == 0 else [3] * (count - 1) + [evaluations % 3]
    times = np.linspace(start, last, count + 1).tolist()
    for index, order in enumerate(orders):
        t, end = times[index], times[index + 1]
        further, up = lowered(t, end, eta, last)
        solver = Solver(model, x, t)
        denoised = x - solver.eps * math.exp(-t)
        x = (solver.order_1, solver.order_2, solver.order_3)[order - 1](further)
        if up and noise is not None:
            x = x + noise(math.exp(-t), math.exp(-end)) * (up * s_noise)
        yield Step(index, math.exp(-t), x, denoised)


class Controller:
    """A PID controller of the step's length (Söderlind, Digital Filters in Adaptive Time-Stepping, 2003)."""

    def __init__(self, h: float, p: float, i: float, d: float, order: float, accept: float) -> None:
        self.h, self.accept = h, accept
        self.powers = (p + i + d) / order, -(p + 2 * d) / order, d / order
        self.errors: list[float] = []

    def accepts(self, error: float) -> bool:
        """True if a step with this error is taken; the next one's length follows from it."""
        inverse = 1 / (error + 1e-8)
        past = [inverse, *self.errors] if self.errors else [inverse] * 3
        factor = math.prod(each**power for each, power in zip(past, self.powers, strict=True))
        factor = 1 + math.atan(factor - 1)
        taken = factor >= self.accept
        if taken:
            self.errors = past[:2]
        elif not self.errors:
            self.errors = past[1:]
        self.h *= factor
        return taken


def dpm_adaptive(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise | None = None,
    order: int = 3,
    rtol: float = 0.05,
    atol: float = 0.0078,
    h_init: float = 0.05,
    p: float = 0.0,
    i: float = 1.0,
    d: float = 0.0,
    accept: float = 0.81,
    eta: float = 0.0,
    s_noise: float = 1.0,
) -> Trajectory:
    """Steps as long as two orders agree (DPM-Solver-12 or -23); of the levels, the first and the last above 0 count."""
    if order not in (2, 3):
        raise SettingError(f"the order of DPM adaptive is 2 or 3, not {order}")
    t, last = ends_of(sigmas)
    before = x
    controller = Controller(h_init, p, i, d, 1.5 if eta else order, accept)
    index = 0
    while t < last - 1e-5:
        end = min(last, t + controller.h)
        further, up = lowered(t, end, eta, last)
        solver = Solver(model, x, t)
        low = solver.order_1(further) if order == 2 else solver.order_2(further, 1 / 3)
        high = solver.order_2(further) if order == 2 else solver.order_3(further)
        delta = np.maximum(atol, rtol * np.maximum(np.abs(low), np.abs(before)))
        if controller.accepts(float(np.linalg.norm(((low - high) / delta).astype(np.float64))) / math.sqrt(x.size)):
            denoised = x - solver.eps * math.exp(-t)
            sigma, before, x = math.exp(-t), low, high
            if up and noise is not None:
                x = x + noise(sigma, math.exp(-end)) * (up * s_noise)
            t = end
            yield Step(index, sigma, x, denoised)
            index += 1
