"""Integers that stand for real numbers: (integer - zero point) * scale, for a tensor, an axis or blocks of an axis."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.conv import kernel_of
from graphc.frontend.onnx.importers.matmul import integer_product
from graphc.frontend.onnx.importers.pointwise import converted
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.importers.windows import window
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import F32, F64, FLOATS, I8, I32, NARROW, U8
from graphc.ops.activations import Clip
from graphc.ops.base import normalize_axis
from graphc.ops.integers import IntegerConv
from graphc.ops.movement import Expand
from graphc.ops.narrow import WIDTHS
from graphc.ops.pointwise import Binary, Cast, Unary
from graphc.ops.quantized import SMALL, Dequantize, Quantize, Requantize, blocks_of
from graphc.ops.ranges import quantized_by_range
from graphc.shapes import Dim, product


@onnx_op("DequantizeLinear")
def dequantize_linear(node: OnnxNode, emit: SizeEmit) -> Value:
    """Computed in float32, in the type of the scale or of `output_dtype`."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    wide = F64 if scale.dtype == F64 else F32
    if x.dtype in WIDTHS:
        byte = U8 if x.dtype.name.startswith("u") else I8
        x, zero = converted(emit, x, byte), zero and converted(emit, zero, byte)
    if wide == F32 and x.dtype in (*SMALL, I32):
        scale = _spread(node, emit, converted(emit, scale, F32), x, blocks=True)
        y = emit.unfolded(Dequantize(), x, scale, _zero(node, emit, zero, x, blocks=True))
        return converted(emit, y, _output_dtype(node, scale.dtype))
    y = converted(emit, x, wide)
    if zero is not None:
        y = emit(Binary("Sub"), y, _spread(node, emit, converted(emit, zero, wide), x))
    y = emit(Binary("Mul"), y, _spread(node, emit, converted(emit, scale, wide), x))
    return converted(emit, y, _output_dtype(node, scale.dtype))


@onnx_op("QuantizeLinear")
def quantize_linear(node: OnnxNode, emit: SizeEmit) -> Value:
    """Rounded half to even, and saturated."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    dtype = zero.dtype if zero is not None else _output_dtype(node, U8)
    scale = _spread(node, emit, converted(emit, scale, F32), x)
    if dtype in SMALL:
        return emit(Quantize(), converted(emit, x, F32), scale, _zero(node, emit, zero, x, dtype))
    y = emit(Binary("Div"), converted(emit, x, F32), scale)
    y = y if dtype in NARROW - WIDTHS.keys() else emit(Unary("Round"), y)
    if zero is not None:
        y = emit(Binary("Add"), y, _spread(node, emit, converted(emit, zero, F32), x))
    return saturated(emit, y, dtype)


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: OnnxNode, emit: SizeEmit) -> tuple[Value, ...]:
    """By the range of the numbers, found when the model is run."""
    return quantized_by_range(emit, node.input(0))


def _zero(
    node: OnnxNode, emit: SizeEmit, zero: Value | None, x: Value, dtype: np.dtype | None = None, blocks: bool = False
) -> Value:
    """The zero point that is given, as `_spread` has it; else 0."""
    return emit.constant(np.zeros((), dtype or x.dtype)) if zero is None else _spread(node, emit, zero, x, blocks)


def _output_dtype(node: OnnxNode, default: np.dtype) -> np.dtype:
    return node.dtype("output_dtype") if node.int("output_dtype", 0) else default


def saturated(emit: SizeEmit, x: Value, dtype: np.dtype) -> Value:
    """Numbers in a type, at the ends of its range where they exceed it; whole ones if it is one of integers."""
    if dtype in NARROW - WIDTHS.keys():
        return converted(emit, x, dtype)
    if dtype in WIDTHS:
        info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
        return converted(emit, emit(Clip(float(info.min), float(info.max)), x), dtype)
    refuse_unless(dtype not in FLOATS and dtype.itemsize <= 2, f"quantizing to {dtype.name} is not supported")
    info = np.iinfo(dtype)
    return emit(Cast(dtype), emit(Clip(float(info.min), float(info.max)), x))


def _spread(node: OnnxNode, emit: SizeEmit, scale: Value, x: Value, blocks: bool = False) -> Value:
    """A scale in a shape that broadcasts to x: one number, one for each place of an axis, or one for each block of it. Whole
    `blocks` are left to what reads it, if it takes them."""
    if scale.type.rank == 0 or scale.type.size == 1:
        return to_shape(emit, scale, ())
    axis = normalize_axis(node.int("axis", 1), x.type.rank)
    block = node.int("block_size", 0)
    if not block:
        if scale.type.rank != 1:
            raise ModelError(f"a scale of {scale.type} without block_size")
        return to_shape(emit, scale, along(scale.shape[0], axis, x.type.rank))
    rank = x.type.rank
    if scale.type.rank != rank:
        raise ModelError(f"scales of {scale.type} for blocks of {x.type}")
    sizes = blocks_of(scale.type, x.type) if blocks else None
    if sizes and sizes == tuple(block if i == axis else 1 for i in range(rank)):
        return scale
    split = (*scale.shape[: axis + 1], 1, *scale.shape[axis + 1 :])
    wide = (*scale.shape[: axis + 1], block, *scale.shape[axis + 1 :])
    repeated = emit(Expand(wide), to_shape(emit, scale, split))
    return to_shape(
        emit, repeated, (*scale.shape[:axis], product((scale.shape[axis], block)), *scale.shape[axis + 1 :])
    )


def along(size: Dim, axis: int, rank: int) -> tuple[Dim, ...]:
    """A shape with one axis of that size."""
    return tuple(size if i == axis else 1 for i in range(rank))


@onnx_op("QLinearMatMul")
def qlinear_matmul(node: OnnxNode, emit: SizeEmit) -> Value:
    """A product of integers in int32, scaled and rounded."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (node.input(index) for index in range(8))
    total = integer_product(emit, a, b, a_zero, b_zero)
    left = converted(emit, a_scale, F32)
    if left.type.rank == 1 and left.shape[0] != 1:
        left = to_shape(emit, left, (*left.shape, 1))
    factor = emit(Binary("Mul"), left, converted(emit, b_scale, F32))
    return requantized(emit, total, emit(Binary("Div"), factor, converted(emit, y_scale, F32)), y_zero)


