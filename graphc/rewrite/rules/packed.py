"""Rules for products and convolutions of bytes whose matrices and kernels are known: these are packed once, and what is done with
a sum is done before it is written, so that from one to the next go bytes, with their channels last. What is computed of one byte
alone is looked up. But for what functions are rounded by, no bit changes.

What scales sums must have been found before: these rules are applied behind those of `quantize.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ir.types import BYTES
from graphc.ops.activations import Activation
from graphc.ops.base import Emit, broadcast_shapes
from graphc.ops.integers import (
    FEWEST,
    ONE_MORE,
    ChannelsFirst,
    ChannelsLast,
    IntegerConv,
    IntegerMatMul,
    flipped,
)
from graphc.ops.matmul import swap
from graphc.ops.movement import Concat, Reshape, Slice, Transpose
from graphc.ops.panels import LEAST_CHANNELS, MOST_TAPS, DepthwiseConv, PackedConv, packed
from graphc.ops.pointwise import Binary, Unary
from graphc.ops.pool import MaxPool
from graphc.ops.quantized import ByteTable, Dequantize, Quantize, QuantizedBinary
from graphc.ops.resize import Resize
from graphc.rewrite.engine import Refusal, Site, rule
from graphc.rewrite.rules.quantize import MOST_CONCATENATED
from graphc.shapes import Dim, is_static, product

PRODUCT = PackedConv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
"""A product of matrices."""

SHORTEST_PACKED = 8
"""Products in a sum from which on what is packed is faster than float32."""

MOST_STEPS = 100
"""Tensors between a byte and another that depends on it alone, of which a table is made."""


@rule("Requantize(total := IntegerConv(x, w, x_zero, w_zero, bias), factor, zero)")
def packed_convolution(
    emit: Site, total: Node, x: Value, w: Value, x_zero: Value, w_zero: Value, bias: Value, factor: Value, zero: Value
) -> Value | Refusal:
    """Kernels that are known are packed, and sums that become bytes are not written. Between two of these, channels are last."""
    op = total.op
    assert isinstance(op, IntegerConv)
    if len(op.strides) != 2 or op.group != 1 or op.channels_last:
        return Refusal("not over two axes, or of groups")
    if reason := _unpackable(emit, x_zero, w, 0, total.outputs[0], 1, factor, zero):
        return Refusal(reason)
    settings: Any = (w.shape[2:], op.strides, op.dilations, op.pads_before, op.pads_after)
    x, w = emit(ChannelsLast(), x), emit(ChannelsLast(), w)
    return emit(ChannelsFirst(), _packed(emit, PackedConv(*settings), x, w, x_zero, w_zero, bias, factor, zero))


@rule("Requantize(total := IntegerConv(x, w, x_zero, w_zero, bias), factor, zero)")
def depthwise_convolution(
    emit: Site, total: Node, x: Value, w: Value, x_zero: Value, w_zero: Value, bias: Value, factor: Value, zero: Value
) -> Value | Refusal:
    """The same of kernels that have a channel each; these are stored with their channels last too."""
    op = total.op
    assert isinstance(op, IntegerConv)
    if len(op.strides) != 2 or op.channels_last or not op.group == w.shape[0] == x.shape[1]:
        return Refusal("not over two axes, or not a kernel for each channel")
    if not w.static or not is_static(*w.shape):
        return Refusal("the kernels are computed")
    if w.shape[0] < LEAST_CHANNELS or product(w.shape[2:]) > MOST_TAPS:
        return Refusal("there are few channels, or the kernels are large")
    if reason := _unfinished(emit, w.shape[0], total.outputs[0], 1, factor, zero):
        return Refusal(reason)
    settings: Any = (op.strides, op.dilations, op.pads_before, op.pads_after)
    kernels = emit(Transpose((1, 2, 0)), emit(Reshape((w.shape[0], *w.shape[2:])), w))
    more = _flat(emit, x_zero, w_zero, bias, factor, zero)
    return emit(ChannelsFirst(), emit(DepthwiseConv(*settings), emit(ChannelsLast(), x), kernels, *more))


@rule("Requantize(total := IntegerMatMul(a, b, a_zero, b_zero, bias), factor, zero)")
def packed_product(
    emit: Site, total: Node, a: Value, b: Value, a_zero: Value, b_zero: Value, bias: Value, factor: Value, zero: Value
) -> Value | Refusal:
    """The same of a product with a matrix that is known."""
    return _packed_product(emit, total, a, b, a_zero, b_zero, bias, factor, zero)


@rule("Dequantize(total := IntegerMatMul(a, b, a_zero, b_zero, bias), factor, 0)")
def packed_scaled_product(
    emit: Site, total: Node, a: Value, b: Value, a_zero: Value, b_zero: Value, bias: Value, factor: Value
) -> Value | Refusal:
    """The same where sums become floats."""
    return _packed_product(emit, total, a, b, a_zero, b_zero, bias, factor)


@rule(
    *(
        f"Quantize(m := {function}(Dequantize(a, a_scale, a_zero), Dequantize(b, b_scale, b_zero)), scale, zero)"
        for function in ("Add", "Mul")
    )
)
def quantized_binary(
    emit: Emit,
    m: Node,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    scale: Value,
    zero: Value,
) -> Value | Refusal:
    """A sum or a product of bytes that becomes bytes is computed in one step."""
    numbers = (a_scale, a_zero, b_scale, b_zero, scale, zero)
    if any(each.type.size != 1 for each in numbers):
        return Refusal("there are more scales or zero points than one")
    if not {a.dtype, b.dtype} <= set(BYTES) or len(a.shape) != len(b.shape):
        return Refusal("not two tensors of bytes with as many axes")
    first, second = (a, a_scale, a_zero), (b, b_scale, b_zero)
    if broadcast_shapes(a.shape, b.shape) != a.shape:
        first, second = second, first
    if broadcast_shapes(a.shape, b.shape) != first[0].shape:
        return Refusal("both are repeated")
    assert isinstance(m.op, Binary)
    return emit(QuantizedBinary(m.op.function), *first, *second, scale, zero)


@rule("q := Quantize(y, scale, zero)")
def byte_function(emit: Emit, q: Node, y: Value, scale: Value, zero: Value) -> Value | Refusal:
    """What depends on one byte alone is looked up in a table, which is computed as the model would."""
    if (
        q.outputs[0].dtype not in BYTES
        or scale.type.size != 1
        or zero.type.size != 1
        or not (scale.static and zero.static)
    ):
        return Refusal("no bytes, or no one scale that is known")
    found = _byte_within(y)
    if found is None or found.shape != y.shape or found.static:
        return Refusal("it depends on something else than one byte")
    limits = np.iinfo(found.dtype)
    made = {found: emit.constant(np.arange(limits.min, limits.max + 1).astype(found.dtype))}
    number, middle = _single(emit, scale), _single(emit, zero)
    return emit(ByteTable(), found, emit(Quantize(), _computed_of(emit, y, made), number, middle))


@rule("ByteTable(ChannelsFirst(x), table)")
def table_with_channels_last(emit: Emit, x: Value, table: Value) -> Value:
    """Where the channels are makes no difference."""
    return emit(ChannelsFirst(), emit(ByteTable(), x, table))


@rule("ChannelsLast(ChannelsFirst(x))")
def channels_stay(emit: Emit, x: Value) -> Value:
    """There and back."""
    return x


@rule("s := QuantizedBinary(ChannelsFirst(a), a_scale, a_zero, ChannelsFirst(b), b_scale, b_zero, scale, zero)")
def binary_with_channels_last(
    emit: Emit,
    s: Node,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    scale: Value,
    zero: Value,
) -> Value:
    """A sum or a product of what has its channels last has them last."""
    return emit(ChannelsFirst(), emit(s.op, a, a_scale, a_zero, b, b_scale, b_zero, scale, zero))


@rule("m := MaxPool(ChannelsFirst(x))")
def windows_with_channels_last(emit: Emit, m: Node, x: Value) -> Value | Refusal:
    """So have the largest elements of windows: the channels are a third axis, along which nothing is pooled."""
    op = m.op
    assert isinstance(op, MaxPool)
    if len(x.shape) != 4:
        return Refusal("not over two axes")
    settings: Any = {name: (*getattr(op, name), least) for name, least in {"kernel": 1, **ONE_MORE}.items()}
    found = emit(replace(op, **settings), emit(Reshape((x.shape[0], 1, *x.shape[1:])), x))
    return emit(ChannelsFirst(), emit(Reshape((x.shape[0], *found.shape[2:])), found))


@rule("m := Slice(ChannelsFirst(x))")
def part_with_channels_last(emit: Emit, m: Node, x: Value) -> Value:
    """So has a part of an image."""
    op = m.op
    assert isinstance(op, Slice)
    found = Slice(_moved(op.starts), _moved(op.sizes), _moved(op.steps))
    return emit(ChannelsFirst(), emit(found, x))


@rule("m := Resize(ChannelsFirst(x))")
def size_with_channels_last(emit: Emit, m: Node, x: Value) -> Value | Refusal:
    """So has an image with other sizes."""
    op = m.op
    assert isinstance(op, Resize)
    if op.roi:
        return Refusal("a part of it is taken")
    return emit(ChannelsFirst(), emit(replace(op, sizes=_moved(op.sizes), scales=_moved(op.scales)), x))


@rule(*(f"c := Concat({', '.join(f'x{i}' for i in range(count))})" for count in range(2, MOST_CONCATENATED + 1)))
def joined_with_channels_last(emit: Emit, c: Node, **parts: Value) -> Value | Refusal:
    """So have several images that are joined, if all of them have."""
    makers = [x.producer for x in parts.values()]
    images = [node.inputs[0] for node in makers if node is not None and isinstance(node.op, ChannelsFirst)]
    if len(images) < len(makers):
        return Refusal("a part does not have its channels last")
    assert isinstance(c.op, Concat)
    axis = c.op.axis if c.op.axis == 0 else len(images[0].shape) - 1 if c.op.axis == 1 else c.op.axis - 1
    return emit(ChannelsFirst(), emit(Concat(axis), *images))


def _moved(axes: tuple[Any, ...]) -> tuple[Any, ...]:
    """What each axis has, with the second one's last."""
    return (axes[0], *axes[2:], axes[1])


