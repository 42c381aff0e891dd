"""SD upscale: a picture is made larger, and then painted again from itself, tile by tile.

Source: AUTOMATIC1111's scripts/sd_upscale.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from PIL import Image

from graphc_images.errors import SettingError
from graphc_images.pictures.arrays import flatten
from graphc_images.pictures.tiles import tile_starts, upscale_tiled
from graphc_images.pipeline import Pipeline, Progress
from graphc_images.resolving import resolved
from graphc_images.settings import Settings
from graphc_images.upscalers.upscaler import enlarged_size


def sd_upscale(
    pipeline: Pipeline,
    asked: Settings,
    upscaler: str,
    scale: float = 2.0,
    overlap: int = 64,
    on_step: Callable[[int, int, Progress], None] | None = None,
) -> Image.Image:
    """`asked.image` so many times as large, painted again in tiles of `asked`'s width and height, all with one seed.

    Tiles overlap by so many pixels, and fade into each other there. `on_step` gets the number of the tile, of how many, and where
    its painting is. Raises ImageError.
    """
    if asked.image is None:
        raise SettingError("image: there is no picture to make larger")
    usual = resolved(replace(asked, image=None), pipeline.model.architecture)
    settings = replace(usual, batches=1, batch_size=1)
    assert settings.width is not None
    assert settings.height is not None
    width, height = enlarged_size(asked.image, scale)
    large = pipeline.enlargers(upscaler)(flatten(asked.image), width, height)
    tile = min(settings.height, height), min(settings.width, width)
    tiles = len(tile_starts(height, tile[0], overlap)) * len(tile_starts(width, tile[1], overlap))
    done = 0

    def painted(part: np.ndarray) -> np.ndarray:
        nonlocal done
        done += 1
        picture = Image.fromarray(part.transpose(1, 2, 0).astype(np.uint8))
        for progress in pipeline.paint(replace(settings, image=picture, width=picture.width, height=picture.height)):
            if on_step is not None:
                on_step(done, tiles, progress)
            for each in progress.pictures:
                result = each.image
        return np.asarray(result, np.float32).transpose(2, 0, 1)

    pixels = np.asarray(large, np.float32).transpose(2, 0, 1)
    found = upscale_tiled(pixels, painted, tile, overlap)
    return Image.fromarray(found.round().astype(np.uint8).transpose(1, 2, 0))
