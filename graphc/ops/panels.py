"""Products and convolutions of bytes with matrices and kernels that are packed when they are stored, or that have one channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import BYTES, F32, I32, TensorType
from graphc.ops.base import Emit, Op, Routine
from graphc.ops.integers import IntegerConv
from graphc.ops.movement import Pad, Reshape, Transpose
from graphc.ops.pointwise import Cast
from graphc.ops.quantized import saturated
from graphc.ops.reduce import Reduce
from graphc.shapes import Dim, product

WIDE, QUAD = 32, 4
"""Columns of a panel, and elements of a column that lie together: what `panels.h` reads."""

RESULTS = ("sums", "floats", "bytes")
"""What becomes of sums, by how many inputs say so."""

LEAST_CHANNELS, MOST_TAPS = 16, 64
"""Channels of an image, and places of its kernels, that `depthwise.h` takes."""


@dataclass(frozen=True)
class PackedConv(Op):
    """x, panels, x_zero, w_zero, bias, sums, and perhaps a factor, and with that a zero point -> the convolution of `x - x_zero`
    with `w - w_zero` plus the bias, in int32; times the factor, in float32; rounded then, plus the zero point, in that type.

    `panels` and `sums` are what `packed` makes of w. Images have their channels last, before and after. x_zero and the zero
    point are one number; w_zero, the bias and the factor are one, or one for each kernel.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads_before: tuple[int, int]
    pads_after: tuple[int, int]

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """[N, height, width, C], [panels, quads, 32, 4], ... -> [N, height, width, C_out]."""
        x, panels, x_zero, w_zero, bias, sums, *more = inputs
        given = ", ".join(map(str, inputs))
        dtypes = (x_zero.dtype, w_zero.dtype, bias.dtype, sums.dtype) == (x.dtype, panels.dtype, I32, I32)
        if not dtypes or {x.dtype, panels.dtype} != set(BYTES) or len(more) >= len(RESULTS) or sums.rank != 1:
            raise ShapeError(f"{self.name} does not take {given}")
        (out,), length = sums.shape, product(self.kernel) * x.shape[-1]
        if min(self.kernel) < 1 or x.rank != 4 or panels.shape != (-(-out // WIDE), -(-length // QUAD), WIDE, QUAD):
            raise ShapeError(f"{self.name}: {panels} does not have {out} packed kernels for {x}")
        check_finish(self, out, x_zero, w_zero, bias, *more)
        image = TensorType(I32, (x.shape[0], x.shape[3], *x.shape[1:3]))
        (result,) = self.plain.product.infer(image, TensorType(I32, (out, x.shape[3], *self.kernel)))
        return (TensorType(finished_type(more), (result.shape[0], *result.shape[2:], out)),)

    @property
    def plain(self) -> IntegerConv:
        """The convolution with kernels that are not packed."""
        return IntegerConv(self.strides, self.dilations, self.pads_before, self.pads_after, channels_last=True)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """By the kernels as they were."""
        x, panels, x_zero, w_zero, bias, sums, *more = inputs
        rows = panels.transpose(0, 2, 1, 3).reshape(panels.shape[0] * WIDE, -1)
        w = rows[: sums.size, : product(self.kernel) * x.shape[-1]].reshape(sums.size, *self.kernel, x.shape[-1])
        (total,) = self.plain.eval(x, w, x_zero, w_zero, bias)
        return (finished(np.moveaxis(total, 1, -1), *more),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """See `Op.routine`."""
        x, panels, _, w_zero, bias, sums, *more = inputs
        batch, height, width, channels = x.shape
        (result,) = self.infer(*inputs)
        settings = (*self.strides, *self.dilations, *self.pads_before)
        window = (batch, 1, channels, sums.size, height, width, *self.kernel, *result.shape[1:3], *settings, 1, 1)
        numbers = (*window, 1, w_zero.size, bias.size, *finish_numbers(more))
        return Routine("panels", f"packed_{RESULTS[len(more)]}", (x.dtype, panels.dtype), (numbers,))


@dataclass(frozen=True)
class DepthwiseConv(Op):
    """x, w, x_zero, w_zero, bias, and perhaps a factor, and with that a zero point -> the convolution of each channel by itself,
    of `x - x_zero` with `w - w_zero`; the rest is as of `PackedConv`."""

    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads_before: tuple[int, int]
    pads_after: tuple[int, int]

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """[N, height, width, C], [kernel height, kernel width, C], ... -> [N, height, width, C]."""
        x, w, x_zero, w_zero, bias, *more = inputs
        given = ", ".join(map(str, inputs))
        dtypes = (x_zero.dtype, w_zero.dtype, bias.dtype) == (x.dtype, w.dtype, I32)
        if not dtypes or not {x.dtype, w.dtype} <= set(BYTES) or len(more) >= len(RESULTS):
            raise ShapeError(f"{self.name} does not take {given}")
        if x.rank != 4 or w.rank != 3 or x.shape[3] != w.shape[2] or not 1 <= product(w.shape[:2]) <= MOST_TAPS:
            raise ShapeError(f"{self.name} does not take {given}")
        channels = w.shape[2]
        if not isinstance(channels, int) or channels < LEAST_CHANNELS:
            raise ShapeError(f"{self.name} takes images of {LEAST_CHANNELS} channels and more, not {x}")
        check_finish(self, channels, x_zero, w_zero, bias, *more)
        image, kernels = TensorType(I32, (x.shape[0], channels, *x.shape[1:3])), (channels, 1, *w.shape[:2])
        (result,) = self.plain(channels).product.infer(image, TensorType(I32, kernels))
        return (TensorType(finished_type(more), (result.shape[0], *result.shape[2:], channels)),)

    def plain(self, channels: int) -> IntegerConv:
        """The same as a convolution of as many groups."""
        return IntegerConv(self.strides, self.dilations, self.pads_before, self.pads_after, channels)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """As a convolution of groups."""
        x, w, x_zero, w_zero, bias, *more = inputs
        kernels = np.moveaxis(w, -1, 0)[:, None]
        (total,) = self.plain(w.shape[2]).eval(np.moveaxis(x, -1, 1), kernels, x_zero, w_zero, bias)
        return (finished(np.moveaxis(total, 1, -1), *more),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """See `Op.routine`."""
        x, w, _, w_zero, bias, *more = inputs
        batch, height, width, channels = x.shape
        (result,) = self.infer(*inputs)
        settings = (*self.strides, *self.dilations, *self.pads_before)
        sizes = (batch, channels, height, width, *w.shape[:2], *result.shape[1:3], *settings)
        numbers = (*sizes, w_zero.size, bias.size, *finish_numbers(more))
        return Routine("depthwise", f"depthwise_{RESULTS[len(more)]}", (x.dtype, w.dtype), (numbers,))


def finished_type(more: Sequence[TensorType]) -> np.dtype:
    """The type of what becomes of sums, by a factor and a zero point, if there are any."""
    return more[1].dtype if len(more) > 1 else F32 if more else I32


def finished(total: np.ndarray, *more: np.ndarray) -> np.ndarray:
    """Sums as they are; times a factor; rounded then, plus a zero point."""
    if not more:
        return np.ascontiguousarray(total)
    with np.errstate(all="ignore"):
        scaled = total.astype(F32) * more[0]
        return saturated(np.round(scaled), more[1].reshape(())) if len(more) > 1 else np.asarray(scaled)


def finish_numbers(more: Sequence[TensorType]) -> tuple[Dim, ...]:
    """What a routine is told of it: how many factors there are, and the least byte."""
    return more[0].size if more else 1, int(np.iinfo(more[1].dtype).min) if len(more) > 1 else 0


def check_finish(op: Op, out: Dim, x_zero: TensorType, w_zero: TensorType, bias: TensorType, *more: TensorType) -> None:
    """Raise ShapeError unless there are zero points, a bias and a factor for so many kernels."""
    factor, zero = [*more, *[TensorType(kind, ()) for kind in (F32, BYTES[0])][len(more) :]]
    given = ", ".join(map(str, (x_zero, w_zero, bias, *more)))
    if factor.dtype != F32 or zero.dtype not in BYTES or x_zero.size != 1 or zero.size != 1:
        raise ShapeError(f"{op.name} does not take {given}")
    if any(each.shape not in ((), (1,), (out,)) for each in (w_zero, bias, factor)):
        raise ShapeError(f"{op.name}: {given} are neither one number nor {out}")


def packed(emit: Emit, w: Value) -> tuple[Value, Value]:
    """Kernels [out, ...], as panels, and the sums of each: as they are stored."""
    out, length = w.shape[0], product(w.shape[1:])
    panels, quads = -(-out // WIDE), -(-length // QUAD)
    rows = emit(Reshape((out, length)), w)
    sums = emit(Reduce("sum", (1,), False), emit(Cast(I32), rows))
    filled = emit(Pad((0, 0), (panels * WIDE - out, quads * QUAD - length)), rows)
    return emit(Transpose((0, 2, 1, 3)), emit(Reshape((panels, WIDE, quads, QUAD)), filled)), sums
