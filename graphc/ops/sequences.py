"""Operators whose elements follow from their place: ranges, unit matrices, triangles and running sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.types import BF16, BOOL, F16, F32, FLOATS, INTEGERS, TensorType
from graphc.ops.base import Op
from graphc.ops.indexing import check_axis
from graphc.ops.movement import static
from graphc.shapes import Dim, Expr, ceil_div, dim_max, is_static

if TYPE_CHECKING:
    from graphc.targets.ggml.builder import Builder
    from graphc.targets.ggml.program import Tensor
    from graphc.targets.kernels.scalar import Kernel, Scalar


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


@dataclass(frozen=True)
class CumSum(Op):
    """Running sums along an axis; `exclusive` leaves out the element itself, `reverse` starts from the end."""

    axis: int
    exclusive: bool = False
    reverse: bool = False

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if x.dtype not in FLOATS | INTEGERS:
            raise ShapeError(f"CumSum does not take {x.dtype.name}")
        check_axis(self.name, self.axis, x)
        return (x,)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (x,) = inputs
        wide = x.astype(np.float32) if x.dtype in (F16, BF16) else x
        wide = np.flip(wide, self.axis) if self.reverse else wide
        with np.errstate(all="ignore"):
            if self.exclusive:
                shifted = np.zeros_like(wide)
                moved, source = np.moveaxis(shifted, self.axis, 0), np.moveaxis(wide, self.axis, 0)
                moved[1:] = source[:-1]
                wide = shifted
            result = np.cumsum(wide, axis=self.axis, dtype=wide.dtype)
            return ((np.flip(result, self.axis) if self.reverse else result).astype(x.dtype),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_cumsum` along the innermost axis; `exclusive` puts a zero before."""
        x, type = inputs[0], b.types[0]
        size = type.shape[self.axis]
        if self.reverse or type.dtype != F32 or type.rank > 4 or not is_static(size):
            return None
        order = [*(axis for axis in range(type.rank) if axis != self.axis), self.axis]
        x = b.cont(b.transpose(x, order))
        if self.exclusive:
            padded = b.call("ggml_pad_ext", x, 1, 0, 0, 0, 0, 0, 0, 0, rank=x.rank)
            shifted = b.slice(padded, [0] * x.rank, x.shape, [1] * x.rank)
            if shifted is None:
                return None
            x = b.cont(shifted)
        result = b.call("ggml_cumsum", x, rank=x.rank)
        return b.transpose(result, [order.index(axis) for axis in range(type.rank)])

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The sum of the elements so far."""
        (x,) = inputs
        here = index[self.axis]
        wide = F32 if x.dtype in (F16, BF16) else x.dtype

        def body(at: Sequence[Scalar]) -> Scalar:
            (i,) = at
            counts = (
                (i > here if self.exclusive else i >= here)
                if self.reverse
                else (i < here if self.exclusive else i <= here)
            )
            value = k.cast(k.load(0, [*index[: self.axis], i, *index[self.axis + 1 :]]), wide)
            return k.select(counts, value, k.const(0, wide))

        return k.cast(k.reduce("sum", [x.shape[self.axis]], body), x.dtype)
