"""Colours of a result brought back to those of the picture that it was made from.

Source: AUTOMATIC1111's apply_color_correction: histograms matched in CIELAB, then the lightness of the result kept.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

LUMINOSITY = np.array([0.299, 0.587, 0.114])
WHITE = np.array([0.950456, 1.0, 1.088754])
TO_XYZ = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])


def match_colours(result: Image.Image, original: Image.Image) -> Image.Image:
    """The result with the original's distribution of colours, and its own luminosity."""
    ours, theirs = rgb_to_lab(np.asarray(result.convert("RGB"))), rgb_to_lab(np.asarray(original.convert("RGB")))
    matched = np.stack([match_histogram(ours[..., each], theirs[..., each]) for each in range(3)], -1)
    return with_luminosity(lab_to_rgb(matched), np.asarray(result.convert("RGB")))


def rgb_to_lab(pixels: np.ndarray) -> np.ndarray:
    """OpenCV's 8-bit CIELAB, to the bit: L times 2.55, a and b plus 128, in its fixed-point arithmetic."""
    levels = np.arange(256) / 255
    linear = np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    linear = np.rint(linear * 255 * 8).astype(np.int64)  # in 2040ths
    matrix = np.rint(TO_XYZ / WHITE[:, None] * (1 << 12)).astype(np.int64)
    xyz = (linear[pixels] @ matrix.T + (1 << 11)) >> 12
    shares = np.arange(xyz.max(initial=0) + 1) / (255 * 8)
    roots = np.where(shares < 0.008856, shares * 7.787 + 0.13793103448275862, np.cbrt(shares))
    x, y, z = np.moveaxis(np.rint(roots * (1 << 15)).astype(np.int64)[xyz], -1, 0)
    black = (16 * 255 * (1 << 15) + 50) // 100
    middle = 128 << 15
    lab = np.stack([296 * y - black, 500 * (x - y) + middle, 200 * (y - z) + middle], -1)
    return np.asarray(np.clip((lab + (1 << 14)) >> 15, 0, 255), np.uint8)


def lab_to_rgb(lab: np.ndarray) -> np.ndarray:
    """The other way."""
    lightness, a, b = np.moveaxis(lab.astype(np.float64), -1, 0)
    y = (lightness / 2.55 + 16) / 116
    root = np.stack([y + (a - 128) / 500, y, y - (b - 128) / 200], -1)
    xyz = np.where(root > 0.206893, root**3, (root - 16 / 116) / 7.787) * WHITE
    linear = np.clip(xyz @ np.linalg.inv(TO_XYZ).T, 0, 1)
    pixels = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.asarray(np.clip(np.rint(pixels * 255), 0, 255), np.uint8)


def match_histogram(source: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Each value of the source becomes the one that has the same share of values below it in the reference.

    In the source's type; fractions of whole numbers are cut off, as scikit-image does.
    """
    _, places, counts = np.unique(source, return_inverse=True, return_counts=True)
    levels, others = np.unique(reference, return_counts=True)
    shares = np.cumsum(counts) / source.size
    matched = np.interp(shares, np.cumsum(others) / reference.size, levels)
    return np.asarray(matched[places].reshape(source.shape).astype(source.dtype))


def with_luminosity(colours: np.ndarray, light: np.ndarray) -> Image.Image:
    """The hue and saturation of one, the luminosity of the other (the blend mode of that name)."""
    base, top = colours / 255.0, light / 255.0
    moved = base + ((top - base) @ LUMINOSITY)[..., None]
    centre = (moved @ LUMINOSITY)[..., None]
    low, high = moved.min(-1, keepdims=True), moved.max(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = np.where(low < 0, centre + (moved - centre) * centre / (centre - low), moved)
        moved = np.where(high > 1, centre + (moved - centre) * (1 - centre) / (high - centre), moved)
    return Image.fromarray(np.clip(np.rint(np.nan_to_num(moved) * 255), 0, 255).astype(np.uint8))
