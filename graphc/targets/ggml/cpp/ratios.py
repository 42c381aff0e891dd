"""A size as a product of an operand's sizes: how a shared function gets sizes that differ between its callers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

from graphc.shapes import Dim, product
from graphc.targets.ggml.program.tensor import Quad

Candidate: TypeAlias = tuple[Any, Sequence[Quad]]
"""An operand, and its sizes for each caller."""


@dataclass(frozen=True)
class SizeOf:
    """`factor` times the operand's sizes along `axes` (ggml's order), divided by `divisor` without a rest."""

    operand: Any
    axes: tuple[int, ...]
    factor: int = 1
    divisor: int = 1

    def text(self, variable: str) -> str:
        """The C++ expression, as an operand of any operator but a product or quotient."""
        factors = [f"{variable}->ne[{axis}]" for axis in self.axes]
        if self.factor != 1:
            factors.insert(0, str(self.factor))
        return " * ".join(factors) + (f" / {self.divisor}" if self.divisor != 1 else "")


def express(values: Sequence[Dim], candidates: Sequence[Candidate], axis: int = -1) -> SizeOf | None:
    """The simplest such product that has all of the values, or None; of several, the size of the first operand along `axis`."""
    for operand, shapes in candidates[:1] if axis >= 0 else ():
        if all(value == ne[axis] for value, ne in zip(values, shapes, strict=True)):
            return SizeOf(operand, (axis,))
    for count in (1, 2, 3):
        for operand, shapes in candidates:
            for axes, sizes in _products(shapes, count):
                if all(a == b for a, b in zip(values, sizes, strict=True)):
                    return SizeOf(operand, axes)
    for count in (1, 2, 3):
        for operand, shapes in candidates:
            for axes, sizes in _products(shapes, count):
                factor = _ratio(values, sizes)
                if factor is not None:
                    return SizeOf(operand, axes, factor=factor)
                divisor = _ratio(sizes, values)
                if divisor is not None:
                    return SizeOf(operand, axes, divisor=divisor)
    return None


def _products(shapes: Sequence[Quad], count: int) -> Iterator[tuple[tuple[int, ...], list[Dim]]]:
    for axes in combinations(range(4), count):
        if all(any(ne[axis] != 1 for ne in shapes) for axis in axes):
            yield axes, [product(ne[axis] for axis in axes) for ne in shapes]


def _ratio(above: Sequence[Dim], below: Sequence[Dim]) -> int | None:
    """The whole number that every size above is times the one below it."""
    if below[0] == 0:
        return None
    factor = above[0] // below[0]
    if not isinstance(factor, int) or factor < 1:
        return None
    return factor if all(a == factor * b for a, b in zip(above, below, strict=True)) else None