def _byte_within(y: Value) -> Value | None:
    """The tensor of bytes that a tensor depends on, element by element, beside known numbers; None without such a one."""
    bytes_ = _bytes_within(y)
    if bytes_ is not None and len(bytes_) > 1:
        sources = [each.producer for each in bytes_]
        bytes_ = {
            node.inputs[0] if node is not None and isinstance(node.op, ByteTable) else value
            for value, node in zip(bytes_, sources, strict=True)
        }
    return next(iter(bytes_)) if bytes_ is not None and len(bytes_) == 1 else None


def _bytes_within(y: Value) -> set[Value] | None:
    """All such tensors; None where something else is read, or there are many steps."""
    found, seen, waiting = set[Value](), {y}, [y]
    while waiting:
        value = waiting.pop()
        node = value.producer
        if value.static:
            if value.type.size != 1:
                return None
        elif node is None or not isinstance(node.op, (Dequantize, Unary, Binary, Activation)) or len(seen) > MOST_STEPS:
            return None
        elif isinstance(node.op, Dequantize):
            x, *others = node.inputs
            if x.dtype not in BYTES or not all(each.static and each.type.size == 1 for each in others):
                return None
            found.add(x)
        else:
            waiting += [each for each in node.inputs if each not in seen]
            seen.update(node.inputs)
    return found


