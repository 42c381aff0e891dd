"""An upscaler's file as a function on pictures: in tiles, and again until the picture is large enough.

Source: AUTOMATIC1111's modules/upscaler.py and upscaler_utils.py, spandrel's padding.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
from PIL import Image

import graphc
from graphc_images.errors import ModelError, SettingError
from graphc_images.models.loras import Source
from graphc_images.models.memory import Loaded, TooLarge
from graphc_images.pictures.arrays import flatten
from graphc_images.pictures.sizes import lanczos
from graphc_images.pictures.tiles import upscale_tiled
from graphc_images.upscalers.networks import Network, network_of

PASSES = 3
"""How often a picture goes through the network, at most, until it is large enough."""

LEAST_TILE = 32
"""Pixels of the side of the smallest tiles, where memory does not do for larger ones."""

SMALLEST_TILE = 16
"""The same of those that people may ask for."""


class Upscaler:
    """What `load_upscaler` returns. The engine is made when it is first used, and freed if `loaded` has no room for it."""

    def __init__(self, name: str, tensors: Mapping[str, object], network: Network, loaded: Loaded, threads: int | None):
        self.name, self.network, self.loaded, self.threads = name, network, loaded, threads
        self._tensors = dict(tensors)

    @property
    def scale(self) -> int:
        """How many times as wide and high a picture becomes."""
        return self.network.scale

    def __call__(self, picture: Image.Image, tile: int = 192, overlap: int = 8) -> Image.Image:
        """The picture `scale` times as large, in red, green and blue; in tiles of so many pixels, 0 for the whole at once.

        Smaller tiles are taken where these do not fit into memory, and they overlap by half at most. Raises TooLarge, and
        SettingError for tiles that are too small: their number would have no end.
        """
        if 0 < tile < SMALLEST_TILE:
            raise SettingError(
                f"upscale_tile: a tile has at least {SMALLEST_TILE} pixels, or 0 for the whole at once, not {tile}"
            )
        pixels = np.asarray(flatten(picture), np.float32).transpose(2, 0, 1)[None] / 255
        size = tile or max(pixels.shape[2:])
        while True:
            try:
                found = upscale_tiled(pixels, self.run, size, min(overlap, size // 2) if tile else 0)
                break
            except TooLarge:
                size = min(size, max(pixels.shape[2:])) // 2
                if size < LEAST_TILE:
                    raise
        return Image.fromarray((found[0].clip(0, 1) * 255).round().astype(np.uint8).transpose(1, 2, 0))

    def upscaled(self, picture: Image.Image, width: int, height: int, tile: int = 192, overlap: int = 8) -> Image.Image:
        """The picture at this size: through the network until it is as large, at most three times, and resized then."""
        found = flatten(picture)
        for _ in range(PASSES if self.scale > 1 else 1):
            if self.scale > 1 and found.width >= width and found.height >= height:
                break
            found = self(found, tile, overlap)
        return lanczos(found, width, height)

    def run(self, pixels: np.ndarray) -> np.ndarray:
        """Pictures [batch, 3, height, width], float32, 0 to 1, `scale` times as large. Raises TooLarge."""
        batch, colours, height, width = pixels.shape
        network, unit = self.network, self.network.unshuffled
        padded = np.pad(pixels, [(0, 0), (0, 0), (0, -height % unit), (0, -width % unit)], mode="reflect")
        x = unshuffled(padded.reshape(-1, network.colours, *padded.shape[2:]), unit)
        self._loaded_engine()
        found = self.loaded.run((id(self), "upscaler"), {"x": np.ascontiguousarray(x, np.float32)})["y"]
        found = shuffled(found, network.shuffled)
        if network.residual:
            found = found + pixels.reshape(-1, network.colours, height, width).repeat(self.scale, 2).repeat(
                self.scale, 3
            )
        found = found.reshape(batch, colours, *found.shape[2:])
        return np.asarray(found[:, :, : height * self.scale, : width * self.scale])

    def close(self) -> None:
        """Free the engine; it is made again if it is needed."""
        self.loaded.free((id(self), "upscaler"))

    def _loaded_engine(self) -> None:
        tensors = self._tensors.values()
        size = sum(each.nbytes for each in tensors if isinstance(each, np.ndarray))
        try:
            self.loaded.get((id(self), "upscaler"), size, self._compiled)
        except TooLarge as error:
            raise TooLarge(f"{self.name}: {error}") from error

    def _compiled(self) -> graphc.Model:
        loaded = self.loaded
        return graphc.compile(
            graphc.parse_graph(self.network.text),
            weights=self._tensors,
            dtype="checkpoint",
            threads=self.threads,
            device=loaded.device,
            memory=loaded.given if loaded.streams else None,
        )


def load_upscaler(source: Source, *, loaded: Loaded | None = None, threads: int | None = None) -> Upscaler:
    """Recognize an upscaler's file; nothing is loaded yet. Raises ModelError, with the file's name, for one that is not known,
    and CheckpointError for a damaged one."""
    name = "the upscaler" if isinstance(source, Mapping) else os.fspath(source)
    tensors = graphc.open_checkpoint(source)
    try:
        network = network_of(tensors)
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from error
    return Upscaler(name, tensors, network, loaded or Loaded(), threads)


def enlarged_size(picture: Image.Image, scale: float) -> tuple[int, int]:
    """The width and height that a picture gets, multiples of 8 (A1111). Raises SettingError."""
    if not 0 < scale <= 16:
        raise SettingError(f"scale: {scale!r} is not a number above 0, up to 16")
    width, height = (max(int(side * scale // 8 * 8), 8) for side in picture.size)
    return width, height


def unshuffled(array: np.ndarray, unit: int) -> np.ndarray:
    """Squares of so many elements as one with more channels: PyTorch's pixel_unshuffle of [batch, channels, height, width]."""
    batch, channels, height, width = array.shape
    cut = array.reshape(batch, channels, height // unit, unit, width // unit, unit)
    return cut.transpose(0, 1, 3, 5, 2, 4).reshape(batch, channels * unit**2, height // unit, width // unit)


def shuffled(array: np.ndarray, unit: int) -> np.ndarray:
    """The other way: PyTorch's pixel_shuffle."""
    batch, channels, height, width = array.shape
    cut = array.reshape(batch, channels // unit**2, unit, unit, height, width)
    return cut.transpose(0, 1, 4, 2, 5, 3).reshape(batch, channels // unit**2, height * unit, width * unit)
