"""Rules that compute in integers what a file says in floats between DequantizeLinear and QuantizeLinear.

The sums of products are exact then, and are scaled once: the numbers are those of QLinearMatMul and QLinearConv. What the
file says literally rounds each product and sum; where both are quantized, they differ by 1 at most, and only where the exact
number lies within these roundings of the middle between two integers. Every other rule here changes no bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ir.numbers import decided, made_by, read_numbers
from graphc.ir.types import BYTES, F32, I32, INTEGERS, U8
from graphc.ops.activations import Clip
from graphc.ops.base import Emit, broadcast_shapes
from graphc.ops.conv import Conv
from graphc.ops.integers import LARGEST, IntegerConv, IntegerMatMul
from graphc.ops.matmul import MatMul, swap
from graphc.ops.movement import Concat, Expand, Reshape
from graphc.ops.narrow import WIDTHS
from graphc.ops.pointwise import Binary, Cast
from graphc.ops.pool import MaxPool
from graphc.ops.quantized import Dequantize, Quantize, Requantize, ScaledMatMul, around_zero
from graphc.ops.resize import Resize
from graphc.rewrite.engine import Refusal, Site, rule
from graphc.shapes import is_static, product

MOST_CONCATENATED = 8
"""The most tensors that a rule joins before their numbers are scaled."""

ALIKE = 4 * 2.0**-24
"""How far a bias's scale may be from the product of the two others: some roundings."""


@rule("m := MatMul(Dequantize(a, a_scale, a_zero), Dequantize(b, b_scale, b_zero))")
def integer_product(
    emit: Emit, m: Node, a: Value, b: Value, a_scale: Value, a_zero: Value, b_scale: Value, b_zero: Value
) -> Value | Refusal:
    """A product of quantized matrices is one of integers; the columns of the second may have scales of their own."""
    assert isinstance(m.op, MatMul)
    if (reason := _unfit(a, b, a_scale, a_zero, b_scale, b_zero)) or min(len(a.shape), len(b.shape)) < 2:
        return Refusal(reason or "a vector is multiplied")
    inner = a.shape[-2 if m.op.transpose_a else -1]
    if not _fits(inner):
        return Refusal("the sums may not fit 32 bits")
    columns = _along(b, len(b.shape) - (2 if m.op.transpose_b else 1), b_scale, b_zero)
    if columns is None:
        return Refusal("the scales are not those of columns")
    if m.op.transpose_a:
        a = emit(swap(len(a.shape)), a)
    scales, zeros = columns
    zero = emit(Reshape(()), a_zero) if a_zero.shape else a_zero
    total = emit(
        IntegerMatMul(m.op.transpose_b), a, b, zero, emit.constant(zeros), emit.constant(np.zeros((), np.int32))
    )
    return _scaled(emit, total, _number(a_scale) * scales)


@rule("c := Conv(Dequantize(x, x_scale, x_zero), Dequantize(w, w_scale, w_zero), *bias)")
def integer_convolution(
    emit: Emit,
    c: Node,
    x: Value,
    w: Value,
    x_scale: Value,
    x_zero: Value,
    w_scale: Value,
    w_zero: Value,
    bias: Value | None = None,
) -> Value | Refusal:
    """A convolution of a quantized image with quantized kernels is one of integers; each kernel may have its own scale."""
    assert isinstance(c.op, Conv)
    if reason := _unfit(x, w, x_scale, x_zero, w_scale, w_zero):
        return Refusal(reason)
    kernels = _along(w, 0, w_scale, w_zero)
    if kernels is None:
        return Refusal("the scales are not those of kernels")
    scales, zeros = kernels
    factor = _number(x_scale) * scales
    whole = np.zeros((), np.int32) if bias is None else _integers(bias, factor)
    if whole is None or not _fits(product(w.shape[1:]), whole):
        return Refusal("the bias is not quantized with the product of both scales, or the sums may not fit 32 bits")
    op = IntegerConv(c.op.strides, c.op.dilations, c.op.pads_before, c.op.pads_after, c.op.group)
    zero = emit(Reshape(()), x_zero) if x_zero.shape else x_zero
    total = emit(op, x, w, zero, emit.constant(zeros), emit.constant(whole))
    return _scaled(emit, total, factor if factor.size == 1 else factor.reshape(-1, *[1] * (len(x.shape) - 2)))


