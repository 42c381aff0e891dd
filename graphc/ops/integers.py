"""Matrix products and convolutions of bytes less their zero points, in int32: exact, and modulo 2**32 where that is too small.

Beside the two tensors, each takes their zero points and a bias. A zero point has its tensor's type and is one number, or one
for each row of `a`, each column of `b`, or each kernel; an int32 bias is one number, or one for each column or kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.numbers import read_numbers
from graphc.ir.types import BYTES, F32, F64, I8, I32, U8, TensorType
from graphc.ops.base import Emit, Op, Routine
from graphc.ops.conv import Conv
from graphc.ops.matmul import MatMul, merge_batches, swap
from graphc.ops.movement import Expand, Reshape
from graphc.ops.pointwise import Binary, Cast
from graphc.shapes import Dim, product

LARGEST = 255 * 255
"""The largest product of two differences."""

LIMIT = 1 << 24
"""The whole numbers up to here are exact in float32."""

SHORTEST = 32
"""Products in a sum, and channels (or columns), from which on the kernel for bytes is faster than that for float32."""

FEWEST = 16


@dataclass(frozen=True)
class IntegerMatMul(Op):
    """a, b, a_zero, b_zero, bias -> `(a - a_zero) @ (b - b_zero) + bias`; the last two axes of `b` are swapped first if
    `transpose_b`. Both have at least two axes."""

    transpose_b: bool = False

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """[..., M, K] @ [..., K, N] -> int32 [..., M, N]."""
        a, b, *_ = inputs
        check_types(self, inputs)
        (result,) = self.product.infer(*(TensorType(I32, each.shape) for each in (a, b)))
        if min(a.rank, b.rank) < 2:
            raise ShapeError(f"IntegerMatMul takes matrices, not {a} and {b}")
        check_counts(self, inputs, a.shape[-2], result.shape[-1])
        return (result,)

    @property
    def product(self) -> MatMul:
        """The product of the differences."""
        return MatMul(transpose_b=self.transpose_b)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float64, which holds every sum of such products exactly."""
        a, b, a_zero, b_zero, bias = (array.astype(F64) for array in inputs)
        b = b.swapaxes(-1, -2) if self.transpose_b else b
        total = np.matmul(a - (a_zero.reshape(-1, 1) if a_zero.size > 1 else a_zero.reshape(())), b - b_zero)
        return ((total + bias).astype(np.int64).astype(I32),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...] | None:
        """In float32 where that is exact and faster, else as a product of matrices as they lie, in three axes, of unlike types;
        None for that."""
        a, b, a_zero, b_zero, bias = inputs
        (result,) = self.infer(*(value.type for value in inputs))
        if as_floats(a.shape[-1], result.shape[-1]):
            rows = emit(Reshape((a_zero.type.size, 1)), a_zero) if a_zero.type.size != 1 else a_zero
            if self.transpose_b and b_zero.type.size != 1:
                b_zero = emit(Reshape((b_zero.type.size, 1)), b_zero)
            total = emit(self.product, difference(emit, a, rows), difference(emit, b, b_zero))
            return (biased(emit, total, bias, a.shape[-1]),)
        if self.is_plain(a.type, b.type):
            return None
        if not self.transpose_b:
            b = emit(swap(len(b.shape)), b)
        if a.dtype == b.dtype:
            b, b_zero = flipped(emit, b), flipped(emit, b_zero)
        if a_zero.type.size == 1 and product(b.shape[:-2]) == 1:
            a, b = emit(Reshape((1, product(a.shape[:-1]), a.shape[-1])), a), emit(Reshape((1, *b.shape[-2:])), b)
        else:
            a, b = merge_batches(emit, a, b)
            if b.shape[0] != 1 and a.shape[0] != b.shape[0]:
                a = emit(Expand((b.shape[0], *a.shape[1:])), a)
        found = emit(IntegerMatMul(transpose_b=True), a, b, a_zero, b_zero, bias)
        return (found if found.shape == result.shape else emit(Reshape(result.shape), found),)

    def is_plain(self, a: TensorType, b: TensorType) -> bool:
        """True for the form that the kernel has."""
        alike = a.rank == b.rank == 3 and b.shape[0] in (1, a.shape[0])
        return self.transpose_b and alike and a.dtype != b.dtype

    def routine(self, *inputs: TensorType) -> Routine | None:
        """As a convolution whose places are the rows."""
        a, b = inputs[:2]
        batch, rows, inner = a.shape
        window: tuple[Dim, ...] = (
            batch,
            1,
            inner,
            b.shape[-2],
            1,
            rows,
            1,
            1,
            1,
            rows,
            1,
            1,
            1,
            1,
            0,
            0,
            b.shape[0],
            1,
        )
        return routine(window, inputs)


