"""Exponential integrators with several evaluations in a step, over the logarithm of alpha / sigma."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.sampling.levels import EXPLODING, Path
from graphc_images.sampling.predictions import Denoiser
from graphc_images.sampling.samplers.multistep import phi_1, phi_2
from graphc_images.sampling.samplers.steps import Noise, Step, Trajectory, pairs, step_down, toward


class Stages:
    """One step's way to places within it; the noise of the way is added up, as SEEDS does."""

    def __init__(
        self,
        x: np.ndarray,
        sigma: float,
        sigma_next: float,
        noise: Noise | None,
        eta: float,
        s_noise: float,
        path: Path,
    ) -> None:
        self.x, self.sigma, self.eta, self.s_noise, self.path = x, sigma, eta, s_noise, path
        self.start = path.half_log_snr(sigma)
        self.length = path.half_log_snr(sigma_next) - self.start
        self.noise = noise if eta > 0 and s_noise > 0 else None
        self.share, self.level = 0.0, sigma
        self.added: np.ndarray | None = None

    def level_at(self, share: float) -> float:
        """The noise level after a share of the step."""
        return self.path.sigma_at(self.start + share * self.length)

    def exponent(self, share: float) -> float:
        """What the factors of estimates at a share of the step depend on."""
        return -share * self.length * (1 + self.eta)

    def move(self, share: float, level: float, estimates: Sequence[tuple[float, np.ndarray]]) -> np.ndarray:
        """x at a share of the step, with the estimates times their factors, and the noise from the last place to here."""
        x = self.x * (level / self.sigma * math.exp(-share * self.length * self.eta))
        for factor, estimate in estimates:
            x = x - estimate * (self.path.alpha(level) * factor)
        if self.noise is not None:
            way = (self.share - share) * self.length * self.eta
            fresh = self.noise(self.level, level) * math.sqrt(-math.expm1(2 * way))
            self.added = fresh if self.added is None else self.added * math.exp(way) + fresh
            x = x + self.added * (level * self.s_noise)
            self.share, self.level = share, level
        return x


def seeds_2(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise | None = None,
    eta: float = 1.0,
    s_noise: float = 1.0,
    r: float = 0.5,
    solver: str = "phi_1",
    path: Path = EXPLODING,
) -> Trajectory:
    """Gonzalez et al., SEEDS: Exponential SDE Solvers (2023), two stages, the second at the share `r`; ComfyUI's defaults."""
    if solver not in ("phi_1", "phi_2"):
        raise SettingError(f'the solver of SEEDS-2 is "phi_1" or "phi_2", not {solver!r}')
    for index, sigma, sigma_next in pairs(path.started(sigmas)):
        denoised = model(x, sigma)
        if sigma_next == 0:
            x = denoised
        else:
            stages = Stages(x, sigma, sigma_next, noise, eta, s_noise, path)
            middle = stages.level_at(r)
            halfway = stages.move(r, middle, [(math.expm1(stages.exponent(r)), denoised)])
            second = model(halfway, middle)
            h = stages.exponent(1)
            of_second = math.expm1(h) / (2 * r) if solver == "phi_1" else h * phi_2(h) / r
            x = stages.move(1, sigma_next, [(math.expm1(h) - of_second, denoised), (of_second, second)])
        yield Step(index, sigma, x, denoised)


def exp_heun_2_x0(model: Denoiser, x: np.ndarray, sigmas: Sequence[float], *, path: Path = EXPLODING) -> Trajectory:
    """Heun's method as an exponential integrator (ComfyUI): the second evaluation at the end of the step, no noise."""
    return seeds_2(model, x, sigmas, eta=0.0, r=1.0, solver="phi_2", path=path)


def exp_heun_2_x0_sde(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise,
    eta: float = 1.0,
    s_noise: float = 1.0,
    path: Path = EXPLODING,
) -> Trajectory:
    """The same with noise."""
    return seeds_2(model, x, sigmas, noise=noise, eta=eta, s_noise=s_noise, r=1.0, solver="phi_2", path=path)


