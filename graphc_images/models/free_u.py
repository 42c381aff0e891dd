"""FreeU: what a U-Net is told so that the blocks of its decoder scale what they take in.

Source: ComfyUI's comfy_extras/nodes_freelunch.py and diffusers' apply_freeu, which scale different blocks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc_images.sampling.guidance import FreeU

if TYPE_CHECKING:
    from graphc_images.models.denoisers import Conditioning

Arrays = dict[str, np.ndarray]

LEVEL = 3
"""Blocks of each level of a decoder."""

WAVES = 7
"""What the lowest frequencies are sums over: a constant, and a cosine and a sine for each of three other frequencies."""


def freed(denoise: Callable[..., np.ndarray], free_u: FreeU | None) -> Callable[..., np.ndarray]:
    """A model's `denoise` with FreeU, if there is any."""
    if free_u is None:
        return denoise

    def run(x: np.ndarray, time: float | np.ndarray, conditioning: Conditioning, **more: Any) -> np.ndarray:
        return denoise(x, time, conditioning=replace(conditioning, free=free_u.numbers()), **more)

    return run


def free_inputs(inputs: Mapping[str, tuple[Any, ...]], numbers: np.ndarray, shape: tuple[int, ...]) -> Arrays:
    """What an engine with such inputs and sizes is told for latents of a shape, with FreeU's numbers [batch, 6]."""
    names = sorted((name for name in inputs if re.match(r"residual_\d", name)), key=lambda name: int(name[9:]))
    *encoder, middle = (int(inputs[name][1]) for name in names)
    height, width = shape[2:]
    found = {
        name: waves(-(-height // 2 ** int(name[6:])), -(-width // 2 ** int(name[6:])))
        for name in inputs
        if name.startswith("waves_")
    }
    return {"free": np.stack([scales(encoder, middle, row) for row in numbers]), **found}


def scales(encoder: list[int], middle: int, numbers: np.ndarray) -> np.ndarray:
    """For each block of a decoder [blocks, 3]: what is added to 1 as the factor of what comes from below, and of the lowest
    frequencies of what comes from the encoder, and 1 for the second version. `encoder` are the channels that it gives."""
    above = encoder[::-1]
    below = [middle, *(above[number // LEVEL * LEVEL] for number in range(len(above) - 1))]
    b1, b2, s1, s2, second, by_blocks = numbers.tolist()
    pairs = {0: (b1 - 1, s1 - 1, second), 1: (b2 - 1, s2 - 1, second)}
    wide = {4 * encoder[0]: 0, 2 * encoder[0]: 1}
    stages = [number // LEVEL if by_blocks else wide.get(channels, -1) for number, channels in enumerate(below)]
    return np.array([pairs.get(stage, (0, 0, 0)) for stage in stages], np.float32)


@lru_cache(16)
def waves(height: int, width: int) -> np.ndarray:
    """Waves [7, height, width] of which each goes once down, or to the right, or both; divided by the root of the number of
    places. Where there is only one place along a side, a wave along it is none."""
    down, right = (2 * np.pi * np.arange(size) / size for size in (height, width))
    found = np.zeros((WAVES, height, width))
    found[0] = 1
    for number, (rows, columns) in enumerate([(1, 0), (0, 1), (1, 1)]):
        if (height > 1 or not rows) and (width > 1 or not columns):
            angles = rows * down[:, None] + columns * right
            found[2 * number + 1 : 2 * number + 3] = np.cos(angles), np.sin(angles)
    return np.asarray(found / np.sqrt(height * width), np.float32)
