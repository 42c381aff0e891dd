"""Rules that let constants take in what is done to a product: the results are nodes of constants, a weight's recipe."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ir.types import F32, F64
from graphc.ops.activations import Gelu
from graphc.ops.base import Emit, broadcast_shapes
from graphc.ops.conv import Conv, ConvTranspose
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Concat, Pad, Reshape, Slice
from graphc.ops.pointwise import Binary, Unary
from graphc.rewrite.blocks import cut_axes
from graphc.rewrite.engine import Refusal, Site, rule
from graphc.shapes import Dim, integer, is_static, static_shape

WHOLE_BLOCKS = 256
"""Elements of a row that are whole blocks in every type of ggml's."""

SCALED = "s := {}(c := {}(x, w, *bias), factor)"


@rule(*(SCALED.format(how, conv) for how in ("Mul", "Div") for conv in ("Conv", "ConvTranspose")))
def conv_scale(
    emit: Site, x: Value, w: Value, factor: Value, s: Node, c: Node, bias: Value | None = None
) -> Value | Refusal:
    """A factor for each channel of a convolution's result is in its kernels, and in its bias."""
    count = along(factor, c.output, 1)
    if count is None or not are_constant(w, factor, *([] if bias is None else [bias])) or not emit.alone(c.output):
        return Refusal("it is not a constant for each channel, or something else reads the result")
    emit.source = c.source
    transposed = isinstance(c.op, ConvTranspose)
    if transposed and count != 1 and c.op.group != 1:  # type: ignore[attr-defined]
        return Refusal("the channels of a group are not beside one another")
    kernel = [1] * len(w.shape)
    spread = emit(Reshape((*kernel[:transposed], count, *kernel[transposed + 1 :])), factor)
    parts = [x, emit(s.op, w, spread)]
    if bias is not None:
        parts.append(emit(s.op, bias, emit(Reshape((count,)), factor)))
    return emit(c.op, *parts)


@rule(*(SCALED.format(how, conv) for how in ("Add", "Sub") for conv in ("Conv", "ConvTranspose")))
def conv_bias(
    emit: Site, x: Value, w: Value, factor: Value, s: Node, c: Node, bias: Value | None = None
) -> Value | Refusal:
    """A number for each channel that is added to a convolution's result is its bias, also where it is computed."""
    count = along(factor, c.output, 1)
    if count is None or not emit.alone(c.output):
        return Refusal("it is not a number for each channel, or something else reads the result")
    if bias is None:
        channels = c.output.shape[1]
        if not isinstance(channels, int):
            return Refusal("the number of channels is not known")
        bias = emit.constant(np.zeros(channels, x.dtype))
    if factor.static:
        emit.source = c.source
    return emit(c.op, x, w, emit(s.op, bias, emit(Reshape((count,)), factor)))


@rule("c := Conv(p := Pad(x), w, *bias)")
def conv_of_padded(emit: Emit, x: Value, w: Value, c: Node, p: Node, bias: Value | None = None) -> Value | Refusal:
    """Zeros around an image are the convolution's own."""
    assert isinstance(c.op, Conv)
    assert isinstance(p.op, Pad)
    pads = (*p.op.before, *p.op.after)
    if p.op.mode != "constant" or p.op.value != 0 or any((*p.op.before[:2], *p.op.after[:2])):
        return Refusal("the image is not padded with zeros, or in other axes too")
    if not all(isinstance(pad, int) and pad >= 0 for pad in pads):
        return Refusal("how much is padded is not known, or something is cut")
    before, after = (
        tuple(int(a) + b for a, b in zip(added[2:], own, strict=True))  # type: ignore[arg-type]
        for added, own in ((p.op.before, c.op.pads_before), (p.op.after, c.op.pads_after))
    )
    conv = Conv(c.op.strides, c.op.dilations, before, after, c.op.group)
    return emit(conv, x, *c.inputs[1:])


@rule("s := Mul(m := MatMul(a, w), factor)", "s := Div(m := MatMul(a, w), factor)")
def matmul_scale(emit: Site, a: Value, w: Value, factor: Value, s: Node, m: Node) -> Value | Refusal:
    """A factor for each column of a product with a constant is in the constant."""
    scaled = _scaled(emit, m, w, factor, s)
    return scaled if isinstance(scaled, Refusal) else emit(m.op, a, scaled)


@rule(
    "s := Mul(t := Add(m := MatMul(a, w), bias), factor)",
    "s := Div(t := Add(m := MatMul(a, w), bias), factor)",
)
def linear_scale(
    emit: Site, a: Value, w: Value, bias: Value, factor: Value, s: Node, t: Node, m: Node
) -> Value | Refusal:
    """A factor for each column behind a product and its bias is in both constants."""
    if not are_constant(bias) or not emit.alone(t.output) or broadcast_shapes(bias.shape, factor.shape) != bias.shape:
        return Refusal("the bias is computed or smaller, or something else reads the sum")
    scaled = _scaled(emit, m, w, factor, s)
    return scaled if isinstance(scaled, Refusal) else emit(t.op, emit(m.op, a, scaled), emit(s.op, bias, factor))


