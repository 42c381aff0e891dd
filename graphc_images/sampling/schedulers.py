"""Schedulers: which noise levels a sampler goes through.

Each is a short function from `Wanted` to levels in descending order, nearly always with a 0 at the end. What differs between
A1111 with Forge and ComfyUI stands in the function under `mode`; stable-diffusion.cpp mostly follows ComfyUI. The programs
compute in float32; so do these, where the order of its roundings shows (Brownian noise depends on the sixth digit).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.modes import Mode
from graphc_images.sampling import level_tables as tables
from graphc_images.sampling.beta_distribution import quantile
from graphc_images.sampling.levels import DiscreteLevels, FlowLevels, Levels, flux2_mu, flux_mu, rounded
from graphc_images.sampling.predictions import LCM_STEPS, lcm_levels

f = np.float32


@dataclass(frozen=True)
class Wanted:
    """What a schedule is asked for."""

    steps: int
    levels: Levels
    low: float
    """The lowest noise level, usually that of the training."""

    high: float
    mode: Mode = "a1111"
    rho: float | None = None
    alpha: float = 0.6
    beta: float = 0.6
    """Of the beta distribution."""

    family: str = "sd1"
    """Whose table: sd1, sdxl, svd; flux, wan, chroma."""

    tokens: int = 4096
    """How many tokens the image has (pieces of 2 x 2 latent pixels), for schedules that depend on its size."""

    coefficient: float = 1.2
    """GITS'."""

    denoise: float = 1.0
    """ComfyUI's, for SDTurboScheduler alone."""

    def table_of(self, known: dict[str, tables.Table]) -> tables.Table:
        """The table of the family."""
        if self.family not in known:
            raise SettingError(
                f"this schedule has no noise levels for {self.family!r}; it has some for {', '.join(known)}"
            )
        return known[self.family]


Scheduler = Callable[[Wanted], Sequence[float]]


