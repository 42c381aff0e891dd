"""Pooling: the largest or the mean element of each window of an image [N, C, *spatial]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import BOOL, F64, FLOATS, I64, INTEGERS, TensorType
from graphc.ops.base import Emit, Op, Routine
from graphc.ops.conv import check_reach
from graphc.ops.movement import Reshape
from graphc.ops.pointwise import Binary
from graphc.ops.precision import NARROW, in_float32
from graphc.shapes import Dim, ceil_div, dim_min, integer, product, static_shape

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor


@dataclass(frozen=True)
class Windows:
    """What both have in common: one number a spatial axis in each setting.

    With `ceil_mode` a last window may reach beyond the padding, but begins before the padding at the end.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_before: tuple[int, ...]
    pads_after: tuple[int, ...]
    ceil_mode: bool

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """[N, C, *spatial] -> the same with the numbers of windows."""
        (x,) = inputs
        self.check(x)
        return (TensorType(x.dtype, (*x.shape[:2], *(self.count(axis, n) for axis, n in enumerate(x.shape[2:])))),)

    def check(self, x: TensorType) -> None:
        """Raise ShapeError unless dtype, rank and settings go together."""
        settings = (self.kernel, self.strides, self.dilations, self.pads_before, self.pads_after)
        if x.rank < 3 or any(len(setting) != x.rank - 2 for setting in settings):
            raise ShapeError(f"windows of {len(self.kernel)} axes in {x}")
        if min(*self.kernel, *self.strides, *self.dilations) < 1 or min(*self.pads_before, *self.pads_after) < 0:
            raise ShapeError("windows, strides and dilations must be at least 1, pads at least 0")
        check_reach(self.kernel, self.dilations, (*self.pads_before, *self.pads_after))

    def reach(self, axis: int) -> int:
        """Elements from a window's first to its last."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def count(self, axis: int, size: Dim) -> Dim:
        """The number of windows along a spatial axis. Raises ShapeError if there is none."""
        before, after, stride = self.pads_before[axis], self.pads_after[axis], self.strides[axis]
        room = size + before + after - self.reach(axis)
        beyond = stride - 1 if self.ceil_mode else 0
        if isinstance(room, int) and room + beyond < 0:
            raise ShapeError(
                f"a window of {self.reach(axis)} does not fit {size} elements and {before + after} of padding"
            )
        if not self.ceil_mode:
            return room // stride + 1
        return dim_min(ceil_div(room, stride), (size + before - 1) // stride) + 1

    def windows(self, x: np.ndarray, fill: float) -> np.ndarray:
        """[N, C, *counts, *kernel], with `fill` outside the image."""
        spatial = x.ndim - 2
        counts = [integer(self.count(axis, size), {}) for axis, size in enumerate(x.shape[2:])]
        ends = [
            (count - 1) * s + self.reach(axis) for axis, (count, s) in enumerate(zip(counts, self.strides, strict=True))
        ]
        pads = [(b, max(end - size - b, 0)) for b, end, size in zip(self.pads_before, ends, x.shape[2:], strict=True)]
        padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill)
        reach = [self.reach(axis) for axis in range(spatial)]
        view = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(2, x.ndim)))
        places = (slice(0, (count - 1) * s + 1, s) for count, s in zip(counts, self.strides, strict=True))
        return view[(slice(None), slice(None), *places, *(slice(None, None, d) for d in self.dilations))]

    def by_axes(self, emit: Emit, x: Value) -> Value:
        """Over three spatial axes: over the last two, then over the first."""
        batch, channels, depth, height, width = x.shape
        flat = emit(Reshape((batch * channels, depth, height, width)), x)
        flat = emit(self.over((1, 2)), flat)
        height, width = flat.shape[2:]
        flat = emit(self.over((0,)), emit(Reshape((batch, channels, depth, height * width)), flat))
        return emit(Reshape((batch, channels, flat.shape[2], height, width)), flat)

    def over(self, axes: Sequence[int]) -> Op:
        """The same windows along one or two of the spatial axes, as a pool of images; along one, that is the height."""
        assert isinstance(self, Op)

        def pick(setting: tuple[int, ...], missing: int) -> tuple[int, ...]:
            return (*(setting[axis] for axis in axes), *[missing] * (2 - len(axes)))

        return replace(
            self,
            kernel=pick(self.kernel, 1),
            strides=pick(self.strides, 1),
            dilations=pick(self.dilations, 1),
            pads_before=pick(self.pads_before, 0),
            pads_after=pick(self.pads_after, 0),
        )

    def images(self, b: Builder, x: Tensor) -> Tensor | None:
        """The mean by `ggml_pool_2d` over one or two spatial axes, without dilation.

        ggml pads both ends alike. So it is given a whole number of strides more padding than there is at the beginning,
        and the windows that come of that are cut off.
        """
        shape = b.types[0].shape
        if not b.floats(x) or len(shape) > 4 or max(self.dilations) > 1:
            return None
        missing = 4 - len(shape)
        image = b.reshape(x, (*shape[:2], *[1] * missing, *shape[2:]))
        extra, pads = [0] * missing, [0] * missing
        for axis, size in enumerate(shape[2:]):
            stride, before = self.strides[axis], self.pads_before[axis]
            skipped = -(-max(self.after(axis, size) - before, 0) // stride)
            extra.append(skipped)
            pads.append(before + skipped * stride)
        one = (1,) * missing
        y: Tensor | None = b.pool_2d("AVG", image, one + self.kernel, one + self.strides, pads)
        sizes = (*shape[:2], *one, *b.result.shape[2:])
        if y is not None and y.shape != sizes:
            y = b.slice(y, (0, 0, *extra), sizes, (1, 1, 1, 1))
        return y if y is None or not missing else b.reshape(y, b.result.shape)

    def after(self, axis: int, size: Dim) -> int:
        """Padding at the end that all windows need; an upper bound for sizes that are not known."""
        if not isinstance(size, int):
            return self.pads_after[axis] + (self.strides[axis] - 1 if self.ceil_mode else 0)
        last = (integer(self.count(axis, size), {}) - 1) * self.strides[axis] + self.reach(axis)
        return max(last - size - self.pads_before[axis], 0)

    def over_window(
        self,
        k: Kernel,
        index: Sequence[Scalar],
        x: TensorType,
        kind: str,
        body: Callable[[Scalar, list[Scalar]], Scalar],
    ) -> Scalar:
        """A reduction over a window; the body is given whether the element lies in the image, and its index."""
        batch, channel, *place = index

        def at(taps: Sequence[Scalar]) -> Scalar:
            inside = k.const(True, BOOL)
            position = [batch, channel]
            for axis, (out, tap) in enumerate(zip(place, taps, strict=True)):
                source = out * self.strides[axis] + tap * self.dilations[axis] - self.pads_before[axis]
                inside = inside.and_(source >= 0).and_(source < x.shape[axis + 2])
                position.append(source)
            return body(inside, position)

        return k.reduce(kind, self.kernel, at)  # type: ignore[arg-type]


@dataclass(frozen=True)
class MaxPool(Windows, Op):
    """The largest element of each window; padding is smaller than any."""

    def check(self, x: TensorType) -> None:
        """Raise ShapeError unless dtype, rank and settings go together."""
        super().check(x)
        if x.dtype not in FLOATS | INTEGERS:
            raise ShapeError(f"the largest of {x.dtype}")

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """The largest element of each window."""
        (x,) = inputs
        return (self.windows(x, lowest(x.dtype)).max(tuple(range(x.ndim, 2 * x.ndim - 2))),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...] | None:
        """Axis by axis, for three, of which the last has windows too."""
        return (self.by_axes(emit, inputs[0]),) if len(self.kernel) == 3 and not self.last_stays else None

    @property
    def last_stays(self) -> bool:
        """True if the windows have one element along the last axis, and there are as many."""
        last = (self.kernel[-1], self.strides[-1], self.pads_before[-1], self.pads_after[-1])
        return len(self.kernel) == 3 and last == (1, 1, 0, 0)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """Rows of windows, over one or two spatial axes, and those along which the third stays."""
        (x,), (y,) = inputs, self.infer(*inputs)
        if x.rank > 4 and not self.last_stays:
            return None
        one = (1,) * (4 - x.rank)
        settings = (
            (*one, *self.kernel),
            (*one, *self.strides),
            (*one, *self.dilations),
            (*[0] * len(one), *self.pads_before),
        )
        numbers = (
            x.shape[0] * x.shape[1],
            *one,
            *x.shape[2:4],
            *(x.shape[4:] or (1,)),
            *one,
            *y.shape[2:4],
            *(each for pair in settings for each in pair[:2]),
        )
        low = "-INFINITY" if x.dtype in FLOATS else f"{x.dtype.name.upper()}_MIN" if x.dtype.kind == "i" else "0"
        return Routine("pool", "max_pool", (x.dtype,), (low, numbers))

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar:
        """The largest of a window. (`ggml_pool_2d` skips NaN, and finds the lowest finite number where all is -inf.)"""
        (x,) = inputs
        low = k.const(lowest(x.dtype), x.dtype)
        return self.over_window(k, index, x, "max", lambda inside, at: k.select(inside, k.load(0, at), low))


@dataclass(frozen=True)
class AveragePool(Windows, Op):
    """The mean of each window; `count_include_pad` says whether the padding (but not what a last window sees beyond it)
    counts as zeros."""

    count_include_pad: bool

    def check(self, x: TensorType) -> None:
        """Raise ShapeError unless dtype, rank and settings go together."""
        super().check(x)
        if x.dtype not in FLOATS:
            raise ShapeError(f"the mean of {x.dtype}")

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """The mean of each window, in float64."""
        (x,) = inputs
        axes = tuple(range(x.ndim, 2 * x.ndim - 2))
        total = self.windows(x.astype(F64), 0).sum(axes)
        return ((total / self.counted(x.shape[2:])).astype(x.dtype),)

    def counted(self, sizes: Sequence[int]) -> np.ndarray:
        """How many elements of each window count."""
        result = np.ones((), np.int64)
        for axis, size in enumerate(sizes):
            starts = np.arange(integer(self.count(axis, size), {})) * self.strides[axis] - self.pads_before[axis]
            low, high = (-self.pads_before[axis], size + self.pads_after[axis]) if self.count_include_pad else (0, size)
            first, last = (-(-(bound - starts) // self.dilations[axis]) for bound in (low, high))
            result = np.multiply.outer(result, (np.minimum(last, self.kernel[axis]) - np.maximum(first, 0)).clip(0))
        return result

    def whole(self, sizes: Sequence[Dim]) -> bool:
        """True if certainly every element of every window counts."""
        known = static_shape(sizes)
        if known is not None:
            return bool((self.counted(known) == product(self.kernel)).all())
        return not self.ceil_mode and (self.count_include_pad or not any((*self.pads_before, *self.pads_after)))

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...] | None:
        """Axis by axis for three; with everything counted, and then corrected for what does not count."""
        (x,) = inputs
        if x.dtype in NARROW:
            return in_float32(emit, self, x)
        if self.whole(x.shape[2:]):
            return (self.by_axes(emit, x),) if len(self.kernel) == 3 else None
        known = static_shape(x.shape[2:])
        if known is None:
            return None
        after = tuple(self.after(axis, size) for axis, size in enumerate(known))
        mean = emit(replace(self, pads_after=after, ceil_mode=False, count_include_pad=True), x)
        factor = product(self.kernel) / self.counted(known)
        return (emit(Binary("Mul"), mean, emit.constant(factor.astype(x.dtype))),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_pool_2d`, float32, where every element counts."""
        return self.images(b, inputs[0]) if self.whole(b.types[0].shape[2:]) else None

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar:
        """The sum of a window, divided by how many of its elements count."""
        (x,) = inputs
        zero = k.const(0, x.dtype)
        total = self.over_window(k, index, x, "sum", lambda inside, at: k.select(inside, k.load(0, at), zero))
        count = k.const(1, I64)
        for axis, (out, size) in enumerate(zip(index[2:], x.shape[2:], strict=True)):
            start = out * self.strides[axis] - self.pads_before[axis]
            low, high = (-self.pads_before[axis], size + self.pads_after[axis]) if self.count_include_pad else (0, size)
            step = self.dilations[axis]
            first = ((low - start + step - 1) // step).maximum(0)
            last = ((high - start + step - 1) // step).minimum(self.kernel[axis])
            count = count * (last - first)
        return total / k.cast(count, x.dtype)


def lowest(dtype: np.dtype) -> float:
    """What no element is smaller than."""
    return -np.inf if dtype in FLOATS else int(np.iinfo(dtype).min)