@rule("Add(Dequantize(total, scale, 0), bias)")
def integer_bias(emit: Emit, total: Value, scale: Value, bias: Value) -> Value | Refusal:
    """A bias with the same scale as a product of integers is added to it."""
    node = total.producer
    if node is None or not isinstance(node.op, IntegerMatMul) or np.any(read_numbers(node.inputs[4])):
        return Refusal("no product of integers without a bias")
    if not scale.static:
        return Refusal("the scale is computed when the model is run")
    numbers = _integers(bias, np.asarray(read_numbers(scale)))
    if numbers is None or numbers.shape not in ((), (1,), total.shape[-1:]):
        return Refusal("the bias is not quantized with the product of both scales")
    if not _fits(node.inputs[0].shape[-1], numbers):
        return Refusal("the sums may not fit 32 bits")
    return emit(Dequantize(), emit(node.op, *node.inputs[:4], emit.constant(numbers)), scale, _zero(emit))


@rule("Mul(Cast(total), scale)")
def scaled_sums(emit: Emit, total: Value, scale: Value) -> Value | Refusal:
    """Sums of products that a file scales itself, as onnxruntime's dynamic quantizer writes it, are scaled in one kernel."""
    made = total.producer
    if total.dtype != I32 or scale.dtype != F32 or made is None or not isinstance(made.op, IntegerMatMul | IntegerConv):
        return Refusal("no sums of products of bytes")
    if broadcast_shapes(total.shape, scale.shape) != total.shape:
        return Refusal("the scale is larger")
    return emit(Dequantize(), total, scale, _zero(emit))


@rule("Quantize(Dequantize(x, before, from_zero), after, to_zero)")
def requantized(emit: Emit, x: Value, before: Value, from_zero: Value, after: Value, to_zero: Value) -> Value | Refusal:
    """Integers are scaled once: by the quotient of both scales; not at all if they stay what they are."""
    if not (before.static and after.static and from_zero.static and to_zero.static):
        return Refusal("a scale or a zero point is computed when the model is run")
    scale, next_scale = np.asarray(read_numbers(before)), np.asarray(read_numbers(after))
    if x.dtype == to_zero.dtype:
        same = np.array_equal(scale, next_scale) and np.array_equal(read_numbers(from_zero), read_numbers(to_zero))
        return x if same and _usual(scale) else Refusal("the scale or the zero point changes")
    if x.dtype != I32 or np.any(read_numbers(from_zero)):
        return Refusal("no sums of products")
    return emit(Requantize(), x, emit.constant(scale / next_scale), to_zero)


@rule("Quantize(Relu(x), scale, zero)")
def quantized_relu(emit: Emit, x: Value, scale: Value, zero: Value) -> Value | Refusal:
    """Rounding keeps order: the larger of a number and 0, quantized, is the larger of the number quantized and the zero point."""
    if not scale.static or not np.all(read_numbers(scale) > 0):
        return Refusal("the scale is not known to be positive")
    y = emit(Quantize(), x, scale, zero)
    least = zero.static and np.all(read_numbers(zero) == np.iinfo(zero.dtype).min)
    return y if least else emit(Binary("Max"), y, zero)


@rule("Quantize(c := Clip(x), scale, zero)")
def quantized_clip(emit: Emit, c: Node, x: Value, scale: Value, zero: Value) -> Value | Refusal:
    """The same for both ends of a range."""
    assert isinstance(c.op, Clip)
    if not (
        scale.static and zero.static and scale.type.size == zero.type.size == 1 and np.all(read_numbers(scale) > 0)
    ):
        return Refusal("no one scale that is known to be positive")
    number, middle = np.asarray(read_numbers(scale)).reshape(()), np.asarray(read_numbers(zero)).reshape(())
    limits = np.iinfo(zero.dtype)
    ends = [
        None if end is None else int(Quantize().eval(np.asarray(end, F32), number, middle)[0])
        for end in (c.op.low, c.op.high)
    ]
    low, high = (None if end == limit else end for end, limit in zip(ends, (limits.min, limits.max), strict=True))
    y = emit(Quantize(), x, scale, zero)
    return y if low is None and high is None else emit(Clip(low, high), y)


