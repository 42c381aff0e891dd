"""Nodes that read a text beside pictures, for Qwen-Image-Edit.

Source: ComfyUI's comfy_extras/nodes_qwen.py, comfy/text_encoders/qwen_vl.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

import numpy as np

from graphc_images import SettingError, seen
from graphc_images.models.looking import Look, look_of, size_of
from graphc_server.comfyui.executor import Room
from graphc_server.comfyui.nodes.latents import encode
from graphc_server.comfyui.nodes.texts import ADVANCED, TEXTS, read_same
from graphc_server.comfyui.pictures import scaled
from graphc_server.comfyui.table import link, node, prompt
from graphc_server.comfyui.values import Clip, Texts, Vae

CELLS = 16
"""Pixels of a picture's side are multiples of this: the model takes latents of even sizes."""

VAE = link("vae", optional=True)


def _of(image: np.ndarray, pixels: int, unit: int = 1) -> np.ndarray:
    """The first of pictures [batch, height, width, channels], with about so many pixels."""
    height, width = image.shape[1:3]
    factor = sqrt(pixels / (height * width))
    sides = [max(round(side * factor / unit), 1) * unit for side in (height, width)]
    return scaled(image[:1, ..., :3], sides[0], sides[1], "area")


def _look(image: np.ndarray, number: int = 0) -> Look:
    """A picture as the language model looks at it, called by a number or none."""
    width, height = size_of(image.shape[2], image.shape[1])
    return look_of(scaled(image, height, width, "bilinear")[0], number)


def _read(
    room: Room, clip: Clip, text: str, vae: Vae | None, looks: Sequence[Look], sized: Sequence[np.ndarray]
) -> Texts:
    """A text beside pictures, which the model looks at as latents too where there is an autoencoder. Raises SettingError."""
    if looks and clip.image_model.architecture.kind != "qwen_image":
        raise SettingError(f"clip: the text encoders of {clip.image_model.architecture.name} see no pictures")
    told = read_same(room, clip, text, tuple(looks))
    if vae is None:
        return told
    latents = tuple(encode(room, each[:, : _whole(each, 1), : _whole(each, 2)], vae).samples for each in sized)
    return tuple(replace(each, references=(*each.references, *latents)) for each in told)


def _whole(image: np.ndarray, axis: int) -> int:
    """How many pixels of a side are whole cells."""
    return max(int(image.shape[axis]) // CELLS, 1) * CELLS


@node(
    "TextEncodeQwenImageEdit", ADVANCED, link("clip"), prompt("prompt"), VAE, link("image", optional=True), gives=TEXTS
)  # fmt: skip
def edit(room: Room, clip: Clip, prompt: str, vae: Vae | None, image: np.ndarray | None) -> Texts:
    """Read a text beside a picture, for the first Qwen-Image-Edit; what is beyond multiples of 16 is left out."""
    sized = [] if image is None else [_of(image, seen.EDITED_PIXELS)]
    return _read(room, clip, prompt, vae, [_look(each) for each in sized], sized)


@node(
    "TextEncodeQwenImageEditPlus", ADVANCED, link("clip"), prompt("prompt"), VAE,
    *(link(f"image{number}", "IMAGE", optional=True) for number in (1, 2, 3)), gives=TEXTS,
)  # fmt: skip
def edit_several(
    room: Room, clip: Clip, prompt: str, vae: Vae | None,
    image1: np.ndarray | None, image2: np.ndarray | None, image3: np.ndarray | None,
) -> Texts:  # fmt: skip
    """Read a text beside numbered pictures, for Qwen-Image-Edit since 2509; what is beyond multiples of 16 is left out."""
    given = {number: each for number, each in enumerate((image1, image2, image3), 1) if each is not None}
    looks = [_look(_of(each, seen.LOOKED_AT_PIXELS), number) for number, each in given.items()]
    return _read(room, clip, prompt, vae, looks, [_of(each, seen.EDITED_PIXELS, 8) for each in given.values()])