def requantized(emit: SizeEmit, total: Value, factor: Value, zero: Value) -> Value:
    """int32 times a factor, rounded, plus a zero point, in its type."""
    factor, zero = (to_shape(emit, each, ()) if each.type.size == 1 else each for each in (factor, zero))
    if zero.dtype in SMALL:
        return emit(Requantize(), total, factor, zero)
    scaled = emit(Unary("Round"), emit(Binary("Mul"), emit(Cast(F32), total), factor))
    return saturated(emit, emit(Binary("Add"), scaled, converted(emit, zero, F32)), zero.dtype)


@onnx_op("ConvInteger")
def conv_integer(node: OnnxNode, emit: SizeEmit) -> Value:
    """Integers less their zero points, in int32."""
    return _integer_conv(node, emit, node.input(0), node.input(1), node.optional(2), node.optional(3), None)


@onnx_op("QLinearConv")
def qlinear_conv(node: OnnxNode, emit: SizeEmit) -> Value:
    """A convolution of integers with an int32 bias, scaled for each output channel and rounded."""
    return convolved(node, emit, node.input(0))


def convolved(node: OnnxNode, emit: SizeEmit, x: Value) -> Value:
    """QLinearConv of an image, with the node's other inputs."""
    x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (node.input(index) for index in range(1, 8))
    total = _integer_conv(node, emit, x, w, x_zero, w_zero, node.optional(8))
    factor = emit(Binary("Div"), emit(Binary("Mul"), x_scale, w_scale), y_scale)
    shape = () if factor.type.size == 1 else along(factor.shape[0], 1, x.type.rank)
    return requantized(emit, total, to_shape(emit, factor, shape), y_zero)


def _integer_conv(
    node: OnnxNode, emit: SizeEmit, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None, bias: Value | None
) -> Value:
    """Exact, in int32."""
    found = window(node, x.shape[2:], kernel_of(node, x, w))
    operator = IntegerConv(found.strides, found.dilations, found.before, found.after, node.int("group", 1))
    x_zero = emit.constant(np.zeros((), x.dtype)) if x_zero is None else to_shape(emit, x_zero, ())
    w_zero = emit.constant(np.zeros((), w.dtype)) if w_zero is None else w_zero
    bias = emit.constant(np.zeros((), I32)) if bias is None else bias
    return emit(operator, x, w, x_zero, w_zero, bias)