@rule(
    *(
        f"m := {name}(Dequantize(x, scale, zero))"
        for name in ("Reshape", "Transpose", "Slice", "Expand", "MaxPool", "Resize")
    )
)
def moved_integers(emit: Emit, m: Node, x: Value, scale: Value, zero: Value) -> Value | Refusal:
    """Integers are moved, and the larger chosen among them, before they are scaled."""
    if scale.type.size != 1 or zero.type.size != 1 or x.dtype == I32 or x.static:
        return Refusal("not one scale for all, or sums, or a weight")
    if isinstance(m.op, MaxPool) and (m.op.ceil_mode or not scale.static or not np.all(read_numbers(scale) > 0)):
        return Refusal("windows may be empty, or the scale not positive")
    if isinstance(m.op, Resize) and (m.op.mode != "nearest" or m.op.roi):
        return Refusal("numbers are mixed, or others come in")
    scale, zero = (emit(Reshape(()), each) if each.shape else each for each in (scale, zero))
    return emit(Dequantize(), emit(m.op, x), scale, zero)


@rule(*(f"c := Concat({', '.join(f'x{i}' for i in range(count))})" for count in range(2, MOST_CONCATENATED + 1)))
def concatenated_integers(emit: Emit, c: Node, **parts: Value) -> Value | Refusal:
    """Integers of one scale are joined before they are scaled."""
    makers = [x.producer for x in parts.values()]
    if any(node is None or not isinstance(node.op, Dequantize) for node in makers):
        return Refusal("a part is not a dequantized tensor")
    (first, *scales), (zero, *zeros), tensors = (
        [node.inputs[index] for node in makers if node is not None] for index in (1, 2, 0)
    )
    known = all(value.static and value.type.size == 1 for value in (first, zero, *scales, *zeros))
    if not known or any(_number(first) != _number(each) for each in scales):
        return Refusal("the scales differ")
    if any(tensor.dtype != tensors[0].dtype for tensor in tensors) or any(_number(zero) != _number(z) for z in zeros):
        return Refusal("the zero points differ")
    assert isinstance(c.op, Concat)
    scale, zero = (emit(Reshape(()), each) if each.shape else each for each in (first, zero))
    return emit(Dequantize(), emit(c.op, *tensors), scale, zero)


@rule(
    *(
        f"q := Quantize(c := Concat({', '.join(f'x{i}' for i in range(count))}), scale, zero)"
        for count in range(2, MOST_CONCATENATED + 1)
    )
)
def quantized_parts(emit: Site, q: Node, c: Node, scale: Value, zero: Value, **parts: Value) -> Value | Refusal:
    """What is joined is quantized before, where it was bytes of other scales."""
    makers = [x.producer for x in parts.values()]
    if any(node is None or not isinstance(node.op, Dequantize) for node in makers) or not emit.alone(c.outputs[0]):
        return Refusal("a part is not a dequantized tensor, or what is joined is read by others too")
    if scale.type.size != 1 or zero.type.size != 1:
        return Refusal("there are more scales or zero points than one")
    return emit(c.op, *(emit(q.op, x, scale, zero) for x in parts.values()))


@rule("Requantize(Cast(x), factor, zero)")
def requantized_floats(emit: Emit, x: Value, factor: Value, zero: Value) -> Value | Refusal:
    """Sums that are whole numbers of float32 are scaled as they are."""
    return emit(Requantize(), x, factor, zero) if x.dtype == F32 else Refusal("no floats")


@rule("Dequantize(Cast(x), scale, 0)")
def scaled_floats(emit: Emit, x: Value, scale: Value) -> Value | Refusal:
    """The same where the result stays a float."""
    return emit(Binary("Mul"), x, scale) if x.dtype == F32 else Refusal("no floats")


def _unfit(*values: Value) -> str:
    """Why two operands with their scales and zero points are no quantized ones of bytes; empty if they are."""
    a, b, a_scale, *others = values
    if a.dtype not in BYTES or b.dtype not in BYTES:
        return "the integers are no bytes"
    if not all(value.static for value in (a_scale, *others)):
        return "a scale or a zero point is computed when the model is run"
    if a_scale.type.size != 1 or others[0].type.size != 1:
        return "the first operand has more than one scale or zero point"
    return (
        ""
        if _usual(np.asarray(read_numbers(a_scale))) and _usual(np.asarray(read_numbers(others[1])))
        else "a scale is unusual"
    )


def _usual(scale: np.ndarray) -> bool:
    """True if scales are positive, and products with bytes are neither subnormal nor infinite."""
    return bool(np.all((scale > 1e-30) & (scale < 1e30)))


def _fits(length: Any, bias: np.ndarray | None = None) -> bool:
    """True if sums of so many products of bytes, and a bias, fit int32."""
    most = 0 if bias is None else int(np.abs(bias.astype(np.int64)).max(initial=0))
    return isinstance(length, int) and length * LARGEST + most < 1 << 31


