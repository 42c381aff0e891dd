"""Integers that stand for real numbers, (integer - zero point) * scale, and the way from one to the other.

Scales are float32; they and the zero points broadcast to the tensor. What is rounded is rounded half to even.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import BYTES, F32, I8, I16, I32, I64, U8, TensorType
from graphc.ops.base import Emit, Op, Routine, broadcast_shapes
from graphc.ops.collapse import MAX_RANK
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Reshape, Slice
from graphc.ops.pointwise import Binary, Cast, load_broadcast
from graphc.records import dataclass
from graphc.shapes import product, upper_bound

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor

U16 = np.dtype(np.uint16)
SMALL = (*BYTES, U16, I16)
"""Types of which float32 holds every number."""


@dataclass(frozen=True)
class Dequantize(Op):
    """x, scale, zero -> `(x - zero) * scale`. An axis of the scale or the zero point may have a number for each block of x's."""

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """Integers and a zero point of the same type -> float32."""
        x, scale, zero = inputs
        spread = [TensorType(each.dtype, x.shape) if blocks_of(each, x) else each for each in (scale, zero)]
        check_scaled(self, [x, *spread], x.dtype in (*SMALL, I32) and zero.dtype == x.dtype)
        return (TensorType(F32, x.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float32."""
        x, *others = inputs
        for place, each in enumerate(others):
            for axis, size in enumerate(blocks_of(each, x) or ()):
                others[place] = others[place].repeat(size, axis) if each.shape[axis] != 1 else others[place]
        scale, zero = others
        return ((x.astype(F32) - zero.astype(F32)) * scale,)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """One difference, scaled."""
        x, *others = inputs
        numbers = []
        for place, each in enumerate(others, 1):
            own, sizes = index[len(index) - each.rank :], blocks_of(each, x) or (1,) * each.rank
            numbers.append(k.load(place, [at // size for at, size in zip(own, sizes, strict=True)]))
        scale, zero = numbers
        return (k.cast(k.load(0, index), F32) - k.cast(zero, F32)) * scale


@dataclass(frozen=True)
class Quantize(Op):
    """x, scale, zero -> `round(x / scale) + zero`, at the ends of the zero point's type where it exceeds it."""

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """float32 -> the zero point's type."""
        x, _, zero = inputs
        check_scaled(self, inputs, x.dtype == F32 and zero.dtype in SMALL)
        return (TensorType(zero.dtype, x.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float32."""
        x, scale, zero = inputs
        with np.errstate(all="ignore"):
            return (saturated(np.round(x / scale), zero),)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """One quotient."""
        x, scale, zero = (load_broadcast(k, i, type, index) for i, type in enumerate(inputs))
        return saturated_scalar(k, k.call("rint", x / scale), zero, inputs[2].dtype)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """Of one scale, to bytes."""
        x, scale, zero = inputs
        if scale.size != 1 or zero.size != 1 or zero.dtype not in BYTES:
            return None
        return Routine("quantize", "quantize", (), (x.size, int(np.iinfo(zero.dtype).min)))


@dataclass(frozen=True)
class Requantize(Op):
    """total, factor, zero -> `round(total * factor) + zero`, at the ends of the zero point's type where it exceeds it."""

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """int32, or whole numbers as float32 -> the zero point's type."""
        total, _, zero = inputs
        check_scaled(self, inputs, total.dtype in (I32, F32) and zero.dtype in SMALL)
        return (TensorType(zero.dtype, total.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float32."""
        total, factor, zero = inputs
        with np.errstate(all="ignore"):
            return (saturated(np.round(total.astype(F32) * factor), zero),)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """One product."""
        total, factor, zero = (load_broadcast(k, i, type, index) for i, type in enumerate(inputs))
        return saturated_scalar(k, k.call("rint", k.cast(total, F32) * factor), zero, inputs[2].dtype)


@dataclass(frozen=True)
class QuantizedBinary(Op):
    """a, a_scale, a_zero, b, b_scale, b_zero, scale, zero -> the sum (`Add`) or the product (`Mul`) of two quantized tensors,
    quantized: what Dequantize, the function and Quantize give one after the other. The second broadcasts to the first; scales and
    zero points are one number each."""

    function: str

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """Small integers, each with a zero point of its type -> the last zero point's type."""
        a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = inputs
        floats = all(each.dtype == F32 for each in (a_scale, b_scale, scale))
        alike = (a.dtype, b.dtype) == (a_zero.dtype, b_zero.dtype) and a.rank == b.rank
        numbers = all(each.size == 1 for each in (a_scale, a_zero, b_scale, b_zero, scale, zero))
        if not (floats and alike and numbers and {a.dtype, b.dtype, zero.dtype} <= set(SMALL)):
            raise ShapeError(f"{self.name} does not take {', '.join(map(str, inputs))}")
        if self.function not in ("Add", "Mul") or broadcast_shapes(a.shape, b.shape) != a.shape:
            raise ShapeError(f"{self.name} has no {self.function} of {a} and {b}")
        return (TensorType(zero.dtype, a.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float32."""
        a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (
            each if i in (0, 3) else each.reshape(()) for i, each in enumerate(inputs)
        )
        (first,), (second,) = Dequantize().eval(a, a_scale, a_zero), Dequantize().eval(b, b_scale, b_zero)
        with np.errstate(all="ignore"):
            return Quantize().eval(first + second if self.function == "Add" else first * second, scale, zero)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """One sum, or product."""
        a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (
            load_broadcast(k, i, each, index) if i in (0, 3) else k.load(i, [k.const(0, I64)] * each.rank)
            for i, each in enumerate(inputs)
        )
        first, second = (
            (k.cast(x, F32) - k.cast(middle, F32)) * by
            for x, by, middle in ((a, a_scale, a_zero), (b, b_scale, b_zero))
        )
        found = first + second if self.function == "Add" else first * second
        return saturated_scalar(k, k.call("rint", found / scale), zero, inputs[-1].dtype)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """Of bytes, where the second is as large, or has no axes of its own between the first ones and the last ones."""
        a, *_, zero = inputs
        b = inputs[3]
        if not {a.dtype, b.dtype, zero.dtype} <= set(BYTES):
            return None
        axes = [axis for axis, (size, own) in enumerate(zip(a.shape, b.shape, strict=True)) if size != own]
        first, end = (axes[0], axes[-1] + 1) if axes else (0, 0)
        if any(size != 1 for size in b.shape[first:end]) or (axes and end == a.rank):
            return None
        blocks = (product(a.shape[:first]), product(a.shape[first:end]), product(a.shape[end:]))
        numbers = (*blocks, int(self.function == "Mul"), int(np.iinfo(zero.dtype).min))
        return Routine("byte_binary", "quantized_binary", (a.dtype, b.dtype), (numbers,))


@dataclass(frozen=True)
class ByteTable(Op):
    """x, table -> the number that the table has for each byte, the least byte's first."""

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """int8 or uint8, and bytes [256] -> the table's type."""
        x, table = inputs
        if not {x.dtype, table.dtype} <= {U8, I8} or table.shape != (256,):
            raise ShapeError(f"{self.name} does not take {x} and {table}")
        return (TensorType(table.dtype, x.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        x, table = inputs
        return (table[x.astype(np.int64) - np.iinfo(x.dtype).min],)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """One number of the table."""
        least = k.const(int(np.iinfo(inputs[0].dtype).min), I64)
        return k.load(1, [k.cast(k.load(0, index), I64) - least])

    def routine(self, *inputs: TensorType) -> Routine | None:
        """The same in fewer instructions."""
        x, table = inputs
        return Routine("table", "byte_table", (x.dtype, table.dtype), (x.size,))


@dataclass(frozen=True)
class ScaledMatMul(Op):
    """x, codes, scales, shifts -> `x @ w^T` for `w = (codes + shift) * scale`, with a scale and a shift for each block of a row
    of codes; without shifts they are 0. Of codes beyond the end of x's rows, in the last block, nothing is read. Constant codes
    stay whole numbers of 4 bits, or of 8 if `bits` says so."""

    bits: int = 4

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """float32 [..., M, K], int8 [N, K or more], float32 [N, blocks], the same -> float32 [..., M, N]."""
        x, codes, *scaling = inputs
        given = ", ".join(map(str, inputs))
        floats = all(each.dtype == F32 for each in (x, *scaling))
        if codes.dtype != I8 or not floats or self.bits not in (4, 8) or x.rank < 2 or codes.rank != 2:
            raise ShapeError(f"{self.name} does not take {given}")
        longer = upper_bound(x.shape[-1] - codes.shape[-1])
        if longer is None or longer > 0:
            message = f"{self.name}: a row of {x} is longer than one of {codes}, or may be"
            raise ShapeError(message, [(x.shape[-1], codes.shape[-1])])
        blocks = scaling[0].shape[-1] if scaling[0].rank else 0
        for each in scaling:
            if each.shape != (codes.shape[0], blocks) or blocks == 0 or codes.shape[1] % blocks != 0:
                raise ShapeError(f"{self.name}: {each} has no numbers for whole blocks of each row of {codes}")
        return (TensorType(F32, (*x.shape[:-1], codes.shape[0])),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float32."""
        x, codes, scales, *shifts = inputs
        wide = codes.astype(F32).reshape(*scales.shape, -1)
        for shift in shifts:
            wide += shift[..., None]
        return (x @ (wide * scales[..., None]).reshape(codes.shape)[:, : x.shape[-1]].T,)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`graphc_scaled_linear`, for constant codes that ggml's blocks hold."""
        x, _, scales, *shifts = inputs
        codes = b.whole_in_blocks(1, "Q4_0" if self.bits == 4 else "Q8_0")
        if codes is None or x.shape[-1] != codes.shape[-1] or len(b.types[0].shape) > MAX_RANK:
            return None
        return b.call(
            "graphc_scaled_linear", codes, b.rows(x), scales, shifts[0] if shifts else None, False, rank=x.rank
        )

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...] | None:
        """A product with the matrix that the codes stand for."""
        x, codes, scales, *shifts = inputs
        (rows, columns), blocks = codes.shape, scales.shape[1]
        wide = emit(Reshape((rows, blocks, columns // blocks)), emit(Cast(F32), codes))
        for function, each in (*(("Add", shift) for shift in shifts), ("Mul", scales)):
            wide = emit(Binary(function), wide, emit(Reshape((rows, blocks, 1)), each))
        wide = emit(Slice((0, 0), (rows, x.shape[-1]), (1, 1)), emit(Reshape((rows, columns)), wide))
        return (emit(MatMul(transpose_b=True), x, wide),)


def around_zero(emit: Emit, codes: Value, bits: int) -> Value:
    """Unsigned codes of so many bits as int8: those below the middle become negative."""
    return emit(Cast(I8), emit(Binary("Sub"), codes, emit.constant(np.array(1 << (bits - 1), np.uint8))))


def blocks_of(scale: TensorType | np.ndarray, x: TensorType | np.ndarray) -> tuple[int, ...] | None:
    """How many elements of x along each axis have a number of a scale in common; None unless all axes have whole blocks."""
    if len(scale.shape) != len(x.shape):
        return None
    sizes = []
    for count, size in zip(scale.shape, x.shape, strict=True):
        if count != size and not (isinstance(count, int) and isinstance(size, int) and count > 0 and size % count == 0):
            return None
        sizes.append(1 if count == size else size // count)
    return tuple(sizes)


def check_scaled(op: Op, inputs: Sequence[TensorType], fits: bool) -> None:
    """Raise ShapeError unless the types fit, and the scale and the zero point broadcast to the tensor."""
    x, *others = inputs
    if not fits or inputs[1].dtype != F32:
        raise ShapeError(f"{op.name} does not take {', '.join(type.dtype.name for type in inputs)}")
    if broadcast_shapes(*(type.shape for type in inputs)) != x.shape:
        raise ShapeError(f"{op.name}: {' and '.join(map(str, others))} do not broadcast to {x}")


def saturated(x: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Whole numbers plus a zero point, in its type; NaN becomes the lowest number."""
    low, high = (F32.type(limit) for limit in (np.iinfo(zero.dtype).min, np.iinfo(zero.dtype).max))
    total = x + zero.astype(F32)
    return np.asarray(np.where(total > low, np.minimum(total, high), low).astype(zero.dtype))


def saturated_scalar(k: Kernel, x: Scalar, zero: Scalar, dtype: np.dtype) -> Scalar:
    """As `saturated`; in comparisons that C compilers turn into instructions of vectors."""
    low, high = (float(limit) for limit in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    value = x + k.cast(zero, F32)
    within = k.select(value > low, k.select(value < high, value, high), low)
    return k.cast(k.call("(int32_t) {0}", within, dtype=I32), dtype)
