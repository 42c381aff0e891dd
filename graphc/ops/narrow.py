"""Numbers of one byte and less: float8, float4, int4, int2, and reinterpreting bits.

Nothing computes in these types. `Decode` and `Encode` convert them to and from float32 or int32; an element is a byte with
the number in its low bits, as `ml_dtypes` holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.foreign import foreign
from graphc.ir.graph import Value
from graphc.ir.types import BF16, BOOL, F16, F32, F64, FLOATS, I32, INTEGERS, NARROW, U8, TensorType
from graphc.ops.base import Emit, Op
from graphc.ops.indexing import Gather

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor

E8M0 = foreign("float8_e8m0fnu")
ROUNDING = ("up", "down", "nearest")
"""Ways to round to a power of two."""


@dataclass(frozen=True)
class Format:
    """The code of a float: sign (the bit `sign`), exponent (from `low` on), `mantissa` bits. `largest` is the code of the
    largest number; what exceeds it becomes `over`, and NaN becomes `nan`; those two have a sign if `signed`."""

    mantissa: int
    low: int
    sign: int
    largest: int
    over: int
    nan: int
    signed: bool = True


FORMATS: dict[np.dtype, Format] = {
    foreign("float8_e4m3fn"): Format(3, -6, 0x80, 0x7E, 0x7F, 0x7F),
    foreign("float8_e4m3fnuz"): Format(3, -7, 0x80, 0x7F, 0x80, 0x80, signed=False),
    foreign("float8_e5m2"): Format(2, -14, 0x80, 0x7B, 0x7C, 0x7E),
    foreign("float8_e5m2fnuz"): Format(2, -15, 0x80, 0x7F, 0x80, 0x80, signed=False),
    foreign("float4_e2m1fn"): Format(1, 0, 0x8, 0x7, 0x7, 0x8),
}

WIDTHS: dict[np.dtype, int] = {
    foreign("int4"): 4, foreign("uint4"): 4, foreign("int2"): 2, foreign("uint2"): 2,
}  # fmt: skip
"""Bits of the integers."""


@dataclass(frozen=True)
class BitCast(Op):
    """The same bits as another type of the same width."""

    dtype: np.dtype

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        known = FLOATS | INTEGERS | NARROW | {BOOL}
        if not {x.dtype, self.dtype} <= known or x.dtype.itemsize != self.dtype.itemsize:
            raise ShapeError(f"the bits of {x.dtype.name} are not those of {self.dtype.name}")
        return (TensorType(self.dtype, x.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        return (np.ascontiguousarray(inputs[0]).view(self.dtype).reshape(inputs[0].shape),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """Nothing, if both types lie in tensors of one type."""
        return inputs[0] if b.stored_alike(b.types[0].dtype, self.dtype) else None

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """Through a union; the halves, which are computed in float, through their conversions."""
        source, target = inputs[0].dtype, self.dtype
        if source in (F16, BF16) and target in INTEGERS:
            bits = k.call(f"graphc_to_{_SHORT[source]}_float({{0}})", k.load(0, index), dtype=_unsigned(source))
            return k.cast(bits, target)
        if target in (F16, BF16) and source in INTEGERS:
            bits = k.cast(k.load(0, index), _unsigned(target))
            return k.call(f"graphc_from_{_SHORT[target]}({{0}})", bits, dtype=target)
        if {source, target} <= _C_TYPES.keys():
            template = f"((union {{ {_C_TYPES[source]} from; {_C_TYPES[target]} to; }}) {{ .from = {{0}} }}).to"
            return k.call(template, k.load(0, index), dtype=target)
        return None


_SHORT: dict[np.dtype, str] = {F16: "f16", BF16: "bf16"}
_C_TYPES: dict[np.dtype, str] = {F32: "float", F64: "double", **{dtype: f"{dtype.name}_t" for dtype in INTEGERS}}


def _unsigned(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"uint{8 * dtype.itemsize}")


@dataclass(frozen=True)
class Decode(Op):
    """float32 for a type of a byte or less."""

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if x.dtype not in NARROW:
            raise ShapeError(f"Decode does not take {x.dtype.name}")
        return (TensorType(F32, x.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        return (inputs[0].astype(F32),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...] | None:
        """Looked up in a table of all codes."""
        (x,) = inputs
        table = np.arange(256, dtype=np.uint8).view(x.dtype).astype(F32)
        return (emit(Gather(0), emit.constant(table), emit(BitCast(U8), x)),)


@dataclass(frozen=True)
class Encode(Op):
    """A type of a byte or less for float32 (for int32, if it is one of integers, of which the low bits are kept).

    Rounds to nearest, ties to even; float8_e8m0, which has powers of two alone, as `rounding` says. With `saturate` what is
    too large becomes the largest number, without it infinity or NaN, of which the type has one.
    """

    dtype: np.dtype
    saturate: bool = True
    rounding: str = "up"

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if (
            self.dtype not in NARROW
            or x.dtype != (I32 if self.dtype in WIDTHS else F32)
            or self.rounding not in ROUNDING
        ):
            raise ShapeError(f"Encode does not make {self.dtype.name} of {x.dtype.name}")
        return (TensorType(self.dtype, x.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (x,) = inputs
        return (np.asarray(self._codes(x), np.uint8).view(self.dtype).reshape(x.shape),)

    def _codes(self, x: np.ndarray) -> np.ndarray:
        if self.dtype in WIDTHS:
            return x & ((1 << WIDTHS[self.dtype]) - 1)
        if self.dtype == E8M0:
            bits = x.view(np.int32)
            return self._power(bits >> 23 & 0xFF, bits & 0x7FFFFF)
        f = FORMATS[self.dtype]
        size = np.minimum(np.abs(x), _limit(f))
        size = np.where(np.isnan(x), 0, size).astype(F32)
        exponent = np.where(size == 0, f.low, np.maximum(np.frexp(size)[1] - 1, f.low))
        code = ((exponent - f.low) << f.mantissa) + np.rint(np.ldexp(size, f.mantissa - exponent)).astype(np.int32)
        finite = code <= f.largest
        code = np.where(finite, code, f.largest if self.saturate else f.over)
        code = np.where(np.isnan(x), f.nan, code)
        sign = np.signbit(x) & (True if f.signed else (code > 0) & (code != f.nan))
        return np.where(sign, code | f.sign, code)

    def _power(self, exponent: np.ndarray, rest: np.ndarray) -> np.ndarray:
        up = {
            "up": rest > 0,
            "down": np.zeros(rest.shape, np.bool_),
            "nearest": (rest > 0x400000) | ((rest == 0x400000) & (exponent > 0)),
        }[self.rounding]
        highest = 0xFD if self.saturate else 0xFE
        return np.where((exponent == 0xFF) | ~up | (exponent > highest), exponent, exponent + 1)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The code, by arithmetic."""
        x = k.load(0, index)
        if self.dtype in WIDTHS:
            code = x & ((1 << WIDTHS[self.dtype]) - 1)
        else:
            code = self._power_element(k, x) if self.dtype == E8M0 else self._float_element(k, x)
        return k.call("{0}", k.cast(code, U8), dtype=self.dtype)

    def _float_element(self, k: Kernel, x: Scalar) -> Scalar:
        f = FORMATS[self.dtype]
        size, limit = k.call("fabs", x), k.const(_limit(f), F32)
        size = k.select(size < limit, size, limit)
        exponent = k.call("ilogbf({0})", size, dtype=I32)
        exponent = k.select(exponent < f.low, k.const(f.low, I32), exponent)
        steps = k.call("rintf(ldexpf({0}, {1}))", size, f.mantissa - exponent, dtype=F32)
        code = (exponent - f.low) * (1 << f.mantissa) + k.cast(steps, I32)
        code = k.select(code > f.largest, k.const(f.largest if self.saturate else f.over, I32), code)
        negative = k.call("(signbit({0}) != 0)", x, dtype=BOOL)
        if not f.signed:
            negative = negative.and_(code > 0).and_(code.ne(f.nan))
        nan = k.const(f.nan, I32)
        return k.select(x.ne(x), nan, k.select(negative, code | f.sign, code))

    def _power_element(self, k: Kernel, x: Scalar) -> Scalar:
        bits = k.call("((union { float from; int32_t to; }) { .from = {0} }).to", x, dtype=I32)
        exponent, rest = (bits >> 23) & 0xFF, bits & 0x7FFFFF
        raised = k.select(exponent > (0xFD if self.saturate else 0xFE), exponent, exponent + 1)
        if self.rounding == "down":
            return exponent
        if self.rounding == "up":
            return k.select(rest > 0, raised, exponent)
        tie = k.select(exponent > 0, k.const(0x400000, I32), k.const(0x400001, I32))
        return k.select(rest >= tie, raised, exponent)


def _limit(f: Format) -> float:
    """A number that is too large."""
    return 4.0 * 2.0 ** (f.low + (f.largest >> f.mantissa))
