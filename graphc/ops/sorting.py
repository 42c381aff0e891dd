"""Operators that find the largest or smallest elements of an axis and where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import InputError, ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import BOOL, F64, FLOATS, I64, INTEGERS, TensorType
from graphc.ops.base import Emit, Op, Routine, lanes
from graphc.ops.indexing import GatherElements, check_axis
from graphc.ops.movement import static
from graphc.shapes import Dim, is_static

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar


class Extreme:
    """What ArgMax and ArgMin share."""

    axis: int
    keepdims: bool
    select_last: bool
    largest: bool

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if x.dtype not in FLOATS | INTEGERS:
            raise ShapeError(f"{type(self).__name__} does not take {x.dtype.name}")
        check_axis(type(self).__name__, self.axis, x)
        if x.shape[self.axis] == 0:
            raise ShapeError(f"{type(self).__name__}: axis {self.axis} has no elements")
        kept: tuple[Dim, ...] = (1,) if self.keepdims else ()
        return (TensorType(I64, (*x.shape[: self.axis], *kept, *x.shape[self.axis + 1 :])),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (x,) = inputs
        wide = x.astype(np.float64) if x.dtype in FLOATS else x
        find = np.argmax if self.largest else np.argmin
        if self.select_last:
            found = x.shape[self.axis] - 1 - find(np.flip(wide, self.axis), axis=self.axis)
        else:
            found = find(wide, axis=self.axis)
        result = np.asarray(found, dtype=np.int64)
        return (np.expand_dims(result, self.axis) if self.keepdims else result,)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The extreme value first, then the first or last place that has it; NaN is more extreme than any number."""
        (x,) = inputs
        size = x.shape[self.axis]
        after = index[self.axis + 1 :] if self.keepdims else index[self.axis :]

        def value(i: Scalar) -> Scalar:
            return k.load(0, [*index[: self.axis], i, *after])

        best = k.reduce("max" if self.largest else "min", [size], lambda at: value(at[0]))

        def place(at: Sequence[Scalar]) -> Scalar:
            found = value(at[0])
            same = found.eq(best).or_(found.ne(found)) if x.dtype in FLOATS else found.eq(best)
            return k.select(same, at[0], k.const(-1, I64) if self.select_last else k.size(size))

        return k.reduce("max" if self.select_last else "min", [size], place)


@dataclass(frozen=True)
class ArgMax(Extreme, Op):
    """The first (or last) place of the largest element of an axis."""

    axis: int
    keepdims: bool = True
    select_last: bool = False

    largest = True


@dataclass(frozen=True)
class ArgMin(Extreme, Op):
    """The first (or last) place of the smallest element of an axis."""

    axis: int
    keepdims: bool = True
    select_last: bool = False

    largest = False


@dataclass(frozen=True)
class TopK(Op):
    """The `k` largest (or smallest) elements of an axis, best first, and their places; equal ones by place.

    NaN is larger than any number. They are in order whether or not `sorted` asks for it.
    """

    axis: int
    k: Dim
    largest: bool = True
    sorted: bool = True

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if x.dtype not in FLOATS | INTEGERS:
            raise ShapeError(f"TopK does not take {x.dtype.name}")
        check_axis(self.name, self.axis, x)
        size = x.shape[self.axis]
        if isinstance(self.k, int) and (self.k < 0 or (isinstance(size, int) and self.k > size)):
            raise ShapeError(f"TopK: {self.k} elements of axis {self.axis}, which has {size}")
        shape = (*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :])
        return TensorType(x.dtype, shape), TensorType(I64, shape)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (x,) = inputs
        (count,) = static((self.k,), "k")
        (places,) = ArgSort(self.axis, count, self.largest).eval(x)
        return np.take_along_axis(x, places, self.axis), places

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...] | None:
        """The places, and the elements there."""
        (x,) = inputs
        places = emit(ArgSort(self.axis, self.k, self.largest), x)
        return emit(GatherElements(self.axis), x, places), places


@dataclass(frozen=True)
class ArgSort(Op):
    """The places of the `count` smallest (or largest) elements of an axis in order, equal ones by place.

    NaN is larger than any number.
    """

    axis: int
    count: Dim
    largest: bool = False

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        check_sortable(self.name, x)
        check_axis(self.name, self.axis, x)
        size = x.shape[self.axis]
        if self.count != size and is_static(self.count, size) and not 0 <= self.count <= size:
            raise ShapeError(f"{self.name}: {self.count} elements of axis {self.axis}, which has {size}")
        return (TensorType(I64, (*x.shape[: self.axis], self.count, *x.shape[self.axis + 1 :])),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (count,) = static((self.count,), "the count")
        keys = np.moveaxis(sort_keys(inputs[0]), self.axis, 0)
        if count > len(keys):
            raise InputError(f"{self.name}: {SORT_FAULTS[0]}")
        if self.largest:  # a stable ascending order of the reversed axis, read backwards, is a stable descending one
            order = len(keys) - 1 - np.argsort(keys[::-1], 0, kind="stable")[::-1]
        else:
            order = np.argsort(keys, 0, kind="stable")
        return (np.moveaxis(order[:count], 0, self.axis).astype(I64),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """Each lane sorted."""
        (x,) = inputs
        numbers = (*lanes(x.shape, self.axis), 1, self.count, bool(self.largest))
        return Routine("sort", "sort", (x.dtype,), numbers, SORT_FAULTS)


@dataclass(frozen=True)
class ArgSortRows(Op):
    """The places of the rows of a matrix in ascending order, the first column counting most, equal ones by place.

    NaN is larger than any number.
    """

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        check_sortable(self.name, x)
        if x.rank != 2:
            raise ShapeError(f"ArgSortRows of {x}, which is no matrix")
        return (TensorType(I64, x.shape[:1]),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        columns = sort_keys(inputs[0]).T
        order = np.lexsort(columns[::-1]) if len(columns) else np.arange(columns.shape[1])
        return (order.astype(I64),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """The rows sorted."""
        (x,) = inputs
        rows, width = x.shape
        return Routine("sort", "sort", (x.dtype,), (1, rows, 1, width, rows, False), SORT_FAULTS)


SORT_FAULTS = ("there are fewer elements to sort than are asked for", "there is not enough memory to sort")
"""What a run that fails says."""


def check_sortable(name: str, x: TensorType) -> None:
    """Raise ShapeError for elements that have no order."""
    if x.dtype not in FLOATS | INTEGERS | {BOOL}:
        raise ShapeError(f"{name} does not take {x.dtype.name}")


def sort_keys(x: np.ndarray) -> np.ndarray:
    """The elements in a type in which NumPy orders them."""
    return x.astype(F64) if x.dtype in FLOATS else x
