"""The names under which A1111 and Forge, ComfyUI, diffusers and stable-diffusion.cpp have samplers and schedulers: two tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from typing import Any

from graphc_images.errors import SettingError
from graphc_images.modes import Mode
from graphc_images.sampling import schedulers
from graphc_images.sampling.samplers import (
    cfg_pp,
    dpm_solver,
    dpmpp,
    euler,
    exponential,
    multistep,
    restart,
    runge_kutta,
    times,
    unipc,
)
from graphc_images.sampling.samplers import sa_solver as sa
from graphc_images.sampling.samplers.steps import Trajectory

Settings = Mapping[str, Any]
NONE: Settings = {}


@dataclass(frozen=True)
class Sampler:
    """A sampler: what computes it, what it is called, how it is used."""

    name: str
    """Its own name, ComfyUI's where that has it."""

    function: Callable[..., Trajectory]
    label: str = ""
    """A1111's or Forge's name, or one of their forks'."""

    comfyui: str = ""
    diffusers: str = ""
    cpp: str = ""
    """stable-diffusion.cpp's name."""

    aliases: tuple[str, ...] = ()
    scheduler: str = ""
    """What A1111 takes for "Automatic"; empty for Uniform."""

    evaluations: int = 1
    """Of the model, in a step. A1111 counts steps of second-order samplers twice, for scheduled prompts and for progress."""

    brownian: str = ""
    """The generator of its Brownian noise in ComfyUI ("cpu" or "gpu"), if it needs such noise."""

    discard: tuple[Mode, ...] = ()
    """Where the penultimate noise level is left out of the schedule."""

    on_times: bool = False
    """It goes by the model's times, with a model that predicts noise (A1111's DDIM, DDIM CFG++, PLMS, UniPC)."""

    pair: bool = False
    """It needs the negative estimate by itself (CFG++)."""

    scale_divisor: float = 1.0
    """What A1111 divides the guidance scale by."""

    only: Mode | None = None
    """The mode in which its names mean this sampler, where they mean another elsewhere."""

    settings: Settings = field(default_factory=dict)
    """What it is always called with."""

    comfyui_settings: Settings = field(default_factory=dict)
    """What it is called with besides, in ComfyUI's mode."""

    @cached_property
    def takes(self) -> frozenset[str]:
        """The settings that it has."""
        return frozenset(signature(self.function).parameters) - {"model", "x", "sigmas", "timesteps", "alphas"}

    @property
    def names(self) -> tuple[str, ...]:
        """All of its names."""
        known = (self.name, self.label, self.comfyui, self.diffusers, self.cpp, *self.aliases)
        return tuple(dict.fromkeys(name for name in known if name))


def with_gpu(sampler: Sampler) -> tuple[Sampler, Sampler]:
    """A sampler with Brownian noise, and ComfyUI's twin of it that draws as a GPU does."""
    twin = Sampler(
        f"{sampler.name}_gpu",
        sampler.function,
        comfyui=f"{sampler.comfyui}_gpu",
        scheduler=sampler.scheduler,
        evaluations=sampler.evaluations,
        brownian="gpu",
        discard=sampler.discard,
        settings=sampler.settings,
    )
    return sampler, twin


A1, CU = "a1111", "comfyui"
BOTH: tuple[Mode, ...] = ("a1111", "comfyui")
LAST: Settings = {"last_denoised": True}
NOT_LAST: Settings = {"last_denoised": False}

