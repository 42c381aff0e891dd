"""Operators on bytes that stand for real numbers, as onnxruntime's quantizers write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.control import take
from graphc.frontend.onnx.importers.matmul import integer_product
from graphc.frontend.onnx.importers.microsoft.activations import biased
from graphc.frontend.onnx.importers.microsoft.attention import self_attention
from graphc.frontend.onnx.importers.microsoft.embedding import Tables, embedded
from graphc.frontend.onnx.importers.microsoft.layouts import channels_first, channels_last
from graphc.frontend.onnx.importers.pool import averages
from graphc.frontend.onnx.importers.quantize import convolved, dequantize_linear, quantize_linear, requantized
from graphc.frontend.onnx.importers.recurrent import CELLS, Cell, Layer, layers
from graphc.frontend.onnx.importers.sizes import to_shape, unique_axes
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ir.types import F32, I32
from graphc.ops.activations import LeakyRelu
from graphc.ops.base import Op, normalize_axis
from graphc.ops.matmul import MatMul, swap
from graphc.ops.movement import Concat
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.quantized import Dequantize, Quantize
from graphc.ops.ranges import quantized_by_range
from graphc.ops.reduce import Reduce
from graphc.ops.softmax import Softmax
from graphc.shapes import product

Step: TypeAlias = Callable[[OnnxNode, SizeEmit, Value], Value]

onnx_op("QuantizeLinear", domain=MICROSOFT)(quantize_linear)
onnx_op("DequantizeLinear", domain=MICROSOFT)(dequantize_linear)


def real(node: OnnxNode, emit: SizeEmit, first: int) -> Value:
    """The numbers that an input stands for, whose scale and zero point are the two inputs behind it."""
    x, scale = node.input(first), _number(emit, node.input(first + 1))
    return emit.unfolded(Dequantize(), x, scale, _zero(emit, node.optional(first + 2), x))


def whole(node: OnnxNode, emit: SizeEmit, y: Value, first: int, like: Value) -> Value:
    """Numbers as bytes: an input is their scale, the one behind it their zero point, or 0 of the type of `like`."""
    return emit(Quantize(), y, _number(emit, node.input(first)), _zero(emit, node.optional(first + 1), like))


def _number(emit: SizeEmit, x: Value) -> Value:
    """A tensor of one element without axes; others as they are."""
    return to_shape(emit, x, ()) if x.type.size == 1 else x


def _zero(emit: SizeEmit, zero: Value | None, like: Value) -> Value:
    return emit.constant(np.zeros((), like.dtype)) if zero is None else _number(emit, zero)


@onnx_op("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_binary(node: OnnxNode, emit: SizeEmit) -> Value:
    """A sum or a product of two tensors of bytes, rounded once."""
    a, b = real(node, emit, 0), real(node, emit, 3)
    return whole(node, emit, emit(Binary(node.operator.removeprefix("QLinear")), a, b), 6, node.input(0))


def _sigmoid(node: OnnxNode, emit: SizeEmit, x: Value) -> Value:
    return emit(Unary("Sigmoid"), x)


def _leaky_relu(node: OnnxNode, emit: SizeEmit, x: Value) -> Value:
    return emit(LeakyRelu(node.float("alpha", 0.01)), x)


def _softmax(node: OnnxNode, emit: SizeEmit, x: Value) -> Value:
    axis = normalize_axis(node.int("axis", -1), x.type.rank)
    if node.int("opset") >= 13:
        return emit(Softmax(axis), x)
    flat = to_shape(emit, x, (*x.shape[:axis], product(x.shape[axis:])))
    return to_shape(emit, emit(Softmax(axis), flat), x.shape)


def _mean(node: OnnxNode, emit: SizeEmit, x: Value) -> Value:
    axes = unique_axes(node.ints("axes", list(range(x.type.rank))), x.type.rank)
    return emit(Reduce("mean", axes, bool(node.int("keepdims", 1))), x)


def _global_average(node: OnnxNode, emit: SizeEmit, x: Value) -> Value:
    first = 1 if node.int("channels_last", 0) else 2
    return emit(Reduce("mean", tuple(range(first, first + x.type.rank - 2)), True), x)


def _average(node: OnnxNode, emit: SizeEmit, x: Value) -> Value:
    if not node.int("channels_last", 0):
        return averages(node, emit, x)
    return channels_last(emit, averages(node, emit, channels_first(emit, x)))


STEPS: dict[str, Step] = {
    "QLinearSigmoid": _sigmoid,
    "QLinearLeakyRelu": _leaky_relu,
    "QLinearSoftmax": _softmax,
    "QLinearReduceMean": _mean,
    "QLinearGlobalAveragePool": _global_average,
    "QLinearAveragePool": _average,
}
"""What operators on one tensor do between the numbers that its bytes stand for and those of the result."""


@onnx_op(*STEPS, domain=MICROSOFT)
def qlinear_unary(node: OnnxNode, emit: SizeEmit) -> Value:
    """What the name says, of the numbers that bytes stand for; rounded once."""
    y = STEPS[node.operator](node, emit, real(node, emit, 0))
    return whole(node, emit, y, 3, node.input(0))


@onnx_op("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(node: OnnxNode, emit: SizeEmit) -> Value:
    """Tensors side by side, each with its own scale and zero point."""
    firsts = range(2, len(node.inputs), 3)
    if not firsts or len(node.inputs) % 3 != 2:
        raise ModelError(f"{len(node.inputs)} inputs, which are not a scale, a zero point and three for each tensor")
    parts = [whole(node, emit, real(node, emit, first), 0, node.input(first)) for first in firsts]
    return emit(Concat(normalize_axis(node.int("axis"), parts[0].type.rank)), *parts)


@onnx_op("QLinearWhere", domain=MICROSOFT)
def qlinear_where(node: OnnxNode, emit: SizeEmit) -> Value:
    """One of two by a condition, with the scale of the result."""
    a, b = (whole(node, emit, real(node, emit, first), 7, node.input(first)) for first in (1, 4))
    return emit(Where(), node.input(0), a, b)


@onnx_op("QLinearConv", domain=MICROSOFT)
def qlinear_conv(node: OnnxNode, emit: SizeEmit) -> Value:
    """As ONNX's; the channels of images may be last."""
    x, last = node.input(0), bool(node.int("channels_last", 0))
    y = convolved(node, emit, channels_first(emit, x) if last else x)
    return channels_last(emit, y) if last else y


