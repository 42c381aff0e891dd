"""Scenes of coloured shapes: what is in them, how they are described, how they are drawn.

A caption says some of a scene: colours, shapes, sizes, places, counts, the background. What it does not say is drawn by chance.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, pi, sin

import numpy as np
from PIL import Image, ImageDraw

COLOURS = {
    "red": (214, 39, 40),
    "orange": (255, 140, 20),
    "yellow": (245, 215, 40),
    "green": (44, 160, 60),
    "blue": (40, 90, 215),
    "purple": (140, 70, 190),
}
BACKGROUNDS = {"white": (245, 245, 245), "grey": (150, 150, 150), "black": (20, 20, 20)}
SHAPES = ("circle", "square", "triangle", "star", "cross")
SIZES = {"small": (0.11, 0.14), "": (0.16, 0.21), "large": (0.24, 0.29)}
"""Half the height of a shape, as a part of the picture's side: the least and the most."""
PLACES = {
    "": (None, None),
    "on the left": (0.25, None),
    "on the right": (0.75, None),
    "at the top": (None, 0.25),
    "at the bottom": (None, 0.75),
    "in the middle": (0.5, 0.5),
    "in the top left corner": (0.25, 0.25),
    "in the top right corner": (0.75, 0.25),
    "in the bottom left corner": (0.25, 0.75),
    "in the bottom right corner": (0.75, 0.75),
}
RELATIONS = {"left of": (-1, 0), "right of": (1, 0), "above": (0, -1), "below": (0, 1)}
NUMBERS = {2: "two", 3: "three", 4: "four"}
GAP = 0.03
"""The least distance between shapes, and from the picture's edge, as a part of its side."""
SMOOTHING = 4
HELD_OUT = 8
"""One in so many scenes is never trained on."""


@dataclass(frozen=True)
class Thing:
    """A shape as a caption names it, and where it lies: its centre and half its height, as parts of the picture's side."""

    colour: str
    shape: str
    size: str
    x: float
    y: float
    radius: float

    @property
    def name(self) -> str:
        """With its size, where it is not the usual one."""
        return " ".join(filter(None, (self.size, self.colour, self.shape)))

    @property
    def phrase(self) -> str:
        """With its article."""
        return f"{'an' if self.name[0] == 'o' else 'a'} {self.name}"


@dataclass(frozen=True)
class Scene:
    """Things on a background. `meaning` is the same for captions that ask for the same."""

    things: tuple[Thing, ...]
    background: str
    caption: str
    meaning: str

    @property
    def held_out(self) -> bool:
        """True if it is kept for the test."""
        return zlib.crc32(self.meaning.encode()) % HELD_OUT == 0


@dataclass(frozen=True)
class Style:
    """How scenes are drawn: how much of a shape's middle is left out, as a part of its height."""

    hollow: float = 0.0


PLAIN, OUTLINES = Style(), Style(hollow=0.6)


def draw_scene(scene: Scene, side: int, style: Style = PLAIN) -> Image.Image:
    """The picture of a scene, `side` pixels wide and high."""
    large = side * SMOOTHING
    behind = BACKGROUNDS[scene.background]
    image = Image.new("RGB", (large, large), behind)
    pen = ImageDraw.Draw(image)
    for thing in scene.things:
        where = thing.shape, thing.x * large, thing.y * large
        draw_shape(pen, *where, thing.radius * large, COLOURS[thing.colour])
        if style.hollow:
            draw_shape(pen, *where, thing.radius * large * style.hollow, behind)
    return image.resize((side, side), Image.Resampling.BOX)


def draw_shape(
    pen: ImageDraw.ImageDraw, shape: str, x: float, y: float, radius: float, fill: tuple[int, int, int] | int
) -> None:
    """Draw a shape around (x, y), all in pixels."""
    if shape == "circle":
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)
    else:
        pen.polygon([(x + radius * across, y + radius * down) for across, down in outline(shape)], fill=fill)


def outline(shape: str) -> Sequence[tuple[float, float]]:
    """The corners of a shape of radius 1 around 0."""
    if shape == "square":
        return [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]
    if shape == "triangle":
        return [(0, -1), (1, 0.85), (-1, 0.85)]
    if shape == "star":
        turns = [(index * pi / 5 - pi / 2, 1.08 if index % 2 == 0 else 0.45) for index in range(10)]
        return [(length * cos(turn), length * sin(turn) + 0.06) for turn, length in turns]
    arm = 0.34
    quarter = [(-arm, -1.0), (arm, -1.0), (arm, -arm)]
    turned = [(-y, x) for x, y in quarter]
    return [*quarter, *turned, *((-x, -y) for x, y in quarter), *((-x, -y) for x, y in turned)]