SAMPLERS: tuple[Sampler, ...] = (
    Sampler("euler", euler.euler, "Euler", "euler", "EulerDiscrete", "euler", ("k_euler", "FlowMatchEulerDiscrete")),
    Sampler("ddim", euler.euler, comfyui="ddim", only="comfyui"),
    Sampler(
        *("euler_ancestral", euler.euler_ancestral, "Euler a", "euler_ancestral", "EulerAncestralDiscrete", "euler_a"),
        aliases=("k_euler_a", "k_euler_ancestral"),
    ),
    Sampler(
        "heun",
        runge_kutta.heun,
        "Heun",
        "heun",
        "HeunDiscrete",
        "heun",
        ("k_heun", "FlowMatchHeunDiscrete"),
        evaluations=2,
    ),
    Sampler("heunpp2", runge_kutta.heunpp2, "HeunPP2", "heunpp2", evaluations=3),
    Sampler(
        *("dpm_2", runge_kutta.dpm_2, "DPM2", "dpm_2", "KDPM2Discrete", "dpm2", ("k_dpm_2",), "karras"),
        evaluations=2,
        discard=BOTH,
    ),
    Sampler(
        *("dpm_2_ancestral", runge_kutta.dpm_2_ancestral, "DPM2 a", "dpm_2_ancestral", "KDPM2AncestralDiscrete"),
        aliases=("k_dpm_2_a",),
        scheduler="karras",
        evaluations=2,
        discard=BOTH,
    ),
    Sampler("lms", multistep.lms, "LMS", "lms", "LMSDiscrete", "lms", ("k_lms",), comfyui_settings=LAST),
    Sampler("dpm_fast", dpm_solver.dpm_fast, "DPM fast", "dpm_fast", aliases=("k_dpm_fast",)),
    Sampler("dpm_adaptive", dpm_solver.dpm_adaptive, "DPM adaptive", "dpm_adaptive", aliases=("k_dpm_ad",)),
    Sampler(
        *("dpmpp_2s_ancestral", dpmpp.dpmpp_2s_ancestral, "DPM++ 2S a", "dpmpp_2s_ancestral", "", "dpm++2s_a"),
        aliases=("k_dpmpp_2s_a", "DPMSolverSinglestep"),
        scheduler="karras",
        evaluations=2,
    ),
    *with_gpu(
        Sampler(
            *("dpmpp_sde", dpmpp.dpmpp_sde, "DPM++ SDE", "dpmpp_sde", "DPMSolverSDE", "", ("k_dpmpp_sde",), "karras"),
            evaluations=2,
            brownian="cpu",
        )
    ),
    Sampler(
        *(
            "dpmpp_2m",
            dpmpp.dpmpp_2m,
            "DPM++ 2M",
            "dpmpp_2m",
            "DPMSolverMultistep",
            "dpm++2m",
            ("k_dpmpp_2m",),
            "karras",
        ),
    ),
    Sampler("dpmpp_2m_v2", dpmpp.dpmpp_2m_v2, cpp="dpm++2mv2", scheduler="karras"),
    *with_gpu(
        Sampler(
            *("dpmpp_2m_sde", dpmpp.dpmpp_2m_sde, "DPM++ 2M SDE", "dpmpp_2m_sde", "", "dpm++2m_sde"),
            aliases=("k_dpmpp_2m_sde", "dpm++2m_sde_bt"),
            scheduler="exponential",
            brownian="cpu",
        )
    ),
    *with_gpu(
        Sampler(
            *("dpmpp_2m_sde_heun", dpmpp.dpmpp_2m_sde, "DPM++ 2M SDE Heun", "dpmpp_2m_sde_heun"),
            aliases=("k_dpmpp_2m_sde_heun",),
            scheduler="exponential",
            brownian="cpu",
            settings={"solver": "heun"},
        )
    ),
    *with_gpu(
        Sampler(
            *("dpmpp_3m_sde", dpmpp.dpmpp_3m_sde, "DPM++ 3M SDE", "dpmpp_3m_sde"),
            aliases=("k_dpmpp_3m_sde",),
            scheduler="exponential",
            brownian="cpu",
            discard=("a1111",),
        )
    ),
    Sampler("restart", restart.restart, "Restart", scheduler="karras", evaluations=2),
    Sampler("ddim", times.ddim, "DDIM", diffusers="DDIM", on_times=True, only="a1111"),
    Sampler("ddim_trailing", euler.euler_ancestral, cpp="ddim_trailing", scheduler="simple", settings={"eta": 0.0}),
    Sampler(
        "ddim_cfg_pp",
        times.ddim_cfg_pp,
        "DDIM CFG++",
        aliases=("ddim_cfgpp",),
        on_times=True,
        pair=True,
        scale_divisor=12.5,
    ),
    Sampler("plms", times.plms, "PLMS", diffusers="PNDM", on_times=True),
    Sampler("unipc", unipc.unipc_times, "UniPC", on_times=True, only="a1111"),
    Sampler("uni_pc", unipc.unipc, "", "uni_pc", "UniPCMultistep", discard=("comfyui",)),
    Sampler("uni_pc", unipc.unipc, "UniPC", only="comfyui", discard=("comfyui",)),
    Sampler("uni_pc_bh2", unipc.unipc, "", "uni_pc_bh2", discard=("comfyui",), settings={"variant": "bh2"}),
    Sampler("lcm", euler.lcm, "LCM", "lcm", "LCM", "lcm", ("k_lcm", "FlowMatchLCM")),
    Sampler("ddpm", euler.ddpm, "DDPM", "ddpm", "DDPM"),
    Sampler("ipndm", multistep.ipndm, "IPNDM", "ipndm", "IPNDM", "ipndm", settings=NOT_LAST, comfyui_settings=LAST),
    Sampler(
        "ipndm_v", multistep.ipndm_v, "IPNDM_V", "ipndm_v", "", "ipndm_v", settings=NOT_LAST, comfyui_settings=LAST
    ),
    Sampler("deis", multistep.deis, "DEIS", "deis", "DEISMultistep"),
    Sampler("res_multistep", multistep.res_multistep, "Res Multistep", "res_multistep", "", "res_multistep"),
    Sampler(
        *("res_multistep_ancestral", multistep.res_multistep, "Res Multistep a", "res_multistep_ancestral"),
        settings={"eta": 1.0},
    ),
    Sampler("res_2s", exponential.res_2s, cpp="res_2s", evaluations=2),
    Sampler("er_sde", exponential.er_sde, "ER SDE", "er_sde", "", "er_sde"),
    Sampler(
        *(
            "gradient_estimation",
            multistep.gradient_estimation,
            "Gradient Estimation",
            "gradient_estimation",
            "",
            "euler_ge",
        )
    ),
    Sampler("seeds_2", exponential.seeds_2, "SEEDS 2", "seeds_2", evaluations=2),
    Sampler("seeds_3", exponential.seeds_3, "SEEDS 3", "seeds_3", evaluations=3),
    Sampler("exp_heun_2_x0", exponential.exp_heun_2_x0, "", "exp_heun_2_x0", evaluations=2),
    Sampler("exp_heun_2_x0_sde", exponential.exp_heun_2_x0_sde, "", "exp_heun_2_x0_sde", evaluations=2),
    Sampler("sa_solver", sa.sa_solver, "SA Solver", "sa_solver", "SASolver"),
    Sampler("sa_solver_pece", sa.sa_solver, "", "sa_solver_pece", evaluations=2, settings={"evaluate_twice": True}),
    Sampler("tcd", euler.tcd, "TCD", diffusers="TCD", cpp="tcd", scheduler="turbo"),
    Sampler("euler_cfg_pp", cfg_pp.euler_cfg_pp, "Euler CFG++", "euler_cfg_pp", "", "euler_cfg_pp", pair=True),
    Sampler(
        *("euler_ancestral_cfg_pp", cfg_pp.euler_ancestral_cfg_pp, "Euler a CFG++", "euler_ancestral_cfg_pp"),
        cpp="euler_a_cfg_pp",
        pair=True,
    ),
    Sampler(
        *(
            "dpmpp_2s_ancestral_cfg_pp",
            cfg_pp.dpmpp_2s_ancestral_cfg_pp,
            "DPM++ 2S a CFG++",
            "dpmpp_2s_ancestral_cfg_pp",
        ),
        evaluations=2,
        pair=True,
    ),
    Sampler("dpmpp_2m_cfg_pp", cfg_pp.dpmpp_2m_cfg_pp, "DPM++ 2M CFG++", "dpmpp_2m_cfg_pp", pair=True),
    Sampler(
        "res_multistep_cfg_pp", cfg_pp.res_multistep_cfg_pp, "Res Multistep CFG++", "res_multistep_cfg_pp", pair=True
    ),
    Sampler(
        *("res_multistep_ancestral_cfg_pp", cfg_pp.res_multistep_cfg_pp, "", "res_multistep_ancestral_cfg_pp"),
        pair=True,
        settings={"eta": 1.0},
    ),
    Sampler(
        *("gradient_estimation_cfg_pp", cfg_pp.gradient_estimation_cfg_pp, "", "gradient_estimation_cfg_pp"),
        pair=True,
    ),
)


