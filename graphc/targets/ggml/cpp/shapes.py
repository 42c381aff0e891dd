"""The comments that say shapes, in the model's order of axes; where callers differ, a letter stands for the size."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.shapes import Dim
from graphc.targets.ggml.cpp.names import comment, short

LETTERS = "NCHWDEFGJKLMPQRSTUVXYZAB"


class ShapeComments:
    """The shape comments of one function and the sizes that its letters stand for."""

    def __init__(self) -> None:
        self._letters: dict[tuple[str, ...], str] = {}

    def shape(self, shapes: Sequence[Sequence[Dim]]) -> str:
        """The shape that each caller's tensor has: "[1, N, 320]"; of different ranks, the axes that all have."""
        rank = min(map(len, shapes))
        sizes = [self._size(sizes) for sizes in zip(*(shape[len(shape) - rank :] for shape in shapes), strict=True)]
        return f"[{', '.join(['...'] * any(len(shape) > rank for shape in shapes) + sizes)}]"

    def legend(self) -> list[str]:
        """A line for each letter, with its values in the order of the callers, each value once."""
        return [f"{letter} is {', '.join(dict.fromkeys(values))}" for values, letter in self._letters.items()]

    def _size(self, sizes: Sequence[Dim]) -> str:
        values = tuple(comment(short(str(size))) for size in sizes)
        if len(set(values)) == 1:
            return values[0]
        if values not in self._letters:
            position = len(self._letters)
            self._letters[values] = LETTERS[position % len(LETTERS)] * (1 + position // len(LETTERS))
        return self._letters[values]