def _computed_of(emit: Emit, y: Value, made: dict[Value, Value]) -> Value:
    """The same of other bytes."""
    if y.static:
        return y if isinstance(y.type.size, int) and y.type.size > 1 else _single(emit, y)  # a table stays what it is
    if y not in made:
        node = y.producer
        assert node is not None
        made[y] = emit(node.op, *(_computed_of(emit, each, made) for each in node.inputs))
    return made[y]


def _single(emit: Emit, number: Value) -> Value:
    """A tensor of one number, without axes."""
    return emit(Reshape(()), number) if number.shape else number


def _packed_product(emit: Site, total: Node, a: Value, b: Value, a_zero: Value, *more: Value) -> Value | Refusal:
    """Sums of products as places of an image of one row; `more` are the other zero point, the bias and what is done with sums."""
    op, result = total.op, total.outputs[0]
    assert isinstance(op, IntegerMatMul)
    if product(b.shape[:-2]) != 1:
        return Refusal("there are several matrices")
    kernels = len(b.shape) - (2 if op.transpose_b else 1)
    if reason := _unpackable(emit, a_zero, b, kernels, result, len(result.shape) - 1, *more[2:]):
        return Refusal(reason)
    b = b if op.transpose_b else emit(swap(len(b.shape)), b)
    places = emit(Reshape((1, 1, product(a.shape[:-1]), a.shape[-1])), a)
    columns = emit(Reshape((b.shape[-2], 1, 1, b.shape[-1])), b)
    return emit(Reshape(result.shape), _packed(emit, PRODUCT, places, columns, a_zero, *more))


