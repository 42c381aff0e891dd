"""Where a picture starts and which noise levels its sampler goes through, in A1111's way and in ComfyUI's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.modes import Mode
from graphc_images.sampling import schedulers
from graphc_images.sampling.levels import EXPLODING, DiscreteLevels, FlowLevels, Levels, Path
from graphc_images.sampling.names import NamedScheduler, Sampler
from graphc_images.sampling.predictions import Denoiser, Network, OnTimes, Prediction, denoiser, lcm_denoiser
from graphc_images.sampling.samplers.dpm_solver import dpm_adaptive, dpm_fast
from graphc_images.sampling.samplers.euler import euler_ancestral, lcm
from graphc_images.sampling.samplers.runge_kutta import dpm_2_ancestral
from graphc_images.sampling.samplers.steps import Noise, Trajectory
from graphc_images.sampling.samplers.times import a1111_timesteps

LARGEST_DENOISE = 0.999
"""A1111 never denoises a picture more than this."""

OLD_KARRAS = (0.1, 10.0)
"""A1111's option for old seeds: the ends of its levels before December 2022."""


@dataclass(frozen=True)
class Request:
    """What somebody asks for. `denoise` None is text to image; else it is the share of the way that a picture goes back."""

    steps: int
    mode: Mode = "a1111"
    denoise: float | None = None
    fix_steps: bool = False
    """A1111, from a picture: as many evaluations as steps (img2img_fix_steps; hires passes)."""

    sigmas: Sequence[float] | None = None
    """Noise levels of somebody's own, in place of a scheduler's."""

    low: float | None = None
    high: float | None = None
    rho: float | None = None
    alpha: float = 0.6
    beta: float = 0.6
    family: str = "sd1"
    tokens: int = 4096
    coefficient: float = 1.2
    discard_penultimate: bool = False
    """Always, and not for some samplers only (always_discard_next_to_last_sigma)."""

    more_noise: bool = False
    """A1111: as much starting noise as ComfyUI (sgm_noise_multiplier)."""


@dataclass(frozen=True)
class Plan:
    """The noise levels of a picture, and how it starts. Arrays are [batch, channels, height, width]."""

    sampler: Sampler
    levels: Levels
    mode: Mode
    sigmas: list[float]
    """What the sampler goes through; empty if there is nothing to do."""

    whole: list[float]
    """The levels over which Brownian noise is drawn: A1111 takes the whole schedule, ComfyUI what is left of it."""

    timesteps: list[int] = field(default_factory=list)
    """In the place of levels, for samplers on times; ascending."""

    start_time: int | None = None
    """The time to whose level a picture is noised, for samplers on times."""

    more_noise: bool = False

    def start(self, noise: np.ndarray, latent: np.ndarray | None = None, extra: float = 0.0) -> np.ndarray:
        """The sampler's x, of noise and perhaps a picture. `extra` is A1111's extra noise."""
        if not self.sigmas and not self.timesteps:
            return noise * 0 if latent is None else latent
        if self.sampler.on_times:
            return self._start_on_times(noise, latent, extra)
        sigma, path = self.sigmas[0], self.levels.path
        picture = noise * 0 if latent is None else latent
        if not path.flow and self.more_noise:
            return np.asarray(picture + noise * math.sqrt(1 + sigma**2))
        x = path.noised(picture, noise, sigma)
        return x + noise * extra if extra else x

    def _start_on_times(self, noise: np.ndarray, latent: np.ndarray | None, extra: float) -> np.ndarray:
        if latent is None or self.start_time is None:
            return noise
        alpha = float(self.alphas[self.start_time])
        x = latent * math.sqrt(alpha) + noise * math.sqrt(1 - alpha)
        return np.asarray(x + noise * (extra * math.sqrt(alpha)) if extra else x)

    @property
    def alphas(self) -> np.ndarray:
        """The squares of the picture's factors at the model's times."""
        assert isinstance(self.levels, DiscreteLevels)
        return self.levels.alphas

    @property
    def path(self) -> Path:
        """How samplers that add noise take flow models: Forge has few that know them, and those not for SD 3."""
        of_flux = isinstance(self.levels, FlowLevels) and self.levels.of_flux
        if self.mode == "a1111" and not (of_flux and self.sampler.function in (euler_ancestral, dpm_2_ancestral)):
            return EXPLODING
        return self.levels.path

    @property
    def steps(self) -> int:
        """How many steps the sampler takes; DPM adaptive decides itself."""
        return max(len(self.timesteps or self.sigmas) - 1, 0)

    @property
    def evaluations(self) -> int:
        """How often A1111 expects the model to be evaluated, for scheduled prompts and progress (total_steps)."""
        return max(self.steps, 1) * (2 if self.sampler.evaluations == 2 else 1)

    def run(self, model: Any, x: np.ndarray, noise: Noise, **settings: Any) -> Trajectory:
        """The sampler's steps; there may be none. Settings that it does not have are left out; None stands for its default.

        `model` denoises (see `model_for`); for `sampler.pair` it tells the negative estimate too (`steps.PairDenoiser`).
        """
        sampler = self.sampler
        given = {name: value for name, value in settings.items() if value is not None}
        if self.mode == "a1111" and sampler.function in (dpm_fast, dpm_adaptive):
            given.setdefault("eta", 1.0)
        if given.get("s_tmax") == 0:  # A1111's way to say that there is no upper end
            del given["s_tmax"]
        given |= {
            "noise": noise,
            "path": self.path,
            "levels": self.levels,
            "img2img": self.start_time is not None,
        }
        if "noisy" in sampler.takes:
            given.setdefault("noisy", (self.levels.sigma_at(0.2), self.levels.sigma_at(0.8)))
        given |= sampler.settings
        if self.mode == "comfyui":
            given |= sampler.comfyui_settings
        kept = {name: value for name, value in given.items() if name in sampler.takes}
        if sampler.on_times and not self.timesteps:
            return iter(())
        if sampler.on_times:
            noisy = OnTimes(model, self.levels)
            return sampler.function(noisy.pair if sampler.pair else noisy, x, self.timesteps, self.alphas, **kept)
        if len(self.sigmas) < 2:
            return iter(())
        return sampler.function(model, x, self.sigmas, **kept)


