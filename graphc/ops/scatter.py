"""Operators that write elements at computed indices into a copy of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.types import NARROW, TensorType
from graphc.ops.base import Op, Routine, differing
from graphc.ops.indexing import along, check_axis, check_indices, check_inside, counted_from_front, tuples
from graphc.shapes import Dim, product

REDUCTIONS: dict[str, tuple[Any, str]] = {
    "none": (None, "GRAPHC_NONE"),
    "add": (np.add, "GRAPHC_ADD"),
    "mul": (np.multiply, "GRAPHC_MUL"),
    "max": (np.maximum, "GRAPHC_MAX"),
    "min": (np.minimum, "GRAPHC_MIN"),
}
"""How an update and the element that it meets combine, in NumPy and in `routines/reductions.h`. "none" keeps the last update;
NaN among the operands of a maximum or minimum is the result. Narrow floats are rounded after each update."""


def _write(data: np.ndarray, place: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str) -> np.ndarray:
    function, result = REDUCTIONS[reduction][0], data.copy()
    with np.errstate(all="ignore"):
        if function is None:
            result[place] = updates
        else:
            function.at(result, place, updates)
    return result


def _check(name: str, reduction: str, data: TensorType, updates: TensorType, shape: Sequence[Dim]) -> None:
    if reduction not in REDUCTIONS:
        raise ShapeError(f"{name}: there is no reduction {reduction!r}")
    if reduction != "none" and data.dtype in NARROW:
        raise ShapeError(f"{name}: {data.dtype.name} is not supported")
    if updates.dtype != data.dtype:
        raise ShapeError(f"{name}: updates of {updates.dtype.name} for data of {data.dtype.name}")
    if updates.shape != tuple(shape):
        expected = f"[{', '.join(map(str, shape))}]"
        raise ShapeError(f"{name}: updates {updates}, where {expected} is expected", differing(updates.shape, shape))


def _routine(function: str, name: str, data: TensorType, indices: TensorType, numbers: tuple[Any, ...]) -> Routine:
    types, fault = (data.dtype, indices.dtype), f"{name}: an index is out of range"
    return Routine("scatter", function, types, numbers, (fault,))


@dataclass(frozen=True)
class ScatterElements(Op):
    """One update for each index: along `axis` at the index, along the others at its own place."""

    axis: int
    reduction: str = "none"

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        data, indices, updates = inputs
        check_indices(self.name, indices)
        check_axis(self.name, self.axis, data)
        check_inside(self.name, self.axis, data, indices)
        _check(self.name, self.reduction, data, updates, indices.shape)
        return (data,)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        data, indices, updates = inputs
        numbers = counted_from_front(self.name, indices, data.shape[self.axis])
        return (_write(data, along(numbers, self.axis), updates, self.reduction),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """Update after update."""
        data, indices, _ = inputs
        numbers = (data.rank, data.shape, indices.shape, self.axis, REDUCTIONS[self.reduction][1])
        return _routine("scatter_elements", self.name, data, indices, numbers)


@dataclass(frozen=True)
class ScatterND(Op):
    """Slices written at the tuples of indices that the last axis of `indices` holds."""

    reduction: str = "none"

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        data, indices, updates = inputs
        check_indices(self.name, indices)
        depth = indices.shape[-1] if indices.rank else None
        if not isinstance(depth, int) or depth > data.rank:
            raise ShapeError(f"ScatterND: indices {indices} for data {data}")
        _check(self.name, self.reduction, data, updates, (*indices.shape[:-1], *data.shape[depth:]))
        return (data,)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        data, indices, updates = inputs
        place = tuples(self.name, data.shape, indices)
        if not place:  # empty tuples: every update is of all the data
            return (_write(data[None], (np.zeros(indices.shape[:-1], int),), updates, self.reduction)[0],)
        return (_write(data, place, updates, self.reduction),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """Slice after slice."""
        data, indices, _ = inputs
        depth = int(indices.shape[-1])  # type: ignore[arg-type]
        first, inner = data.shape[:depth], product(data.shape[depth:])
        numbers = (data.size, product(indices.shape[:-1]), depth, inner, first, REDUCTIONS[self.reduction][1])
        return _routine("scatter_slices", self.name, data, indices, numbers)
