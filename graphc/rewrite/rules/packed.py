"""Rules for products and convolutions of bytes whose matrices and kernels are known: these are packed once, and what is done with
a sum is done before it is written, so that from one to the next go bytes, with their channels last. No bit changes.

What scales sums must have been found before: these rules are applied behind those of `quantize.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphc.ir.graph import Node, Value
from graphc.ops.base import Emit
from graphc.ops.integers import (
    BYTES,
    FEWEST,
    ONE_MORE,
    SHORTEST,
    ChannelsFirst,
    ChannelsLast,
    IntegerConv,
    IntegerMatMul,
    flipped,
)
from graphc.ops.matmul import swap
from graphc.ops.movement import Reshape
from graphc.ops.panels import PackedConv, packed
from graphc.ops.pool import MaxPool
from graphc.ops.quantized import QuantizedSum
from graphc.rewrite.engine import Refusal, Site, rule
from graphc.shapes import is_static, product

PRODUCT = PackedConv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
"""A product of matrices."""


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


@rule("Quantize(Add(Dequantize(a, a_scale, a_zero), Dequantize(b, b_scale, b_zero)), scale, zero)")
def quantized_sum(
    emit: Emit,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    scale: Value,
    zero: Value,
) -> Value | Refusal:
    """A sum of bytes that becomes bytes is computed in one step."""
    numbers = (a_scale, a_zero, b_scale, b_zero, scale, zero)
    if any(each.type.size != 1 for each in numbers):
        return Refusal("there are more scales or zero points than one")
    if a.shape != b.shape or not {a.dtype, b.dtype} <= set(BYTES):
        return Refusal("not two tensors of bytes of the same shape")
    return emit(QuantizedSum(), a, a_scale, a_zero, b, b_scale, b_zero, scale, zero)


@rule("ChannelsLast(ChannelsFirst(x))")
def channels_stay(emit: Emit, x: Value) -> Value:
    """There and back."""
    return x


@rule("QuantizedSum(ChannelsFirst(a), a_scale, a_zero, ChannelsFirst(b), b_scale, b_zero, scale, zero)")
def sum_with_channels_last(
    emit: Emit,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    scale: Value,
    zero: Value,
) -> Value:
    """A sum of what has its channels last has them last."""
    return emit(ChannelsFirst(), emit(QuantizedSum(), a, a_scale, a_zero, b, b_scale, b_zero, scale, zero))


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
    if out < FEWEST or product(w.shape) < SHORTEST * out:
        return "there are few kernels, or they are short"
    if zero.type.size != 1:
        return "rows have zero points of their own"
    if not emit.alone(result):
        return "the sums are read by others too"
    alone = tuple(out if axis == columns else 1 for axis in range(len(result.shape)))
    if any(each.type.size != 1 and (1,) * (len(alone) - len(each.shape)) + each.shape != alone for each in finish):
        return "the scales are not those of kernels"
    fits = all(each.type.size == 1 and each.dtype in BYTES for each in finish[1:])
    return "" if fits else "there are several zero points, or the result is no bytes"


def _packed(emit: Emit, op: PackedConv, x: Value, w: Value, x_zero: Value, *more: Value) -> Value:
    """The convolution of an image with kernels [out, ...]; `more` are as in `_packed_product`."""
    flat = [each if len(each.shape) < 2 else emit(Reshape((each.type.size,)), each) for each in (x_zero, *more)]
    x_zero, w_zero, *rest = flat
    if x.dtype == w.dtype:
        w, w_zero = flipped(emit, w), flipped(emit, w_zero)
    panels, sums = packed(emit, w)
    bias, *finish = rest
    return emit(op, x, panels, x_zero, w_zero, bias, sums, *finish)


RULES = {
    "packed": [
        packed_convolution,
        packed_product,
        packed_scaled_product,
        quantized_sum,
        channels_stay,
        sum_with_channels_last,
        windows_with_channels_last,
    ]
}