def levels_of(
    sampler: Sampler, scheduler: NamedScheduler | None, steps: int, levels: Levels, ask: Request
) -> list[float]:
    """The whole schedule of so many steps, descending."""
    if ask.sigmas is not None:
        return checked(ask.sigmas)
    function = scheduler.function if scheduler else None
    low, high = ask.low or levels.lowest, ask.high or levels.highest
    if sampler.function in (dpm_fast, dpm_adaptive) and ask.mode == "a1111" and ask.denoise is None:
        function, low, high = schedulers.exponential, levels.lowest, levels.highest
    if function is None:
        function = automatic(sampler, levels, ask.mode)
    discard = ask.discard_penultimate or ask.mode in sampler.discard
    want = schedulers.Wanted(
        steps + discard,
        levels,
        low,
        high,
        ask.mode,
        ask.rho,
        ask.alpha,
        ask.beta,
        ask.family,
        ask.tokens,
        ask.coefficient,
        1.0 if ask.denoise is None else ask.denoise,
    )
    sigmas = list(dict.fromkeys(function(want)))  # a level that comes twice would be a step of no length
    return [*sigmas[:-2], sigmas[-1]] if discard and len(sigmas) > 2 else sigmas


def automatic(sampler: Sampler, levels: Levels, mode: Mode) -> schedulers.Scheduler:
    """A1111's "Automatic": the sampler's own schedule, or Uniform; for flow models, Forge's Simple."""
    from graphc_images.sampling.names import find_scheduler

    if sampler.function is lcm and mode == "a1111" and isinstance(levels, DiscreteLevels):
        return schedulers.lcm_sampler
    usual = "simple" if levels.path.flow else "uniform"
    function = find_scheduler(usual if levels.path.flow else sampler.scheduler or usual).function
    assert function is not None
    return function


def checked(sigmas: Sequence[float]) -> list[float]:
    """Noise levels of somebody's own."""
    found = [float(sigma) for sigma in sigmas]
    falling = all(later < earlier for earlier, later in pairwise(found))
    if len(found) < 2 or not falling or found[-1] < 0 or not all(map(math.isfinite, found)):
        raise SettingError(f"noise levels must fall, end at 0 or above, and be two or more, not {found}")
    return found


