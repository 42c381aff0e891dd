"""Raising rotary embeddings, in the spellings of the exporters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ops.base import Emit
from graphc.ops.movement import Concat, Reshape, Slice
from graphc.ops.pointwise import Binary, Unary
from graphc.ops.rotary import RotaryEmbedding, columns, for_each_of_a_pair
from graphc.rewrite.blocks import cut_axes
from graphc.rewrite.engine import Refusal, rule
from graphc.shapes import Dim, product, static_shape


@rule(
    "y := Add(Mul(x, cos), Mul(exchanged := Concat(a, b), sin))",
    "y := Add(Mul(x, cos), Mul(exchanged := Reshape(Concat(a, b)), sin))",
)
def rotary(
    emit: Emit, x: Value, cos: Value, sin: Value, y: Node, exchanged: Node, a: Value, b: Value
) -> Value | Refusal:
    """x * cos + exchanged * sin, where the elements of each pair have changed places, and one may be negated."""
    if {exchanged.output.type, y.output.type} != {x.type} or any(
        each.shape[-1:] != x.shape[-1:] for each in (cos, sin)
    ):
        return Refusal("there is no number for each element of a row")
    places = origins(exchanged.output, x)
    if places is None or places.size % 2:
        return Refusal("it is not made of the elements of each row")
    order = np.arange(places.size)
    ways = ((False, np.roll(order, places.size // 2)), (True, order ^ 1))
    interleaved = next((way for way, swapped in ways if np.array_equal(abs(places) - 1, swapped)), None)
    if interleaved is None:
        return Refusal("its elements have not changed places in pairs")
    if (places < 0).any():
        sin = emit(Binary("Mul"), sin, emit.constant(np.sign(places).astype(sin.dtype)))
    return emit(RotaryEmbedding(interleaved), x, cos, sin)


@rule(
    "y := Concat(Sub(Mul(a, cos), Mul(b, sin)), Add(Mul(b, cos), Mul(a, sin)))",
    "y := Reshape(Concat(Reshape(Sub(Mul(a, cos), Mul(b, sin))), Reshape(Add(Mul(b, cos), Mul(a, sin)))))",
)
def rotary_of_parts(emit: Emit, a: Value, b: Value, cos: Value, sin: Value, y: Node) -> Value | Refusal:
    """a * cos - b * sin and b * cos + a * sin, where a are the first of all pairs, and b the second."""
    *lead, count = y.output.shape
    cat = y if isinstance(y.op, Concat) else y.inputs[0].producer
    assert cat is not None
    assert isinstance(cat.op, Concat)
    rank, interleaved = len(cat.output.shape), cat is not y
    if cat.op.axis != rank - 1 or cat.output.shape != (*lead, *((count // 2, 2) if interleaved else (count,))):
        return Refusal("they are not joined pair by pair, or half to half")
    if a.shape != (*lead, count // 2) or any(each.shape[-1:] != a.shape[-1:] for each in (b, cos, sin)):
        return Refusal("there is no number for each pair")
    for x in wholes(emit, a, y.output.shape):
        first, second = (origins(each, x) for each in (a, b))
        if first is None or second is None or not first.size:
            continue
        start = int(first[0]) - 1
        pairs = np.stack([first, second], int(interleaved)).ravel() - start
        if not np.array_equal(pairs, 1 + np.arange(pairs.size)):
            return Refusal("they are not pairs of neighbours, or of halves, where they are joined so")
        x = x if x.shape == y.output.shape else columns(emit, x, start, count)
        return emit(RotaryEmbedding(interleaved), x, *for_each_of_a_pair(emit, cos, sin, interleaved))
    return Refusal("they are no parts of the rows of one tensor")


@rule("y := Concat(rotated := RotaryEmbedding(part := Slice(x), cos, sin), rest := Slice(x))")
def rotary_of_some(
    emit: Emit, x: Value, cos: Value, sin: Value, y: Node, rotated: Node, part: Node, rest: Node
) -> Value | Refusal:
    """Elements of each row behind those that are rotated may stay where they are."""
    assert isinstance(y.op, Concat)
    assert isinstance(part.op, Slice)
    assert isinstance(rest.op, Slice)
    last, count = len(x.shape) - 1, part.output.shape[-1]
    starts = part.op.starts
    if (
        y.op.axis != last
        or cut_axes(part) != [last]
        or cut_axes(rest) != [last]
        or {*part.op.steps, *rest.op.steps} != {1}
    ):
        return Refusal("they are no parts of each row")
    if cos.shape[-1] != count or rest.op.starts != (*starts[:-1], starts[-1] + count):
        return Refusal("the others do not follow")
    whole = x if y.output.shape == x.shape else columns(emit, x, starts[-1], y.output.shape[-1])
    return emit(rotated.op, whole, cos, sin)


def origins(value: Value, x: Value) -> np.ndarray | None:
    """For each element of the axes that a value has behind those that it shares with x, all but x's last: where in the row of x
    it comes from, counted from 1, negative if it is negated; 0 for what lies beside x. None where it is made of anything else."""
    rank, size = len(x.shape) - 1, x.shape[-1]
    tail = static_shape(value.shape[rank:])
    if tail is None or not isinstance(size, int) or value.shape[:rank] != x.shape[:rank]:
        return None
    row, node = np.arange(1, size + 1), value.producer
    if value is x or reshaped(value) is reshaped(x):
        return row.reshape(tail)
    if x.producer is not None and isinstance(x.producer.op, Slice) and x.producer.inputs[0] is value:
        start = x.producer.op.starts[-1]
        if cut_axes(x.producer) != [rank] or x.producer.op.steps[-1] != 1 or not isinstance(start, int):
            return None
        return np.pad(row, (start, tail[0] - start - size))
    inner = [origins(each, x) for each in node.inputs] if node is not None else []
    found = [each for each in inner if each is not None]
    if node is None or not found or len(found) < len(inner):
        return None
    match node.op:
        case Unary("Neg"):
            return -found[0]
        case Reshape():
            return found[0].reshape(tail)
        case Concat(axis) if axis >= rank:
            return np.concatenate(found, axis - rank)
        case Slice(starts, sizes, steps) if not cut_axes(node) or cut_axes(node)[0] >= rank:
            return Slice(starts[rank:], sizes[rank:], steps[rank:]).eval(found[0])[0]
    return None


def reshaped(value: Value) -> Value:
    """What a value has the elements of, in the same order."""
    while value.producer is not None and isinstance(value.producer.op, Reshape):
        value = value.producer.inputs[0]
    return value


def wholes(emit: Emit, part: Value, shape: tuple[Dim, ...]) -> Iterator[Value]:
    """What a part may be cut from: tensors with rows at least as long as those of this shape."""
    while part.producer is not None and isinstance(part.producer.op, Reshape | Slice):
        part = part.producer.inputs[0]
        if part.shape[:-1] == shape[:-1]:
            yield part
        elif part.type.size == product(shape):
            yield emit(Reshape(shape), part)


RULES = {"raise": [rotary, rotary_of_parts, rotary_of_some]}
