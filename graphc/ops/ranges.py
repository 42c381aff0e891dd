"""The range of a tensor's numbers, found when a model is run, and the scale and zero point of bytes that stand for them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import F32, U8, TensorType
from graphc.ops.base import Emit, Op, Routine
from graphc.ops.quantized import Quantize
from graphc.records import dataclass
from graphc.shapes import product

PARTS = 64
"""Parts of a tensor of which threads find the extremes."""


@dataclass(frozen=True)
class Extremes(Op):
    """The least and the largest number of each of some parts of a tensor, or 0 if that is less, or larger. NaN counts as 0."""

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """float32 of any shape -> float32 [64, 2]."""
        (x,) = inputs
        if x.dtype != F32:
            raise ShapeError(f"{self.name} does not take {x}")
        return (TensorType(F32, (PARTS, 2)),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        flat = inputs[0].reshape(-1)
        numbers = np.where(np.isnan(flat), F32.type(0), flat)
        ends = [flat.size * part // PARTS for part in range(PARTS + 1)]
        parts = [numbers[first:end] for first, end in pairwise(ends)]
        return (np.array([(part.min(initial=0), part.max(initial=0)) for part in parts], F32),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """See `Op.routine`."""
        (x,) = inputs
        return Routine("range", "extremes", (x.dtype,), (product(x.shape), PARTS))


def check_extremes(op: Op, x: TensorType) -> None:
    """Raise ShapeError unless these are extremes."""
    if x.dtype != F32 or x.rank != 2 or x.shape[1] != 2 or not isinstance(x.shape[0], int):
        raise ShapeError(f"{op.name} takes extremes, not {x}")


@dataclass(frozen=True)
class ByteScale(Op):
    """Extremes -> what spreads the range between them over 255 steps; 1 if there is none."""

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """float32 [parts, 2] -> float32 []."""
        check_extremes(self, inputs[0])
        return (TensorType(F32, ()),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        spread = F32.type(inputs[0][:, 1].max(initial=0)) - F32.type(inputs[0][:, 0].min(initial=0))
        return (np.asarray(spread / F32.type(255) if spread > 0 else F32.type(1), F32),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """See `Op.routine`."""
        (x,) = inputs
        return Routine("range", "byte_scale", (x.dtype,), (x.shape[0],))


@dataclass(frozen=True)
class ByteZero(Op):
    """Extremes -> the byte that stands for 0 with that scale."""

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """float32 [parts, 2] -> uint8 []."""
        check_extremes(self, inputs[0])
        return (TensorType(U8, ()),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (scale,) = ByteScale().eval(*inputs)
        with np.errstate(all="ignore"):
            place = np.round(-F32.type(inputs[0][:, 0].min(initial=0)) / scale)
        return (np.asarray(min(place, 255) if place > 0 else 0, U8),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """See `Op.routine`."""
        (x,) = inputs
        return Routine("range", "byte_zero", (x.dtype,), (x.shape[0],))


def quantized_by_range(emit: Emit, x: Value) -> tuple[Value, Value, Value]:
    """uint8, a scale and a zero point: the numbers from the least to the largest, and 0, are spread over all bytes."""
    extremes = emit(Extremes(), x)
    scale, zero = emit(ByteScale(), extremes), emit(ByteZero(), extremes)
    return emit(Quantize(), x, scale, zero), scale, zero
