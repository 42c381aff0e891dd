"""Holes of pictures filled from around, and colours in CIELAB, both in floats.

Source: Bertalmio, Bertozzi and Sapiro, Navier-Stokes, Fluid Dynamics, and Image and Video Inpainting (2001), with OpenCV's
weights; CIE 1976.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphc_images.pictures.colour import TO_XYZ

RADIUS = 3
"""How far a pixel that is filled looks around."""

AROUND = [
    (down, right)
    for down in range(-RADIUS, RADIUS + 1)
    for right in range(-RADIUS, RADIUS + 1)
    if 0 < down * down + right * right <= RADIUS * RADIUS
]
LEAST = 1e-6
WHITE = np.array([0.95047, 1.0, 1.08883])


def navier_stokes(picture: np.ndarray, hole: np.ndarray, check: Callable[[], None] = lambda: None) -> np.ndarray:
    """A picture [height, width, channels] whose hole [height, width] is filled ring by ring from its edge inwards.

    Lines of equal brightness go on: means of near pixels that are known, the more of those from which no change leads there.

    A hole that is all of the picture stays as it is. `check` is called for each ring, and may raise.
    """
    if not hole.any():
        return picture
    box = tuple(
        slice(max(int(each.min()) - 2 * RADIUS, 0), int(each.max()) + 2 * RADIUS + 1) for each in np.nonzero(hole)
    )
    whole = picture.astype(np.float32)
    whole[box] = _filled(whole[box], hole[box], check)
    return whole


def _filled(picture: np.ndarray, hole: np.ndarray, check: Callable[[], None]) -> np.ndarray:
    found = np.pad(picture.astype(np.float32), ((RADIUS, RADIUS), (RADIUS, RADIUS), (0, 0)), mode="edge")
    known = np.pad(~hole, RADIUS)
    while True:
        check()
        beside = known[:-2, 1:-1] | known[2:, 1:-1] | known[1:-1, :-2] | known[1:-1, 2:]
        inside = np.zeros_like(known)
        inside[RADIUS:-RADIUS, RADIUS:-RADIUS] = True
        ring = np.nonzero(np.pad(beside, 1) & ~known & inside)
        if not ring[0].size:
            return found[RADIUS:-RADIUS, RADIUS:-RADIUS]
        found[ring] = _from_around(found, known, *ring)
        known[ring] = True


def _from_around(found: np.ndarray, known: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """What these pixels become [pixels, channels]."""
    total = np.zeros((len(rows), found.shape[2]), np.float64)
    weights = np.full_like(total, 1e-30)
    for down, right in AROUND:
        there = rows + down, columns + right
        across = [_change(found, known, *there, *step) for step in ((0, 1), (1, 0))]
        line = -down * across[0] + right * across[1]  # the way here, along a line of equal brightness there
        length = np.sqrt((down * down + right * right) * (across[0] ** 2 + across[1] ** 2))
        direction = np.where(np.abs(line) <= 0.01 / 255, LEAST, np.abs(line) / np.maximum(length, 1e-12))
        weight = direction / ((down * down + right * right) ** 2 + 1) * known[there][:, None]
        total += weight * found[there]
        weights += weight
    return np.asarray(total / weights)


def _change(
    found: np.ndarray, known: np.ndarray, rows: np.ndarray, columns: np.ndarray, down: int, right: int
) -> np.ndarray:
    """How much channels change at pixels on the way down or right, from known neighbours alone."""
    height, width = known.shape
    after = np.minimum(rows + down, height - 1), np.minimum(columns + right, width - 1)
    before = np.maximum(rows - down, 0), np.maximum(columns - right, 0)
    here = found[rows, columns]
    forward = (found[after] - here) * known[after][:, None]
    backward = (here - found[before]) * known[before][:, None]
    return np.asarray(forward + backward, np.float64)


def to_lab(pixels: np.ndarray) -> np.ndarray:
    """L from 0 to 100, a and b, of [..., 3], red, green, blue, 0 to 1 (sRGB, seen in daylight)."""
    linear = np.where(pixels > 0.04045, ((pixels + 0.055) / 1.055) ** 2.4, pixels / 12.92)
    shares = (linear.astype(np.float64) @ TO_XYZ.T) / WHITE
    x, y, z = np.moveaxis(np.where(shares > 0.008856, np.cbrt(shares), 7.787 * shares + 4 / 29), -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1)


def to_rgb(lab: np.ndarray) -> np.ndarray:
    """The other way; what no screen shows is cut off."""
    y = (lab[..., 0] + 16) / 116
    roots = np.stack([y + lab[..., 1] / 500, y, np.maximum(y - lab[..., 2] / 200, 0)], -1)
    shares = np.where(roots > 0.2068966, roots**3, (roots - 4 / 29) / 7.787)
    linear = (shares * WHITE) @ np.linalg.inv(TO_XYZ).T
    curved = 1.055 * np.maximum(linear, 0.0031308) ** (1 / 2.4) - 0.055
    return np.asarray(np.clip(np.where(linear > 0.0031308, curved, 12.92 * linear), 0, 1))
