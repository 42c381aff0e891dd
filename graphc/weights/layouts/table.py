"""The engine of the tables: names and elements of a component, from the layout that a checkpoint has to the one we use.

A table is rows of (their pattern, our pattern, steps…). A pattern is a name, or its first parts at the dots: what follows is the
same on both sides. An empty one fits any name. `*` stands for a number, the same on both sides, and `$` for the highest number
that names have there. Of several patterns that match a name, the longest counts. Several rows may take from one tensor; of
several that give a name of ours, the first counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import Protocol, TypeAlias, Union

import numpy as np

from graphc.weights.formats.blocks import Blocks, joined
from graphc.weights.formats.scaled import Scaled

Array: TypeAlias = Union[np.ndarray, Blocks, Scaled]


class Step(Protocol):
    """What happens to a tensor on its way from their layout to ours."""

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the result. Raises ValueError if a tensor of this shape cannot take the step."""

    def apply(self, array: Array) -> Array:
        """The result: a view where that is possible."""


@dataclass(frozen=True)
class Rows:
    """Rows (the first axis) of a tensor that has several of ours one below the other: from `start` to `stop` of `parts`."""

    start: int
    stop: int
    parts: int

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Rows in equal parts."""
        if not shape or shape[0] % self.parts:
            raise ValueError(f"{list(shape)} does not have rows of {self.parts} equal parts")
        return (shape[0] // self.parts * (self.stop - self.start), *shape[1:])

    def apply(self, array: Array) -> Array:
        """A view."""
        each = array.shape[0] // self.parts
        return array[each * self.start : each * self.stop]


@dataclass(frozen=True)
class SwapHalves:
    """The second half of the rows before the first: their (shift, scale) is our (scale, shift)."""

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The same."""
        return Rows(0, 2, 2).shape(shape)

    def apply(self, array: Array) -> Array:
        """A copy."""
        half = array.shape[0] // 2
        return joined([array[half:], array[:half]])


@dataclass(frozen=True)
class Flat:
    """A convolution of 1 x 1 as a matrix; what has fewer axes stays as it is."""

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The first two axes."""
        if prod(shape[2:]) != 1:
            raise ValueError(f"{list(shape)} is not a convolution of 1 x 1")
        return shape[:2]

    def apply(self, array: Array) -> Array:
        """A view."""
        return array.reshape(array.shape[:2])


@dataclass(frozen=True)
class Transposed:
    """A matrix with its axes exchanged."""

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Columns by rows."""
        if len(shape) != 2:
            raise ValueError(f"{list(shape)} is not a matrix")
        return shape[::-1]

    def apply(self, array: Array) -> Array:
        """A view."""
        return np.asarray(array).T


@dataclass(frozen=True)
class AsRow:
    """A vector as a matrix of one row: GGUF leaves out axes of size 1. A matrix stays as it is."""

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """One row."""
        return (1, *shape) if len(shape) == 1 else shape

    def apply(self, array: Array) -> Array:
        """A view."""
        return array.reshape(self.shape(array.shape))


