"""Nodes that change how a model is sampled: its noise levels, what it predicts, how it is guided.

Source: ComfyUI's comfy_extras/nodes_model_advanced.py, nodes_pag.py, nodes_slg.py, nodes_differential_diffusion.py, …
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import exp

from graphc_images import SettingError
from graphc_images.sampling import Weakening, levels_of_model, prediction_of
from graphc_images.sampling.guidance import (
    FreeU,
    Frequencies,
    Projected,
    mahiro,
    normed,
    rescaled,
    tangential,
    zero_star,
)
from graphc_images.sampling.levels import DiscreteLevels, FlowLevels
from graphc_images.sampling.predictions import DistilledLevels, distilled
from graphc_server.comfyui.executor import Room
from graphc_server.comfyui.sampling import levels_for
from graphc_server.comfyui.table import Input, choice, link, node, number, side, switch, text, whole
from graphc_server.comfyui.values import Model, Weaker

LEVELS, GUIDANCE = "advanced/model", "advanced/guidance"
MODEL = link("model")


def _shifted(model: Model, shift: float, of_flux: bool) -> Model:
    if not isinstance(levels_for(model), FlowLevels):
        raise SettingError(
            f"model: {model.image_model.architecture.name} is not a flow model, whose levels could be shifted"
        )
    return replace(model, levels=FlowLevels(shift, of_flux))


SHIFT = 100.0


@node("ModelSamplingSD3", LEVELS, MODEL, number("shift", 3.0, 0.0, SHIFT), gives="MODEL")
def sampling_sd3(room: Room, model: Model, shift: float) -> Model:
    """Another shift of a flow model's noise levels."""
    return _shifted(model, shift, of_flux=False)


@node("ModelSamplingAuraFlow", LEVELS, MODEL, number("shift", 1.73, 0.0, SHIFT), gives="MODEL")
def sampling_aura_flow(room: Room, model: Model, shift: float) -> Model:
    """The same under another name."""
    return _shifted(model, shift, of_flux=False)


@node(
    "ModelSamplingFlux", LEVELS, MODEL, number("max_shift", 1.15, 0.0, SHIFT), number("base_shift", 0.5, 0.0, SHIFT),
    side("width", 1024), side("height", 1024), gives="MODEL",
)  # fmt: skip
def sampling_flux(room: Room, model: Model, max_shift: float, base_shift: float, width: int, height: int) -> Model:
    """Flux' noise levels, shifted by the size of the picture."""
    slope = (max_shift - base_shift) / (4096 - 256)
    mu = width * height / (8 * 8 * 2 * 2) * slope + base_shift - slope * 256
    if abs(mu) > SHIFT:
        raise SettingError(f"max_shift, base_shift: for this size the levels would be shifted by {mu:g}")
    return _shifted(model, exp(mu), of_flux=True)


@node(
    "ModelSamplingDiscrete", LEVELS, MODEL, choice("sampling", ("eps", "v_prediction", "lcm", "x0")), switch("zsnr", False),
    gives="MODEL",
)  # fmt: skip
def sampling_discrete(room: Room, model: Model, sampling: str, zsnr: bool) -> Model:
    """What a model of noise or velocity predicts, and whether its highest level is noise alone; lcm is for consistency models."""
    if isinstance(levels_for(model), FlowLevels):
        raise SettingError(f"model: {model.image_model.architecture.name} is a flow model, which predicts neither")
    levels = levels_of_model("eps", "comfyui", zero_snr=zsnr)
    if sampling == "lcm":
        assert isinstance(levels, DiscreteLevels)
        few = DistilledLevels(levels)
        return replace(model, levels=few, prediction=distilled(few))
    return replace(model, levels=levels, prediction=prediction_of(sampling))


def _ruled(model: Model, rule: Callable) -> Model:
    return replace(model, rule=rule)


@node("RescaleCFG", LEVELS, MODEL, number("multiplier", 0.7, 0.0, 1.0), gives="MODEL")
def rescale_cfg(room: Room, model: Model, multiplier: float) -> Model:
    """Contrast comes back to that without guidance, by a share."""
    return _ruled(model, lambda: partial(rescaled, share=multiplier))


@node("CFGNorm", GUIDANCE, MODEL, number("strength", 1.0, 0.0, 100.0), gives="MODEL")
def cfg_norm(room: Room, model: Model, strength: float) -> Model:
    """No pixel of the estimate is longer than without guidance."""
    return _ruled(model, lambda: partial(normed, strength=strength))


@node("CFGZeroStar", GUIDANCE, MODEL, gives="MODEL")
def cfg_zero_star(room: Room, model: Model) -> Model:
    """The negative estimate is scaled to lie near the positive one (CFG-Zero*)."""
    return _ruled(model, lambda: zero_star)


@node("Mahiro", "_for_testing", MODEL, gives="MODEL", title="Mahiro CFG")
def mahiro_cfg(room: Room, model: Model) -> Model:
    """More of the positive text's direction where both estimates are alike."""
    return _ruled(model, lambda: mahiro)


@node(
    "APG", "sampling/custom_sampling", MODEL, number("eta", 1.0, -10.0, 10.0), number("norm_threshold", 5.0, 0.0, 50.0, 0.1),
    number("momentum", 0.0, -5.0, 1.0), gives="MODEL", title="Adaptive Projected Guidance",
)  # fmt: skip
def apg(room: Room, model: Model, eta: float, norm_threshold: float, momentum: float) -> Model:
    """Less of what points where the estimate points already."""
    return _ruled(model, lambda: Projected(eta, norm_threshold, momentum))


