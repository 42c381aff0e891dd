"""Images of another size.

A resize takes each axis by itself. Along an axis, an element of the result is a weighted sum of a few neighbouring
elements, so the axis is multiplied by a matrix [out, in] that depends on sizes and settings alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import BOOL, F32, F64, FLOATS, I32, I64, INTEGERS, TensorType
from graphc.ops.base import Emit, Op
from graphc.ops.conv import MOST_REACH
from graphc.ops.indexing import Gather
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Reshape, Slice, Transpose
from graphc.ops.pointwise import Where
from graphc.ops.precision import NARROW, in_float32
from graphc.ops.sampled import MOST_TAPS, Sampled
from graphc.ops.sampling import (
    ALONE,
    C_ROUNDINGS,
    COORDINATES,
    HALF_PIXEL,
    REACH,
    ROUNDINGS,
    Axis,
    neighbours,
    weights,
)
from graphc.shapes import Dim, integer, product, static_shape

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor

MOST_WEIGHTS = 1 << 26
"""Of a resize along one axis, as a matrix."""

TIMES_LONGER = 16
"""How many times longer an axis is than what `Sampled` reads of it for each number for that to be faster than a product."""


@dataclass(frozen=True)
class Resize(Op):
    """`x` with other sizes: ONNX's Resize.

    `sizes`, `scales` and `roi` (only for `tf_crop_and_resize`: starts of all axes, then ends) are those of all axes. A
    scale of 0 stands for the quotient of the sizes, where that depends on them.
    """

    sizes: tuple[Dim, ...]
    scales: tuple[float, ...]
    mode: str = "nearest"
    coordinate: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    extrapolation: float = 0.0
    antialias: bool = False
    roi: tuple[float, ...] = ()

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """x -> `sizes`."""
        (x,) = inputs
        if len(self.sizes) != x.rank or len(self.scales) != x.rank:
            raise ShapeError(f"{len(self.sizes)} sizes and {len(self.scales)} scales for {x}")
        if self.coordinate not in COORDINATES or self.nearest not in ROUNDINGS or self.mode not in ("nearest", *REACH):
            raise ShapeError(f"there is no resize by {self.mode}, {self.coordinate}, {self.nearest}")
        if self.coordinate == "tf_crop_and_resize" and len(self.roi) != 2 * x.rank:
            raise ShapeError("tf_crop_and_resize needs a region: the start and the end of every axis")
        if x.dtype not in FLOATS | INTEGERS and self.mode != "nearest":
            raise ShapeError(f"elements of type {x.dtype} cannot be interpolated")
        for axis, (size, scale) in enumerate(zip(self.sizes, self.scales, strict=True)):
            if scale < 0 or (isinstance(size, int) and size < 1):
                raise ShapeError(f"axis {axis} of {x} cannot be given size {size} by scale {scale}")
            if x.shape[axis] == 0 or (isinstance(size, int) and size > MOST_REACH and size != x.shape[axis]):
                raise ShapeError(f"axis {axis} of {x} cannot be given size {size}")
        return (TensorType(x.dtype, self.sizes),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """Axis by axis; interpolation in float64."""
        (x,) = inputs
        y = x if self.mode == "nearest" else x.astype(F64)
        for axis in self.changed(x.shape):
            if self.mode == "nearest":
                y = y.take(self.places(axis, x.shape[axis]), axis)
            else:
                y = np.moveaxis(np.tensordot(y, self.matrix(axis, x.shape[axis]), ((axis,), (1,))), -1, axis)
        if self.mode != "nearest" and x.dtype in INTEGERS:
            info = np.iinfo(x.dtype)
            y = np.clip(y, info.min, info.max)
        y = y.astype(x.dtype)
        outside = self.outside(x.shape)
        return (y if outside is None else np.where(outside, np.asarray(self.extrapolation, x.dtype), y),)

    def changed(self, shape: Sequence[Dim]) -> list[int]:
        """The axes along which the result is not simply the input."""
        crop = self.coordinate == "tf_crop_and_resize"
        same = [
            size == old and scale in (0, 1) for size, old, scale in zip(self.sizes, shape, self.scales, strict=True)
        ]
        rank = len(self.sizes)
        return [
            axis
            for axis in range(rank)
            if not same[axis] or (crop and (self.roi[axis], self.roi[rank + axis]) != (0.0, 1.0))
        ]

    def axis(self, axis: int, size: int, dtype: np.dtype) -> Axis:
        """An axis of known size, in numbers of a type."""
        resized = integer(self.sizes[axis], {})
        start, end = (self.roi[axis], self.roi[len(self.sizes) + axis]) if self.roi else (0.0, 1.0)
        numbers = (size, resized, self.scales[axis] or resized / size, start, end)
        return Axis(*(dtype.type(number) for number in numbers))

    def coordinates(self, axis: int, size: int, dtype: np.dtype) -> np.ndarray:
        """Where each element of the result lies along an axis of the input."""
        count = integer(self.sizes[axis], {})
        formula = (
            COORDINATES[self.coordinate] if count > 1 else ALONE.get(self.coordinate, COORDINATES[self.coordinate])
        )
        return np.asarray(formula(np.arange(count).astype(dtype), self.axis(axis, size, dtype)))

    def places(self, axis: int, size: int) -> np.ndarray:
        """The element that each of the result's is, along an axis: ONNX computes this in float32."""
        rounded = ROUNDINGS[self.nearest](self.coordinates(axis, size, F32))
        places: np.ndarray = np.clip(rounded, 0, size - 1).astype(np.int64)
        return places

    def is_small(self, axis: int, size: Dim) -> bool:
        """True if the weights along an axis are no more than `MOST_WEIGHTS`."""
        count = size * self.sizes[axis]
        return isinstance(count, int) and count <= MOST_WEIGHTS

    def matrix(self, axis: int, size: int) -> np.ndarray:
        """The weights [out, in] along an axis. What lies outside counts as the nearest element, or not at all."""
        if not self.is_small(axis, size):
            raise ShapeError(f"the weights of a resize of {size} elements to {self.sizes[axis]} take too much memory")
        x = self.coordinates(axis, size, F64)
        left = np.ceil(x) - 1
        shrink = min(float(self.axis(axis, size, F64).scale), 1.0) if self.antialias else 1.0
        reach = int(-np.floor(-REACH[self.mode] / shrink))
        taps = np.arange(1 - reach, reach + 1)
        counts = weights(self.mode, (taps - (x - left)[:, None]) * shrink, self.cubic_a)
        places = left[:, None].astype(np.int64) + taps
        if self.exclude_outside:
            counts = np.where((places >= 0) & (places < size), counts, 0)
        if self.exclude_outside or self.antialias:
            counts = counts / counts.sum(1, keepdims=True)
        result = np.zeros((len(x), size))
        rows = np.broadcast_to(np.arange(len(x))[:, None], places.shape)
        np.add.at(result, (rows, np.clip(places, 0, size - 1)), counts)
        return result

    def outside(self, shape: Sequence[int]) -> np.ndarray | None:
        """Where the result lies outside the input and takes the value of extrapolation; None if nowhere."""
        if self.coordinate != "tf_crop_and_resize":
            return None
        result = np.zeros((1,) * len(shape), np.bool_)
        for axis, size in enumerate(shape):
            x = self.coordinates(axis, size, F32)
            beyond = (x < 0) | (x > size - 1)
            result = result | beyond.reshape(-1, *[1] * (len(shape) - 1 - axis))
        return result if result.any() else None

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...] | None:
        """A choice of elements, or a product with a constant matrix, along each axis; None if sizes are not known or the
        elements are integers to interpolate."""
        (x,) = inputs
        y = x
        if self.mode != "nearest" and x.dtype in NARROW:
            return in_float32(emit, self, x)
        if self.mode != "nearest" and x.dtype not in FLOATS:
            return None
        for axis in self.changed(x.shape):
            known = static_shape((x.shape[axis], self.sizes[axis]))
            if known is None:
                return None
            if self.mode == "nearest":
                y = chosen(emit, y, axis, self.places(axis, known[0]))
            elif self.is_small(axis, known[0]):
                y = weighted(emit, y, axis, self.matrix(axis, known[0]))
            else:
                return None
        sizes = static_shape(x.shape)
        if self.coordinate == "tf_crop_and_resize":
            if sizes is None:
                return None
            outside = self.outside(sizes)
            if outside is not None:
                y = emit(Where(), emit.constant(outside), emit.constant(self.extrapolation, like=x), y)
        return (y,)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_interpolate`, for float32, where its formulas are certain to give the same."""
        (x,) = inputs
        shape = b.types[0].shape
        changed = self.changed(shape)
        agrees, reach = {"nearest": (self.agrees_nearest, 3), "linear": (self.agrees_linear, 2)}.get(
            self.mode, (None, 0)
        )
        if agrees is None or self.roi or not b.floats(x) or any(axis < len(shape) - reach for axis in changed):
            return None
        if not all(agrees(axis, shape[axis]) for axis in changed):
            return None
        return b.interpolate(x, self.sizes, "NEAREST" if self.mode == "nearest" else "BILINEAR")

    def agrees_nearest(self, axis: int, old: Dim) -> bool:
        """True if ggml chooses the same elements along an axis: element i / (new / old), in float32, rounded down.

        Where the sizes are not known: if the formula is the same, or if a whole factor f repeats each element f times.
        For element i = q f + r with 0 <= r < f, floor(i / f) is q; from half pixels the coordinate is q plus
        (r + 1/2) / f - 1/2, which lies within 1/2 of q and never at it, so either rounding gives q.
        """
        new = self.sizes[axis]
        if isinstance(new, int) and isinstance(old, int):
            theirs = np.trunc(np.arange(new, dtype=np.float32) / np.float32(new / old))
            return bool((theirs == self.places(axis, old)).all())
        if (self.coordinate, self.nearest) == ("asymmetric", "floor"):
            return self.scales[axis] == 0 or whole_factor(new, old, self.scales[axis]) > 0
        rounds = self.coordinate in HALF_PIXEL and self.nearest.startswith("round_prefer")
        return rounds and whole_factor(new, old, self.scales[axis]) > 0

    def agrees_linear(self, axis: int, old: Dim) -> bool:
        """True if ggml's coordinates along an axis, half pixels in float32, are within 1e-6 of the exact ones.

        Where the sizes are not known: for a factor that is a power of two.
        """
        new = self.sizes[axis]
        if self.exclude_outside or self.antialias:
            return False
        if isinstance(new, int) and isinstance(old, int):
            theirs = (np.arange(new, dtype=np.float32) + np.float32(0.5)) / np.float32(new / old) - np.float32(0.5)
            ends = (0, old - 1)
            distance = np.clip(theirs, *ends) - np.clip(self.coordinates(axis, old, F64), *ends)
            return bool(np.abs(distance).max() <= 1e-6)
        factor = whole_factor(new, old, self.scales[axis])
        return self.coordinate in HALF_PIXEL and factor > 0 and factor & (factor - 1) == 0

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The nearest element, or a sum of neighbours weighted in float64; without `antialias`."""
        (x,) = inputs
        if self.antialias and self.mode != "nearest":
            return None
        changed = self.changed(x.shape)
        wide = F32 if self.mode == "nearest" else F64
        places = {axis: self.place(k, index[axis], axis, x.shape[axis], wide) for axis in changed}
        if self.mode == "nearest":
            value = k.load(
                0, [self.rounded(k, places[i], x.shape[i]) if i in places else at for i, at in enumerate(index)]
            )
        else:
            taps = {axis: self.taps(k, place, x.shape[axis]) for axis, place in places.items()}
            value = k.cast(saturated(mixed(k, list(index), taps), x.dtype), x.dtype)
        if self.coordinate != "tf_crop_and_resize":
            return value
        inside = k.const(True, BOOL)
        for axis in changed:
            place = self.place(k, index[axis], axis, x.shape[axis], F32)
            inside = inside.and_(place >= 0).and_(place <= k.cast(k.size(x.shape[axis]), F32) - 1)
        return k.select(inside, value, k.const(self.extrapolation, x.dtype))

    def place(self, k: Kernel, at: Scalar, axis: int, size: Dim, dtype: np.dtype) -> Scalar:
        """Where an element of the result lies along an axis of the input."""
        length, resized = (k.cast(k.size(n), dtype) for n in (size, self.sizes[axis]))
        given = self.scales[axis]
        scale = k.const(given, dtype) if given else resized / length
        start, end = (self.roi[axis], self.roi[len(self.sizes) + axis]) if self.roi else (0.0, 1.0)
        settings = Axis(length, resized, scale, k.const(start, dtype), k.const(end, dtype))
        x = k.cast(at, dtype)
        place: Scalar = COORDINATES[self.coordinate](x, settings)
        if self.coordinate not in ALONE:
            return place
        return k.select(k.size(self.sizes[axis]).eq(1), ALONE[self.coordinate](x, settings), place)

    def rounded(self, k: Kernel, place: Scalar, size: Dim) -> Scalar:
        """The nearest element to a place."""
        return clipped(k, k.cast(k.call(C_ROUNDINGS[self.nearest], place), I64), size)

    def taps(self, k: Kernel, place: Scalar, size: Dim) -> list[tuple[Scalar, Scalar]]:
        """The elements around a place, and how much each counts."""
        left = k.call("floor{f}({0})", place)
        first = k.cast(left, I64)
        counts: list[Scalar] = neighbours(self.mode, place - left, self.cubic_a)
        reach = REACH[self.mode]
        numbers = [first + (tap + 1 - reach) for tap in range(2 * reach)]
        if self.exclude_outside:
            zero = k.const(0, F64)
            inside = [(number >= 0).and_(number < size) for number in numbers]
            counts = [k.select(flag, count, zero) for flag, count in zip(inside, counts, strict=True)]
            total = counts[0]
            for count in counts[1:]:
                total = total + count
            counts = [count / total for count in counts]
        return [(clipped(k, number, size), count) for number, count in zip(numbers, counts, strict=True)]


def clipped(k: Kernel, number: Scalar, size: Dim) -> Scalar:
    """The nearest number of an element that there is."""
    return number.maximum(0).minimum(k.size(size) - 1)


def mixed(k: Kernel, index: list[Scalar], taps: dict[int, list[tuple[Scalar, Scalar]]]) -> Scalar:
    """The weighted sum of elements, axis after axis, in float64."""
    if not taps:
        return k.cast(k.load(0, index), F64)
    axis = min(taps)
    rest = {other: choices for other, choices in taps.items() if other != axis}
    total: Scalar | None = None
    for number, count in taps[axis]:
        part = mixed(k, [*index[:axis], number, *index[axis + 1 :]], rest) * count
        total = part if total is None else total + part
    assert total is not None
    return total


def saturated(value: Scalar, dtype: np.dtype) -> Scalar:
    """A float64 number within the range of an integer type."""
    if dtype in FLOATS:
        return value
    info = np.iinfo(dtype)
    return value.maximum(float(info.min)).minimum(float(info.max))


def whole_factor(size: Dim, old: Dim, scale: float) -> int:
    """The whole factor between two sizes, which the scale agrees with; 0 if there is none."""
    exact = size // old
    factor = exact if isinstance(exact, int) else 0
    return factor if factor >= 1 and old * factor == size and scale in (0, factor) else 0


def chosen(emit: Emit, x: Value, axis: int, places: np.ndarray) -> Value:
    """The elements at constant places along an axis; a part of them at equal steps is a slice."""
    steps = np.unique(np.diff(places))
    if len(steps) == 0 or (len(steps) == 1 and steps[0] >= 1):
        starts = tuple(int(places[0]) if i == axis else 0 for i in range(len(x.shape)))
        sizes = tuple(len(places) if i == axis else size for i, size in enumerate(x.shape))
        step = int(steps[0]) if len(steps) else 1
        return emit(Slice(starts, sizes, tuple(step if i == axis else 1 for i in range(len(x.shape)))), x)
    return emit(Gather(axis), x, emit.constant(places))


def weighted(emit: Emit, x: Value, axis: int, matrix: np.ndarray) -> Value:
    """The product of an axis with a constant matrix [out, in]; a few elements at a time where most of its numbers are 0."""
    shape = x.shape
    taps = max(int(np.count_nonzero(matrix, axis=1).max()), 1)
    if taps <= MOST_TAPS and matrix.shape[1] >= TIMES_LONGER * taps:
        places = np.argsort(matrix == 0, axis=1, kind="stable")[:, :taps]
        counts = np.take_along_axis(matrix, places, 1).astype(x.dtype)
        by_taps = [emit.constant(np.ascontiguousarray(each.T)) for each in (places.astype(I32), counts)]
        return emit(Sampled(axis, taps), x, *by_taps)
    constant = emit.constant(matrix.astype(x.dtype))
    if axis == len(shape) - 1:
        return emit(MatMul(transpose_b=True), x, constant)
    rows = emit(Reshape((product(shape[:axis]), shape[axis], product(shape[axis + 1 :]))), x)
    resized = emit(MatMul(transpose_b=True), emit(Transpose((0, 2, 1)), rows), constant)
    return emit(Reshape((*shape[:axis], len(matrix), *shape[axis + 1 :])), emit(Transpose((0, 2, 1)), resized))
