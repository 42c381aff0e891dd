"""Operators that write elements at computed indices into a copy of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.types import BF16, F16, I64, TensorType
from graphc.ops.base import Op
from graphc.ops.indexing import (
    along,
    check_axis,
    check_indices,
    check_inside,
    counted_from_front,
    tuple_at,
    tuples,
    wrapped,
)
from graphc.shapes import Dim

if TYPE_CHECKING:
    from graphc.targets.kernels.scalar import Kernel, Reduction, Scalar


@dataclass(frozen=True)
class Update:
    """How updates that meet at one element combine: NumPy's function, the loop's, and what to combine."""

    numpy: Any
    loop: Reduction
    combine: Callable[[Scalar, Scalar], Scalar]


REDUCTIONS: dict[str, Update | None] = {
    "none": None,
    "add": Update(np.add, "sum", lambda a, b: a + b),
    "mul": Update(np.multiply, "prod", lambda a, b: a * b),
    "max": Update(np.maximum, "max", lambda a, b: a.maximum(b)),
    "min": Update(np.minimum, "min", lambda a, b: a.minimum(b)),
}
"""By ONNX's name. "none" keeps the last update."""


def _write(data: np.ndarray, place: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str) -> np.ndarray:
    row = REDUCTIONS[reduction]
    wide = np.dtype(np.float32) if data.dtype in (F16, BF16) else data.dtype
    result = data.astype(wide)
    with np.errstate(all="ignore"):
        if row is None:
            result[place] = updates
        else:
            row.numpy.at(result, place, updates.astype(wide))
        return np.asarray(result.astype(data.dtype))


def _check(name: str, reduction: str, data: TensorType, updates: TensorType, shape: Sequence[Dim]) -> None:
    if reduction not in REDUCTIONS:
        raise ShapeError(f"{name}: there is no reduction {reduction!r}")
    if updates.dtype != data.dtype:
        raise ShapeError(f"{name}: updates of {updates.dtype.name} for data of {data.dtype.name}")
    if updates.shape != tuple(shape):
        raise ShapeError(f"{name}: updates {updates}, where [{', '.join(map(str, shape))}] is expected")


def _combined(
    k: Kernel,
    reduction: str,
    extents: Sequence[Dim],
    hits: Callable[[Sequence[Scalar]], Scalar],
    old: Scalar,
    update: Callable[[Sequence[Scalar]], Scalar],
) -> Scalar:
    """The old element with every update combined for which `hits` holds; `extents` are the updates' places."""
    row = REDUCTIONS[reduction]
    if row is not None:
        neutral = {"sum": k.const(0, old.dtype), "prod": k.const(1, old.dtype)}.get(row.loop, old)
        return row.combine(old, k.reduce(row.loop, extents, lambda at: k.select(hits(at), update(at), neutral)))

    def place(at: Sequence[Scalar]) -> Scalar:
        flat = k.const(0, I64)
        for i, extent in zip(at, extents, strict=True):
            flat = flat * extent + i
        return flat

    last = k.reduce("max", extents, lambda at: k.select(hits(at), place(at), -1))
    rest = last.maximum(0)
    found: list[Scalar] = []
    for extent in reversed(extents):
        found.insert(0, rest % extent)
        rest = rest // extent
    return k.select(last >= 0, update(found), old)


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

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """A search along the axis for the updates of this element."""
        data, indices, _ = inputs
        old = k.load(0, index)
        if indices.size == 0:
            return old

        def at(i: Sequence[Scalar]) -> list[Scalar]:
            return [*index[: self.axis], *i, *index[self.axis + 1 :]]

        def hits(i: Sequence[Scalar]) -> Scalar:
            number, inside = wrapped(k, k.load(1, at(i)), data.shape[self.axis])
            return k.require(inside, number.eq(index[self.axis]), "ScatterElements: an index is out of range")

        extents = [indices.shape[self.axis]]
        new = _combined(k, self.reduction, extents, hits, old, lambda i: k.load(2, at(i)))
        reached = k.const(True, np.dtype(np.bool_))
        for axis, (i, count, size) in enumerate(zip(index, indices.shape, data.shape, strict=True)):
            if axis != self.axis and count != size:
                reached = reached.and_(i < count)
        return k.select(reached, new, old)


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
        return (_write(data, tuples(self.name, data.shape, indices), updates, self.reduction),)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """A search through all tuples for the updates of this element."""
        data, indices, _ = inputs
        old = k.load(0, index)
        if indices.size == 0:
            return old
        depth = int(indices.shape[-1])  # type: ignore[arg-type]

        def hits(at: Sequence[Scalar]) -> Scalar:
            place, inside = tuple_at(k, 1, at, indices, data.shape)
            same = k.const(True, np.dtype(np.bool_))
            for here, there in zip(index, place, strict=False):
                same = same.and_(here.eq(there))
            return k.require(inside, same, "ScatterND: an index is out of range")

        extents = indices.shape[:-1]
        return _combined(k, self.reduction, extents, hits, old, lambda at: k.load(2, [*at, *index[depth:]]))
