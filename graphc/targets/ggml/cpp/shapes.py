"""The comments that say shapes, in the model's order of axes; where callers differ, a letter stands for the size."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.shapes import Dim
from graphc.targets.ggml.cpp.names import comment, short

AXES = {1: "C", 2: "NC", 3: "NLC", 4: "NCHW"}
"""The letters of a shape's axes: images and their channels, lengths of sequences, heights and widths."""

OTHER = "D"
"""The letter of any other axis."""


class ShapeComments:
    """The shape comments of one function and the sizes that its letters stand for."""

    def __init__(self) -> None:
        self._letters: dict[tuple[str, ...], str] = {}

    def shape(self, shapes: Sequence[Sequence[Dim]]) -> str:
        """The shape that each caller's tensor has: "[1, C, H, W]"; of different ranks, the axes that all have."""
        rank = min(map(len, shapes))
        columns = zip(*(shape[len(shape) - rank :] for shape in shapes), strict=True)
        axes = AXES.get(rank, OTHER * rank)
        sizes = [self._size(column, letter) for column, letter in zip(columns, axes, strict=True)]
        return f"[{', '.join(['...'] * any(len(shape) > rank for shape in shapes) + sizes)}]"

    def legend(self) -> list[str]:
        """A line for each letter, with its values in the order of the callers, each value once."""
        return [f"{letter} is {', '.join(dict.fromkeys(values))}" for values, letter in self._letters.items()]

    def _size(self, sizes: Sequence[Dim], letter: str) -> str:
        """The size that all have, or else the letter of their axis; with a number where it stands for other sizes."""
        values = tuple(comment(short(str(size))) for size in sizes)
        if len(set(values)) == 1:
            return values[0]
        if values not in self._letters:
            number = 1 + sum(each.rstrip("0123456789") == letter for each in self._letters.values())
            self._letters[values] = letter if number == 1 else f"{letter}{number}"
        return self._letters[values]
