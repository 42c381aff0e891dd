"""Masks that are neither yes nor no: soft inpainting and differential diffusion.

Source: A1111's soft-inpainting extension (CodeHatchling); Levin and Fried 2023 (arXiv:2306.00950) by ComfyUI's node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageFilter

from graphc_images.pictures.masks import Box
from graphc_images.pictures.sizes import resize


@dataclass(frozen=True)
class SoftInpainting:
    """Settings of soft inpainting, under A1111's names."""

    schedule_bias: float = 1.0
    preservation_strength: float = 0.5
    transition_contrast_boost: float = 4.0
    mask_influence: float = 0.0
    difference_threshold: float = 0.5
    difference_contrast: float = 2.0


def painted_at(painted: np.ndarray, sigma: float, settings: SoftInpainting) -> np.ndarray:
    """How much of what is made counts at a noise level, less where there is much noise; `painted` is 1 under the mask."""
    return np.asarray(np.power(painted, sigma**settings.schedule_bias * settings.preservation_strength))


def blend_latents(old: np.ndarray, new: np.ndarray, painted: np.ndarray, settings: SoftInpainting) -> np.ndarray:
    """From old (painted 0) to new (painted 1), arrays [batch, channels, height, width], with lengths of vectors in between.

    The mean of two vectors that point elsewhere is shorter than both, which pictures show as less detail.
    """
    mixed = old * (1 - painted) + new * painted
    power = settings.transition_contrast_boost
    lengths = _lengths(old) ** power * (1 - painted[:, :1]) + _lengths(new) ** power * painted[:, :1]
    factor = lengths ** (1 / power) / (_lengths(mixed) + 0.00001)
    return np.asarray(mixed * factor.astype(mixed.dtype), new.dtype)


def _lengths(latent: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt(np.square(latent.astype(np.float64)).sum(1, keepdims=True)))


def soft_overlay_mask(
    painted: np.ndarray, old: np.ndarray, new: np.ndarray, size: tuple[int, int], settings: SoftInpainting
) -> Image.Image:
    """Where the result replaces the picture, white: where the latents [channels, height, width] differ much.

    `painted` is [height, width]; `size` is width and height of what was made.
    """
    share = 1 - np.clip(painted, 0, 1) ** (settings.preservation_strength / 2)
    share = 0.5 * (1 - settings.mask_influence) + share * settings.mask_influence
    half = settings.difference_threshold * share / (1.00001 - share)
    distance = _ranked_mean(_lengths((new - old)[None])[0, 0], 0.9, 1.0)
    distance = _ranked_mean(distance, 0.25, 0.75)
    with np.errstate(divide="ignore", invalid="ignore"):
        stays = 1 / (1 + np.nan_to_num(distance / half, posinf=1e9) ** settings.difference_contrast)
    stays = stays**3 * (stays * (6 * stays - 15) + 10)
    picture = Image.fromarray((255 * (1 - stays)).astype(np.uint8))
    return resize(picture, *size, "fill").filter(ImageFilter.GaussianBlur(4))


def _ranked_mean(array: np.ndarray, low: float, high: float, least: float = 1.0) -> np.ndarray:
    """Means of what lies between two shares of each pixel's ranked neighbours, 5 x 5 with weights that fall off."""
    offsets = [(y, x) for y in range(-2, 3) for x in range(-2, 3)]
    weight_of = np.array([max(_fall(y * y + x * x), 0) for y, x in offsets])
    padded = np.pad(array, 2)
    inside = np.pad(np.ones_like(array), 2)
    height, width = array.shape
    values = np.stack([padded[2 + y : 2 + y + height, 2 + x : 2 + x + width] for y, x in offsets])
    weights = np.stack([inside[2 + y : 2 + y + height, 2 + x : 2 + x + width] for y, x in offsets])
    weights = weights * weight_of[:, None, None]
    order = values.argsort(0, kind="stable")
    values, weights = np.take_along_axis(values, order, 0), np.take_along_axis(weights, order, 0)
    after = weights.cumsum(0)
    total = after[-1]
    start, stop = total * low, total * high
    narrow = stop - start < least
    middle = (start + stop) / 2
    start, stop = np.where(narrow, middle - least / 2, start), np.where(narrow, middle + least / 2, stop)
    over = narrow & (stop > total)
    start, stop = np.where(over, total - least, start), np.where(over, total, stop)
    under = narrow & (start < 0)
    start, stop = np.where(under, 0, start), np.where(under, least, stop)
    shares = np.clip(np.minimum(stop, after) - np.maximum(start, after - weights), 0, None)
    sums = shares.sum(0)
    return np.asarray(np.divide((values * shares).sum(0), sums, out=np.zeros(array.shape), where=sums > 0))


def _fall(square: float, deviation: float = 1.5, radius: int = 2) -> float:
    """A Gaussian that is 1 in the middle and 0 one pixel behind the radius."""
    lowest = np.exp(-((radius + 1) ** 2) / deviation**2)
    return float((np.exp(-square / deviation**2) - lowest) / (1 - lowest))


def uncrop(mask: Image.Image, size: tuple[int, int], box: Box) -> Image.Image:
    """A mask of a part as one of the whole picture, black around it."""
    whole = Image.new("L", size)
    whole.paste(resize(mask, *box.size, "crop"), box[:2])
    return whole


def differential_mask(mask: np.ndarray, time: float, first: float, last: float) -> np.ndarray:
    """Which pixels are painted at a time (of the model, falling from first to last): those whose mask is high enough."""
    return np.asarray(mask >= (time - last) / (first - last), mask.dtype)
