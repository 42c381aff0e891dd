"""The softmax family: what makes shares of the elements along an axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphc.ir.graph import Value
from graphc.ir.types import F32, F64, I64, TensorType
from graphc.ops.base import Emit, Op
from graphc.ops.movement import Reshape, Transpose
from graphc.ops.norm import float_type
from graphc.ops.pointwise import Binary, Cast, Unary
from graphc.ops.precision import NARROW, in_float32
from graphc.ops.reduce import Reduce
from graphc.ops.sequences import Range
from graphc.ops.sorting import ArgMax

if TYPE_CHECKING:
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor


@dataclass(frozen=True)
class Softmax(Op):
    """`exp(x)` divided by its sum along an axis."""

    axis: int

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """x -> x's type."""
        return (float_type(self.axis, inputs[0]),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float64, rounded once."""
        power = np.exp(below_maximum(inputs[0].astype(F64), self.axis))
        return ((power / power.sum(self.axis, keepdims=True)).astype(inputs[0].dtype),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...]:
        """Along the last axis, or by exponentials of what is at most 0."""
        if inputs[0].dtype in NARROW:
            return in_float32(emit, self, *inputs)
        (x,) = inputs
        if x.dtype == F32 and self.axis != len(x.shape) - 1:
            return (along_last(emit, Softmax(len(x.shape) - 1), x, self.axis),)
        power = emit(Unary("Exp"), emit_below_maximum(emit, x, self.axis))
        return (emit(Binary("Div"), power, emit(Reduce("sum", (self.axis,), True), power)),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_soft_max`, along the last axis."""
        return b.over_last("ggml_soft_max", inputs[0]) if self.axis == b.types[0].rank - 1 else None


@dataclass(frozen=True)
class LogSoftmax(Op):
    """The logarithm of `Softmax`, without loss where that is close to 0."""

    axis: int

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """x -> x's type."""
        return (float_type(self.axis, inputs[0]),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float64, rounded once."""
        below = below_maximum(inputs[0].astype(F64), self.axis)
        return ((below - np.log(np.exp(below).sum(self.axis, keepdims=True))).astype(inputs[0].dtype),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...]:
        """`x - max - log(sum(exp(x - max)))`."""
        if inputs[0].dtype in NARROW:
            return in_float32(emit, self, *inputs)
        below = emit_below_maximum(emit, inputs[0], self.axis)
        total = emit(Reduce("sum", (self.axis,), True), emit(Unary("Exp"), below))
        return (emit(Binary("Sub"), below, emit(Unary("Log"), total)),)


@dataclass(frozen=True)
class Hardmax(Op):
    """1 at the first largest element along an axis, 0 elsewhere."""

    axis: int

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """x -> x's type."""
        return (float_type(self.axis, inputs[0]),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """By the position of the largest element."""
        (x,) = inputs
        y = np.zeros_like(x)
        np.put_along_axis(y, np.expand_dims(x.argmax(self.axis), self.axis), 1, self.axis)
        return (y,)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...]:
        """Where the position is that of the largest element."""
        (x,) = inputs
        size = x.shape[self.axis]
        places = emit(Reshape((size, *[1] * (len(x.shape) - 1 - self.axis))), emit(Range(0, size, 1, I64)))
        largest = emit(ArgMax(self.axis, True, False), x)
        return (emit(Cast(x.dtype), emit(Binary("Equal"), places, largest)),)


def below_maximum(x: np.ndarray, axis: int) -> np.ndarray:
    """`x - max(x)`."""
    return np.asarray(x - x.max(axis, keepdims=True))


def emit_below_maximum(emit: Emit, x: Value, axis: int) -> Value:
    """`x - max(x)`."""
    return emit(Binary("Sub"), x, emit(Reduce("max", (axis,), True), x))


def along_last(emit: Emit, op: Op, x: Value, axis: int) -> Value:
    """An operator that works along the last axis, applied along another."""
    rank = len(x.shape)
    order = (*(i for i in range(rank) if i != axis), axis)
    back = tuple(order.index(i) for i in range(rank))
    return emit(Transpose(back), emit(op, emit(Transpose(order), x)))
