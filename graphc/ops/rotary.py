"""Rotary embeddings: pairs of features rotated by angles that depend on the position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import F64, FLOATS, TensorType
from graphc.ops.base import Emit, Op, broadcast_shapes
from graphc.ops.movement import Concat, Reshape, Slice
from graphc.ops.pointwise import Binary, Unary
from graphc.ops.precision import NARROW, in_float32
from graphc.shapes import Dim, is_static, product

if TYPE_CHECKING:
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor


@dataclass(frozen=True)
class RotaryEmbedding(Op):
    """`x * cos + swapped(x) * sin` of the first elements of the last axis, as many as cos and sin have; the others stay.

    `swapped` exchanges the elements of each pair: neighbours (`interleaved`), or those at one place of the two halves. cos and
    sin broadcast to x before the last axis. For a rotation, sin has the negated sine where the first of a pair is.
    """

    interleaved: bool

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """x [..., D], cos and sin [..., N] with N even and at most D -> x's type."""
        x, cos, sin = inputs
        if x.dtype not in FLOATS or any(each.dtype != x.dtype or not each.shape for each in inputs):
            raise ShapeError(
                f"rotary embeddings take tensors of one float type and of an axis at least, not {x}, {cos}, {sin}"
            )
        (size, count), other = (each.shape[-1] for each in (x, cos)), sin.shape[-1]
        if (
            not isinstance(size, int)
            or not isinstance(count, int)
            or count % 2
            or not 0 < count <= size
            or other != count
        ):
            raise ShapeError(
                f"{count} cosines and {other} sines for {size} features; there must be one for each of a pair"
            )
        if any(broadcast_shapes(each.shape[:-1], x.shape[:-1]) != x.shape[:-1] for each in (cos, sin)):
            raise ShapeError(f"{cos} and {sin} do not broadcast to {x}")
        return (x,)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float64, rounded once."""
        x, cos, sin = (array.astype(F64) for array in inputs)
        part, rest = np.split(x, [cos.shape[-1]], axis=-1)
        axis = -1 if self.interleaved else -2
        count = cos.shape[-1] // 2
        pairs = part.reshape(*x.shape[:-1], *((count, 2) if self.interleaved else (2, count)))
        swapped = np.flip(pairs, axis).reshape(part.shape)
        return (np.concatenate([part * cos + swapped * sin, rest], axis=-1).astype(inputs[0].dtype),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...]:
        """By halves that are joined the other way round."""
        x, cos, sin = inputs
        if x.dtype in NARROW:
            return in_float32(emit, self, *inputs)
        size, count = x.shape[-1], cos.shape[-1]
        part = x if size == count else columns(emit, x, 0, count)
        rotated = emit(
            Binary("Add"), emit(Binary("Mul"), part, cos), emit(Binary("Mul"), self._swapped(emit, part), sin)
        )
        if size == count:
            return (rotated,)
        return (emit(Concat(len(x.shape) - 1), rotated, columns(emit, x, count, size - count)),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`graphc_rotary`; float32, of at most four axes."""
        x, cos, sin = inputs
        if any(each.rank > 4 for each in b.types) or not is_static(cos.ne[0]):
            return None
        count, zeros, steps = cos.shape[-1], [0] * (x.rank - 1), [1] * x.rank
        if x.shape[-1] == count:
            return b.rotary(x, cos, sin, self.interleaved)
        part, rest = (
            b.slice(x, (*zeros, start), (*x.shape[:-1], size), steps)
            for start, size in ((0, count), (count, x.shape[-1] - count))
        )
        rotated = None if part is None else b.rotary(part, cos, sin, self.interleaved)
        return None if rotated is None or rest is None else b.concat([rotated, rest], x.rank - 1)

    def _swapped(self, emit: Emit, x: Value) -> Value:
        *lead, count = x.shape
        pairs = emit(Reshape((product(lead) * count // 2, 2)), x) if self.interleaved else x
        half = pairs.shape[-1] // 2
        first, second = (columns(emit, pairs, start, half) for start in (0, half))
        return emit(Reshape(x.shape), emit(Concat(len(pairs.shape) - 1), second, first))


def for_each_of_a_pair(emit: Emit, cos: Value, sin: Value, interleaved: bool) -> tuple[Value, Value]:
    """What RotaryEmbedding takes, of a cosine and a sine for each pair."""
    *lead, count = cos.shape
    axis = len(lead) + int(interleaved)

    def both(first: Value, second: Value) -> Value:
        if not interleaved:
            return emit(Concat(axis), first, second)
        apart = (emit(Reshape((*lead, count, 1)), each) for each in (first, second))
        return emit(Reshape((*lead, 2 * count)), emit(Concat(axis), *apart))

    return both(cos, cos), both(emit(Unary("Neg"), sin), sin)


def columns(emit: Emit, x: Value, start: Dim, count: Dim) -> Value:
    """So many elements of the last axis from a place on."""
    lead: Sequence[Dim] = x.shape[:-1]
    return emit(Slice((*[0] * len(lead), start), (*lead, count), (1,) * len(x.shape)), x)
