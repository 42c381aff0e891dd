"""Latents at another size, as PyTorch's interpolate has them: what A1111 calls Latent, Latent (bicubic), ….

Each axis is a product with a matrix of weights, which a kernel gives; source: Keys 1981 for bicubic, PyTorch for what happens at
the edges: indexes are clamped, with antialiasing weights outside are left out instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from graphc_images.errors import SettingError


@dataclass(frozen=True)
class Kernel:
    """How far a pixel's weight reaches, and the weight at a distance."""

    reach: float
    weight: Callable[[float], float]


def cubic(a: float) -> Callable[[float], float]:
    """Keys' cubic convolution."""

    def weight(distance: float) -> float:
        d = abs(distance)
        if d < 1:
            return ((a + 2) * d - (a + 3)) * d * d + 1
        return (((d - 5) * d + 8) * d - 4) * a if d < 2 else 0.0

    return weight


LINEAR = Kernel(1, lambda distance: max(1 - abs(distance), 0.0))

LATENT_UPSCALERS: Mapping[str, Callable[[int, int], np.ndarray]] = {
    "Latent": lambda old, new: weights(old, new, LINEAR),
    "Latent (antialiased)": lambda old, new: weights(old, new, LINEAR, antialias=True),
    "Latent (bicubic)": lambda old, new: weights(old, new, Kernel(2, cubic(-0.75))),
    "Latent (bicubic antialiased)": lambda old, new: weights(old, new, Kernel(2, cubic(-0.5)), antialias=True),
    "Latent (nearest)": lambda old, new: chosen(old, new, 0.0),
    "Latent (nearest-exact)": lambda old, new: chosen(old, new, 0.5),
}
"""A1111's names, and the matrix [new, old] of an axis."""


def weights(old: int, new: int, kernel: Kernel, antialias: bool = False) -> np.ndarray:
    """A row of weights for each new pixel."""
    ratio = old / new
    wide = max(ratio, 1.0) if antialias else 1.0
    matrix = np.zeros((new, old))
    for row in range(new):
        centre = (row + 0.5) * ratio - 0.5
        for place in range(math.ceil(centre - kernel.reach * wide), math.floor(centre + kernel.reach * wide) + 1):
            if antialias and not 0 <= place < old:
                continue
            matrix[row, min(max(place, 0), old - 1)] += kernel.weight((place - centre) / wide)
    return np.asarray(matrix / matrix.sum(1, keepdims=True))


def chosen(old: int, new: int, offset: float) -> np.ndarray:
    """One old pixel for each new one."""
    matrix = np.zeros((new, old))
    rows = np.arange(new)
    matrix[rows, np.minimum(((rows + offset) * (old / new)).astype(int), old - 1)] = 1
    return matrix


def scaled_latent(latent: np.ndarray, height: int, width: int, upscaler: str = "Latent") -> np.ndarray:
    """A latent [batch, channels, height, width] at another size. Raises SettingError for an upscaler that there is not."""
    if upscaler not in LATENT_UPSCALERS:
        raise SettingError(f"there is no latent upscaler {upscaler!r}; there are {', '.join(LATENT_UPSCALERS)}")
    matrix = LATENT_UPSCALERS[upscaler]
    down, across = matrix(latent.shape[2], height), matrix(latent.shape[3], width)
    return np.asarray(np.einsum("hy,bcyx,wx->bchw", down, latent.astype(np.float64), across, optimize=True), np.float32)