@node("TCFG", GUIDANCE, MODEL, gives="MODEL", title="Tangential Damping CFG")
def tcfg(room: Room, model: Model) -> Model:
    """Another negative estimate, nearer to the positive one."""
    return replace(model, before=(*model.before, tangential))


@node(
    "FreSca", "_for_testing", MODEL, number("scale_low", 1.0, 0.0, 10.0), number("scale_high", 1.25, 0.0, 10.0),
    whole("freq_cutoff", 20, 1, 10000), gives="MODEL",
)  # fmt: skip
def fresca(room: Room, model: Model, scale_low: float, scale_high: float, freq_cutoff: int) -> Model:
    """What is coarse and what is fine is guided by different strengths."""
    return replace(model, before=(*model.before, Frequencies(scale_low, scale_high, freq_cutoff)))


def free_u_numbers(b1: float, b2: float) -> tuple[Input, ...]:
    """FreeU's four, two of them with their usual values."""
    return tuple(number(name, usual, 0.0, 10.0) for name, usual in (("b1", b1), ("b2", b2), ("s1", 0.9), ("s2", 0.2)))


@node("Epsilon Scaling", "model_patches/unet", MODEL, number("scaling_factor", 1.005, 0.5, 1.5, 0.001), gives="MODEL")
def epsilon_scaling(room: Room, model: Model, scaling_factor: float) -> Model:
    """A little less noise is taken away in each step."""
    return replace(model, noise_factor=scaling_factor)


@node("FreeU", "model_patches/unet", MODEL, *free_u_numbers(1.1, 1.2), gives="MODEL")
def free_u(room: Room, model: Model, b1: float, b2: float, s1: float, s2: float) -> Model:
    """What a U-Net's decoder takes in from below is scaled, and the lowest frequencies of what it takes in from the encoder."""
    return replace(model, free_u=FreeU(b1, b2, s1, s2, second_version=False))


@node("FreeU_V2", "model_patches/unet", MODEL, *free_u_numbers(1.3, 1.4), gives="MODEL")
def free_u_v2(room: Room, model: Model, b1: float, b2: float, s1: float, s2: float) -> Model:
    """The same, less where the mean of all channels is lower."""
    return replace(model, free_u=FreeU(b1, b2, s1, s2))


@node("PerturbedAttentionGuidance", "model_patches/unet", MODEL, number("scale", 3.0, 0.0, 100.0), gives="MODEL")
def perturbed(room: Room, model: Model, scale: float) -> Model:
    """Away from the model whose attention does not look around."""
    return _weaker(model, Weaker(Weakening(attention=("middle",)), scale))


def _weaker(model: Model, weaker: Weaker) -> Model:
    return replace(model, weaker=(*model.weaker, weaker)) if weaker.scale else model


def _layers(said: str) -> tuple[int, ...]:
    """The numbers in a text. Raises SettingError for one that is too large to be a layer's."""
    found = tuple(int(each[:6]) for each in re.findall(r"\d+", said))
    if len(found) > 1000:
        raise SettingError(f"layers: there are {len(found)} numbers")
    return found


PART = (number("start_percent", 0.01, 0.0, 1.0, 0.001), number("end_percent", 0.15, 0.0, 1.0, 0.001))


@node(
    "SkipLayerGuidanceSD3",
    GUIDANCE,
    MODEL,
    text("layers", "7, 8, 9"),
    number("scale", 3.0, 0.0, 10.0, 0.1),
    *PART,
    gives="MODEL",
)
def skip_layers_sd3(
    room: Room, model: Model, layers: str, scale: float, start_percent: float, end_percent: float
) -> Model:
    """Away from the model without some of its layers, between two shares of the way."""
    return _skipping(model, _layers(layers), scale, start_percent, end_percent)


def _skipping(
    model: Model, layers: Sequence[int], scale: float, start: float, end: float, rescale: float = 0.0
) -> Model:
    if not layers:
        return model
    return _weaker(model, Weaker(Weakening(layers=tuple(layers)), scale, start, end, rescale))


@node(
    "SkipLayerGuidanceDiT", GUIDANCE, MODEL, text("double_layers", "7, 8, 9"), text("single_layers", "7, 8, 9"),
    number("scale", 3.0, 0.0, 10.0, 0.1), *PART, number("rescaling_scale", 0.0, 0.0, 10.0), gives="MODEL",
)  # fmt: skip
def skip_layers(
    room: Room, model: Model, double_layers: str, single_layers: str, scale: float, start_percent: float,
    end_percent: float, rescaling_scale: float,
) -> Model:  # fmt: skip
    """The same of models with two kinds of layers; of Stable Diffusion 3, which has one, the first are read."""
    layers = _layers(double_layers)
    if model.image_model.architecture.kind != "sd3":
        layers += tuple(double_blocks(model) + each for each in _layers(single_layers))
    return _skipping(model, layers, scale, start_percent, end_percent, rescaling_scale)


def double_blocks(model: Model) -> int:
    """How many layers of the first kind a denoiser has, behind which the others are counted."""
    names = "\n".join(model.image_model.components["denoiser"].tensors)
    found = re.findall(r"^(?:\S*\.|\S*/)?(?:double_blocks|transformer_blocks)\.(\d{1,4})\.", names, re.MULTILINE)
    return max(map(int, found), default=-1) + 1


@node(
    "DifferentialDiffusion", "_for_testing", MODEL, number("strength", 1.0, 0.0, 1.0, optional=True), gives="MODEL",
    title="Differential Diffusion",
)  # fmt: skip
def differential(room: Room, model: Model, strength: float) -> Model:
    """Grey masks say until when pixels stay: those that are whiter are painted earlier."""
    return replace(model, differential=strength)
