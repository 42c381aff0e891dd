"""Pictures as words among those of a text, for a language model that sees: Qwen2.5-VL.

A picture is cut into patches of 14 x 14 pixels, four of which become a word. The engine takes them window by window; a window has
8 x 8 of them, or fewer at the picture's ends.

Source: Bai et al., Qwen2.5-VL Technical Report (2025), section 2.1; transformers' Qwen2VLImageProcessor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, sqrt

import numpy as np
from PIL import Image

from graphc_images.errors import SettingError

PATCH, MERGED, WINDOW = 14, 2, 4
"""Pixels of a patch's side, patches of a word's, and words of a window's."""

UNIT = PATCH * MERGED
LEAST, MOST = 56 * 56, 12_845_056
"""Pixels of a picture as it is looked at (preprocessor_config.json of Qwen-Image-Edit)."""

MEANS = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
DEVIATIONS = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
"""Of the colours red, green and blue, 0 to 1; those of CLIP."""

SEEN = 151655
"""The token that a picture's words stand for (`<|image_pad|>`)."""

LONGEST = 200
"""How many times longer than wide a picture may be."""


@dataclass(frozen=True)
class Look:
    """A picture to look at: its colours [3, height, width], whose sides are multiples of 28 pixels. Two are equal if all of these
    are, which `digest` tells, and the `number` that the text calls it by, 0 for none."""

    digest: str
    number: int
    colours: np.ndarray = field(compare=False, repr=False)

    @property
    def grid(self) -> tuple[int, int]:
        """How many words it is, down and across."""
        return self.colours.shape[1] // UNIT, self.colours.shape[2] // UNIT

    @property
    def words(self) -> int:
        """How many words it is."""
        return self.grid[0] * self.grid[1]


def look_at(picture: Image.Image, number: int = 0) -> Look:
    """A picture as Qwen looks at it, called by a number or none. Raises SettingError for one that is too narrow."""
    sized = picture.convert("RGB").resize(size_of(*picture.size), Image.Resampling.BICUBIC)
    return look_of(np.asarray(sized, np.float32) / np.float32(255), number)


def look_of(pixels: np.ndarray, number: int = 0) -> Look:
    """The same of pixels [height, width, 3], 0 to 1, in such a size."""
    colours = np.ascontiguousarray(((pixels - MEANS) / DEVIATIONS).transpose(2, 0, 1), np.float32)
    return Look(hashlib.sha256(repr(colours.shape).encode() + colours.tobytes()).hexdigest(), number, colours)


def size_of(width: int, height: int) -> tuple[int, int]:
    """The size at which a picture is looked at: multiples of 28 pixels, not too few and not too many. Raises SettingError for one
    that is too narrow."""
    if max(width, height) > LONGEST * min(width, height):
        raise SettingError(f"{width} x {height}: such a picture is too narrow to be looked at")
    sides = [round(side / UNIT) * UNIT for side in (width, height)]
    rounded: Callable[[float], int] = floor
    pixels, wanted = sides[0] * sides[1], 0
    if pixels > MOST:
        wanted = MOST
    elif pixels < LEAST:
        wanted, rounded = LEAST, ceil
    if wanted:
        scale = sqrt(wanted / (width * height))
        sides = [max(rounded(side * scale / UNIT), 1) * UNIT for side in (width, height)]
    return sides[0], sides[1]


def windows(look: Look) -> dict[str, np.ndarray]:
    """What the engine takes: of each window the patches' colours [windows, 64, 588], their rows and columns [windows, 64, 2], and
    1 where there is a patch, else 0 [windows, 64]."""
    rows, columns = look.grid
    tall, wide = rows * MERGED, columns * MERGED
    patches = look.colours.reshape(3, tall, PATCH, wide, PATCH).transpose(1, 3, 0, 2, 4).reshape(tall, wide, -1)
    places = np.stack(np.meshgrid(np.arange(tall), np.arange(wide), indexing="ij"), -1).astype(np.float32)
    return {
        "patches": _windowed(patches),
        "places": _windowed(places),
        "present": np.ascontiguousarray(_windowed(np.ones((tall, wide, 1), np.float32))[..., 0]),
    }


def words_of(found: np.ndarray, look: Look) -> np.ndarray:
    """The words [words, width], row by row, of what the engine gives for windows [windows, 16, width]."""
    rows, columns = look.grid
    down, across = ceil(rows / WINDOW), ceil(columns / WINDOW)
    whole = found.reshape(down, across, WINDOW, WINDOW, -1).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(
        whole.reshape(down * WINDOW, across * WINDOW, -1)[:rows, :columns].reshape(look.words, -1)
    )


def _windowed(patches: np.ndarray) -> np.ndarray:
    """Patches [rows, columns, numbers] by windows [windows, 64, numbers]: word by word, and of a word its four; zeros where there
    are none."""
    side = WINDOW * MERGED
    more = [(0, -length % side) for length in patches.shape[:2]]
    whole = np.pad(patches, (*more, (0, 0)))
    down, across = whole.shape[0] // side, whole.shape[1] // side
    cut = whole.reshape(down, WINDOW, MERGED, across, WINDOW, MERGED, -1).transpose(0, 3, 1, 4, 2, 5, 6)
    return np.ascontiguousarray(cut.reshape(down * across, side * side, -1))


def placed(ids: np.ndarray, looks: Sequence[Look]) -> np.ndarray:
    """Where each token of texts [texts, tokens] is: a moment, a row and a column [texts, tokens, 3]. A word's are its number; a
    picture's begin with that of its first word, and the text goes on behind its longer side."""
    found = np.empty((*ids.shape, 3), np.float32)
    for row, places in zip(ids, found, strict=True):
        token, number, left = 0, 0, list(looks)
        while token < len(row):
            if row[token] != SEEN or not left:
                places[token] = number
                token, number = token + 1, number + 1
                continue
            look = left.pop(0)
            rows, columns = look.grid
            own = places[token : token + look.words]
            own[:, 0] = number
            own[:, 1] = number + np.repeat(np.arange(rows), columns)
            own[:, 2] = number + np.tile(np.arange(columns), rows)
            token, number = token + look.words, number + max(rows, columns)
    return found


def inserted(ids: np.ndarray, words: Sequence[np.ndarray]) -> np.ndarray:
    """What was seen in the places of the tokens that stand for it [texts, tokens, width]; zeros elsewhere."""
    whole = np.concatenate(words)
    found = np.zeros((*ids.shape, whole.shape[1]), np.float32)
    for row, own in zip(ids, found, strict=True):
        (where,) = np.nonzero(row == SEEN)
        own[where[: len(whole)]] = whole
    return found