@dataclass(frozen=True)
class NamedScheduler:
    """A scheduler: what computes it, what it is called."""

    name: str
    function: schedulers.Scheduler | None
    """None for "Automatic": the sampler's own."""

    label: str = ""
    comfyui: str = ""
    cpp: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of its names."""
        known = (self.name, self.label, self.comfyui, self.cpp, *self.aliases)
        return tuple(dict.fromkeys(name for name in known if name))


SCHEDULERS: tuple[NamedScheduler, ...] = (
    NamedScheduler("automatic", None, "Automatic", "", "auto"),
    NamedScheduler("uniform", schedulers.uniform, "Uniform", "", "discrete"),
    NamedScheduler("karras", schedulers.karras, "Karras", "karras", "karras"),
    NamedScheduler("exponential", schedulers.exponential, "Exponential", "exponential", "exponential"),
    NamedScheduler("polyexponential", schedulers.polyexponential, "Polyexponential", "PolyexponentialScheduler"),
    NamedScheduler("sgm_uniform", schedulers.sgm_uniform, "SGM Uniform", "sgm_uniform", "sgm_uniform", ("SGMUniform",)),
    NamedScheduler("kl_optimal", schedulers.kl_optimal, "KL Optimal", "kl_optimal", "kl_optimal"),
    NamedScheduler(
        *("align_your_steps", schedulers.align_your_steps, "Align Your Steps", "AlignYourStepsScheduler", "ays"),
    ),
    NamedScheduler("simple", schedulers.simple, "Simple", "simple", "simple"),
    NamedScheduler("normal", schedulers.normal, "Normal", "normal"),
    NamedScheduler("ddim", schedulers.ddim_uniform, "DDIM", "ddim_uniform"),
    NamedScheduler("beta", schedulers.beta, "Beta", "beta", "beta", ("BetaSamplingScheduler",)),
    NamedScheduler("turbo", schedulers.turbo, "Turbo"),
    NamedScheduler("sd_turbo", schedulers.sd_turbo, "SD Turbo", "SDTurboScheduler"),
    NamedScheduler("align_your_steps_GITS", schedulers.align_your_steps_gits, "Align Your Steps GITS"),
    NamedScheduler("align_your_steps_11", schedulers.align_your_steps_11, "Align Your Steps 11"),
    NamedScheduler("align_your_steps_32", schedulers.align_your_steps_32, "Align Your Steps 32"),
    NamedScheduler("gits", schedulers.gits, "GITS", "GITSScheduler", "gits"),
    NamedScheduler("optimal_steps", schedulers.optimal_steps, "", "OptimalStepsScheduler"),
    NamedScheduler("linear_quadratic", schedulers.linear_quadratic, "Linear Quadratic", "linear_quadratic"),
    NamedScheduler("bong_tangent", schedulers.bong_tangent, "Bong Tangent", "bong_tangent", "bong_tangent"),
    NamedScheduler("smoothstep", schedulers.smoothstep, "", "", "smoothstep"),
    NamedScheduler("lcm", schedulers.lcm, "", "", "lcm"),
    NamedScheduler("flux", schedulers.flux, "", "", "flux"),
    NamedScheduler("flux2", schedulers.flux2, "Flux2", "Flux2Scheduler", "flux2"),
    NamedScheduler("qwen_image", schedulers.qwen_image),
    NamedScheduler("ltx2", schedulers.ltx2, "", "LTXVScheduler", "ltx2"),
    NamedScheduler("laplace", schedulers.laplace, "Laplace", "LaplaceScheduler"),
    NamedScheduler("vp", schedulers.vp, "VP", "VPScheduler"),
    NamedScheduler("logit_normal", schedulers.logit_normal, "", "", "logit_normal"),
)


def plain(name: str) -> str:
    """A name without what spelling changes: case, and diffusers' ending."""
    return name.strip().lower().removesuffix("scheduler")


