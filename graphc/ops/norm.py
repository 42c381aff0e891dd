"""Normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import F64, FLOATS, TensorType
from graphc.ops.activations import Clip
from graphc.ops.base import Emit, Op, broadcast_shapes
from graphc.ops.movement import Reshape
from graphc.ops.pointwise import Binary, Unary
from graphc.ops.pool import AveragePool
from graphc.ops.precision import NARROW, in_float32
from graphc.ops.reduce import Reduce
from graphc.shapes import Dim, product

if TYPE_CHECKING:
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor


@dataclass(frozen=True)
class LayerNorm(Op):
    """`(x - mean) / sqrt(variance + epsilon) (* scale (+ bias))`, over the axes from `axis` on."""

    axis: int
    epsilon: float

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """x(, scale(, bias)) -> x's type; scale and bias broadcast to x."""
        return (scaled_type(self.axis, inputs),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float64, rounded once."""
        x, *parameters = (array.astype(F64) for array in inputs)
        axes = tuple(range(self.axis, x.ndim))
        centered = x - x.mean(axes, keepdims=True)
        y = centered / np.sqrt(np.square(centered).mean(axes, keepdims=True) + self.epsilon)
        return (affine(y, *parameters).astype(inputs[0].dtype),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...]:
        """By means."""
        if inputs[0].dtype in NARROW:
            return in_float32(emit, self, *inputs)
        x, *parameters = inputs
        axes = tuple(range(self.axis, len(x.shape)))
        return (emit_affine(emit, standardized(emit, x, axes, self.epsilon), *parameters),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_norm` over the normalized axes, merged; float32."""
        return normalized(b, "ggml_norm", self.axis, self.epsilon, inputs)


@dataclass(frozen=True)
class RMSNorm(Op):
    """`x / sqrt(mean of squares + epsilon) (* scale)`, over the axes from `axis` on."""

    axis: int
    epsilon: float

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """x(, scale) -> x's type; scale broadcasts to x."""
        return (scaled_type(self.axis, inputs),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float64, rounded once."""
        x, *scale = (array.astype(F64) for array in inputs)
        axes = tuple(range(self.axis, x.ndim))
        y = x / np.sqrt(np.square(x).mean(axes, keepdims=True) + self.epsilon)
        return (affine(y, *scale).astype(inputs[0].dtype),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...]:
        """By means."""
        if inputs[0].dtype in NARROW:
            return in_float32(emit, self, *inputs)
        x, *scale = inputs
        axes = tuple(range(self.axis, len(x.shape)))
        return (emit_affine(emit, over_root(emit, x, emit(Unary("Sqr"), x), axes, self.epsilon), *scale),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_rms_norm` over the normalized axes, merged; float32."""
        return normalized(b, "ggml_rms_norm", self.axis, self.epsilon, inputs)


@dataclass(frozen=True)
class GroupNorm(Op):
    """Mean 0 and variance 1 in each group of channels of each image [N, C, ...], then a scale and a bias for each channel."""

    groups: int
    epsilon: float

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """x, scale [C], bias [C] -> x's type."""
        x = channel_type(inputs)
        if self.groups < 1 or x.shape[1] % self.groups != 0:
            raise ShapeError(f"{x.shape[1]} channels do not divide into {self.groups} groups")
        return (x,)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float64, rounded once."""
        x, scale, bias = (array.astype(F64) for array in inputs)
        rows = x.reshape(x.shape[0], self.groups, prod(x.shape[1:]) // self.groups)
        rows = rows - rows.mean(-1, keepdims=True)
        rows /= np.sqrt(np.square(rows).mean(-1, keepdims=True) + self.epsilon)
        shape = (-1, *[1] * (x.ndim - 2))
        return (affine(rows.reshape(x.shape), scale.reshape(shape), bias.reshape(shape)).astype(inputs[0].dtype),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...]:
        """By means over the groups."""
        if inputs[0].dtype in NARROW:
            return in_float32(emit, self, *inputs)
        x, scale, bias = inputs
        rows = emit(Reshape((x.shape[0], self.groups, product(x.shape[1:]) // self.groups)), x)
        y = emit(Reshape(x.shape), standardized(emit, rows, (2,), self.epsilon))
        return (emit_affine(emit, y, *(by_channel(emit, value, x) for value in (scale, bias))),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_group_norm`, for float32."""
        x, scale, bias = inputs
        if not b.floats(*inputs):
            return None
        batch, channels, *spatial = b.types[0].shape
        image = (1, *spatial) if len(spatial) < 2 else (product(spatial[:-1]), spatial[-1])
        y = b.group_norm(b.reshape(x, (batch, channels, *image, *[1] * (2 - len(image)))), self.groups, self.epsilon)
        scaled = b.binary("ggml_mul", y, b.reshape(scale, (channels, 1, 1)))
        result = None if scaled is None else b.binary("ggml_add", scaled, b.reshape(bias, (channels, 1, 1)))
        return None if result is None else b.reshape(result, b.types[0].shape)


@dataclass(frozen=True)
class InstanceNorm(Op):
    """Mean 0 and variance 1 in each channel of each image [N, C, ...], then a scale and a bias for each channel."""

    epsilon: float

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """x, scale [C], bias [C] -> x's type."""
        return (channel_type(inputs),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float64, rounded once."""
        return GroupNorm(inputs[0].shape[1], self.epsilon).eval(*inputs)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...]:
        """A group for each channel; by means where their number is not known."""
        if inputs[0].dtype in NARROW:
            return in_float32(emit, self, *inputs)
        x, scale, bias = inputs
        if isinstance(x.shape[1], int):
            return (emit(GroupNorm(x.shape[1], self.epsilon), *inputs),)
        y = standardized(emit, x, tuple(range(2, len(x.shape))), self.epsilon)
        return (emit_affine(emit, y, *(by_channel(emit, value, x) for value in (scale, bias))),)


@dataclass(frozen=True)
class BatchNorm(Op):
    """`(x - mean) / sqrt(variance + epsilon) * scale + bias` with a number for each channel of [N, C, ...]."""

    epsilon: float

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """x, scale [C], bias [C], mean [C], variance [C] -> x's type."""
        return (channel_type(inputs),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float64, rounded once."""
        x, *parameters = (array.astype(F64) for array in inputs)
        shape = (-1, *[1] * (x.ndim - 2))
        scale, bias, mean, variance = (value.reshape(shape) for value in parameters)
        return (((x - mean) / np.sqrt(variance + self.epsilon) * scale + bias).astype(inputs[0].dtype),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...]:
        """One product and one sum with what is made of the parameters, which is usually constant."""
        if inputs[0].dtype in NARROW:
            return in_float32(emit, self, *inputs)
        x, scale, bias, mean, variance = inputs
        epsilon = emit.constant(self.epsilon, like=variance)
        factor = emit(Binary("Div"), scale, emit(Unary("Sqrt"), emit(Binary("Add"), variance, epsilon)))
        offset = emit(Binary("Sub"), bias, emit(Binary("Mul"), mean, factor))
        return (emit_affine(emit, x, *(by_channel(emit, value, x) for value in (factor, offset))),)


@dataclass(frozen=True)
class LpNorm(Op):
    """`x / max(norm, least)` along an axis, by the sum of absolute values (`p` 1), or the root of the sum of squares (2)."""

    axis: int
    p: int
    least: float

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """x -> x's type."""
        if self.p not in (1, 2):
            raise ShapeError(f"there is no norm of order {self.p} to divide by; only 1 and 2")
        return (float_type(self.axis, inputs[0]),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float64, rounded once."""
        x = inputs[0].astype(F64)
        norm = np.maximum(np.linalg.norm(x, self.p, self.axis, keepdims=True), self.least)
        with np.errstate(invalid="ignore"):
            return ((x / norm).astype(inputs[0].dtype),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...]:
        """By a sum."""
        if inputs[0].dtype in NARROW:
            return in_float32(emit, self, *inputs)
        (x,) = inputs
        total = emit(Reduce("sum", (self.axis,), True), emit(Unary("Abs" if self.p == 1 else "Sqr"), x))
        norm = total if self.p == 1 else emit(Unary("Sqrt"), total)
        return (emit(Binary("Div"), x, emit(Clip(low=self.least), norm) if self.least > 0 else norm),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_l2_norm` along the last axis; float32."""
        (x,) = inputs
        if self.p != 2 or self.axis != len(b.types[0].shape) - 1 or not b.floats(x):
            return None
        return b.call("ggml_l2_norm", b.rows(x), b.single(self.least), rank=x.rank)


@dataclass(frozen=True)
class LRN(Op):
    """`x / (bias + alpha / size * sum)^beta`, where the sum is that of the squares in a window of `size` channels."""

    size: int
    alpha: float
    beta: float
    bias: float

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """[N, C, ...] -> the same."""
        (x,) = inputs
        if x.rank < 2 or x.dtype not in FLOATS or self.size < 1:
            raise ShapeError(f"a window of {self.size} channels of {x}")
        return (x,)

    def sides(self, channels: Dim) -> tuple[int, int]:
        """The channels before and after one's own that a window has, of so many that there are."""
        before = (self.size - 1) // 2
        most = channels if isinstance(channels, int) else self.size
        return min(before, most), min(self.size - 1 - before, most)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float64, rounded once."""
        x = inputs[0].astype(F64)
        before, after = self.sides(x.shape[1])
        padded = np.pad(np.square(x), [(0, 0), (before, after)] + [(0, 0)] * (x.ndim - 2))
        total = np.lib.stride_tricks.sliding_window_view(padded, before + 1 + after, 1).sum(-1)
        return ((x / (self.bias + self.alpha / self.size * total) ** self.beta).astype(inputs[0].dtype),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...]:
        """By average pooling along the channels."""
        if inputs[0].dtype in NARROW:
            return in_float32(emit, self, *inputs)
        (x,) = inputs
        before, after = self.sides(x.shape[1])
        width = before + 1 + after
        squares = emit(Reshape((x.shape[0], 1, x.shape[1], product(x.shape[2:]))), emit(Unary("Sqr"), x))
        pool = AveragePool((width, 1), (1, 1), (1, 1), (before, 0), (after, 0), False, True)
        mean = emit(Reshape(x.shape), emit(pool, squares))
        base = emit_affine(
            emit, mean, emit.constant(self.alpha * width / self.size, like=x), emit.constant(self.bias, like=x)
        )
        return (emit(Binary("Div"), x, emit(Binary("Pow"), base, emit.constant(self.beta, like=x))),)


def float_type(axis: int, x: TensorType) -> TensorType:
    """The type of a float tensor that has this axis. Raises ShapeError."""
    if x.dtype not in FLOATS or not 0 <= axis < x.rank:
        raise ShapeError(f"takes a tensor of floats with axis {axis}, not {x}")
    return x


def scaled_type(axis: int, inputs: Sequence[TensorType]) -> TensorType:
    """The type of the first input, to which the others broadcast. Raises ShapeError."""
    x = float_type(axis, inputs[0])
    for other in inputs[1:]:
        if other.dtype != x.dtype or broadcast_shapes(x.shape, other.shape) != x.shape:
            raise ShapeError(f"scale or bias {other} does not broadcast to {x}")
    return x


def channel_type(inputs: Sequence[TensorType]) -> TensorType:
    """The type of the first input, [N, C, ...]; the others are [C]. Raises ShapeError."""
    x = float_type(1, inputs[0])
    for other in inputs[1:]:
        if other.dtype != x.dtype or other.shape != x.shape[1:2]:
            message = f"{other} is not one {x.dtype} for each of {x.shape[1]} channels"
            raise ShapeError(message, [(a, b) for a, b in zip(other.shape, x.shape[1:2], strict=False) if a != b])
    return x


def affine(y: np.ndarray, scale: np.ndarray | None = None, bias: np.ndarray | None = None) -> np.ndarray:
    """`y * scale + bias`, or as much of it as there is."""
    scaled: np.ndarray = y if scale is None else y * scale
    return scaled if bias is None else scaled + bias


def emit_affine(emit: Emit, y: Value, scale: Value | None = None, bias: Value | None = None) -> Value:
    """`y * scale + bias`, or as much of it as there is."""
    y = y if scale is None else emit(Binary("Mul"), y, scale)
    return y if bias is None else emit(Binary("Add"), y, bias)


def by_channel(emit: Emit, parameter: Value, x: Value) -> Value:
    """A number for each channel, to broadcast to [N, C, ...]."""
    return emit(Reshape((*parameter.shape, *[1] * (len(x.shape) - 2))), parameter)


def standardized(emit: Emit, x: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    """Mean 0 and variance 1 over the axes."""
    centered = emit(Binary("Sub"), x, emit(Reduce("mean", axes, True), x))
    return over_root(emit, centered, emit(Unary("Sqr"), centered), axes, epsilon)


def over_root(emit: Emit, x: Value, squares: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    """`x / sqrt(mean of squares + epsilon)`."""
    mean = emit(Binary("Add"), emit(Reduce("mean", axes, True), squares), emit.constant(epsilon, like=x))
    return emit(Binary("Div"), x, emit(Unary("Sqrt"), mean))


def normalized(b: Builder, function: str, axis: int, epsilon: float, inputs: Sequence[Tensor]) -> Tensor | None:
    """`ggml_norm` or `ggml_rms_norm` over the axes from `axis` on, then scale and bias; float32."""
    x, *parameters = inputs
    shape = b.types[0].shape
    aligned = 4 if len(shape) <= 4 else 3
    if not b.floats(*inputs) or any(type.rank > aligned for type in b.types[1:]):
        return None
    rows: tuple[Dim, ...] = (*shape[:axis], product(shape[axis:]))
    y = b.over_last(function, b.reshape(x, rows), epsilon)
    result = None if y is None else b.reshape(y, shape)
    for operation, parameter in zip(("ggml_mul", "ggml_add"), parameters, strict=False):
        result = None if result is None else b.binary(operation, result, parameter)
    return result