@onnx_op("QGemm", domain=MICROSOFT)
def qgemm(node: OnnxNode, emit: SizeEmit) -> Value:
    """alpha * A' B' + C of bytes, with C in int32; as bytes if the result has a scale, else as float32."""
    a, b = (
        emit(swap(2), node.input(i)) if node.int(name, 0) else node.input(i)
        for i, name in ((0, "transA"), (3, "transB"))
    )
    total = integer_product(emit, a, b, _number(emit, node.input(2)), _number(emit, node.input(5)))
    total = biased(emit, total, node.optional(6))
    factor = emit(Binary("Mul"), _number(emit, node.input(1)), _number(emit, node.input(4)))
    if node.float("alpha", 1.0) != 1.0:
        factor = emit(Binary("Mul"), factor, emit.constant(node.float("alpha"), like=factor))
    if node.optional(7) is None:
        return emit(Binary("Mul"), emit(Cast(F32), total), factor)
    return requantized(emit, total, emit(Binary("Div"), factor, _number(emit, node.input(7))), node.input(8))


@onnx_op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(node: OnnxNode, emit: SizeEmit) -> Value:
    """A product of bytes less their zero points, scaled, with a bias."""
    scales = (_number(emit, node.input(2)), _number(emit, node.input(3)))
    return _scaled_product(
        emit, (node.input(0), node.input(1)), scales, (node.optional(4), node.optional(5)), node.optional(6)
    )


def _scaled_product(
    emit: SizeEmit,
    operands: tuple[Value, Value],
    scales: tuple[Value, Value],
    zeros: tuple[Value | None, Value | None],
    bias: Value | None,
) -> Value:
    """A product of integers in float32."""
    a_zero, b_zero = (None if zero is None else _number(emit, zero) for zero in zeros)
    total = emit(Cast(F32), integer_product(emit, *operands, a_zero, b_zero))
    return biased(emit, emit(Binary("Mul"), total, emit(Binary("Mul"), *scales)), bias)


@onnx_op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(node: OnnxNode, emit: SizeEmit) -> Value:
    """A product with quantized weights. The other operand is quantized by its own range when the model runs."""
    x = node.input(0)
    bytes_, scale, zero = quantized_by_range(emit, x)
    scales = (scale, _number(emit, node.input(2)))
    return _scaled_product(emit, (bytes_, node.input(1)), scales, (zero, node.optional(3)), node.optional(4))