@dataclass(frozen=True)
class IntegerConv(Op):
    """x, w, x_zero, w_zero, bias -> the convolution of `x - x_zero` with `w - w_zero`; one number a spatial axis in each
    setting. Images and kernels have their channels last if `channels_last`; the result does not."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_before: tuple[int, ...]
    pads_after: tuple[int, ...]
    group: int = 1
    channels_last: bool = False

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """[N, C, *spatial], [C_out, C / group, *kernel] -> int32 [N, C_out, *spatial]."""
        x, w, x_zero, *_ = inputs
        check_types(self, inputs)
        if min(x.rank, w.rank) < 3:
            raise ShapeError(f"IntegerConv takes images and kernels, not {x} and {w}")
        if self.channels_last:
            x, w = (TensorType(each.dtype, (each.shape[0], each.shape[-1], *each.shape[1:-1])) for each in (x, w))
        if x_zero.size != 1:
            raise ShapeError(f"the image's zero point {x_zero} is not one number")
        check_counts(self, inputs, 1, w.shape[0])
        return self.product.infer(TensorType(I32, x.shape), TensorType(I32, w.shape))

    @property
    def product(self) -> Conv:
        """The convolution of the differences."""
        return Conv(self.strides, self.dilations, self.pads_before, self.pads_after, self.group)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float64, which holds every sum of such products exactly."""
        x, w, x_zero, w_zero, bias = (array.astype(F64) for array in inputs)
        if self.channels_last:
            x, w = np.moveaxis(x, -1, 1), np.moveaxis(w, -1, 1)
        along = [1] * (w.ndim - 1)
        w_zero = w_zero.reshape(-1, *along) if w_zero.size > 1 else w_zero.reshape(())
        (total,) = self.product.eval(x - x_zero.reshape(()), w - w_zero, np.broadcast_to(bias.reshape(-1), w.shape[:1]))
        return (total.astype(np.int64).astype(I32),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...] | None:
        """In float32 where that is exact and faster, over three axes in float64, else with the channels last, over two axes, of
        unlike types; None for that."""
        x, w, x_zero, w_zero, bias = inputs
        (result,) = self.infer(*(value.type for value in inputs))
        if self.channels_last:
            return None
        spatial = len(self.strides)
        floats = as_floats(product(w.shape[1:]), w.shape[1], w.shape[0] // self.group)
        if floats or spatial == 3:
            wide = F32 if floats else F64
            kernels = emit(Reshape((w.shape[0], *[1] * (spatial + 1))), w_zero) if w_zero.type.size != 1 else w_zero
            total = emit(self.product, difference(emit, x, x_zero, wide), difference(emit, w, kernels, wide))
            if bias.type.size != 1:
                bias = emit(Reshape((w.shape[0], *[1] * spatial)), bias)
            return (biased(emit, total, bias, product(w.shape[1:])),)
        if x.dtype == w.dtype:
            w, w_zero = flipped(emit, w), flipped(emit, w_zero)
        op: Any = replace(self, channels_last=True)
        if spatial == 1:
            x, w = (emit(Reshape((*each.shape[:2], 1, each.shape[2])), each) for each in (x, w))
            settings = {name: (least, *getattr(op, name)) for name, least in ONE_MORE.items()}
            op = replace(op, **settings)
        x, w = (emit(ChannelsLast(), each) for each in (x, w))
        found = emit(op, x, w, x_zero, w_zero, bias)
        return (found if found.shape == result.shape else emit(Reshape(result.shape), found),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """Over two axes, with the channels last."""
        x, w = inputs[:2]
        batch, height, width, _ = x.shape
        out, high, wide, channels = w.shape
        (result,) = self.infer(*inputs)
        settings = (*self.strides, *self.dilations, *self.pads_before)
        window: tuple[Dim, ...] = (
            batch, self.group, channels, out // self.group, height, width, high, wide, *result.shape[2:], *settings, 1, 0,
        )  # fmt: skip
        return routine(window, inputs)


@dataclass(frozen=True)
class ChannelsLast(Op):
    """The second axis as the last: a transpose of bytes that is not left to ggml, which copies one after the other."""

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """[N, C, *spatial] -> [N, *spatial, C]."""
        (x,) = inputs
        if x.dtype not in BYTES or x.rank < 2:
            raise ShapeError(f"ChannelsLast does not take {x}")
        return (TensorType(x.dtype, (x.shape[0], *x.shape[2:], x.shape[1])),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        return (np.moveaxis(inputs[0], 1, -1),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """See `Op.routine`."""
        (x,) = inputs
        return Routine("channels", "channels_last", (x.dtype,), (x.shape[0], x.shape[1], product(x.shape[2:])))


@dataclass(frozen=True)
class ChannelsFirst(Op):
    """The last axis as the second: the way back."""

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """[N, *spatial, C] -> [N, C, *spatial]."""
        (x,) = inputs
        if x.dtype not in BYTES or x.rank < 2:
            raise ShapeError(f"ChannelsFirst does not take {x}")
        return (TensorType(x.dtype, (x.shape[0], x.shape[-1], *x.shape[1:-1])),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        return (np.moveaxis(inputs[0], -1, 1),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """See `Op.routine`."""
        (x,) = inputs
        return Routine("channels", "channels_last", (x.dtype,), (x.shape[0], product(x.shape[1:-1]), x.shape[-1]))


ONE_MORE = {"strides": 1, "dilations": 1, "pads_before": 0, "pads_after": 0}
"""The settings of an axis of size 1."""


def routine(window: tuple[Dim, ...], inputs: Sequence[TensorType]) -> Routine | None:
    """The call for a `graphc_window_T` of `integers.h`."""
    counts = tuple(type.size for type in inputs[2:])
    return Routine("integers", "integers", (inputs[0].dtype, inputs[1].dtype), ((*window, *counts),))


def as_floats(length: Dim, *widths: Dim) -> bool:
    """True if sums of so many products are exact in float32 and faster there, for results of these widths."""
    # Winograd's way of convolving halves its numbers; it is for 32 channels and more, of which no sum is short enough here.
    if not isinstance(length, int) or length * LARGEST > LIMIT:
        return False
    return length < SHORTEST or not all(isinstance(width, int) and width >= FEWEST for width in widths)


def biased(emit: Emit, total: Value, bias: Value, length: Dim) -> Value:
    """Sums of so many products, as floats, plus the bias, in int32: added before they are converted if that is exact."""
    known = int(np.abs(read_numbers(bias).astype(np.int64)).max(initial=0)) if bias.is_constant else None
    if known == 0:
        return emit(Cast(I32), total)
    if total.dtype == F32 and known is not None and isinstance(length, int) and known + length * LARGEST <= LIMIT:
        return emit(Cast(I32), emit(Binary("Add"), total, emit(Cast(F32), bias)))
    return emit(Binary("Add"), emit(Cast(I32), total), bias)


def difference(emit: Emit, x: Value, zero: Value, dtype: np.dtype = F32) -> Value:
    """x - zero in a floating-point type, which holds it exactly."""
    return emit(Binary("Sub"), emit(Cast(dtype), x), emit(Cast(dtype), zero))


def flipped(emit: Emit, x: Value) -> Value:
    """Bytes with the other sign: 128 less, or 128 more. A zero point that moves with them leaves the differences as they are."""
    bits = emit(Binary("BitwiseXor"), emit(Cast(U8), x), emit.constant(np.array(128, np.uint8)))
    return emit(Cast(I8 if x.dtype == U8 else U8), bits)


def check_types(op: Op, inputs: Sequence[TensorType]) -> None:
    """Raise ShapeError unless these are bytes, their zero points, and an int32 bias."""
    a, b, a_zero, b_zero, bias = inputs
    if not {a.dtype, b.dtype} <= set(BYTES) or (a_zero.dtype, b_zero.dtype, bias.dtype) != (a.dtype, b.dtype, I32):
        raise ShapeError(f"{op.name} does not take {', '.join(type.dtype.name for type in inputs)}")


def check_counts(op: Op, inputs: Sequence[TensorType], rows: Dim, columns: Dim) -> None:
    """Raise ShapeError unless zero points and bias are one number, or one for each row or column."""
    for type, count in zip(inputs[2:], (rows, columns, columns), strict=True):
        if type.shape not in ((), (1,), (count,)):
            raise ShapeError(f"{op.name}: {type} is neither one number nor {count}")
