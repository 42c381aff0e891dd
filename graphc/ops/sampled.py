"""Elements at places that are computed: what resizes, samplers and regions of images read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.types import F64, FLOATS, I32, I64, TensorType
from graphc.ops.base import Op

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar

MOST_TAPS = 16
"""Elements of a sum that are written out one by one."""


@dataclass(frozen=True)
class Sampled(Op):
    """Sums of elements along an axis: result[b, ..., i, ...] is the sum of counts[t, b, i] * x[b, ..., places[t, b, i], ...].

    Inputs: x, of floats; the places, int32 [taps, *b, count], where b are the first `batch` axes of x; how much each counts, of
    x's type, in the places' shape or with axes of 1 in it. Places beside the axis are those of its ends.
    """

    axis: int
    taps: int
    batch: int = 0

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See the class."""
        x, places, counts = inputs
        expected = (self.taps, *x.shape[: self.batch])
        if places.rank != self.batch + 2 or places.dtype != I32 or places.shape[:-1] != expected or self.taps < 1:
            raise ShapeError(f"Sampled: places {places} in {x}, {self.taps} for each, {self.batch} axes together")
        sizes = zip(counts.shape, places.shape, strict=False)
        if counts.rank != places.rank or counts.dtype != x.dtype or not all(size in (1, each) for size, each in sizes):
            raise ShapeError(f"Sampled: {counts} counts {places} of {x}")
        if x.dtype not in FLOATS or not self.batch <= self.axis < x.rank or x.shape[self.axis] == 0 != places.shape[-1]:
            raise ShapeError(f"Sampled: axis {self.axis} of {x}, where {self.batch} axes go together")
        return (TensorType(x.dtype, (*x.shape[: self.axis], places.shape[-1], *x.shape[self.axis + 1 :])),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float64."""
        x, places, counts = inputs
        lines = np.moveaxis(x, self.axis, -1).astype(F64)
        spread = (..., *[None] * (lines.ndim - 1 - self.batch), slice(None))
        total = np.zeros((*lines.shape[:-1], places.shape[-1]))
        for place, count in zip(places, np.broadcast_to(counts, places.shape), strict=True):
            inside = np.clip(place, 0, lines.shape[-1] - 1)[spread]
            total += np.take_along_axis(lines, np.broadcast_to(inside, total.shape), -1) * count[spread]
        return (np.moveaxis(total, -1, self.axis).astype(x.dtype),)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """See the class."""
        last = k.cast(k.size(inputs[0].shape[self.axis]) - 1, I32)

        def part(tap: Scalar) -> Scalar:
            here = [tap, *index[: self.batch], index[self.axis]]
            place = k.cast(k.load(1, here).maximum(0).minimum(last), I64)
            return k.load(0, [*index[: self.axis], place, *index[self.axis + 1 :]]) * k.load(2, here)

        if self.taps > MOST_TAPS:
            return k.reduce("sum", [self.taps], lambda at: part(at[0]))
        total = part(k.size(0))
        for tap in range(1, self.taps):
            total = total + part(k.size(tap))
        return total