@rule("part := Slice(m := MatMul(a, w))", "part := Slice(sum := Add(m := MatMul(a, w), bias))")
def part_of_product(
    emit: Site, a: Value, w: Value, part: Node, m: Node, sum: Node | None = None, bias: Value | None = None
) -> Value | Refusal:
    """Columns of a product that would have to be copied for a function of them are a product of their own."""
    assert isinstance(m.op, MatMul)
    whole = m if sum is None else sum
    if not w.static or len(w.shape) != 2 or not (bias is None or (bias.static and bias.shape == m.output.shape[-1:])):
        return Refusal("the right operand or the bias is computed")
    readers = emit.readers(whole.output)
    if (sum is not None and not emit.alone(m.output)) or not all(map(_columns, readers)) or _overlap(readers):
        return Refusal("something else reads the product, or a part of it twice")
    copied = any(isinstance(node.op, Unary | Gelu) for each in readers for node in emit.readers(each.output))
    if not copied or all(size == 1 for size in m.output.shape[:-1]):
        return Refusal("no part of it has to be copied")
    emit.source = m.source
    first, count = _last(part)
    rows = emit(_cut(w, 0 if m.op.transpose_b else 1, first, count), w)
    product = emit(m.op, a, rows)
    return product if bias is None or sum is None else emit(sum.op, product, emit(_cut(bias, 0, first, count), bias))


@rule("m := MatMul(cat := Concat(a, b), w)")
def product_of_parts(emit: Site, a: Value, b: Value, w: Value, m: Node, cat: Node) -> Value | Refusal:
    """A product with long rows that were joined is the sum of two: its result is shorter than what would be copied."""
    assert isinstance(m.op, MatMul)
    assert isinstance(cat.op, Concat)
    if not w.static or len(w.shape) != 2 or w.dtype not in (F32, F64):
        return Refusal("the right operand is computed, or of a type that would be rounded twice")
    if m.op.transpose_a or cat.op.axis != len(a.shape) - 1 or not emit.alone(cat.output):
        return Refusal("no rows were joined, or something else reads them")
    sizes, columns = static_shape((a.shape[-1], b.shape[-1])), m.output.shape[-1]
    if sizes is None or any(size % WHOLE_BLOCKS for size in sizes):
        return Refusal("the parts are no whole blocks of every type of weights")
    if not isinstance(columns, int) or sum(sizes) < 2 * columns or all(size == 1 for size in a.shape[:-1]):
        return Refusal("the result is not much shorter, or there is one row")
    axis = 1 if m.op.transpose_b else 0
    parts = (emit(_cut(w, axis, first, count), w) for first, count in zip((0, sizes[0]), sizes, strict=True))
    return emit(Binary("Add"), *(emit(m.op, x, part) for x, part in zip((a, b), parts, strict=True)))


def _columns(node: Node) -> bool:
    """True if a node takes adjacent elements of the last axis, of known number, and all of the others."""
    if not isinstance(node.op, Slice):
        return False
    return cut_axes(node) == [len(node.op.sizes) - 1] and node.op.steps[-1] == 1 and is_static(*_last(node))


def _last(node: Node) -> tuple[Dim, Dim]:
    """The first element and the number of elements of the last axis that a slice takes."""
    assert isinstance(node.op, Slice)
    return node.op.starts[-1], node.op.sizes[-1]


def _overlap(nodes: Sequence[Node]) -> bool:
    """True if two slices have an element in common."""
    parts = sorted((integer(first, {}), integer(count, {})) for first, count in map(_last, nodes))
    return any(first + count > following for (first, count), (following, _) in pairwise(parts))


def _cut(value: Value, axis: int, first: Dim, count: Dim) -> Slice:
    """The operator that takes a part of an axis."""
    starts = tuple(first if place == axis else 0 for place in range(len(value.shape)))
    sizes = tuple(count if place == axis else size for place, size in enumerate(value.shape))
    return Slice(starts, sizes, (1,) * len(sizes))


def _scaled(emit: Site, m: Node, w: Value, factor: Value, s: Node) -> Value | Refusal:
    """The right operand of a matrix product, multiplied with or divided by a number for each column."""
    assert isinstance(m.op, MatMul)
    count = along(factor, m.output, len(m.output.shape) - 1)
    if count is None or len(w.shape) < 2 or not are_constant(w, factor) or not emit.alone(m.output):
        return Refusal("it is not a constant for each column, or something else reads the product")
    emit.source = m.source
    return emit(s.op, w, emit(Reshape((count, 1) if m.op.transpose_b else (count,)), factor))


def along(value: Value, x: Value, axis: int) -> Dim | None:
    """How many numbers there are, if broadcasting puts them along this axis of x, one for each place, or it is one."""
    rank = len(x.shape)
    full = (*[1] * (rank - len(value.shape)), *value.shape)
    fits = len(full) == rank and all(size == 1 for place, size in enumerate(full) if place != axis)
    return full[axis] if fits and full[axis] in (1, x.shape[axis]) else None


def are_constant(*values: Value) -> bool:
    """True if all are constants of a type that loses nothing when they are multiplied once more."""
    return all(value.static and value.dtype in (F32, F64) for value in values)


RULES = {
    "absorb": [conv_scale, conv_bias, conv_of_padded, matmul_scale, linear_scale, part_of_product, product_of_parts]
}
