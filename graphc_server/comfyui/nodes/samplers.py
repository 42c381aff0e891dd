"""Nodes that sample, and what they are given: samplers, noise, guiders.

Source: ComfyUI's nodes.py and comfy_extras/nodes_custom_sampler.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc_images import SettingError
from graphc_images.sampling import SAMPLERS, SCHEDULERS, find_sampler
from graphc_server.comfyui.executor import Room
from graphc_server.comfyui.sampling import fitting, run, schedule
from graphc_server.comfyui.table import STEPS, choice, link, node, number, seed, switch, whole
from graphc_server.comfyui.values import ChosenSampler, Guider, Latent, Model, Noise, Texts

GROUP, CUSTOM = "sampling", "sampling/custom_sampling"
SAMPLER_NAMES = tuple(dict.fromkeys(each.comfyui for each in SAMPLERS if each.comfyui))
NODES_OF_THEIR_OWN = "Scheduler"
SCHEDULER_NAMES = tuple(
    dict.fromkeys(each.comfyui for each in SCHEDULERS if each.comfyui and not each.comfyui.endswith(NODES_OF_THEIR_OWN))
)
"""Of ComfyUI's lists; other schedules are nodes."""

POSITIVE, NEGATIVE = link("positive", "CONDITIONING"), link("negative", "CONDITIONING")
LATENT, SIGMAS = link("latent_image", "LATENT"), link("sigmas")
SCALE, DENOISE = number("cfg", 8.0, 0.0, 100.0, 0.1), number("denoise", 1.0, 0.0, 1.0)
NAME = choice("sampler_name", SAMPLER_NAMES)
SCHEDULER = choice("scheduler", SCHEDULER_NAMES)


def chosen(name: str, **settings: float) -> ChosenSampler:
    """A sampler by ComfyUI's name."""
    return ChosenSampler(find_sampler(name, "comfyui")[0], tuple(settings.items()))


