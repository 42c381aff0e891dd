"""Operators whose elements follow from their place: ranges, unit matrices, triangles and running sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.types import BF16, BOOL, F16, F32, F64, FLOATS, INTEGERS, TensorType
from graphc.ops.base import Op, Routine, lanes
from graphc.ops.indexing import check_axis
from graphc.ops.movement import static
from graphc.shapes import Dim, Expr, ceil_div, dim_max

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar


@dataclass(frozen=True)
class Range(Op):
    """`start + i * delta` up to but not including `limit`; no inputs. The numbers are sizes, or floats."""

    start: Dim | float
    limit: Dim | float
    delta: Dim | float
    dtype: np.dtype

    @property
    def count(self) -> Dim:
        """Number of elements. Raises ShapeError if the step is 0 or not known."""
        if isinstance(self.delta, Expr) or self.delta == 0:
            raise ShapeError(f"Range: the step is {self.delta}")
        if isinstance(self.start, float) or isinstance(self.limit, float) or isinstance(self.delta, float):
            if isinstance(self.start, Expr) or isinstance(self.limit, Expr):
                raise ShapeError(f"Range: from {self.start} to {self.limit} in steps of {self.delta}")
            count = (float(self.limit) - float(self.start)) / float(self.delta)
            if not math.isfinite(count):
                raise ShapeError(f"Range: from {self.start} to {self.limit} in steps of {self.delta}")
            return max(math.ceil(count), 0)
        span = self.limit - self.start
        return dim_max(ceil_div(span, self.delta) if self.delta > 0 else ceil_div(-span, -self.delta), 0)

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        if self.dtype not in FLOATS | INTEGERS:
            raise ShapeError(f"Range does not count in {self.dtype.name}")
        return (TensorType(self.dtype, (self.count,)),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (count,) = static((self.count,), "the number of elements")
        if isinstance(self.start, Expr):
            return (np.array([self.start + i * int(self.delta) for i in range(count)], dtype=object),)  # type: ignore[arg-type]
        wide: Any = self.dtype if self.dtype not in (F16, BF16) else F32
        start, delta = np.asarray(self.start).astype(wide), np.asarray(self.delta).astype(wide)
        with np.errstate(all="ignore"):
            return ((start + np.arange(count).astype(wide) * delta).astype(self.dtype),)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The number at this place."""
        if self.dtype in INTEGERS and not isinstance(self.start, float) and not isinstance(self.delta, float):
            return k.cast(k.size(self.start) + index[0] * self.delta, self.dtype)
        wide = F32 if self.dtype in (F16, BF16) else self.dtype
        start, delta = self.start, self.delta
        first = k.cast(k.size(start), wide) if isinstance(start, Expr) else k.const(start, wide)
        return k.cast(first + k.cast(index[0], wide) * k.const(delta, wide), self.dtype)  # type: ignore[arg-type]


@dataclass(frozen=True)
class EyeLike(Op):
    """Ones on the diagonal `k` (above the main one if positive) of a matrix of zeros; no inputs."""

    k: int
    dtype: np.dtype
    shape: tuple[Dim, ...]

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        if len(self.shape) != 2 or self.dtype not in FLOATS | INTEGERS | {BOOL}:
            raise ShapeError(f"EyeLike of {len(self.shape)} axes of {self.dtype.name}")
        return (TensorType(self.dtype, self.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        rows, columns = static(self.shape, "the shape")
        return (np.eye(rows, columns, k=self.k).astype(self.dtype),)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """One on the diagonal."""
        row, column = index
        return k.cast((column - row).eq(self.k), self.dtype)


@dataclass(frozen=True)
class Trilu(Op):
    """The part of each matrix (the last two axes) on and above the diagonal `k`, or on and below it; zeros elsewhere."""

    upper: bool
    k: int = 0

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if x.rank < 2:
            raise ShapeError(f"Trilu of {x}, which is no matrix")
        return (x,)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (x,) = inputs
        return (np.triu(x, self.k) if self.upper else np.tril(x, self.k),)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The element, or zero."""
        row, column = index[-2:]
        kept = column - row >= self.k if self.upper else column - row <= self.k
        return k.select(kept, k.load(0, index), k.const(0, inputs[0].dtype))


class Running:
    """What CumSum and CumProd share: totals along an axis; `exclusive` leaves out the element itself, `reverse` starts from
    the end. Those of floats are accumulated in float64."""

    axis: int
    exclusive: bool
    reverse: bool
    product: bool

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if x.dtype not in FLOATS | INTEGERS:
            raise ShapeError(f"{type(self).__name__} does not take {x.dtype.name}")
        check_axis(type(self).__name__, self.axis, x)
        return (x,)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (x,) = inputs
        wide = np.moveaxis(x.astype(F64) if x.dtype in FLOATS else x, self.axis, 0)
        wide = wide[::-1] if self.reverse else wide
        with np.errstate(all="ignore"):
            result = (np.multiply if self.product else np.add).accumulate(wide, dtype=wide.dtype)
            if self.exclusive:
                first = np.full((1, *result.shape[1:]), self.product, wide.dtype)
                result = np.concatenate([first, result])[:-1]
            result = np.moveaxis(result[::-1] if self.reverse else result, 0, self.axis)
            return (result.astype(F32 if x.dtype in (F16, BF16) else x.dtype).astype(x.dtype),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """A pass over each lane."""
        (x,) = inputs
        flags = (self.product, bool(self.exclusive), bool(self.reverse))
        return Routine("scan", "scan", (x.dtype,), (*lanes(x.shape, self.axis), *flags))


@dataclass(frozen=True)
class CumSum(Running, Op):
    """Running sums along an axis."""

    axis: int
    exclusive: bool = False
    reverse: bool = False

    product = False


@dataclass(frozen=True)
class CumProd(Running, Op):
    """Running products along an axis."""

    axis: int
    exclusive: bool = False
    reverse: bool = False

    product = True
