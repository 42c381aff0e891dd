"""SD upscale: a picture is made larger, and then painted again from itself, tile by tile.

Source: AUTOMATIC1111's scripts/sd_upscale.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from PIL import Image

from graphc_images.errors import SettingError
from graphc_images.pictures.arrays import flatten
from graphc_images.pictures.parameters import read_parameters, write_parameters
from graphc_images.pictures.tiles import tile_starts, upscale_tiled
from graphc_images.pipeline import NONE, Picture, Pictures, Pipeline, Progress, Wish, go_on
from graphc_images.resolving import resolved
from graphc_images.settings import Settings, seed_after
from graphc_images.upscalers.upscaler import enlarged_size


def sd_upscale(
    pipeline: Pipeline,
    asked: Settings,
    upscaler: str,
    scale: float = 2.0,
    overlap: int = 64,
    wish: Callable[[], Wish] = go_on,
) -> Iterator[Progress]:
    """`asked.image` so many times as large, painted again in tiles of `asked`'s width and height, each with the seed after the
    one before: the steps of all tiles, as batches, and last the picture.

    Tiles overlap by so many pixels, and fade into each other there. Whoever wishes to stop has the picture as far as it is
    painted. Raises ImageError.
    """
    if asked.image is None:
        raise SettingError("image: there is no picture to make larger")
    usual = resolved(replace(asked, image=None), pipeline.model.architecture)
    settings = replace(usual, batches=1, batch_size=1)
    assert settings.width is not None
    assert settings.height is not None
    width, height = enlarged_size(asked.image, scale)
    tile = min(settings.height, height), min(settings.width, width)
    if 2 * overlap > min(tile):
        raise SettingError(
            f"overlap: tiles of {tile[1]}x{tile[0]} can overlap by {min(tile) // 2}, and not by {overlap}"
        )
    places = [*product(tile_starts(height, tile[0], overlap), tile_starts(width, tile[1], overlap))]
    large = pipeline.enlargers(upscaler, asked.upscale_tile, asked.upscale_overlap)(flatten(asked.image), width, height)
    painted: list[Picture] = []
    for number, (top, left) in enumerate(places):
        part = large.crop((left, top, left + tile[1], top + tile[0]))
        seed = seed_after(settings.seed, number)
        one = replace(settings, image=part, width=tile[1], height=tile[0], seed=seed)
        for progress in pipeline.paint(one, wish):
            painted += progress.pictures
            last = replace(progress, batch=number, batches=len(places))
            yield replace(last, pictures=NONE)
        if wish() == "stop":
            break
    parts = iter(painted)

    def done(part: np.ndarray) -> np.ndarray:
        made = next(parts, None)
        return part if made is None else _array(made.image)

    joined = upscale_tiled(_array(large), done, tile, overlap).round().astype(np.uint8)
    said = read_parameters(painted[0].parameters)
    more = {"SD upscale overlap": overlap, "SD upscale upscaler": Path(upscaler).stem}
    text = write_parameters(said.prompt, said.negative_prompt, {**said.settings, **more})
    whole = replace(painted[0], image=Image.fromarray(joined.transpose(1, 2, 0)), parameters=text)
    yield replace(last, pictures=Pictures([whole]))


def _array(picture: Image.Image) -> np.ndarray:
    """As [3, height, width]."""
    return np.asarray(picture, np.float32).transpose(2, 0, 1)
