"""Convolutions over one, two or three spatial axes.

Images are [N, C, *spatial]; kernels [C_out, C_in / group, *kernel], those of transposed convolutions [C_in, C_out / group,
*kernel]; a bias is [C_out].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import BOOL, F32, FLOATS, INTEGERS, TensorType
from graphc.ops.base import Emit, Op
from graphc.ops.movement import Concat, Expand, Pad, Reshape, Slice, Transpose
from graphc.ops.pointwise import Binary
from graphc.ops.precision import NARROW, in_float32
from graphc.shapes import Dim, ceil_div, integer, is_static, product, static_shape

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor

MOST_REACH = 1 << 24
"""Elements that a window may span along an axis, and that may be padded: more than any image has."""

SLICE_BYTES = 64 << 20
"""Memory that the columns of one slice may take when a convolution is computed in NumPy."""


@dataclass(frozen=True)
class Conv(Op):
    """Cross-correlation of an image with kernels; one number a spatial axis in each setting."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_before: tuple[int, ...]
    pads_after: tuple[int, ...]
    group: int = 1

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """[N, C, *spatial], [C_out, C / group, *kernel](, [C_out]) -> [N, C_out, *spatial]."""
        x, w = inputs[:2]
        check_operands(self, inputs, x.rank - 2)
        if x.shape[1] != w.shape[1] * self.group:
            message = f"the image has {x.shape[1]} channels, the kernel takes {w.shape[1]} in {self.group} groups"
            raise ShapeError(message, [(x.shape[1], w.shape[1] * self.group)])
        if w.shape[0] % self.group != 0:
            raise ShapeError(f"{w.shape[0]} output channels do not divide into {self.group} groups")
        check_bias(inputs, w.shape[0])
        spatial = [
            window_count(size, kernel, stride, dilation, before + after)
            for size, kernel, stride, dilation, before, after in zip(
                x.shape[2:], w.shape[2:], self.strides, self.dilations, self.pads_before, self.pads_after, strict=True
            )
        ]
        return (TensorType(x.dtype, (x.shape[0], w.shape[0], *spatial)),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """By windows and a matrix product; half-precision types are summed in float32."""
        dtype = inputs[0].dtype
        x, w, *bias = (array.astype(F32) if dtype in NARROW else array for array in inputs)
        spatial = x.ndim - 2
        pads = zip(self.pads_before, self.pads_after, strict=True)
        x = np.pad(x, [(0, 0), (0, 0), *pads])
        y = correlate(x, w, self.strides, self.dilations, self.group)
        if bias:
            y += bias[0].reshape(-1, *[1] * spatial)
        return (y.astype(dtype, copy=False),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...] | None:
        """Half precision by float32."""
        return in_float32(emit, self, *inputs) if inputs[0].dtype in NARROW else None

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_conv_2d_dw_direct` for one kernel a channel, `ggml_conv_2d`, or `ggml_conv_2d_direct` where the columns would
        be large; `graphc_conv_2d` in groups; `graphc_conv_3d`. Float32."""
        if not b.floats(*inputs) or not is_static(*b.types[1].shape):
            return None
        if b.types[0].rank == 5:
            return self.volumes(b, *inputs)
        y: Tensor | None = self.images(b, *inputs[:2])
        if y is not None and len(inputs) == 3:
            y = b.binary("ggml_add", y, b.reshape(inputs[2], (b.result.shape[1], 1, 1)))
        return y if y is None else b.reshape(y, b.result.shape)

    def images(self, b: Builder, x: Tensor, w: Tensor) -> Tensor:
        """Over one or two spatial axes, as images of one row in the first case."""
        missing = 4 - x.rank
        if missing:
            x, w = (b.reshape(t, (*t.shape[:2], 1, t.shape[2])) for t in (x, w))
        strides, dilations = ((1,) * missing + setting for setting in (self.strides, self.dilations))
        before, after = ((0,) * missing + setting for setting in (self.pads_before, self.pads_after))
        if before != after:
            x, before = b.pad_image(x, before, after), (0, 0)
        return b.conv_2d(x, w, strides, dilations, before, self.group)

    def volumes(self, b: Builder, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor | None:
        """Over three spatial axes."""
        before = self.pads_before
        if before != self.pads_after:
            x, before = b.pad_image(x, before, self.pads_after), (0, 0, 0)
        bias = bias if bias is None else b.cont(bias)
        inner = b.types[1].shape[1]
        assert isinstance(inner, int)
        y = b.conv_3d(x, w, bias, inner * self.group, self.strides, self.dilations, before, self.group)
        return y if y is None else b.reshape(y, b.result.shape)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar:
        """The sum over the group's channels and the kernel's positions that meet the image."""
        x, w = inputs[:2]
        batch, channel, *place = index
        first = channel // (w.shape[0] // self.group) * w.shape[1]

        def term(at: Sequence[Scalar]) -> Scalar:
            inside = k.const(True, BOOL)
            position = []
            for axis, (out, tap) in enumerate(zip(place, at[1:], strict=True)):
                source = out * self.strides[axis] + tap * self.dilations[axis] - self.pads_before[axis]
                inside = inside.and_(source >= 0).and_(source < x.shape[axis + 2])
                position.append(source)
            return k.select(inside, k.load(0, [batch, first + at[0], *position]) * k.load(1, [channel, *at]), 0)

        total = k.reduce("sum", w.shape[1:], term)
        return total + k.load(2, [channel]) if len(inputs) == 3 else total


@dataclass(frozen=True)
class Met:
    """Elements of a kernel along an axis: the last one, how many, and how far apart; and how an image is convolved with them."""

    last: int
    count: int
    step: int
    dilation: int
    before: int
    after: int


@dataclass(frozen=True)
class ConvTranspose(Op):
    """The transpose (the gradient) of a convolution: each element of the image adds the kernel, scaled, to the result."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_before: tuple[int, ...]
    pads_after: tuple[int, ...]
    output_padding: tuple[int, ...]
    group: int = 1

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """[N, C, *spatial], [C, C_out / group, *kernel](, [C_out]) -> [N, C_out, *spatial]."""
        x, w = inputs[:2]
        check_operands(self, inputs, x.rank - 2)
        if x.shape[1] != w.shape[0]:
            message = f"the image has {x.shape[1]} channels, the kernel takes {w.shape[0]}"
            raise ShapeError(message, [(x.shape[1], w.shape[0])])
        if x.shape[1] % self.group != 0:
            raise ShapeError(f"{x.shape[1]} channels do not divide into {self.group} groups")
        channels = w.shape[1] * self.group
        check_bias(inputs, channels)
        if len(self.output_padding) != x.rank - 2 or min(self.output_padding, default=0) < 0:
            raise ShapeError(f"output padding {self.output_padding} is not one number of at least 0 a spatial axis")
        sizes = [self.output_size(axis, x, w) for axis in range(x.rank - 2)]
        return (TensorType(x.dtype, (x.shape[0], channels, *sizes)),)

    def output_size(self, axis: int, x: TensorType, w: TensorType) -> Dim:
        """The result's size along a spatial axis. Raises ShapeError if nothing is left of it."""
        reach = (w.shape[axis + 2] - 1) * self.dilations[axis] + 1
        pads = self.pads_before[axis] + self.pads_after[axis]
        size = (x.shape[axis + 2] - 1) * self.strides[axis] + reach + self.output_padding[axis] - pads
        if isinstance(size, int) and size < 1:
            raise ShapeError(f"pads of {pads} leave nothing of spatial axis {axis}")
        return size

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """As a convolution of the image, with zeros between its elements, with the flipped kernel."""
        dtype = inputs[0].dtype
        x, w, *bias = (array.astype(F32) if dtype in NARROW else array for array in inputs)
        (result,) = self.infer(*(TensorType(array.dtype, array.shape) for array in inputs))
        spatial = x.ndim - 2
        spread = np.zeros(
            (*x.shape[:2], *((n - 1) * s + 1 for n, s in zip(x.shape[2:], self.strides, strict=True))), x.dtype
        )
        places: list[Any] = [slice(None, None, s) for s in self.strides]
        spread[(..., *places)] = x
        reach = [(kernel - 1) * d for kernel, d in zip(w.shape[2:], self.dilations, strict=True)]
        pads = [(r, r + extra) for r, extra in zip(reach, self.output_padding, strict=True)]
        y = correlate(
            np.pad(spread, [(0, 0), (0, 0), *pads]), flipped(w, self.group), (1,) * spatial, self.dilations, self.group
        )
        kept: list[Any] = [
            slice(p, p + integer(n, {})) for p, n in zip(self.pads_before, result.shape[2:], strict=True)
        ]
        y = y[(..., *kept)]
        if bias:
            y = y + bias[0].reshape(-1, *[1] * spatial)
        return (y.astype(dtype, copy=False),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...] | None:
        """A convolution that makes, as channels, all the elements of the result that lie between two of the image's, or, with
        dilations, one for each of these; and a reordering. None if the kernel's sizes are not known.

        The first fills the kernel up with zeros to a multiple of the strides, both put zeros around the image: beside an element
        that is infinite or NaN, of either, a number that does not depend on it may then be NaN. Without the first's zeros, it
        would take half as long again.
        """
        x, w = inputs[:2]
        if x.dtype in NARROW:
            return in_float32(emit, self, *inputs)
        sizes = static_shape(w.shape)
        if sizes is None:
            return None
        (result,) = self.infer(*(value.type for value in inputs))
        spatial = len(sizes) - 2
        taps = [self.taps(axis, sizes[axis + 2]) for axis in range(spatial)]
        one, channels = (1,) * spatial, result.shape[1]
        dilated = any(d > 1 and size > 1 for d, size in zip(self.dilations, sizes[2:], strict=True))
        y = self.apart(emit, x, w, taps) if dilated else self.together(emit, x, w, taps)
        grid, strides = y.shape[2:], range(1, 1 + spatial) if dilated else range(2, 2 + spatial)
        split = (*self.strides, channels) if dilated else (channels, *self.strides)
        y = emit(Reshape((x.shape[0], *split, *grid)), y)
        pairs = zip(range(2 + spatial, 2 + 2 * spatial), strides, strict=True)
        y = emit(Transpose((0, 1 + spatial if dilated else 1, *(axis for pair in pairs for axis in pair))), y)
        y = emit(Reshape((x.shape[0], channels, *(n * s for n, s in zip(grid, self.strides, strict=True)))), y)
        if y.shape != result.shape:
            y = emit(Slice((0, 0, *self.pads_before), result.shape, (1,) * len(sizes)), y)
        if len(inputs) == 3:
            y = emit(Binary("Add"), y, emit(Reshape((channels, *one)), inputs[2]))
        return (y,)

    def together(self, emit: Emit, x: Value, w: Value, taps: Sequence[int]) -> Value:
        """The results of all phases as channels."""
        one, ends = (1,) * len(taps), tuple(count - 1 for count in taps)
        return emit(Conv(one, one, ends, ends, self.group), x, self.phases(emit, w, taps))

    def apart(self, emit: Emit, x: Value, w: Value, taps: Sequence[int]) -> Value:
        """The same, but the channels of one phase after those of another, each by a convolution with nothing but the elements of
        the kernel that it meets."""
        channels, grid = (
            self.group * w.shape[1],
            [size + count - 1 for size, count in zip(x.shape[2:], taps, strict=True)],
        )
        made = []
        for phase in np.ndindex(*self.strides):
            met = [self.met(axis, w.shape[axis + 2], place, taps[axis]) for axis, place in enumerate(phase)]
            if all(met):
                made.append(self.one_phase(emit, x, w, [each for each in met if each]))
            else:
                made.append(emit(Expand((x.shape[0], channels, *grid)), emit.constant(np.zeros((), x.dtype))))
        return made[0] if len(made) == 1 else emit(Concat(1), *made)

    def one_phase(self, emit: Emit, x: Value, w: Value, met: Sequence[Met]) -> Value:
        """The convolution with the elements of the kernel that meet the results of a phase, flipped."""
        channels, width = w.shape[:2]
        counts, steps = tuple(each.count for each in met), (-each.step for each in met)
        w = emit(Slice((0, 0, *(each.last for each in met)), (channels, width, *counts), (1, 1, *steps)), w)
        w = emit(Reshape((self.group, channels // self.group, width, *counts)), w)
        w = emit(Transpose((0, 2, 1, *range(3, len(w.shape)))), w)
        w = emit(Reshape((self.group * width, channels // self.group, *counts)), w)
        dilations, before, after = (
            tuple(getattr(each, name) for each in met) for name in ("dilation", "before", "after")
        )
        return emit(Conv((1,) * len(met), dilations, before, after, self.group), x, w)

    def met(self, axis: int, kernel: Dim, phase: int, taps: int) -> Met | None:
        """What of the kernel meets the results of a phase along an axis; None if nothing does."""
        stride, dilation = self.strides[axis], self.dilations[axis]
        found = [k for k in range(integer(kernel, {})) if (k * dilation - phase) % stride == 0]
        if not found:
            return None
        step = found[1] - found[0] if len(found) > 1 else stride
        first, last = ((k * dilation - phase) // stride for k in (found[0], found[-1]))
        return Met(found[-1], len(found), step, step * dilation // stride, last, taps - 1 - first)

    def taps(self, axis: int, kernel: int) -> int:
        """How many elements of the image reach one element of the result along an axis, and those of the output padding."""
        reach = (kernel - 1) * self.dilations[axis] + 1 + max(self.output_padding[axis] - self.pads_after[axis], 0)
        return integer(ceil_div(reach, self.strides[axis]), {})

    def phases(self, emit: Emit, w: Value, taps: Sequence[int]) -> Value:
        """The kernel [C, M, *kernel] as [group * M * product(strides), C / group, *taps]: element `t * stride + phase` of
        the kernel is tap `taps - 1 - t` of that phase."""
        channels, width = w.shape[:2]
        spatial = len(taps)
        full = [count * stride for count, stride in zip(taps, self.strides, strict=True)]
        after = [size - integer(have, {}) for size, have in zip(full, w.shape[2:], strict=True)]
        if any(after):
            w = emit(Pad((0,) * (spatial + 2), (0, 0, *after), "constant", 0), w)
        split = [size for pair in zip(taps, self.strides, strict=True) for size in pair]
        w = emit(Reshape((self.group, channels // self.group, width, *split)), w)
        if any(count > 1 for count in taps):
            starts = [size - 1 if axis >= 3 and axis % 2 else 0 for axis, size in enumerate(w.shape)]
            steps = [-1 if axis >= 3 and axis % 2 else 1 for axis in range(len(w.shape))]
            w = emit(Slice(tuple(starts), w.shape, tuple(steps)), w)
        order = (0, 2, *range(4, 4 + 2 * spatial, 2), 1, *range(3, 3 + 2 * spatial, 2))
        w = emit(Transpose(order), w)
        return emit(Reshape((self.group * width * product(self.strides), channels // self.group, *taps)), w)


def check_operands(op: Conv | ConvTranspose, inputs: Sequence[TensorType], spatial: int) -> None:
    """Raise ShapeError unless dtypes, ranks and settings go together."""
    x, w = inputs[:2]
    if spatial not in (1, 2, 3) or w.rank != x.rank:
        raise ShapeError(f"a convolution takes an image and a kernel of 3, 4 or 5 axes, not {x} and {w}")
    if any(other.dtype != x.dtype for other in inputs) or x.dtype not in FLOATS | INTEGERS:
        raise ShapeError(
            f"a convolution takes numeric tensors of one type, not {', '.join(str(i.dtype) for i in inputs)}"
        )
    settings = (op.strides, op.dilations, op.pads_before, op.pads_after)
    if any(len(setting) != spatial for setting in settings):
        raise ShapeError(f"strides, dilations and pads are not {spatial} numbers each")
    if min(*op.strides, *op.dilations, op.group) < 1 or min(*op.pads_before, *op.pads_after) < 0:
        raise ShapeError("strides, dilations and groups must be at least 1, pads at least 0")
    check_reach(w.shape[2:], op.dilations, (*op.pads_before, *op.pads_after))


def check_reach(kernel: Sequence[Dim], dilations: Sequence[int], pads: Sequence[int]) -> None:
    """Raise ShapeError where a window or the padding is larger than any image is: a few bytes would ask for gigabytes."""
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True) if isinstance(size, int)]
    if max([*reach, *pads], default=0) > MOST_REACH:
        raise ShapeError(f"a window of {max(reach, default=1)} elements, with {max(pads, default=0)} of padding")


def check_bias(inputs: Sequence[TensorType], channels: Dim) -> None:
    """Raise ShapeError unless the bias, if there is one, has one number a channel."""
    if len(inputs) == 3 and inputs[2].shape != (channels,):
        raise ShapeError(f"the bias {inputs[2]} is not one number for each of {channels} channels")


def window_count(size: Dim, kernel: Dim, stride: int, dilation: int, pads: int) -> Dim:
    """How many windows fit along an axis. Raises ShapeError if none does."""
    room = size + pads - (kernel - 1) * dilation - 1
    if isinstance(room, int) and room < 0:
        raise ShapeError(
            f"a window of {(kernel - 1) * dilation + 1} does not fit {size} elements and {pads} of padding"
        )
    return room // stride + 1


def correlate(x: np.ndarray, w: np.ndarray, strides: Sequence[int], dilations: Sequence[int], group: int) -> np.ndarray:
    """A convolution without padding, in slices along the first spatial axis that bound the memory of its columns."""
    spatial = x.ndim - 2
    axes = tuple(range(2, x.ndim))
    reach = [(kernel - 1) * d + 1 for kernel, d in zip(w.shape[2:], dilations, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axes)
    view = view[
        (slice(None), slice(None), *(slice(None, None, s) for s in strides), *(slice(None, None, d) for d in dilations))
    ]
    batch, out = x.shape[0], view.shape[2 : 2 + spatial]
    taps = w[:1].size if len(w) else 0
    kernels = w.reshape(group, w.shape[0] // group, taps)
    y = np.empty((batch, group, kernels.shape[1], *out), x.dtype)
    points = prod(out[1:])
    row = max(1, x.itemsize * batch * taps * group * points)
    step = max(1, SLICE_BYTES // row)
    order = (0, 1, 2, *range(3 + spatial, 3 + 2 * spatial), *range(3, 3 + spatial))
    for start in range(0, out[0], step):
        part = view[:, :, start : start + step]
        rows = part.shape[2]
        grouped = part.reshape(batch, 1, *part.shape[1:]) if group == 1 else np.stack(np.split(part, group, 1), 1)
        columns = grouped.transpose(order).reshape(batch, group, taps, rows * points)
        found = np.matmul(kernels, columns)
        y[:, :, :, start : start + rows] = found.reshape(batch, group, kernels.shape[1], rows, *out[1:])
    return y.reshape(batch, w.shape[0], *out)


def flipped(w: np.ndarray, group: int) -> np.ndarray:
    """The kernel [C, M, *kernel] of a transposed convolution as [group * M, C / group, *kernel], flipped."""
    channels, width = w.shape[:2]
    grouped = w.reshape(group, channels // group, width, *w.shape[2:]).swapaxes(1, 2)
    flipped = np.flip(grouped, tuple(range(3, grouped.ndim)))
    return flipped.reshape(group * width, channels // group, *w.shape[2:])