def _levels(
    model: Model, sampler: ChosenSampler, scheduler: str, steps: int, denoise: float, latent: Latent
) -> list[float]:
    rows, columns = fitting(model, latent).shape[2:]
    return schedule(model, sampler, scheduler, steps, denoise, rows * columns // 4)


@node(
    "KSampler", GROUP, link("model"), seed(), STEPS, SCALE, NAME, SCHEDULER, POSITIVE, NEGATIVE, LATENT, DENOISE,
    gives="LATENT",
)  # fmt: skip
def ksampler(
    room: Room, model: Model, seed: int, steps: int, cfg: float, sampler_name: str, scheduler: str, positive: Texts,
    negative: Texts, latent_image: Latent, denoise: float,
) -> Latent:  # fmt: skip
    """Add noise to latents, as much as `denoise` says, and take it away in steps, guided by two texts."""
    sampler = chosen(sampler_name)
    sigmas = _levels(model, sampler, scheduler, steps, denoise, latent_image)
    return run(room, Guider(model, positive, negative, cfg), latent_image, sampler, sigmas, seed)[0]


@node(
    "KSamplerAdvanced", GROUP, link("model"), choice("add_noise", ("enable", "disable")), seed("noise_seed"), STEPS, SCALE,
    NAME, SCHEDULER, POSITIVE, NEGATIVE, LATENT, whole("start_at_step", 0, 0, 10000), whole("end_at_step", 10000, 0, 10000),
    choice("return_with_leftover_noise", ("disable", "enable")), gives="LATENT", title="KSampler (Advanced)",
)  # fmt: skip
def ksampler_advanced(
    room: Room, model: Model, add_noise: str, noise_seed: int, steps: int, cfg: float, sampler_name: str, scheduler: str,
    positive: Texts, negative: Texts, latent_image: Latent, start_at_step: int, end_at_step: int,
    return_with_leftover_noise: str,
) -> Latent:  # fmt: skip
    """Some of the steps of a schedule, with or without noise before, and with or without noise that is left."""
    sampler = chosen(sampler_name)
    sigmas = _levels(model, sampler, scheduler, steps, 1.0, latent_image)
    if end_at_step < len(sigmas) - 1:
        sigmas = sigmas[: end_at_step + 1]
        if return_with_leftover_noise == "disable":
            sigmas[-1] = 0.0
    sigmas = sigmas[start_at_step:] if start_at_step < len(sigmas) - 1 else []
    guider = Guider(model, positive, negative, cfg)
    return run(room, guider, latent_image, sampler, sigmas, noise_seed, noisy=add_noise == "enable")[0]


@node(
    "SamplerCustom", CUSTOM, link("model"), switch("add_noise", True), seed("noise_seed"), SCALE, POSITIVE, NEGATIVE,
    link("sampler"), SIGMAS, LATENT, gives="LATENT LATENT",
)  # fmt: skip
def sampler_custom(
    room: Room, model: Model, add_noise: bool, noise_seed: int, cfg: float, positive: Texts, negative: Texts,
    sampler: ChosenSampler, sigmas: Sequence[float], latent_image: Latent,
) -> tuple[Latent, Latent]:  # fmt: skip
    """Sample over any noise levels; the second latent is what the model takes the finished one to be at the end."""
    return run(room, Guider(model, positive, negative, cfg), latent_image, sampler, sigmas, noise_seed, noisy=add_noise)


@node(
    "SamplerCustomAdvanced",
    CUSTOM,
    link("noise"),
    link("guider"),
    link("sampler"),
    SIGMAS,
    LATENT,
    gives="LATENT LATENT",
)
def sampler_advanced(
    room: Room, noise: Noise, guider: Guider, sampler: ChosenSampler, sigmas: Sequence[float], latent_image: Latent
) -> tuple[Latent, Latent]:
    """The same with a guider, which has the model and what it is told."""
    return run(room, guider, latent_image, sampler, sigmas, noise.seed, noisy=not noise.none)


@node("RandomNoise", "sampling/custom_sampling/noise", seed("noise_seed"), gives="NOISE")
def random_noise(room: Room, noise_seed: int) -> Noise:
    """Noise of a seed."""
    return Noise(noise_seed)


@node("DisableNoise", "sampling/custom_sampling/noise", gives="NOISE")
def no_noise(room: Room) -> Noise:
    """No noise to begin with."""
    return Noise(0, none=True)


GUIDERS = "sampling/custom_sampling/guiders"


@node("BasicGuider", GUIDERS, link("model"), link("conditioning"), gives="GUIDER")
def basic_guider(room: Room, model: Model, conditioning: Texts) -> Guider:
    """One text alone."""
    return Guider(model, conditioning)


@node("CFGGuider", GUIDERS, link("model"), POSITIVE, NEGATIVE, SCALE, gives="GUIDER")
def cfg_guider(room: Room, model: Model, positive: Texts, negative: Texts, cfg: float) -> Guider:
    """Away from the negative text, towards the positive one."""
    return Guider(model, positive, negative, cfg)


@node(
    "PerpNegGuider", "_for_testing", link("model"), POSITIVE, NEGATIVE, link("empty_conditioning", "CONDITIONING"), SCALE,
    number("neg_scale", 1.0, 0.0, 100.0), gives="GUIDER",
)  # fmt: skip
def perp_neg_guider(
    room: Room, model: Model, positive: Texts, negative: Texts, empty_conditioning: Texts, cfg: float, neg_scale: float
) -> Guider:
    """Of the negative text, what lies across the positive one counts alone (Perp-Neg)."""
    if model.rule is not None:
        raise SettingError("model: Perp-Neg has a rule of its own for guidance: take off the others")
    return Guider(model, positive, negative, cfg, empty_conditioning, neg_scale)


@node("KSamplerSelect", "sampling/custom_sampling/samplers", NAME, gives="SAMPLER")
def select(room: Room, sampler_name: str) -> ChosenSampler:
    """A sampler by name."""
    return chosen(sampler_name)


@node(
    "SamplerEulerCFGpp", "_for_testing", choice("version", ("regular",)), gives="SAMPLER", title="SamplerEulerCFG++",
)  # fmt: skip
def euler_cfg_pp(room: Room, version: str) -> ChosenSampler:
    """Euler whose steps go by the negative text's estimate (CFG++)."""
    return chosen("euler_cfg_pp")


ETA, NOISE = number("eta", 1.0, 0.0, 100.0), number("s_noise", 1.0, 0.0, 100.0)
KINDS = "sampling/custom_sampling/samplers"


@node("SamplerEulerAncestral", KINDS, ETA, NOISE, gives="SAMPLER")
def euler_ancestral(room: Room, eta: float, s_noise: float) -> ChosenSampler:
    """Euler with noise of one's own choice."""
    return chosen("euler_ancestral", eta=eta, s_noise=s_noise)


@node(
    "SamplerDPMPP_2M_SDE",
    KINDS,
    choice("solver_type", ("midpoint", "heun")),
    ETA,
    NOISE,
    choice("noise_device", ("gpu", "cpu")),
    gives="SAMPLER",
)
def dpmpp_2m_sde(room: Room, solver_type: str, eta: float, s_noise: float, noise_device: str) -> ChosenSampler:
    """DPM++ 2M SDE with noise of one's own choice."""
    name = "dpmpp_2m_sde" + ("_heun" if solver_type == "heun" else "") + ("_gpu" if noise_device == "gpu" else "")
    return chosen(name, eta=eta, s_noise=s_noise)


@node("SamplerDPMPP_SDE", KINDS, ETA, NOISE, choice("noise_device", ("gpu", "cpu")), gives="SAMPLER")
def dpmpp_sde(room: Room, eta: float, s_noise: float, noise_device: str) -> ChosenSampler:
    """DPM++ SDE with noise of one's own choice."""
    return chosen("dpmpp_sde_gpu" if noise_device == "gpu" else "dpmpp_sde", eta=eta, s_noise=s_noise)