def _unpackable(emit: Site, zero: Value, w: Value, kernels: int, result: Value, columns: int, *finish: Value) -> str:
    """Why a matrix or kernels, which lie along an axis, need not or cannot be packed for a result that has theirs along another;
    empty if they can."""
    if not w.static or not is_static(*w.shape):
        return "the kernels are computed"
    out = w.shape[kernels]
    if out < FEWEST or product(w.shape) < SHORTEST_PACKED * out:
        return "there are few kernels, or they are short"
    if zero.type.size != 1:
        return "rows have zero points of their own"
    return _unfinished(emit, out, result, columns, *finish)


def _unfinished(emit: Site, out: Dim, result: Value, columns: int, *finish: Value) -> str:
    """Why sums of products with so many kernels cannot be finished where they are computed; empty if they can."""
    if not emit.alone(result):
        return "the sums are read by others too"
    alone = tuple(out if axis == columns else 1 for axis in range(len(result.shape)))
    if any(each.type.size != 1 and (1,) * (len(alone) - len(each.shape)) + each.shape != alone for each in finish):
        return "the scales are not those of kernels"
    fits = all(each.type.size == 1 and each.dtype in BYTES for each in finish[1:])
    return "" if fits else "there are several zero points, or the result is no bytes"


def _packed(emit: Emit, op: PackedConv, x: Value, w: Value, x_zero: Value, *more: Value) -> Value:
    """The convolution of an image with kernels [out, ...]; `more` are as in `_packed_product`."""
    x_zero, w_zero, bias, *finish = _flat(emit, x_zero, *more)
    if x.dtype == w.dtype:
        w, w_zero = flipped(emit, w), flipped(emit, w_zero)
    panels, sums = packed(emit, w)
    return emit(op, x, panels, x_zero, w_zero, bias, sums, *finish)


def _flat(emit: Emit, *values: Value) -> list[Value]:
    """What has one number, or one for each kernel, without other axes."""
    return [each if len(each.shape) < 2 else emit(Reshape((each.type.size,)), each) for each in values]


RULES = {
    "packed": [
        packed_convolution,
        depthwise_convolution,
        packed_product,
        packed_scaled_product,
        byte_function,
        quantized_binary,
        channels_stay,
        binary_with_channels_last,
        table_with_channels_last,
        windows_with_channels_last,
        part_with_channels_last,
        size_with_channels_last,
        joined_with_channels_last,
    ]
}