class QuantizedLayer(Layer):
    """One direction of a layer whose weights are bytes [in, gates * hidden]: what they are multiplied with is quantized at each
    step by its own range."""

    held = (*Layer.held, "weight_scale", "weight_zero", "recurrence_scale", "recurrence_zero")
    hidden_axis = 1

    def __init__(self, node: OnnxNode, emit: SizeEmit, cell: Cell, direction: int, functions: Sequence[Op]) -> None:
        super().__init__(node, emit, cell, direction, functions)
        scaling = [_number(emit, take(emit, node.input(place), 0, direction)) for place in range(8, 12)]
        self.weight_scale, self.weight_zero, self.recurrence_scale, self.recurrence_zero = scaling

    def product(self, name: str, x: Value, first: int, count: int) -> Value:
        """See `Layer.product`: of all gates at once."""
        assert (first, count) == (0, self.cell.gates)
        bytes_, scale, zero = quantized_by_range(self.emit, x)
        weights, factor, weight_zero = (getattr(self, name + end) for end in ("", "_scale", "_zero"))
        return _scaled_product(self.emit, (bytes_, weights), (scale, factor), (zero, weight_zero), None)


@onnx_op("DynamicQuantizeLSTM", domain=MICROSOFT)
def quantized_lstm(node: OnnxNode, emit: SizeEmit) -> tuple[Value, ...]:
    """LSTM with weights of bytes. Its input, and its state at each step, are quantized by their ranges when the model runs."""
    return layers(node, emit, CELLS["LSTM"], QuantizedLayer)


@onnx_op("QAttention", domain=MICROSOFT)
def quantized_attention(node: OnnxNode, emit: SizeEmit) -> tuple[Value, Value | None]:
    """Attention whose projections are products of bytes."""
    refuse_unless(not node.int("do_rotary", 0), "rotary embeddings inside are not supported")
    refuse_unless(not node.int("past_present_share_buffer", 0), "a cache that is written in place is not supported")
    scales = (_number(emit, node.input(3)), _number(emit, node.input(4)))
    zeros = (node.optional(6), node.optional(7))
    projected = _scaled_product(emit, (node.input(0), node.input(1)), scales, zeros, node.input(2))
    return self_attention(node, emit, projected, node.optional(5), node.optional(8), None)


@onnx_op("QEmbedLayerNormalization", domain=MICROSOFT)
def quantized_embed_layer_normalization(node: OnnxNode, emit: SizeEmit) -> tuple[Value, Value]:
    """EmbedLayerNormalization of tables of bytes."""
    words, places, segments, gamma, beta = (_table(node, emit, 2 + i, 8 + i, 13 + i) for i in range(5))
    if words is None or places is None or gamma is None or beta is None:
        raise ModelError("a table is missing")
    y, count, _ = embedded(node, emit, Tables(words, places, segments, gamma, beta))
    return y, count


def _table(node: OnnxNode, emit: SizeEmit, index: int, scale: int, zero: int) -> Value | None:
    """The numbers of a table, if there is one."""
    x = node.optional(index)
    if x is None:
        return None
    return emit.unfolded(Dequantize(), x, _number(emit, node.input(scale)), _zero(emit, node.optional(zero), x))


@onnx_op("MatMulInteger16", domain=MICROSOFT)
def matmul_integer_16(node: OnnxNode, emit: SizeEmit) -> Value:
    """Products of 16-bit integers, in 32 bits."""
    signed = all(node.input(index).dtype.kind == "i" for index in range(2))
    return emit(
        MatMul(), *(emit(Cast(I32 if signed else np.dtype(np.uint32)), node.input(index)) for index in range(2))
    )


@onnx_op("MulInteger", domain=MICROSOFT)
def mul_integer(node: OnnxNode, emit: SizeEmit) -> Value:
    """Products of bytes less their zero points, in int32."""
    parts = []
    for index in (0, 2):
        x, zero = emit(Cast(I32), node.input(index)), node.optional(index + 1)
        parts.append(x if zero is None else emit(Binary("Sub"), x, emit(Cast(I32), zero)))
    return emit(Binary("Mul"), *parts)


@onnx_op("ReduceSumInteger", domain=MICROSOFT)
def reduce_sum_integer(node: OnnxNode, emit: SizeEmit) -> Value:
    """Sums of bytes along axes, in 32 bits."""
    x = node.input(0)
    axes = unique_axes(node.ints("axes"), x.type.rank)
    wide = emit(Cast(I32 if x.dtype.kind == "i" else np.dtype(np.uint32)), x)
    return emit(Reduce("sum", axes, bool(node.int("keepdims"))), wide)
