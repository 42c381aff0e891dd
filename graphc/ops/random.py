"""Random numbers. Each is a function of its stream and its place, so every run, thread and target gives the same.

The generator is SplitMix64 (Steele, Lea and Flood 2014): number `n` of a stream is a mixing function of
`stream + (n + 1) * GOLDEN`, modulo 2**64. Its upper 53 bits are a fraction from 0 up to, but not including, 1. Where a loop draws
again and again, number `n` is the stream of round `n`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.types import F64, FLOATS, I64, TensorType
from graphc.ops.base import Op
from graphc.ops.movement import static
from graphc.shapes import Dim, is_static, product

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar

U64 = np.dtype(np.uint64)
GOLDEN = 0x9E3779B97F4A7C15
MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = 31
LARGEST = 2**62
"""The largest whole number that an engine file holds."""
KINDS = ("uniform", "normal")


@dataclass(frozen=True)
class Random(Op):
    """Numbers of a stream; the inputs are the rounds of the loops around, the outermost first. `uniform`: from `start` up to
    `start + scale`. `normal`: of mean `start` and standard deviation `scale`. They are computed in float64 and rounded."""

    kind: str
    stream: int
    start: float
    scale: float
    dtype: np.dtype
    shape: tuple[Dim, ...]

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        if self.kind not in KINDS or self.dtype not in FLOATS or not 0 <= self.stream <= LARGEST:
            raise ShapeError(f"no {self.kind} random numbers of {self.dtype.name} and stream {self.stream}")
        if any(round.dtype != I64 or round.size != 1 for round in inputs):
            raise ShapeError(f"a round is one int64, not {', '.join(map(str, inputs))}")
        if any(is_static(size) and size < 0 for size in self.shape):
            raise ShapeError(f"random numbers of the shape {list(self.shape)}")
        return (TensorType(self.dtype, self.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        sizes = static(self.shape, "the shape")
        places, stream = np.arange(math.prod(sizes), dtype=U64), np.array(self.stream, U64)
        for round in inputs:
            stream = mixed(stream, round.reshape(()).astype(U64))
        if self.kind == "uniform":
            drawn = fractions(stream, places)
        else:
            radius = np.sqrt(-2 * np.log(1 - fractions(stream, places * U64.type(2))))
            drawn = radius * np.cos(2 * math.pi * fractions(stream, places * U64.type(2) + U64.type(1)))
        return ((self.start + self.scale * drawn).astype(self.dtype).reshape(sizes),)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """One number; a normal one by Box and Muller's formula from two of the stream."""
        place, stream = k.size(0), k.const(self.stream, U64)
        for number, round in enumerate(inputs):
            stream = mixed_scalar(k, stream, k.load(number, [0] * round.rank))
        for axis, at in enumerate(index):
            place = place + at * k.size(product(self.shape[axis + 1 :]))
        if self.kind == "uniform":
            drawn = fraction(k, stream, place)
        else:
            radius = k.call("sqrt(-2 * log(1 - {0}))", fraction(k, stream, place * 2))
            drawn = radius * k.call("cos", fraction(k, stream, place * 2 + 1) * (2 * math.pi))
        return k.cast(drawn * self.scale + self.start, self.dtype)


def mixed(stream: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The stream's numbers at some places, as uint64."""
    with np.errstate(over="ignore"):
        state = stream + (places + U64.type(1)) * U64.type(GOLDEN)
        for shift, factor in MIXING:
            state = (state ^ (state >> U64.type(shift))) * U64.type(factor)
        return np.asarray(state ^ (state >> U64.type(LAST_SHIFT)))


def fractions(stream: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The stream's numbers at some places, as float64."""
    return np.asarray((mixed(stream, places) >> U64.type(11)) * np.float64(2**-53))


def mixed_scalar(k: Kernel, stream: Scalar, place: Scalar) -> Scalar:
    """The stream's number at a place, as uint64."""
    state = (k.cast(place, U64) + 1) * GOLDEN + stream
    for shift, factor in MIXING:
        state = (state ^ (state >> shift)) * factor
    return state ^ (state >> LAST_SHIFT)


def fraction(k: Kernel, stream: Scalar, place: Scalar) -> Scalar:
    """The stream's number at a place, as float64."""
    return k.cast(mixed_scalar(k, stream, place) >> 11, F64) * 2**-53
