"""Nodes that give noise levels, descending.

Source: ComfyUI's comfy_extras/nodes_custom_sampler.py, nodes_align_your_steps.py, nodes_gits.py, nodes_flux.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphc_images import SettingError
from graphc_images.sampling import levels_of_model, schedulers
from graphc_images.sampling.schedulers import Scheduler, Wanted
from graphc_server.comfyui.executor import Room
from graphc_server.comfyui.nodes.samplers import DENOISE, SCHEDULER, SIGMAS, chosen
from graphc_server.comfyui.sampling import levels_for, schedule
from graphc_server.comfyui.table import STEPS, Input, choice, link, node, number, side, whole
from graphc_server.comfyui.values import Model

GROUP = "sampling/custom_sampling/schedulers"
USUAL = Wanted(1, levels_of_model("eps", "comfyui"), 0.0291675, 14.614642, "comfyui")
Levels = list[float]


@node("BasicScheduler", GROUP, link("model"), SCHEDULER, STEPS, DENOISE, gives="SIGMAS")
def basic(room: Room, model: Model, scheduler: str, steps: int, denoise: float) -> Levels:
    """Those of a scheduler by name; of a part of the way, the last of more."""
    return schedule(model, chosen("euler"), scheduler, steps, denoise)


def _end(name: str, default: float) -> Input:
    return number(name, default, 0.0, 5000.0, more={"round": False})


ENDS = (_end("sigma_max", USUAL.high), _end("sigma_min", USUAL.low))


def _between(scheduler: Scheduler, steps: int, high: float, low: float, rho: float | None = None) -> Levels:
    if not 0 < low < high:
        raise SettingError(f"sigma_min: {low:g} does not lie between 0 and sigma_max, {high:g}")
    return list(scheduler(replace(USUAL, steps=steps, low=low, high=high, rho=rho)))


@node("KarrasScheduler", GROUP, STEPS, *ENDS, number("rho", 7.0, 0.0, 100.0), gives="SIGMAS")
def karras(room: Room, steps: int, sigma_max: float, sigma_min: float, rho: float) -> Levels:
    """Karras' between two levels."""
    return _between(schedulers.karras, steps, sigma_max, sigma_min, rho)


@node("ExponentialScheduler", GROUP, STEPS, *ENDS, gives="SIGMAS")
def exponential(room: Room, steps: int, sigma_max: float, sigma_min: float) -> Levels:
    """Even in the logarithm between two levels."""
    return _between(schedulers.exponential, steps, sigma_max, sigma_min)


@node("PolyexponentialScheduler", GROUP, STEPS, *ENDS, number("rho", 1.0, 0.0, 100.0), gives="SIGMAS")
def polyexponential(room: Room, steps: int, sigma_max: float, sigma_min: float, rho: float) -> Levels:
    """A polynomial in the logarithm between two levels."""
    return _between(schedulers.polyexponential, steps, sigma_max, sigma_min, rho)


@node(
    "LaplaceScheduler", GROUP, STEPS, *ENDS, number("mu", 0.0, -10.0, 10.0, 0.1), number("beta", 0.5, 0.0, 10.0, 0.1),
    gives="SIGMAS",
)  # fmt: skip
def laplace(room: Room, steps: int, sigma_max: float, sigma_min: float, mu: float, beta: float) -> Levels:
    """By Laplace's distribution, between two levels; there is no 0 at its end."""
    return _between(lambda want: schedulers.laplace(want, mu, beta), steps, sigma_max, sigma_min)


@node(
    "VPScheduler", GROUP, STEPS, _end("beta_d", 19.9), _end("beta_min", 0.1), number("eps_s", 0.001, 0.0, 1.0, 0.0001),
    gives="SIGMAS",
)  # fmt: skip
def variance_preserving(room: Room, steps: int, beta_d: float, beta_min: float, eps_s: float) -> Levels:
    """Of the process that preserves the variance."""
    found = schedulers.vp(replace(USUAL, steps=steps), beta_d, beta_min, eps_s)
    if not np.isfinite(found).all():
        raise SettingError(f"beta_d: the levels of {beta_d:g} are not finite")
    return list(found)


