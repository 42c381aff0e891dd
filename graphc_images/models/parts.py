"""Work that is done in parts where the whole would not fit: pictures of a batch one after the other, autoencoders in tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from graphc_images.models.denoisers import Conditioning
from graphc_images.models.memory import TooLarge
from graphc_images.pictures.tiles import run_tiled

Run = Callable[[np.ndarray], np.ndarray]
Use = Literal["auto", "on", "off"]

SMALLEST = 128
"""Pixels of the side of the smallest tiles."""


@dataclass(frozen=True)
class Tiles:
    """Tiles of an autoencoder: `on`, `off`, or only where the whole does not fit (`auto`); `size` is the side in pixels, of which
    memory may allow a half or a fourth, and `overlap` the pixels that two of them share, where it is not the usual part."""

    use: Use = "auto"
    size: int = 512
    overlap: int | None = None


@dataclass(frozen=True)
class Sides:
    """How an array for an autoencoder is related to pixels: pixels for each of its elements and of the result's along a side, and
    the part of a tile that the next one overlaps (ComfyUI's)."""

    pixels: int
    result: int
    overlap: float


def encoding(pixels: int) -> Sides:
    """From a picture to a latent."""
    return Sides(1, pixels, 1 / 8)


def decoding(pixels: int) -> Sides:
    """From a latent to a picture."""
    return Sides(pixels, 1, 1 / 4)


def in_tiles(run: Run, array: np.ndarray, tiles: Tiles, sides: Sides, wrapped: tuple[bool, bool]) -> np.ndarray:
    """What an autoencoder makes of [batch, channels, height, width], one picture after the other: several at once take so many
    times the memory, and are no faster. Raises TooLarge if not even small tiles fit.

    `wrapped` are the axes (rows, columns) along which a seamless picture goes on at its other end, so tiles do.
    """
    pictures = (array[row : row + 1] for row in range(len(array)))
    return np.concatenate([_picture_in_tiles(run, each, tiles, sides, wrapped) for each in pictures])


def _picture_in_tiles(
    run: Run, array: np.ndarray, tiles: Tiles, sides: Sides, wrapped: tuple[bool, bool]
) -> np.ndarray:
    unit = max(sides.pixels, sides.result) // sides.pixels
    size = max(tiles.size // sides.pixels // unit, 1) * unit
    if tiles.use != "on" or max(array.shape[2:]) <= size:
        try:
            return run(array)
        except TooLarge:
            size = min(size, max(array.shape[2:]) // 2 // unit * unit)
            if tiles.use == "off" or size * sides.pixels < SMALLEST:
                raise
    while True:
        shared = int(size * sides.overlap) if tiles.overlap is None else min(tiles.overlap // sides.pixels, size // 4)
        overlap = shared // unit * unit
        try:
            return _tiled(run, array, (size, overlap), sides, wrapped)
        except TooLarge:
            size = size // 2 // unit * unit
            if size * sides.pixels < SMALLEST:
                raise


def _tiled(run: Run, array: np.ndarray, tile: tuple[int, int], sides: Sides, wrapped: tuple[bool, bool]) -> np.ndarray:
    """By ComfyUI's three tilings."""
    size, overlap = tile
    around = [(overlap if each else 0) for each in wrapped]
    if any(around):
        array = np.pad(array, [(0, 0), (0, 0), *((each, each) for each in around)], mode="wrap")
    scale = sides.pixels / sides.result
    found = run_tiled(array, run, (size, size), overlap, scale, tilings=3)
    rows, columns = (
        slice(round(each * scale), side - round(each * scale))
        for each, side in zip(around, found.shape[2:], strict=True)
    )
    return np.ascontiguousarray(found[:, :, rows, columns])


def in_rows(
    run: Callable[[np.ndarray, np.ndarray, Conditioning], np.ndarray],
    x: np.ndarray,
    times: np.ndarray,
    conditioning: Conditioning,
    most: int | None = None,
) -> np.ndarray:
    """What a denoiser predicts for the latents x, whose times and conditionings are one for all or one each: of all together, or
    of so many at a time, and of fewer where that is too large. Raises TooLarge if one alone is."""
    if most is None or len(x) <= most:
        try:
            return run(x, times, conditioning)
        except TooLarge:
            if len(x) == 1:
                raise
        most = (len(x) + 1) // 2
    parts = [slice(start, start + most) for start in range(0, len(x), most)]
    return np.concatenate([
        in_rows(run, x[part], _rows(times, part, len(x)), _told(conditioning, part, len(x)), most) for part in parts
    ])  # fmt: skip


def _rows(array: np.ndarray, part: slice, batch: int) -> np.ndarray:
    return array[part] if np.ndim(array) and len(array) == batch else array


def _told(conditioning: Conditioning, part: slice, batch: int) -> Conditioning:
    changed: dict[str, Any] = {}
    for each in fields(conditioning):
        value = getattr(conditioning, each.name)
        if isinstance(value, tuple):
            changed[each.name] = tuple(_rows(one, part, batch) for one in value)
        elif isinstance(value, np.ndarray):
            changed[each.name] = _rows(value, part, batch)
    return replace(conditioning, **changed)
