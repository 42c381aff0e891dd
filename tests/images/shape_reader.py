"""Looks at a picture of coloured shapes and says what is in it: the test of what the small model paints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage

from examples.shapes.scenes import BACKGROUNDS, COLOURS, SHAPES, draw_shape

SMALLEST = 0.004
"""Of the picture's area: less is no shape but a speck."""
TEMPLATE = 64


@dataclass(frozen=True)
class Found:
    """A shape: what it is most like, its centre and its height as parts of the side, and how alike it is (0 to 1)."""

    colour: str
    shape: str
    x: float
    y: float
    height: float
    likeness: float


def background_of(image: Image.Image) -> str:
    """The background that the picture's edges are most like."""
    pixels = np.asarray(image.convert("RGB"), np.float32)
    edge = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    return min(BACKGROUNDS, key=lambda name: float(np.abs(np.median(edge, 0) - BACKGROUNDS[name]).sum()))


def shapes_in(image: Image.Image) -> list[Found]:
    """The shapes, from left to right. Shapes of two colours that touch are two; of one colour, one."""
    pixels = np.asarray(image.convert("RGB"), np.float32)
    palette = {**COLOURS, **{f"background {name}": value for name, value in BACKGROUNDS.items()}}
    distances = np.stack([np.abs(pixels - np.float32(value)).sum(-1) for value in palette.values()])
    nearest = distances.argmin(0)
    names = list(palette)
    found = []
    for number, name in enumerate(names):
        if name in COLOURS:
            mask = ndimage.binary_opening(nearest == number)
            labels, _ = ndimage.label(mask)
            for index, place in enumerate(ndimage.find_objects(labels), 1):
                part = labels[place] == index
                if part.sum() >= SMALLEST * mask.size:
                    found.append(_shape(name, part, place, mask.shape))
    return sorted(found, key=lambda each: each.x)


def _shape(colour: str, part: np.ndarray, place: tuple[slice, slice], sides: tuple[int, int]) -> Found:
    down, across = place
    scaled = Image.fromarray(part.astype(np.uint8) * 255).resize((TEMPLATE, TEMPLATE))
    filled = np.asarray(scaled) > 127
    likeness = {name: _overlap(filled, template) for name, template in TEMPLATES.items()}
    best = max(likeness, key=lambda name: likeness[name])
    x, y = (across.start + across.stop) / 2 / sides[1], (down.start + down.stop) / 2 / sides[0]
    return Found(colour, best, x, y, (down.stop - down.start) / sides[0], likeness[best])


def _overlap(a: np.ndarray, b: np.ndarray) -> float:
    return float((a & b).sum() / max((a | b).sum(), 1))


def _template(shape: str) -> np.ndarray:
    image = Image.new("L", (256, 256))
    draw_shape(ImageDraw.Draw(image), shape, 128, 128, 100, 255)
    box = image.getbbox()
    assert box is not None
    return np.asarray(image.crop(box).resize((TEMPLATE, TEMPLATE))) > 127


TEMPLATES = {shape: _template(shape) for shape in SHAPES}