@dataclass(frozen=True)
class Source:
    """Where a tensor of ours is from: a name of theirs, and what happens on the way."""

    name: str
    steps: tuple[Step, ...] = ()

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Our shape, of theirs. Raises ValueError if theirs cannot be right."""
        found = tuple(shape)
        for step in self.steps:
            found = step.shape(found)
        return found

    def array(self, array: Array) -> Array:
        """Our elements, of theirs: a view where that is possible."""
        for step in self.steps:
            array = step.apply(array)
        return array


@dataclass(frozen=True)
class Row:
    """A pattern of theirs, what it is called by us, and the steps."""

    theirs: str
    ours: str
    steps: tuple[Step, ...] = ()


def rows(*given: tuple[str, str] | tuple[str, str, Step]) -> tuple[Row, ...]:
    """Rows of a table, written as tuples."""
    return tuple(Row(theirs, ours, tuple(steps)) for theirs, ours, *steps in given)


def under(theirs: str, ours: str, given: Iterable[Row]) -> tuple[Row, ...]:
    """The rows of a module that lies there in their layout and here in ours."""
    return tuple(Row(f"{theirs}.{row.theirs}", f"{ours}.{row.ours}", row.steps) for row in given)


def stacked(theirs: str, *ours: str) -> tuple[Row, ...]:
    """A tensor that has several of ours, of as many rows each, one below the other."""
    return tuple(Row(theirs, name, (Rows(index, index + 1, len(ours)),)) for index, name in enumerate(ours))


@dataclass(frozen=True)
class Table:
    """A component's rows. `spare` are patterns of modules of ours that a model may lack as a whole, and `idle` of those that
    files have and nobody reads: what is there changes nothing."""

    rows: tuple[Row, ...]
    spare: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()

    def images(self, theirs: Iterable[str]) -> list[tuple[Row, str, str]]:
        """Of every name of theirs that a row knows, each name of ours: (row, theirs, ours), in the order of the rows."""
        names = list(theirs)
        finder = self._finder(names, "theirs")
        found = [(row, name, ours) for name in names for row, ours in finder.all(name, "ours")]
        places = {row: place for place, row in enumerate(self.rows)}
        return sorted(found, key=lambda each: places[each[0]])

    def ours(self, theirs: Iterable[str]) -> dict[str, Source]:
        """Every tensor of ours that comes from names of theirs; a name that no row knows is left out."""
        return {ours: Source(name, row.steps) for row, name, ours in reversed(self.images(theirs))}

    def theirs(self, ours: Iterable[str]) -> dict[str, Source]:
        """Where each of our names is from, for those that a row knows."""
        names = list(ours)
        finder = self._finder(names, "ours")
        found = ((name, next(finder.all(name, "theirs"), None)) for name in names)
        return {name: Source(each[1], each[0].steps) for name, each in found if each is not None}

    def _finder(self, names: Sequence[str], side: str) -> _Finder:
        lasts = [_last(getattr(row, side), names) for row in self.rows]
        return _finder(self.rows, tuple(lasts), side)


def modules(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Expressions for the names of modules with these patterns; `names` are those among which `$` is the highest number."""
    names = list(names)
    return [re.escape(each.replace("$", _last(each, names))).replace(r"\*", r"\d+") for each in patterns]


def _last(pattern: str, names: Iterable[str]) -> str:
    """The highest number that a name has where the pattern has `$`."""
    if "$" not in pattern:
        return ""
    counted = re.compile(re.escape(pattern.partition("$")[0]) + r"(\d{1,9})\.")
    return str(max((int(found[1]) for name in names if (found := counted.match(name))), default=0))


class _Finder:
    """The rows that match a name on one side: one expression for all, the longest patterns first."""

    def __init__(self, rows: Sequence[Row], lasts: Sequence[str], side: str) -> None:
        self.groups: dict[str, list[tuple[Row, str]]] = {}
        for row, last in zip(rows, lasts, strict=True):
            self.groups.setdefault(getattr(row, side).replace("$", last), []).append((row, last))
        self.patterns = sorted(self.groups, key=lambda each: (-len(each), each.count("*")))
        self.expression = re.compile(
            "|".join(
                rf"({re.escape(each)})".replace(r"\*", r"(\d+)") + (r"(?=\.|$)" if each else "")
                for each in self.patterns
            )
        )
        self.starts = list(accumulate((1 + each.count("*") for each in self.patterns), initial=1))

    def all(self, name: str, other: str) -> Iterator[tuple[Row, str]]:
        """The rows that a name matches, and what each calls it on the other side."""
        found = self.expression.match(name)
        if found is None:
            return
        assert found.lastindex is not None
        pattern = self.patterns[self.starts.index(found.lastindex)]
        stars = found.groups()[found.lastindex : found.lastindex + pattern.count("*")]
        for row, last in self.groups[pattern]:
            first, *parts = getattr(row, other).replace("$", last).split("*")
            renamed = "".join(star + part for star, part in zip(stars, parts, strict=True))
            yield row, first + renamed + name[found.end() :]


@lru_cache(maxsize=64)
def _finder(rows: tuple[Row, ...], lasts: tuple[str, ...], side: str) -> _Finder:
    return _Finder(rows, lasts, side)


SAME = Table(rows(("", "")))
"""Names that are ours already."""