def random_scene(random: np.random.Generator) -> Scene:
    """One thing, two things with a relation between them, or several of a kind."""
    kind = random.choice(("one", "pair", "count"), p=(0.3, 0.45, 0.25))
    while True:
        scene = {"one": _one, "pair": _pair, "count": _count}[kind](random)
        if scene is not None:
            return scene


def scenes(seed: int, held_out: bool = False) -> Iterator[Scene]:
    """Scenes without an end: those that are trained on, or those that are not."""
    random = np.random.default_rng(seed)
    while True:
        scene = random_scene(random)
        if scene.held_out == held_out:
            yield scene


def _one(random: np.random.Generator) -> Scene | None:
    place = str(random.choice(list(PLACES)))
    size = str(random.choice(list(SIZES), p=(0.25, 0.5, 0.25)))
    x, y = (random.uniform(0.3, 0.7) if near is None else near + random.uniform(-0.04, 0.04) for near in PLACES[place])
    thing = _thing(random, size, x, y)
    if not _fits([thing]):
        return None
    return _scene(random, [thing], f"{thing.phrase} {place}".strip(), f"{thing.name} {place}")


def _pair(random: np.random.Generator) -> Scene | None:
    relation = str(random.choice(["", *RELATIONS], p=(0.12, 0.22, 0.22, 0.22, 0.22)))
    across, down = RELATIONS.get(relation, (0, 0))
    sizes = random.choice(list(SIZES), size=2, p=(0.15, 0.75, 0.1))
    distance = random.uniform(0.21, 0.27)
    if relation:
        aside = random.uniform(-0.06, 0.06)
        first = (0.5 + across * distance + down * aside, 0.5 + down * distance + across * aside)
        second = (1 - first[0], 1 - first[1])
    else:
        first, second = random.uniform(0.2, 0.8, (2, 2))
    a, b = _thing(random, str(sizes[0]), *first), _thing(random, str(sizes[1]), *second)
    if not _fits([a, b]) or (a.colour, a.shape) == (b.colour, b.shape):
        return None
    pair = sorted((a.name, b.name))
    if not relation:
        return _scene(random, [a, b], f"{a.phrase} and {b.phrase}", " and ".join(pair))
    order = (a.name, b.name) if relation in ("left of", "above") else (b.name, a.name)
    axis = " left of " if across else " above "
    return _scene(random, [a, b], f"{a.phrase} {relation} {b.phrase}", axis.join(order))


def _count(random: np.random.Generator) -> Scene | None:
    number = int(random.choice(list(NUMBERS)))
    first = _thing(random, "small" if number == 4 else str(random.choice(["small", ""])), 0, 0)
    things: list[Thing] = []
    for _ in range(40):
        x, y = random.uniform(0.1, 0.9, 2)
        thing = Thing(first.colour, first.shape, first.size, float(x), float(y), first.radius)
        if _fits([*things, thing]):
            things.append(thing)
        if len(things) == number:
            named = f"{NUMBERS[number]} {first.colour} {first.shape}{'es' if first.shape == 'cross' else 's'}"
            return _scene(random, things, named, named)
    return None


def _thing(random: np.random.Generator, size: str, x: float, y: float) -> Thing:
    colour, shape = str(random.choice(list(COLOURS))), str(random.choice(SHAPES))
    return Thing(colour, shape, size, float(x), float(y), float(random.uniform(*SIZES[size])))


def _fits(things: Sequence[Thing]) -> bool:
    inside = all(each.radius + GAP <= min(each.x, each.y, 1 - each.x, 1 - each.y) for each in things)
    return inside and all(
        max(abs(a.x - b.x), abs(a.y - b.y)) >= a.radius + b.radius + GAP
        for number, a in enumerate(things)
        for b in things[:number]
    )


def _scene(random: np.random.Generator, things: Sequence[Thing], said: str, meaning: str) -> Scene:
    background = "white" if random.random() < 0.7 else str(random.choice(list(BACKGROUNDS)))
    if background != "white" or random.random() < 0.1:
        said, meaning = f"{said} on a {background} background", f"{meaning} on {background}"
    start = str(random.choice(["", "a picture of ", "a drawing of "], p=(0.8, 0.1, 0.1)))
    return Scene(tuple(things), background, start + said, meaning)
