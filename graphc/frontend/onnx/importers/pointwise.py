"""Elementwise operators. Those of the tables `UNARY` and `BINARY`, and activations, are imported by their names."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import onnx

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode
from graphc.frontend.onnx.table import IMPORTERS, Importing, onnx_op
from graphc.ir import Value
from graphc.ir.types import F32, FLOATS, I32, NARROW
from graphc.ops.activations import Clip, Gelu, IsInf, all_activations
from graphc.ops.base import normalize_axis
from graphc.ops.functions import BINARY, UNARY
from graphc.ops.narrow import ROUNDING, WIDTHS, BitCast, Decode, Encode
from graphc.ops.pointwise import Binary, Cast, Unary, Where


def _unary(function: str) -> Importing:
    return lambda node, emit: emit(Unary(function), node.input(0))


def _binary(function: str) -> Importing:
    return lambda node, emit: emit(Binary(function), node.input(0), second(node, emit))


def _with_settings(op: type[Any]) -> Importing:
    """The importer of a function with settings: attributes have their names."""

    def importing(node: OnnxNode, emit: SizeEmit) -> Value:
        return emit(op(**{name: node.float(name, usual) for name, usual in op.usual().items()}), node.input(0))

    return importing


def second(node: OnnxNode, emit: SizeEmit) -> Value:
    """The second operand; before opset 7 an attribute said where its axes lie in the first's."""
    a, b = node.input(0), node.input(1)
    if node.opset >= 7 or not node.has("axis"):
        return b
    after = a.type.rank - normalize_axis(node.int("axis"), a.type.rank) - b.type.rank
    return to_shape(emit, b, (*b.shape, *[1] * after))


ROWS: dict[str, Importing] = {
    **{name: _unary(name) for name in UNARY},
    **{name: _binary(name) for name in BINARY},
    **{name: _with_settings(op) for name, op in all_activations().items()},
}
"""Importers of what the tables have; an operator that is spelled otherwise has one of its own, here or elsewhere."""

for name, importer in ROWS.items():
    if onnx.defs.has(name):
        IMPORTERS.setdefault(("", name), importer)


@onnx_op("IsInf")
def is_infinite(node: OnnxNode, emit: SizeEmit) -> Value:
    """Infinities of the signs that are looked for."""
    signs = (bool(node.int(name, 1)) for name in ("detect_positive", "detect_negative"))
    return emit(IsInf(*signs), node.input(0))


@onnx_op("Gelu")
def gelu(node: OnnxNode, emit: SizeEmit) -> Value:
    """Exact, or approximated."""
    return emit(Gelu(node.choice("approximate", "none", ("none", "tanh"))), node.input(0))


@onnx_op("Sum", "Max", "Min")
def variadic(node: OnnxNode, emit: SizeEmit) -> Value:
    """Any number of inputs, combined from the left."""
    operator = Binary({"Sum": "Add"}.get(node.operator, node.operator))
    return reduce(lambda a, b: emit(operator, a, b), node.given())


@onnx_op("Mean")
def mean(node: OnnxNode, emit: SizeEmit) -> Value:
    """The mean of any number of inputs."""
    total = reduce(lambda a, b: emit(Binary("Add"), a, b), node.given())
    return emit(Binary("Div"), total, emit.constant(len(node.inputs), like=total))


@onnx_op("Mod")
def mod(node: OnnxNode, emit: SizeEmit) -> Value:
    """The remainder with the divisor's sign, or C's fmod."""
    return emit(Binary("Fmod" if node.int("fmod", 0) else "Mod"), node.input(0), node.input(1))


@onnx_op("BitShift")
def bit_shift(node: OnnxNode, emit: SizeEmit) -> Value:
    """A shift whose direction is an attribute."""
    left = node.choice("direction", "", ("LEFT", "RIGHT")) == "LEFT"
    return emit(Binary("BitShiftLeft" if left else "BitShiftRight"), node.input(0), node.input(1))


@onnx_op("Pow")
def power(node: OnnxNode, emit: SizeEmit) -> Value:
    """The base's type is the result's; an exponent of another type is converted."""
    base, exponent = node.input(0), second(node, emit)
    if exponent.dtype == base.dtype:
        return emit(Binary("Pow"), base, exponent)
    if base.dtype in FLOATS:
        return emit(Binary("Pow"), base, emit(Cast(base.dtype), exponent))
    wide = np.dtype(np.float64)
    return emit(Cast(base.dtype), emit(Binary("Pow"), emit(Cast(wide), base), emit(Cast(wide), exponent)))


@onnx_op("PRelu")
def prelu(node: OnnxNode, emit: SizeEmit) -> Value:
    """Where negative, times a slope: one for each channel before opset 7, else one that broadcasts."""
    x, slope = node.input(0), node.input(1)
    if slope.type.rank == 1 and x.type.rank > 2 and node.opset < 7:
        slope = to_shape(emit, slope, (*slope.shape, *[1] * (x.type.rank - 2)))
    return emit(Binary("PRelu"), x, slope)


@onnx_op("Where")
def where(node: OnnxNode, emit: SizeEmit) -> Value:
    """One of two by a condition."""
    return emit(Where(), node.input(0), node.input(1), node.input(2))


@onnx_op("Cast")
def cast(node: OnnxNode, emit: SizeEmit) -> Value:
    """Another element type."""
    x, dtype = node.input(0), node.dtype("to")
    return converted(emit, x, dtype, bool(node.int("saturate", 1)), node.choice("round_mode", "up", ROUNDING))


@onnx_op("CastLike")
def cast_like(node: OnnxNode, emit: SizeEmit) -> Value:
    """The element type of another tensor."""
    x, dtype = node.input(0), node.input(1).dtype
    return converted(emit, x, dtype, bool(node.int("saturate", 1)), node.choice("round_mode", "up", ROUNDING))


def converted(emit: SizeEmit, x: Value, dtype: np.dtype, saturate: bool = True, rounding: str = "up") -> Value:
    """The numbers in another element type; those of a byte or less by way of float32 or int32."""
    if x.dtype == dtype:
        return x
    if x.dtype in NARROW:
        x = emit(Decode(), x)
    if dtype not in NARROW:
        return x if x.dtype == dtype else emit(Cast(dtype), x)
    wide = I32 if dtype in WIDTHS else F32
    return emit(Encode(dtype, saturate, rounding), x if x.dtype == wide else emit(Cast(wide), x))


@onnx_op("Clip")
def clip(node: OnnxNode, emit: SizeEmit) -> Value:
    """Bounds are attributes before opset 11 and inputs since; either may be left out."""
    x = node.input(0)
    if node.opset < 11:
        return emit(Clip(node.float("min", None), node.float("max", None)), x)
    bounds = [node.optional(1), node.optional(2)]
    if all(bound is None or (bound.data is not None and bound.data.size == 1) for bound in bounds):
        low, high = (None if bound is None else emit.scalar(bound, "a bound") for bound in bounds)
        return x if low is None and high is None else emit(Clip(low, high), x)
    for function, bound in zip(("Max", "Min"), bounds, strict=True):
        if bound is not None:
            x = emit(Binary(function), x, bound)
    return x


@onnx_op("BitCast")
def bit_cast(node: OnnxNode, emit: SizeEmit) -> Value:
    """The same bits as another type."""
    x, dtype = node.input(0), node.dtype("to")
    return x if x.dtype == dtype else emit(BitCast(dtype), x)