@node("SDTurboScheduler", GROUP, link("model"), whole("steps", 1, 1, 10), DENOISE, gives="SIGMAS")
def sd_turbo(room: Room, model: Model, steps: int, denoise: float) -> Levels:
    """Of ten even times, the first ones; with less `denoise`, later ones."""
    levels = levels_for(model)
    return list(schedulers.sd_turbo(replace(USUAL, steps=steps, levels=levels, denoise=denoise)))


@node(
    "BetaSamplingScheduler", GROUP, link("model"), STEPS, number("alpha", 0.6, 0.01, 50.0), number("beta", 0.6, 0.01, 50.0),
    gives="SIGMAS",
)  # fmt: skip
def beta(room: Room, model: Model, steps: int, alpha: float, beta: float) -> Levels:
    """By the beta distribution."""
    return list(schedulers.beta(replace(USUAL, steps=steps, levels=levels_for(model), alpha=alpha, beta=beta)))


def _last(sigmas: Sequence[float], steps: int, denoise: float) -> Levels:
    """The levels of a part of the way."""
    count = round(steps * denoise)
    return [*sigmas[-(count + 1) : -1], 0.0] if count else []


TABLES = {"SD1": "sd1", "SDXL": "sdxl", "SVD": "svd"}


@node(
    "AlignYourStepsScheduler", GROUP, choice("model_type", tuple(TABLES)), whole("steps", 10, 1, 10000, limit="steps"),
    DENOISE, gives="SIGMAS",
)  # fmt: skip
def align_your_steps(room: Room, model_type: str, steps: int, denoise: float) -> Levels:
    """Levels that were searched for (Align Your Steps)."""
    wanted = replace(USUAL, steps=steps, family=TABLES[model_type])
    return _last(schedulers.align_your_steps(wanted), steps, denoise)


@node(
    "GITSScheduler", GROUP, number("coeff", 1.2, 0.8, 1.5, 0.05), whole("steps", 10, 2, 1000, limit="steps"), DENOISE,
    gives="SIGMAS",
)  # fmt: skip
def gits(room: Room, coeff: float, steps: int, denoise: float) -> Levels:
    """Levels that were searched for (GITS)."""
    return _last(schedulers.gits(replace(USUAL, steps=steps, coefficient=coeff)), steps, denoise)


KINDS = {"FLUX": "flux", "Wan": "wan", "Chroma": "chroma"}


@node("OptimalStepsScheduler", GROUP, choice("model_type", tuple(KINDS)), STEPS, DENOISE, gives="SIGMAS")
def optimal_steps(room: Room, model_type: str, steps: int, denoise: float) -> Levels:
    """Levels that were searched for (Optimal Steps)."""
    return _last(schedulers.optimal_steps(replace(USUAL, steps=steps, family=KINDS[model_type])), steps, denoise)


@node("Flux2Scheduler", GROUP, STEPS, side("width", 1024, step=1), side("height", 1024, step=1), gives="SIGMAS")
def flux2(room: Room, steps: int, width: int, height: int) -> Levels:
    """Flux.2's own: shifted by the number of steps and the size of the picture."""
    return list(schedulers.flux2(replace(USUAL, steps=steps, tokens=width * height // 256)))


@node("SplitSigmas", "sampling/custom_sampling/sigmas", SIGMAS, whole("step", 0, 0, 10000), gives="SIGMAS SIGMAS")
def split(room: Room, sigmas: Levels, step: int) -> tuple[Levels, Levels]:
    """The levels up to a step, and those from it on."""
    return sigmas[: step + 1], sigmas[step:]


@node("SplitSigmasDenoise", "sampling/custom_sampling/sigmas", SIGMAS, DENOISE, gives="SIGMAS SIGMAS")
def split_by_share(room: Room, sigmas: Levels, denoise: float) -> tuple[Levels, Levels]:
    """The levels before a share of the way, and those of it."""
    count = round(max(len(sigmas) - 1, 0) * denoise)
    return sigmas[: len(sigmas) - count], sigmas[-(count + 1) :]


@node(
    "SetFirstSigma", "sampling/custom_sampling/sigmas", SIGMAS,
    number("sigma", 136.0, 0.0, 20000.0, 0.001, more={"round": False}), gives="SIGMAS",
)  # fmt: skip
def set_first(room: Room, sigmas: Levels, sigma: float) -> Levels:
    """The levels, with another first one."""
    return [float(np.float32(sigma)), *sigmas[1:]] if sigmas else []