def plan(sampler: Sampler, scheduler: NamedScheduler | None, levels: Levels, ask: Request) -> Plan:
    """What a request means for a sampler, a scheduler (None: the sampler's own) and a model's noise levels."""
    if ask.steps < 1:
        raise SettingError(f"the number of steps must be 1 or more, not {ask.steps}")
    if ask.denoise is not None and not 0 <= ask.denoise <= 1:
        raise SettingError(f"the share of denoising must lie between 0 and 1, not {ask.denoise}")
    if "levels" in sampler.takes and not isinstance(levels, DiscreteLevels):
        raise SettingError(f"{sampler.label} needs a model with a table of times; flow models have none")
    if sampler.on_times:
        return plan_on_times(sampler, levels, ask)
    return (plan_comfyui if ask.mode == "comfyui" else plan_a1111)(sampler, scheduler, levels, ask)


def steps_of_a1111(ask: Request) -> tuple[int, int]:
    """From a picture: the steps of the whole schedule, and how many of them follow the first (setup_img2img_steps)."""
    share = min(ask.denoise or 0.0, LARGEST_DENOISE)
    if ask.fix_steps:
        return (int(ask.steps / share) if share > 0 else 0), ask.steps - 1
    return ask.steps, int(share * ask.steps)


def plan_a1111(sampler: Sampler, scheduler: NamedScheduler | None, levels: Levels, ask: Request) -> Plan:
    """A1111: from a picture, the last steps of a schedule (modules/sd_samplers_kdiffusion.py)."""
    if ask.denoise is None:
        sigmas = levels_of(sampler, scheduler, ask.steps, levels, ask)
        return Plan(sampler, levels, "a1111", sigmas, sigmas, more_noise=ask.more_noise)
    steps, later = steps_of_a1111(ask)
    if steps == 0:
        return Plan(sampler, levels, "a1111", [], [])
    sigmas = levels_of(sampler, scheduler, steps, levels, ask)
    return Plan(sampler, levels, "a1111", sigmas[steps - later - 1 :], sigmas)


def plan_comfyui(sampler: Sampler, scheduler: NamedScheduler | None, levels: Levels, ask: Request) -> Plan:
    """ComfyUI: as many steps as are asked for, the last of a longer schedule (KSampler.set_steps)."""
    share = 1.0 if ask.denoise is None else ask.denoise
    if share <= 0:
        return Plan(sampler, levels, "comfyui", [], [])
    if share > 0.9999 or ask.sigmas is not None:
        sigmas = levels_of(sampler, scheduler, ask.steps, levels, ask)
    else:
        sigmas = levels_of(sampler, scheduler, int(ask.steps / share), levels, ask)[-(ask.steps + 1) :]
    first = bool(sigmas) and (math.isclose(levels.highest, sigmas[0], rel_tol=1e-5) or sigmas[0] > levels.highest)
    return Plan(sampler, levels, "comfyui", sigmas, sigmas, more_noise=first)


def plan_on_times(sampler: Sampler, levels: Levels, ask: Request) -> Plan:
    """A1111's samplers on times (sd_samplers_timesteps.py): a picture starts one entry below the level it is noised to."""
    if not isinstance(levels, DiscreteLevels):
        raise SettingError(f"{sampler.label} needs a model with a table of times; flow models have none")
    steps, later = (ask.steps, None) if ask.denoise is None else steps_of_a1111(ask)
    if steps == 0:
        return Plan(sampler, levels, ask.mode, [], [])
    timesteps = a1111_timesteps(steps + ask.discard_penultimate, len(levels.sigmas))
    if later is None:
        return Plan(sampler, levels, ask.mode, [], [], timesteps)
    return Plan(sampler, levels, ask.mode, [], [], timesteps[:later], timesteps[later])


def model_for(plan: Plan, network: Network, prediction: Prediction) -> Denoiser:
    """A network as the plan's sampler wants it: A1111's times lie between the model's, and its LCM has a model of its own.

    With several conditionings, `guided.Conditioned` makes one of these for each.
    """
    if plan.mode == "a1111" and plan.sampler.function is lcm and isinstance(plan.levels, DiscreteLevels):
        return lcm_denoiser(network, prediction, plan.levels)
    return denoiser(network, prediction, plan.levels, whole=plan.mode == "comfyui")