def linspace(start: float, end: float, count: int) -> np.ndarray:
    """torch.linspace in float32, as float64: from both ends to the middle, products and sums rounded once."""
    if count == 1:
        return rounded(np.array([start]))
    number = np.arange(count)
    step = float((f(end) - f(start)) / f(count - 1))
    rising, falling = step * number + float(f(start)), float(f(end)) - step * (count - 1 - number)
    return rounded(np.where(number < count // 2, rising, falling))


def with_zero(sigmas: Sequence[float] | np.ndarray) -> list[float]:
    """Rounded to float32, and no noise at the end."""
    return [*(float(sigma) for sigma in rounded(np.asarray(sigmas, np.float64))), 0.0]


def at_times(want: Wanted, times: Sequence[float] | np.ndarray) -> list[float]:
    """The noise levels at model times, then 0."""
    return with_zero([want.levels.sigma(float(time)) for time in times])


def log_linear(table: Sequence[float], count: int) -> np.ndarray:
    """A descending table at another number of points, its logarithms interpolated linearly."""
    logarithms = np.log(table)
    return np.exp(np.interp(np.linspace(0, 1, count), np.linspace(0, 1, len(table)), logarithms))


def ends(want: Wanted) -> tuple[float, float]:
    """The model's times at the highest and the lowest level that are wanted."""
    return want.levels.timestep(want.high), want.levels.timestep(want.low)


def karras(want: Wanted) -> list[float]:
    """Karras et al. (2022), equation 5; rho is 7."""
    rho = want.rho or 7.0
    low, high = want.low ** (1 / rho), want.high ** (1 / rho)
    roots = rounded(float(f(high)) + rounded(linspace(0, 1, want.steps) * float(f(low - high))))
    return with_zero(roots**rho)


def exponential(want: Wanted) -> list[float]:
    """Even in the logarithm."""
    return with_zero(np.exp(linspace(math.log(want.high), math.log(want.low), want.steps)))


def polyexponential(want: Wanted) -> list[float]:
    """A polynomial in the logarithm; rho is 1."""
    ramp = linspace(1, 0, want.steps) ** (want.rho or 1.0)
    return with_zero(np.exp(ramp * math.log(want.high / want.low) + math.log(want.low)))


def uniform(want: Wanted) -> list[float]:
    """Even in the model's times, both ends of the training included (k-diffusion's get_sigmas)."""
    if isinstance(want.levels, DiscreteLevels):
        return at_times(want, linspace(len(want.levels.sigmas) - 1, 0, want.steps))
    return normal(want)


def normal(want: Wanted) -> list[float]:
    """Even in the model's times, both ends included; where the last would be no noise, it takes the 0's place."""
    start, end = ends(want)
    if abs(want.levels.sigma(end)) < 1e-5 and want.mode == "comfyui":
        return at_times(want, linspace(start, end, want.steps + 1)[:-1])
    return at_times(want, linspace(start, end, want.steps))


def sgm_uniform(want: Wanted) -> list[float]:
    """Even in the model's times, without the last of one more."""
    return at_times(want, linspace(*ends(want), want.steps + 1)[:-1])


def simple(want: Wanted) -> list[float]:
    """Levels at even distances in the table, from the highest."""
    table = want.levels.sigmas
    return with_zero([table[-1 - int(step * (len(table) / want.steps))] for step in range(want.steps)])


def ddim_uniform(want: Wanted) -> list[float]:
    """Levels at even distances in the table, counted from the second lowest; it may be some steps more."""
    table = want.levels.sigmas
    empty = abs(table[1]) < 1e-5 and want.mode == "comfyui"
    chosen = table[1 :: max(len(table) // (want.steps + empty), 1)][::-1]
    return [*map(float, chosen)] if empty else with_zero(chosen)


def beta(want: Wanted) -> list[float]:
    """Lee et al., Beta Sampling is All You Need (2024): by the beta distribution, in times (ComfyUI) or in levels (Forge)."""
    if want.mode == "a1111":
        shares = [quantile(1 - share, want.alpha, want.beta) for share in np.linspace(0, 1, want.steps)]
        return with_zero([want.low + share * (want.high - want.low) for share in shares])
    table = want.levels.sigmas
    last = len(table) - 1
    times = [round(quantile(1 - step / want.steps, want.alpha, want.beta) * last) for step in range(want.steps)]
    return with_zero([table[time] for time in dict.fromkeys(times)])


def kl_optimal(want: Wanted) -> list[float]:
    """Sabour et al., Align Your Steps (2024), appendix: even in the arcus tangent. A1111's list has no 0 at its end."""
    last = want.steps if want.mode == "a1111" else max(want.steps - 1, 1)
    share = np.arange(last + 1 if want.steps > 1 or want.mode == "a1111" else 1) / last
    sigmas = np.tan(share * math.atan(want.low) + (1 - share) * math.atan(want.high))
    return [float(sigma) for sigma in rounded(sigmas)] if want.mode == "a1111" else with_zero(sigmas)


def turbo(want: Wanted) -> list[float]:
    """Forge's Turbo: even in times, the highest among them."""
    times = [min(max(round(float(f(1000 / want.steps) * f(k))) - 1, 0), 999) for k in range(want.steps, 0, -1)]
    return at_times(want, times)


def sd_turbo(want: Wanted) -> list[float]:
    """ComfyUI's SDTurboScheduler: of ten even times, the first ones; with `denoise`, later ones."""
    start = 10 - int(10 * want.denoise)
    return at_times(want, [time * 100 - 1 for time in range(10, 0, -1)][start : start + want.steps])


def from_table(want: Wanted, table: Sequence[float]) -> list[float]:
    """As Forge stretches tables: to `steps` levels, then 0."""
    return with_zero(table if want.steps == len(table) else log_linear(table, want.steps))


def from_table_to_zero(want: Wanted, table: Sequence[float]) -> list[float]:
    """As ComfyUI stretches tables: to one level more than steps, of which the last becomes 0."""
    return with_zero((table if want.steps + 1 == len(table) else log_linear(table, want.steps + 1))[:-1])


def align_your_steps(want: Wanted) -> list[float]:
    """Sabour, Fidler, Kreis, Align Your Steps (2024)."""
    if want.mode == "a1111":
        return from_table(want, want.table_of(tables.ALIGN_YOUR_STEPS))
    return from_table_to_zero(want, want.table_of(tables.ALIGN_YOUR_STEPS_EXACT))


def align_your_steps_gits(want: Wanted) -> list[float]:
    """Forge's."""
    return from_table(want, want.table_of(tables.ALIGN_YOUR_STEPS_GITS))


def align_your_steps_11(want: Wanted) -> list[float]:
    """Forge's: the published table."""
    return from_table(want, want.table_of(tables.ALIGN_YOUR_STEPS))


def align_your_steps_32(want: Wanted) -> list[float]:
    """Forge's."""
    return from_table(want, want.table_of(tables.ALIGN_YOUR_STEPS_32))


def optimal_steps(want: Wanted) -> list[float]:
    """Pei, Hu, Gu, Optimal Stepsize for Diffusion Sampling (2025); ComfyUI's OptimalStepsScheduler."""
    return from_table_to_zero(want, want.table_of(tables.OPTIMAL_STEPS))


def gits(want: Wanted) -> list[float]:
    """Chen et al., On the Trajectory Regularity of ODE-based Diffusion Sampling (2024): a table for each number of steps."""
    coefficient = f"{round(want.coefficient * 20) / 20:.2f}"
    if coefficient not in tables.gits():
        raise SettingError(f"GITS has tables for coefficients from {min(tables.gits())} to {max(tables.gits())}")
    rows = {len(row): row for row in tables.gits()[coefficient]}
    return from_table_to_zero(want, rows.get(want.steps + 1, rows[max(rows)]))


def linear_quadratic(want: Wanted) -> list[float]:
    """Genmo's for Mochi: even small steps for the first half, then quadratic; ComfyUI."""
    threshold, steps = 0.025, want.steps
    if steps == 1:
        return with_zero([want.high])
    linear = steps // 2
    rest = steps - linear
    missing = linear - threshold * steps
    quadratic = missing / (linear * rest**2)
    slope = threshold / linear - 2 * missing / rest**2
    parts = [step * threshold / linear for step in range(linear)]
    parts += [quadratic * step**2 + slope * step + quadratic * linear**2 for step in range(linear, steps)]
    return with_zero([(1 - part) * want.high for part in parts])


def half_bong(count: int, slope: float, pivot: int, start: float, end: float) -> np.ndarray:
    """An arcus tangent from `start` to `end`, steepest at `pivot`."""
    curve = (2 / math.pi * np.arctan(-slope * (np.arange(count) - pivot)) + 1) / 2
    if count < 2:
        return np.full(count, start)
    return np.asarray((curve - curve[-1]) / (curve[0] - curve[-1]) * (start - end) + end)


def bong_tangent(want: Wanted) -> list[float]:
    """RES4LYF's: two arcus tangents that meet halfway; pivots 0.6, slopes 0.2 at 40 steps."""
    count = want.steps + 2
    pivot, slope = int(count * 0.6), 0.2 / (count / 40)
    middle = want.low + (want.high - want.low) / 2
    first = half_bong(pivot, slope, pivot, want.high, middle)[:-1]
    second = half_bong(count - pivot, slope, 0, middle, want.low)
    return with_zero(np.concatenate([first, second])[: want.steps])


def smoothstep(want: Wanted) -> list[float]:
    """stable-diffusion.cpp's: times by 3 u**2 - 2 u**3."""
    shares = 1 - np.arange(want.steps) / want.steps
    return at_times(want, np.round(shares**2 * (3 - 2 * shares) * (len(want.levels.sigmas) - 1)))


def lcm(want: Wanted) -> list[float]:
    """stable-diffusion.cpp's: the times on which latent consistency models are distilled."""
    return at_times(want, [(LCM_STEPS - LCM_STEPS * step // want.steps) * 20 - 1 for step in range(want.steps)])


def lcm_sampler(want: Wanted) -> list[float]:
    """A1111's LCM sampler with the Automatic scheduler: even in times, between levels of the fifty."""
    if not isinstance(want.levels, DiscreteLevels):
        raise SettingError("A1111's LCM sampler needs a model with a table of noise levels")
    few = lcm_levels(want.levels)
    return with_zero([few.sigma(float(time)) for time in linspace(LCM_STEPS - 1, 0, want.steps)])


def shifted(mu: float, want: Wanted) -> list[float]:
    """Even times of a flow from 1, shifted by e**mu."""
    return at_times(Wanted(want.steps, FlowLevels(math.exp(mu), True), 0, 1), linspace(1, 0, want.steps + 1)[:-1])


def flux(want: Wanted) -> list[float]:
    """Flux' own and diffusers': shifted by the number of tokens."""
    return shifted(flux_mu(want.tokens), want)


def flux2(want: Wanted) -> list[float]:
    """Flux.2's own: shifted by the number of tokens and of steps."""
    return shifted(flux2_mu(want.tokens, want.steps), want)


def ltx2(want: Wanted) -> list[float]:
    """LTX Video's, for models of its kind: shifted by the number of tokens, then stretched so that the last level is 0.1."""
    return stretched(shifted(0.95 + (2.05 - 0.95) * (want.tokens - 1024) / (4096 - 1024), want), 0.1)


def qwen_image(want: Wanted) -> list[float]:
    """Qwen-Image's own, in diffusers: shifted by the number of tokens, then stretched so that the last level is 0.02."""
    return stretched(shifted(0.5 + (0.9 - 0.5) * (want.tokens - 256) / (8192 - 256), want), 0.02)


def stretched(levels: Sequence[float], last: float) -> list[float]:
    """Levels from 1 to a 0, of which the one before the 0 is moved to `last`, and those between in proportion."""
    sigmas = np.array(levels[:-1])
    return with_zero(1 - (1 - sigmas) * (1 - last) / (1 - sigmas[-1]) if len(sigmas) > 1 else sigmas)


def laplace(want: Wanted, mu: float = 0.0, beta: float = 0.5) -> list[float]:
    """Hang, Gu, Improved Noise Schedule for Diffusion Training (2024); mu 0, beta 0.5, ComfyUI. There is no 0 at its end."""
    share = linspace(0, 1, want.steps)
    logarithm = mu - beta * np.sign(0.5 - share) * np.log(1 - 2 * np.abs(0.5 - share) + 1e-5)
    return [float(sigma) for sigma in rounded(np.clip(np.exp(logarithm), want.low, want.high))]


def vp(want: Wanted, growth: float = 19.9, least: float = 0.1, last: float = 1e-3) -> list[float]:
    """Song et al., Score-Based Generative Modeling (2021): the continuous variance-preserving process, 19.9 and 0.1."""
    time = linspace(1, last, want.steps)
    return with_zero(np.sqrt(np.expm1(growth * time**2 / 2 + least * time)))


def logit_normal(want: Wanted) -> list[float]:
    """Ideogram 4's: quantiles of a normal distribution through the logistic function; for 512 x 512 pixels without a shift."""
    from statistics import NormalDist

    mean = 0.5 * math.log(want.tokens / 1024)
    shares = [step / want.steps for step in range(want.steps)]
    scores = [mean - 1.75 * NormalDist().inv_cdf(share) if share else math.inf for share in shares]
    low, high = (1 / (1 + math.exp(-0.5 * snr)) for snr in (-15.0, 18.0))
    return with_zero([min(max(1 / (1 + math.exp(-score)), low), high) for score in scores])