def seeds_3(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise | None = None,
    eta: float = 1.0,
    s_noise: float = 1.0,
    r_1: float = 1 / 3,
    r_2: float = 2 / 3,
    path: Path = EXPLODING,
) -> Trajectory:
    """Gonzalez et al., SEEDS (2023), three stages, the later ones at the shares `r_1` and `r_2`; ComfyUI's defaults."""
    for index, sigma, sigma_next in pairs(path.started(sigmas)):
        denoised = model(x, sigma)
        if sigma_next == 0:
            x = denoised
        else:
            stages = Stages(x, sigma, sigma_next, noise, eta, s_noise, path)
            first, second = stages.level_at(r_1), stages.level_at(r_2)
            estimate_1 = model(stages.move(r_1, first, [(math.expm1(stages.exponent(r_1)), denoised)]), first)
            h = stages.exponent(r_2)
            of_1 = r_2 / r_1 * h * phi_2(h)
            estimate_2 = model(stages.move(r_2, second, [(math.expm1(h) - of_1, denoised), (of_1, estimate_1)]), second)
            h = stages.exponent(1)
            of_2 = h * phi_2(h) / r_2
            x = stages.move(1, sigma_next, [(math.expm1(h) - of_2, denoised), (of_2, estimate_2)])
        yield Step(index, sigma, x, denoised)


def res_2s(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise | None = None,
    eta: float = 0.0,
    s_noise: float = 1.0,
    path: Path = EXPLODING,
) -> Trajectory:
    """RES of Zhang et al. (2023) in two evaluations, the second in the middle; stable-diffusion.cpp."""
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        down, scale, up = step_down(sigma, sigma_next, eta, path)
        if down == 0:
            x = denoised
        else:
            h = math.log(sigma / down)
            middle = sigma * math.exp(-h / 2)
            second = model(toward(x, denoised, middle / sigma), middle)
            of_second = 2 * phi_2(-h)
            x = x + ((denoised - x) * (phi_1(-h) - of_second) + (second - x) * of_second) * h
        if up and noise is not None:
            x = x * scale + noise(sigma, sigma_next) * (up * s_noise)
        yield Step(index, sigma, x, denoised)


ER_POINTS = 200


def er_scale(level: float | np.ndarray) -> float | np.ndarray:
    """How much noise ER-SDE makes anew at a ratio sigma / alpha."""
    return level * (np.exp(level**0.3) + 10.0)


def er_sde(
    model: Denoiser,
    x: np.ndarray,
    sigmas: Sequence[float],
    *,
    noise: Noise,
    s_noise: float = 1.0,
    max_stage: int = 3,
    path: Path = EXPLODING,
) -> Trajectory:
    """Cui, Zhang, Lu, Liao, Elucidating the Solution Space of Extended Reverse-Time SDE for Diffusion Models (2023); stage 3."""
    sigmas = path.started(sigmas)
    ratios = [float(sigma) / path.alpha(sigma) for sigma in sigmas]
    estimate_before, slope_before = None, None
    for index, sigma, sigma_next in pairs(sigmas):
        denoised = model(x, sigma)
        if sigma_next == 0:
            x = denoised
        else:
            now, then, alpha = ratios[index], ratios[index + 1], path.alpha(sigma_next)
            scale = float(er_scale(then))
            r = scale / float(er_scale(now))
            x = x * (alpha / path.alpha(sigma) * r) + denoised * (alpha * (1 - r))
            places = then + np.arange(ER_POINTS) * ((now - then) / ER_POINTS)
            weights = np.asarray((now - then) / ER_POINTS / er_scale(places))
            if estimate_before is not None and max_stage > 1:
                slope = (denoised - estimate_before) / (now - ratios[index - 1])
                x = x + slope * (alpha * (then - now + float(weights.sum()) * scale))
                if slope_before is not None and max_stage > 2:
                    bend = (slope - slope_before) / ((now - ratios[index - 2]) / 2)
                    x = x + bend * (alpha * ((then - now) ** 2 / 2 + float((weights * (places - now)).sum()) * scale))
                slope_before = slope
            if s_noise > 0:
                x = x + noise(sigma, sigma_next) * (alpha * s_noise * math.sqrt(max(then**2 - (now * r) ** 2, 0.0)))
        estimate_before = denoised
        yield Step(index, sigma, x, denoised)
