"""Nodes of masks [batch, height, width], 0 to 1.

Source: ComfyUI's comfy_extras/nodes_mask.py.
"""

from __future__ import annotations

import numpy as np

from graphc_server.comfyui.executor import Room
from graphc_server.comfyui.nodes.latents import laid_over
from graphc_server.comfyui.pictures import scaled
from graphc_server.comfyui.table import choice, link, node, number, side, switch, whole

GROUP = "mask"
MASK = link("mask")
CHANNELS = ("red", "green", "blue", "alpha")


@node("MaskToImage", GROUP, MASK, gives="IMAGE", title="Convert Mask to Image")
def to_image(room: Room, mask: np.ndarray) -> np.ndarray:
    """A mask as a picture in grey."""
    return np.repeat(mask[..., None], 3, -1)


@node(
    "ImageToMask",
    GROUP,
    link("image", clear=True),
    choice("channel", CHANNELS),
    gives="MASK",
    title="Convert Image to Mask",
)
def from_image(room: Room, image: np.ndarray, channel: str) -> np.ndarray:
    """One of a picture's channels as a mask; of a picture without opacity, that is white."""
    place = CHANNELS.index(channel)
    return image[..., place].copy() if place < image.shape[-1] else np.ones(image.shape[:3], np.float32)


@node(
    "SolidMask",
    GROUP,
    number("value", 1.0, 0.0, 1.0),
    side("width", 512, 1, 1),
    side("height", 512, 1, 1),
    gives="MASK",
)
def solid(room: Room, value: float, width: int, height: int) -> np.ndarray:
    """A mask that is the same everywhere."""
    room.check_pixels(width, height)
    return np.full((1, height, width), value, np.float32)


@node("InvertMask", GROUP, MASK, gives="MASK")
def invert(room: Room, mask: np.ndarray) -> np.ndarray:
    """White where it was black."""
    return np.float32(1) - mask


@node(
    "CropMask", GROUP, MASK, side("x", 0, 0, 1), side("y", 0, 0, 1), side("width", 512, 1, 1), side("height", 512, 1, 1),
    gives="MASK",
)  # fmt: skip
def crop(room: Room, mask: np.ndarray, x: int, y: int, width: int, height: int) -> np.ndarray:
    """A part of a mask."""
    left, top = min(x, mask.shape[2] - 1), min(y, mask.shape[1] - 1)
    return mask[:, top : top + height, left : left + width].copy()


OPERATIONS = ("multiply", "add", "subtract", "and", "or", "xor")


@node(
    "MaskComposite", GROUP, link("destination", "MASK"), link("source", "MASK"), side("x", 0, 0, 1), side("y", 0, 0, 1),
    choice("operation", OPERATIONS), gives="MASK",
)  # fmt: skip
def composite(room: Room, destination: np.ndarray, source: np.ndarray, x: int, y: int, operation: str) -> np.ndarray:
    """A mask laid over another at a place, by arithmetic or logic."""
    found = destination.copy()
    here = found[:, y : y + source.shape[1], x : x + source.shape[2]]
    other = source[np.arange(len(found)) % len(source)][:, : here.shape[1], : here.shape[2]]
    one, two = np.rint(here).astype(bool), np.rint(other).astype(bool)
    made = {
        "multiply": here * other, "add": here + other, "subtract": here - other, "and": one & two, "or": one | two,
        "xor": one ^ two,
    }[operation]  # fmt: skip
    here[:] = made
    return np.asarray(np.clip(found, 0, 1))


@node("FeatherMask", GROUP, MASK, *(side(name, 0, 0, 1) for name in ("left", "top", "right", "bottom")), gives="MASK")
def feather(room: Room, mask: np.ndarray, left: int, top: int, right: int, bottom: int) -> np.ndarray:
    """A mask whose edges fade out over so many pixels."""
    found = mask.copy()
    for axis, first, last in ((1, top, bottom), (2, left, right)):
        length = mask.shape[axis]
        weight = np.ones(length, np.float32)
        first, last = min(first, length), min(last, length)
        weight[:first] *= (np.arange(first) + 1) / np.float32(max(first, 1))
        weight[length - last :] *= ((np.arange(last) + 1) / np.float32(max(last, 1)))[::-1]
        found *= weight[:, None] if axis == 1 else weight
    return found


MOST = 256
"""Pixels by which a mask grows, at most."""


@node("GrowMask", GROUP, MASK, whole("expand", 0, -MOST, MOST), switch("tapered_corners", True), gives="MASK")
def grow(room: Room, mask: np.ndarray, expand: int, tapered_corners: bool) -> np.ndarray:
    """A mask that is larger, or smaller, by so many pixels on each side, a pixel at a time."""
    found = mask.astype(np.float32)
    choose = np.maximum if expand > 0 else np.minimum
    for _ in range(abs(expand)):
        padded = np.pad(found, ((0, 0), (1, 1), (1, 1)), mode="edge")
        rows, columns = found.shape[1:]
        grown = found
        for down in range(3):
            for right in range(3):
                if not (tapered_corners and down != 1 and right != 1):
                    grown = choose(grown, padded[:, down : down + rows, right : right + columns])
        found = grown
    return found


@node("ThresholdMask", GROUP, MASK, number("value", 0.5, 0.0, 1.0), gives="MASK")
def threshold(room: Room, mask: np.ndarray, value: float) -> np.ndarray:
    """White where a mask is above a value, else black."""
    return (mask > value).astype(np.float32)


@node(
    "ImageCompositeMasked", "image", link("destination", "IMAGE"), link("source", "IMAGE"), side("x", 0, 0, 1),
    side("y", 0, 0, 1), switch("resize_source", False), link("mask", optional=True), gives="IMAGE",
)  # fmt: skip
def image_composite(
    room: Room,
    destination: np.ndarray,
    source: np.ndarray,
    x: int,
    y: int,
    resize_source: bool,
    mask: np.ndarray | None,
) -> np.ndarray:
    """A picture laid over another, at a place, where a mask is white."""
    if resize_source:
        source = scaled(source, destination.shape[1], destination.shape[2], "bilinear")
    planes = np.ascontiguousarray(destination.transpose(0, 3, 1, 2))
    laid_over(planes, source.transpose(0, 3, 1, 2), x, y, mask)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
