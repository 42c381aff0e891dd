"""Nodes that read texts, and say where, when and how much they count.

Source: ComfyUI's nodes.py, comfy_extras/nodes_clip_sdxl.py, nodes_flux.py, nodes_sd3.py, nodes_cond.py, nodes_edit_model.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from graphc_images.conditions import Reading, conditioning_of
from graphc_images.models import Conditioning
from graphc_images.models.looking import Look
from graphc_server.comfyui.executor import Room
from graphc_server.comfyui.table import choice, link, node, number, prompt, side
from graphc_server.comfyui.values import Area, Clip, Latent, Texts, Told, each_told

GROUP, ADVANCED = "conditioning", "advanced/conditioning"
TEXTS = "CONDITIONING"
CONDITIONING = link("conditioning")
STRENGTH = number("strength", 1.0, 0.0, 10.0)


def _read(room: Room, clip: Clip, texts: Mapping[str, str], looks: tuple[Look, ...] = (), **said: Any) -> Texts:
    """What the text encoders make of a text for each of them, beside pictures."""
    room.library.put_on(clip.image_model, clip.loras, "text_encoder")
    embeddings = room.library.embeddings("\n".join(texts.values()))
    reading = Reading("comfyui", clip_skip=clip.skip, embeddings=embeddings, looks=looks)
    found = conditioning_of(clip.image_model, texts, reading)
    return (Told(replace(found, sizes=None, guidance=None), **said),)


def _same(clip: Clip, text: str) -> dict[str, str]:
    """One text for all encoders."""
    return dict.fromkeys(clip.image_model.architecture.text, text)


def read_same(room: Room, clip: Clip, text: str, looks: tuple[Look, ...] = ()) -> Texts:
    """What all text encoders make of one text, beside pictures."""
    return _read(room, clip, _same(clip, text), looks)


@node("CLIPTextEncode", GROUP, prompt("text"), link("clip"), gives=TEXTS, title="CLIP Text Encode (Prompt)")
def encode(room: Room, text: str, clip: Clip) -> Texts:
    """Read a text."""
    return read_same(room, clip, text)


@node(
    "CLIPTextEncodeSDXL", ADVANCED, link("clip"), side("width", 1024, 0, 1), side("height", 1024, 0, 1),
    side("crop_w", 0, 0, 1), side("crop_h", 0, 0, 1), side("target_width", 1024, 0, 1), side("target_height", 1024, 0, 1),
    prompt("text_g"), prompt("text_l"), gives=TEXTS,
)  # fmt: skip
def encode_sdxl(
    room: Room, clip: Clip, width: int, height: int, crop_w: int, crop_h: int, target_width: int, target_height: int,
    text_g: str, text_l: str,
) -> Texts:  # fmt: skip
    """Read a text for each of Stable Diffusion XL's encoders, and say the sizes that it is told."""
    sizes = (width, height, crop_w, crop_h, target_width, target_height)
    return _read(room, clip, {"clip_g": text_g, "clip_l": text_l}, sizes=sizes)


@node(
    "CLIPTextEncodeSDXLRefiner", ADVANCED, number("ascore", 6.0, 0.0, 1000.0), side("width", 1024, 0, 1),
    side("height", 1024, 0, 1), prompt("text"), link("clip"), gives=TEXTS,
)  # fmt: skip
def encode_refiner(room: Room, ascore: float, width: int, height: int, text: str, clip: Clip) -> Texts:
    """Read a text for Stable Diffusion XL's refiner, and say the size and the aesthetic score that it is told."""
    return _read(room, clip, _same(clip, text), sizes=(width, height, 0, 0, width, height), score=ascore)


@node(
    "CLIPTextEncodeFlux", "advanced/conditioning/flux", link("clip"), prompt("clip_l"), prompt("t5xxl"),
    number("guidance", 3.5, 0.0, 100.0, 0.1), gives=TEXTS,
)  # fmt: skip
def encode_flux(room: Room, clip: Clip, clip_l: str, t5xxl: str, guidance: float) -> Texts:
    """Read a text for each of Flux' encoders, and say the distilled guidance."""
    return _read(room, clip, {"clip_l": clip_l, "t5xxl": t5xxl}, guidance=guidance)


@node(
    "CLIPTextEncodeSD3", ADVANCED, link("clip"), prompt("clip_l"), prompt("clip_g"), prompt("t5xxl"),
    choice("empty_padding", ("empty_prompt",), "empty_prompt"), gives=TEXTS,
)  # fmt: skip
def encode_sd3(room: Room, clip: Clip, clip_l: str, clip_g: str, t5xxl: str, empty_padding: str) -> Texts:
    """Read a text for each of Stable Diffusion 3's encoders."""
    return _read(room, clip, {"clip_l": clip_l, "clip_g": clip_g, "t5xxl": t5xxl})


@node("FluxGuidance", "advanced/conditioning/flux", CONDITIONING, number("guidance", 3.5, 0.0, 100.0, 0.1), gives=TEXTS)
def flux_guidance(room: Room, conditioning: Texts, guidance: float) -> Texts:
    """Say the distilled guidance that Flux is told."""
    return each_told(conditioning, guidance=guidance)


@node("FluxDisableGuidance", "advanced/conditioning/flux", CONDITIONING, gives=TEXTS)
def no_flux_guidance(room: Room, conditioning: Texts) -> Texts:
    """Say no distilled guidance: the usual one counts."""
    return each_told(conditioning, guidance=None)