def _along(w: Value, axis: int, scale: Value, zero: Value) -> tuple[np.ndarray, np.ndarray] | None:
    """Scales and zero points as one number each, or one for each place of an axis of w; None if they are neither."""
    found = []
    for value in (scale, zero):
        array, count = np.asarray(read_numbers(value)), w.shape[axis]
        padded = (1,) * (len(w.shape) - array.ndim) + array.shape
        if array.size != 1 and padded != tuple(count if i == axis else 1 for i in range(len(w.shape))):
            return None
        found.append(array.reshape(()) if array.size == 1 else array.reshape(-1))
    return found[0], found[1]


def _integers(bias: Value, factor: np.ndarray) -> np.ndarray | None:
    """The integers that a bias stands for, if it is quantized with these scales; axes of size 1 in front are left out."""
    node = bias.producer
    if node is None or not isinstance(node.op, Dequantize) or not bias.static or bias.dtype != F32:
        return None
    numbers, scale, zero = (np.asarray(read_numbers(value)) for value in node.inputs)
    alike = scale.size in (1, factor.size) or factor.size == 1
    if numbers.dtype not in INTEGERS or np.any(zero) or not alike:
        return None
    if not np.allclose(scale.reshape(-1), factor.reshape(-1), rtol=ALIKE, atol=0):
        return None
    if numbers.size == 1:
        return numbers.reshape(()).astype(np.int32)
    return numbers.reshape(-1).astype(np.int32) if numbers.shape[-1] == numbers.size else None


def _number(value: Value) -> np.ndarray:
    """A known number that has no axes then."""
    return np.asarray(read_numbers(value)).reshape(())


def _zero(emit: Emit) -> Value:
    return emit.constant(np.zeros((), np.int32))


def _scaled(emit: Emit, total: Value, scale: np.ndarray) -> Value:
    """Sums of products as the numbers that they stand for."""
    return emit(Dequantize(), total, emit.constant(np.asarray(scale, F32)), _zero(emit))


@rule("m := MatMul(x, Dequantize(codes, scale, zero))")
def scaled_product(emit: Emit, m: Node, x: Value, codes: Value, scale: Value, zero: Value) -> Value | Refusal:
    """A product with a matrix of bytes, or of fewer bits, with scales for its rows or for blocks of them, reads these bytes."""
    assert isinstance(m.op, MatMul)
    if m.op.transpose_a or len(x.shape) < 2 or len(codes.shape) != 2:
        return Refusal("not rows by a matrix")
    if codes.dtype not in BYTES or not codes.static or not is_static(*codes.shape):
        return Refusal("the matrix is no constant of bytes")
    made = made_by(codes).producer
    bits = 4 if made is not None and made.inputs[0].dtype in WIDTHS else 8
    scale, zero = (emit(Reshape((1, 1)), each) if each.type.size == 1 else each for each in (scale, zero))
    if not all(each.static and len(each.shape) == 2 for each in (scale, zero)):
        return Refusal("scales or zero points are computed, or of no matrix")
    if not m.op.transpose_b:
        codes, scale, zero = (emit(swap(2), each) for each in (codes, scale, zero))
    (rows, columns), blocks = codes.shape, max(scale.shape[1], zero.shape[1])
    shapes = [(some, each) for some in (1, rows) for each in (1, blocks)]
    if any(each.shape not in shapes for each in (scale, zero)) or columns % blocks != 0:
        return Refusal("scales and zero points are of other blocks")
    middle = 1 << (bits - 1) if codes.dtype == U8 else 0
    codes = around_zero(emit, codes, bits) if codes.dtype == U8 else codes
    shifts = emit(Binary("Sub"), emit.constant(np.array(middle, F32)), emit(Cast(F32), zero))
    given = [scale] if decided(zero, lambda numbers: bool(np.all(numbers == middle))) else [scale, shifts]
    return emit(ScaledMatMul(bits), x, codes, *(emit(Expand((rows, blocks)), each) for each in given))


RULES = {
    "integers": [
        integer_product,
        integer_convolution,
        integer_bias,
        scaled_sums,
        requantized,
        quantized_relu,
        quantized_clip,
        moved_integers,
        concatenated_integers,
        quantized_parts,
    ],
    "few bits": [scaled_product],
    "floats": [requantized_floats, scaled_floats],
}
