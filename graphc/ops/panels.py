"""Products and convolutions of bytes with matrices and kernels that are packed once, when they are stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import F32, I32, TensorType
from graphc.ops.base import Emit, Op, Routine
from graphc.ops.integers import BYTES, IntegerConv
from graphc.ops.movement import Pad, Reshape, Transpose
from graphc.ops.pointwise import Cast
from graphc.ops.quantized import saturated
from graphc.ops.reduce import Reduce
from graphc.shapes import product

WIDE, QUAD = 32, 4
"""Columns of a panel, and elements of a column that lie together: what `panels.h` reads."""

FUNCTIONS = {0: "packed_sums", 1: "packed_floats", 2: "packed_bytes"}
"""The routine, by how many inputs there are beside the first six."""


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
        if not dtypes or {x.dtype, panels.dtype} != set(BYTES) or len(more) not in FUNCTIONS or sums.rank != 1:
            raise ShapeError(f"{self.name} does not take {given}")
        factor, zero = [*more, *[TensorType(kind, ()) for kind in (F32, BYTES[0])][len(more) :]]
        (out,), length = sums.shape, product(self.kernel) * x.shape[-1]
        if min(self.kernel) < 1 or x.rank != 4 or panels.shape != (-(-out // WIDE), -(-length // QUAD), WIDE, QUAD):
            raise ShapeError(f"{self.name}: {panels} does not have {out} packed kernels for {x}")
        if factor.dtype != F32 or zero.dtype not in BYTES or x_zero.size != 1 or zero.size != 1:
            raise ShapeError(f"{self.name} does not take {given}")
        if any(each.shape not in ((), (1,), (out,)) for each in (w_zero, bias, factor)):
            raise ShapeError(f"{self.name}: {given} are neither one number nor {out}")
        image = TensorType(I32, (x.shape[0], x.shape[3], *x.shape[1:3]))
        (result,) = self.plain.product.infer(image, TensorType(I32, (out, x.shape[3], *self.kernel)))
        dtype = (I32, F32, zero.dtype)[len(more)]
        return (TensorType(dtype, (result.shape[0], *result.shape[2:], out)),)

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
        total = np.moveaxis(total, 1, -1)
        if not more:
            return (np.ascontiguousarray(total),)
        with np.errstate(all="ignore"):
            scaled = total.astype(F32) * more[0]
            return (saturated(np.round(scaled), more[1].reshape(())) if len(more) > 1 else np.asarray(scaled),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """See `Op.routine`."""
        x, panels, _, w_zero, bias, sums, *more = inputs
        batch, height, width, channels = x.shape
        (result,) = self.infer(*inputs)
        settings = (*self.strides, *self.dilations, *self.pads_before)
        window = (batch, 1, channels, sums.size, height, width, *self.kernel, *result.shape[1:3], *settings, 1, 1)
        factors, lowest = more[0].size if more else 1, int(np.iinfo(result.dtype).min) if len(more) > 1 else 0
        numbers = (*window, 1, w_zero.size, bias.size, factors, lowest)
        return Routine("panels", FUNCTIONS[len(more)], (x.dtype, panels.dtype), (numbers,))


def packed(emit: Emit, w: Value) -> tuple[Value, Value]:
    """Kernels [out, ...], as panels, and the sums of each: as they are stored."""
    out, length = w.shape[0], product(w.shape[1:])
    panels, quads = -(-out // WIDE), -(-length // QUAD)
    rows = emit(Reshape((out, length)), w)
    sums = emit(Reduce("sum", (1,), False), emit(Cast(I32), rows))
    filled = emit(Pad((0, 0), (panels * WIDE - out, quads * QUAD - length)), rows)
    return emit(Transpose((0, 2, 1, 3)), emit(Reshape((panels, WIDE, quads, QUAD)), filled)), sums