@node("ConditioningCombine", GROUP, link("conditioning_1", TEXTS), link("conditioning_2", TEXTS), gives=TEXTS)
def combine(room: Room, conditioning_1: Texts, conditioning_2: Texts) -> Texts:
    """Two that count together: their estimates are mixed."""
    return conditioning_1 + conditioning_2


def _pooled(to: np.ndarray | None, other: np.ndarray | None, share: float) -> np.ndarray | None:
    if to is None or other is None:
        return other if to is None else to
    return np.asarray(to * np.float32(share) + other * np.float32(1 - share), np.float32)


@node(
    "ConditioningAverage", GROUP, link("conditioning_to", TEXTS), link("conditioning_from", TEXTS),
    number("conditioning_to_strength", 1.0, 0.0, 1.0), gives=TEXTS,
)  # fmt: skip
def average(room: Room, conditioning_to: Texts, conditioning_from: Texts, conditioning_to_strength: float) -> Texts:
    """Numbers between those of two texts; of the second, the first entry counts."""
    other, share = conditioning_from[0].read, conditioning_to_strength
    found = []
    for told in conditioning_to:
        words = told.read.words
        theirs = other.words[:, : words.shape[1]]
        theirs = np.pad(theirs, ((0, 0), (0, words.shape[1] - theirs.shape[1]), (0, 0)))
        mixed = np.asarray(words * np.float32(share) + theirs * np.float32(1 - share), np.float32)
        read = replace(told.read, words=mixed, pooled=_pooled(told.read.pooled, other.pooled, share))
        found.append(replace(told, read=read))
    return tuple(found)


@node("ConditioningConcat", GROUP, link("conditioning_to", TEXTS), link("conditioning_from", TEXTS), gives=TEXTS)
def concat(room: Room, conditioning_to: Texts, conditioning_from: Texts) -> Texts:
    """The words of two texts behind each other; of the second, the first entry counts."""
    other = conditioning_from[0].read

    def joined(read: Conditioning) -> Conditioning:
        words = np.concatenate([read.words, other.words], 1)
        known = read.mask is not None and other.mask is not None
        mask = np.concatenate([read.mask, other.mask], 1) if known else None
        return replace(read, words=words, mask=mask)

    return tuple(replace(told, read=joined(told.read)) for told in conditioning_to)


@node("ConditioningZeroOut", ADVANCED, CONDITIONING, gives=TEXTS)
def zero_out(room: Room, conditioning: Texts) -> Texts:
    """Zeros in place of what was read."""
    found = []
    for told in conditioning:
        pooled = None if told.read.pooled is None else np.zeros_like(told.read.pooled)
        found.append(replace(told, read=replace(told.read, words=np.zeros_like(told.read.words), pooled=pooled)))
    return tuple(found)


@node(
    "ConditioningSetArea", GROUP, CONDITIONING, side("width", 64, 64), side("height", 64, 64), side("x", 0, 0),
    side("y", 0, 0), STRENGTH, gives=TEXTS,
)  # fmt: skip
def set_area(room: Room, conditioning: Texts, width: int, height: int, x: int, y: int, strength: float) -> Texts:
    """Count in a rectangle of pixels alone."""
    return each_told(conditioning, area=Area(height, width, y, x), strength=strength, to_bounds=False)


def _share(name: str, default: float) -> Any:
    return number(name, default, 0.0, 1.0)


@node(
    "ConditioningSetAreaPercentage", GROUP, CONDITIONING, _share("width", 1.0), _share("height", 1.0), _share("x", 0.0),
    _share("y", 0.0), STRENGTH, gives=TEXTS,
)  # fmt: skip
def set_area_share(
    room: Room, conditioning: Texts, width: float, height: float, x: float, y: float, strength: float
) -> Texts:
    """Count in a rectangle alone, whose sides and place are shares of the picture's."""
    return each_told(conditioning, area=Area(height, width, y, x, shares=True), strength=strength, to_bounds=False)


@node("ConditioningSetAreaStrength", GROUP, CONDITIONING, STRENGTH, gives=TEXTS)
def set_area_strength(room: Room, conditioning: Texts, strength: float) -> Texts:
    """Count so much."""
    return each_told(conditioning, strength=strength)


@node(
    "ConditioningSetMask", GROUP, CONDITIONING, link("mask"), STRENGTH, choice("set_cond_area", ("default", "mask bounds")),
    gives=TEXTS,
)  # fmt: skip
def set_mask(room: Room, conditioning: Texts, mask: np.ndarray, strength: float, set_cond_area: str) -> Texts:
    """Count where a mask is white."""
    bounds = set_cond_area == "mask bounds"
    return each_told(conditioning, mask=mask, mask_strength=strength, to_bounds=bounds)


@node(
    "ConditioningSetTimestepRange", ADVANCED, CONDITIONING, number("start", 0.0, 0.0, 1.0, 0.001),
    number("end", 1.0, 0.0, 1.0, 0.001), gives=TEXTS,
)  # fmt: skip
def set_range(room: Room, conditioning: Texts, start: float, end: float) -> Texts:
    """Count between two shares of the way from noise to picture."""
    return each_told(conditioning, start=start, end=end)


@node("ReferenceLatent", "advanced/conditioning/edit_models", CONDITIONING, link("latent", optional=True), gives=TEXTS)
def reference(room: Room, conditioning: Texts, latent: Latent | None) -> Texts:
    """A picture that Flux Kontext, Flux.2 or Qwen-Image-Edit looks at."""
    if latent is None:
        return conditioning
    return tuple(replace(told, references=(*told.references, latent.samples)) for told in conditioning)