def find_scheduler(name: str) -> NamedScheduler:
    """The scheduler that has this name anywhere."""
    for scheduler in SCHEDULERS:
        if plain(name) in map(plain, scheduler.names):
            return scheduler
    raise SettingError(f"there is no scheduler {name!r}; there are {', '.join(each.name for each in SCHEDULERS)}")


def find_sampler(name: str, mode: Mode) -> tuple[Sampler, NamedScheduler | None]:
    """The sampler that has this name; the mode decides where a name has two meanings.

    A1111's old names have the scheduler behind them ("DPM++ 2M Karras"): then it is returned too.
    """
    wanted = plain(name)
    fitting = sorted((each for each in SAMPLERS if each.only in (None, mode)), key=lambda each: each.only is None)
    for sampler in (*fitting, *SAMPLERS):
        if wanted in map(plain, sampler.names):
            return sampler, None
    for scheduler in SCHEDULERS:
        if scheduler.label and wanted.endswith(f" {plain(scheduler.label)}"):
            first = wanted.removesuffix(plain(scheduler.label)).strip()
            if any(first in map(plain, sampler.names) for sampler in SAMPLERS):
                return find_sampler(first, mode)[0], scheduler
    raise SettingError(f"there is no sampler {name!r}; there are {', '.join(unique(each.name for each in SAMPLERS))}")


def unique(names: Iterable[str]) -> list[str]:
    """Each name once."""
    return list(dict.fromkeys(names))


def chosen_scheduler(name: str | None, of_sampler: NamedScheduler | None) -> NamedScheduler | None:
    """The scheduler of this name; for none and for "Automatic" the one that stood behind the sampler's name, if any."""
    named = find_scheduler(name) if name else None
    return named if named is not None and named.function is not None else of_sampler
