"""Large pictures in parts: tiles with soft seams for upscalers and VAEs.

Source: AUTOMATIC1111's modules/images.py (split_grid, combine_grid); ComfyUI's comfy/utils.py (tiled_scale) and sd.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from graphc_images.errors import SettingError

Model = Callable[[np.ndarray], np.ndarray]


def tile_starts(size: int, tile: int, overlap: int) -> list[int]:
    """Where tiles begin that cover a length, at even distances, the last one at the end (A1111)."""
    if not 0 <= overlap < tile:
        raise SettingError(f"tiles of {tile} cannot overlap by {overlap}")
    if size <= tile:
        return [0]
    count = math.ceil((size - overlap) / (tile - overlap))
    return [min(int(each * (size - tile) / (count - 1)), size - tile) for each in range(count)]


def upscale_tiled(array: np.ndarray, model: Model, tile: int | tuple[int, int] = 192, overlap: int = 8) -> np.ndarray:
    """A model over tiles of [..., height, width], joined by linear seams; the model enlarges by a whole number. A tile is a
    square, or so high and wide.

    Seams go first along rows, then between rows of tiles: each tile fades in over the one before (A1111's ESRGAN).
    """
    height, width = array.shape[-2:]
    high, wide = tile if isinstance(tile, tuple) else (tile, tile)
    rows, scale = [], 1
    for top in tile_starts(height, high, overlap):
        row: np.ndarray | None = None
        for left in tile_starts(width, wide, overlap):
            part = model(array[..., top : top + high, left : left + wide])
            scale = part.shape[-1] // min(wide, width)
            row = part if row is None else _fade(row, part, left * scale, overlap * scale, -1)
        assert row is not None, "there is a tile"
        rows.append((top * scale, row))
    result = rows[0][1]
    for start, row in rows[1:]:
        result = _fade(result, row, start, overlap * scale, -2)
    return result


def _fade(before: np.ndarray, after: np.ndarray, start: int, seam: int, axis: int) -> np.ndarray:
    """`after` laid over `before` from `start` on along an axis; its first `seam` pixels fade in."""
    old = np.moveaxis(before, axis, -1)
    new = np.moveaxis(after, axis, -1)
    seam = min(seam, old.shape[-1] - start)
    share = np.arange(seam, dtype=new.dtype) / max(seam, 1)
    mixed = old[..., start : start + seam] * (1 - share) + new[..., :seam] * share
    joined = np.concatenate([old[..., :start], mixed.astype(new.dtype), new[..., seam:]], -1)
    return np.moveaxis(joined, -1, axis)


def run_tiled(
    array: np.ndarray, model: Model, tile: tuple[int, int], overlap: int, scale: float, tilings: int = 1
) -> np.ndarray:
    """A VAE over tiles of (height, width) of [batch, channels, height, width], their means weighted by feathered edges.

    `scale` is output pixels for each of the input. With three tilings, also with tiles of half the height and twice the
    width and the other way round, whose mean has no seams that one sees (ComfyUI's VAE).
    """
    high, wide = tile
    shapes = [(high // 2, wide * 2), (high * 2, wide // 2), (high, wide)][-tilings if tilings == 1 else 0 :]
    total: np.ndarray | None = None
    for shape in shapes:
        result = _run_one_tiling(array, model, shape, overlap, scale)
        total = result if total is None else total + result
    assert total is not None, "there is a tiling"
    return (total / len(shapes)).astype(total.dtype)


def _run_one_tiling(array: np.ndarray, model: Model, tile: tuple[int, int], overlap: int, scale: float) -> np.ndarray:
    """Every tile has weights that rise over its first pixels and fall over its last, by the overlap in the output."""
    sides = array.shape[-2:]
    overlap = min(overlap, min(tile) - 1)
    starts = [_stepped_starts(side, part, overlap) for side, part in zip(sides, tile, strict=True)]
    feather = round(overlap * scale)
    outputs = [round(side * scale) for side in sides]
    total = weights = np.zeros(())
    for top in starts[0]:
        for left in starts[1]:
            part = model(array[..., top : top + tile[0], left : left + tile[1]])
            if total.ndim == 0:
                total = np.zeros((*part.shape[:-2], *outputs), part.dtype)
                weights = np.zeros(outputs, part.dtype)
            mask = np.outer(*[_feathered(size, feather if feather < size else 0) for size in part.shape[-2:]]).astype(
                part.dtype
            )
            y, x = round(top * scale), round(left * scale)
            total[..., y : y + part.shape[-2], x : x + part.shape[-1]] += part * mask
            weights[y : y + part.shape[-2], x : x + part.shape[-1]] += mask
    return np.asarray(total / weights)


def _stepped_starts(size: int, tile: int, overlap: int) -> list[int]:
    """Where tiles begin at a fixed distance, the last moved back so that it ends at the end (ComfyUI)."""
    if size <= tile:
        return [0]
    return [max(0, min(size - overlap, start)) for start in range(0, size - overlap, tile - overlap)]


def _feathered(size: int, feather: int) -> np.ndarray:
    """Weights of a line: 1, but rising and falling over `feather` pixels at its ends."""
    places = np.arange(size)
    rising = np.minimum((places + 1) / max(feather, 1), 1)
    return np.asarray(rising * rising[::-1])
