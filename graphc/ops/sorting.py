"""Operators that find the largest or smallest elements of an axis and where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import FLOATS, I64, INTEGERS, TensorType
from graphc.ops.base import Emit, Op
from graphc.ops.indexing import GatherElements, check_axis
from graphc.ops.movement import static
from graphc.shapes import Dim

if TYPE_CHECKING:
    from graphc.targets.kernels.scalar import Kernel, Scalar


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
        keys = x.astype(np.float64) if x.dtype in FLOATS else x
        if self.largest:  # a stable ascending sort of the reversed axis, read backwards, is a stable descending one
            order = (
                x.shape[self.axis]
                - 1
                - np.flip(np.argsort(np.flip(keys, self.axis), self.axis, kind="stable"), self.axis)
            )
        else:
            order = np.argsort(keys, self.axis, kind="stable")
        places = np.take(order, np.arange(count), axis=self.axis).astype(np.int64)
        return np.take_along_axis(x, places, self.axis), places

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...] | None:
        """The rank of each element, the places of the first ranks, and the elements there."""
        (x,) = inputs
        places = emit(PlacesOfRanks(self.axis, self.k), emit(Ranks(self.axis, self.largest), x))
        return emit(GatherElements(self.axis), x, places), places


@dataclass(frozen=True)
class Ranks(Op):
    """How many elements of the axis come before each one when they are sorted, equal ones in their order."""

    axis: int
    largest: bool

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        check_axis(self.name, self.axis, x)
        return (TensorType(I64, x.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (x,) = inputs
        _, order = TopK(self.axis, x.shape[self.axis], self.largest).eval(x)
        return (np.argsort(order, self.axis).astype(np.int64),)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """A count of the elements that come before."""
        (x,) = inputs
        here = index[self.axis]
        mine = k.load(0, index)

        def before(at: Sequence[Scalar]) -> Scalar:
            other = k.load(0, [*index[: self.axis], at[0], *index[self.axis + 1 :]])
            better, tied = (other > mine if self.largest else other < mine), other.eq(mine)
            if x.dtype in FLOATS:
                other_nan, mine_nan = other.ne(other), mine.ne(mine)
                better = better.or_(
                    other_nan.and_(mine_nan.not_()) if self.largest else mine_nan.and_(other_nan.not_())
                )
                tied = tied.or_(other_nan.and_(mine_nan))
            return k.cast(better.or_(tied.and_(at[0] < here)), I64)

        return k.reduce("sum", [x.shape[self.axis]], before)


@dataclass(frozen=True)
class PlacesOfRanks(Op):
    """Where along the axis the ranks 0 to `count` - 1 are."""

    axis: int
    count: Dim

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        check_axis(self.name, self.axis, x)
        return (TensorType(I64, (*x.shape[: self.axis], self.count, *x.shape[self.axis + 1 :])),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (count,) = static((self.count,), "the count")
        places = np.argsort(inputs[0], self.axis)
        return (np.take(places, np.arange(count), axis=self.axis).astype(np.int64),)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """A search for the rank."""
        (x,) = inputs

        def place(at: Sequence[Scalar]) -> Scalar:
            rank = k.load(0, [*index[: self.axis], at[0], *index[self.axis + 1 :]])
            return k.select(rank.eq(index[self.axis]), at[0], k.const(0, I64))

        return k.reduce("max", [x.shape[self.axis]], place)
