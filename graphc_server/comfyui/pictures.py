"""Pictures and latents at another size, as ComfyUI has it (comfy/utils.py, common_upscale and bislerp)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image

from graphc_images.latent_scaling import scaled_latent

METHODS = ("nearest-exact", "bilinear", "area", "bicubic", "lanczos")
LATENT_METHODS = ("nearest-exact", "bilinear", "area", "bicubic", "bislerp")
CROPS = ("disabled", "center")


def to_picture(pixels: np.ndarray) -> Image.Image:
    """The picture of [height, width, 3], 0 to 1; fractions of levels are cut off, and what is not a number is black."""
    levels = np.clip(np.nan_to_num(pixels.astype(np.float32), nan=0.0), 0, 1) * np.float32(255)
    return Image.fromarray(np.ascontiguousarray(levels.astype(np.uint8)))


def from_picture(picture: Image.Image) -> np.ndarray:
    """[height, width, 3], or [height, width] of a picture of one channel."""
    return np.asarray(picture, np.float32) / np.float32(255)


def scaled(images: np.ndarray, height: int, width: int, method: str, crop: str = "disabled") -> np.ndarray:
    """Pictures [batch, height, width, channels] at another size."""
    return scaled_planes(images.transpose(0, 3, 1, 2), height, width, method, crop).transpose(0, 2, 3, 1)


def scaled_planes(planes: np.ndarray, height: int, width: int, method: str, crop: str = "disabled") -> np.ndarray:
    """The same of [batch, channels, height, width]; with "center", what is over of another shape is cut off at both sides."""
    if crop == "center":
        planes = _shaped(planes, height, width)
    if planes.shape[2:] == (height, width):
        return np.ascontiguousarray(planes)
    return SCALERS[method](planes, height, width)


def _shaped(planes: np.ndarray, height: int, width: int) -> np.ndarray:
    old_height, old_width = planes.shape[2:]
    old, new = old_width / old_height, width / height
    x = round((old_width - old_width * (new / old)) / 2) if old > new else 0
    y = round((old_height - old_height * (old / new)) / 2) if old < new else 0
    x, y = min(x, (old_width - 1) // 2), min(y, (old_height - 1) // 2)
    return planes[:, :, y : old_height - y, x : old_width - x]


def _area(planes: np.ndarray, height: int, width: int) -> np.ndarray:
    """Each new element is the mean of the old ones that it touches."""
    for axis, size in ((2, height), (3, width)):
        old = planes.shape[axis]
        sums = np.concatenate(
            [np.zeros_like(planes.take([0], axis), np.float64), np.cumsum(planes, axis, np.float64)], axis
        )
        starts = np.arange(size) * old // size
        ends = -(-(np.arange(size) + 1) * old // size)
        counts = (ends - starts).reshape([-1 if each == axis else 1 for each in range(4)])
        planes = ((sums.take(ends, axis) - sums.take(starts, axis)) / counts).astype(np.float32)
    return planes


def _lanczos(planes: np.ndarray, height: int, width: int) -> np.ndarray:
    """By pillow, in 8 bits."""
    levels = np.clip(planes.transpose(0, 2, 3, 1) * 255, 0, 255).astype(np.uint8)
    made = []
    for each in levels:
        picture = Image.fromarray(each[..., 0] if each.shape[-1] == 1 else each)
        found = from_picture(picture.resize((width, height), Image.Resampling.LANCZOS))
        made.append(found[..., None] if found.ndim == 2 else found)
    return np.stack(made).transpose(0, 3, 1, 2)


def _bislerp(planes: np.ndarray, height: int, width: int) -> np.ndarray:
    """Between two neighbours, vectors of all channels turn evenly from one to the other."""
    for axis, size in ((3, width), (2, height)):
        old = planes.shape[axis]
        first, second = np.arange(old, dtype=np.float32), np.minimum(np.arange(old) + 1, old - 1).astype(np.float32)
        places, others = (scaled_latent(each[None, None, None], 1, size, "Latent")[0, 0, 0] for each in (first, second))
        shares = (places - np.floor(places)).reshape([-1 if each == axis else 1 for each in range(4)])
        planes = _turned(planes.take(places.astype(int), axis), planes.take(others.astype(int), axis), shares)
    return np.asarray(planes, np.float32)


def _turned(one: np.ndarray, other: np.ndarray, share: np.ndarray) -> np.ndarray:
    lengths = [np.linalg.norm(each, axis=1, keepdims=True) for each in (one, other)]
    units = [
        np.divide(each, length, out=np.zeros_like(each), where=length > 0)
        for each, length in zip((one, other), lengths, strict=True)
    ]
    cosine = (units[0] * units[1]).sum(1, keepdims=True)
    angle = np.arccos(np.clip(cosine, -1, 1))
    sine = np.sin(angle)
    safe = np.where(sine == 0, 1, sine)
    found = np.sin((1 - share) * angle) / safe * units[0] + np.sin(share * angle) / safe * units[1]
    found = found * (lengths[0] * (1 - share) + lengths[1] * share)
    found = np.where(cosine > 1 - 1e-5, one, found)
    return np.where(cosine < 1e-5 - 1, one * (1 - share) + other * share, found).astype(np.float32)


SCALERS: Mapping[str, Callable[[np.ndarray, int, int], np.ndarray]] = {
    "nearest-exact": lambda planes, height, width: scaled_latent(planes, height, width, "Latent (nearest-exact)"),
    "bilinear": lambda planes, height, width: scaled_latent(planes, height, width, "Latent"),
    "bicubic": lambda planes, height, width: scaled_latent(planes, height, width, "Latent (bicubic)"),
    "area": _area,
    "lanczos": _lanczos,
    "bislerp": _bislerp,
}
