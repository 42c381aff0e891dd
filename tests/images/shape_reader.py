"""Looks at a picture of coloured shapes and says what is in it: the test of what the small model paints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage

from examples.shapes.scenes import BACKGROUNDS, COLOURS, PLACES, RELATIONS, SHAPES, Scene, Thing, draw_shape

SMALLEST = 0.004
"""Of the picture's area: less is not a shape but a speck."""
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


def differences(scene: Scene, image: Image.Image, counted: bool = True) -> list[str]:
    """What a picture has otherwise than the scene's caption says; nothing if it shows what was asked for. How many there are of
    a kind matters if they are `counted`."""
    seen = shapes_in(image)
    asked, found = (sorted((each.colour, each.shape) for each in things) for things in (scene.things, seen))
    if not counted:
        asked, found = sorted(set(asked)), sorted(set(found))
    wrong = [f"{found} and not {asked}"] if asked != found else []
    if not wrong:
        said = scene.caption
        for relation, (across, down) in RELATIONS.items():
            if f" {relation} " in said:
                first, second = ((near(thing, seen)) for thing in scene.things)
                if across * (second.x - first.x) + down * (second.y - first.y) >= 0:
                    wrong.append(f"not {relation}")
        for place, centre in PLACES.items():
            if place and said.removesuffix(f" on a {scene.background} background").endswith(place):
                wrong += [
                    f"not {place}"
                    for here, there in zip((seen[0].x, seen[0].y), centre, strict=True)
                    if there is not None and abs(here - there) > 0.15
                ]
    if f"on a {scene.background} background" in scene.caption and background_of(image) != scene.background:
        wrong.append(f"not on {scene.background}")
    return wrong


def near(thing: Thing, seen: list[Found]) -> Found:
    """The shape in a picture that has a thing's colour and shape."""
    return next(each for each in seen if (each.colour, each.shape) == (thing.colour, thing.shape))
