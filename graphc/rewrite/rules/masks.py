"""Choices that are the same everywhere: masks that let all through, as exporters write them where a model was given none."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ir.numbers import decided, has_parameter
from graphc.ops.base import Emit
from graphc.ops.movement import Expand, Transpose
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.reduce import Reduce
from graphc.rewrite.engine import Refusal, Site, rule
from graphc.shapes import lower_bound, product

LARGEST = 1 << 20
"""Elements of a constant up to which they are looked at."""

FARTHEST = 16
"""Nodes in a row that are looked through."""

MOVES = ("Expand", "Reshape", "Transpose", "Identity")


@rule("w := Where(c, a, b)")
def choice_of_one(emit: Emit, c: Value, a: Value, b: Value, w: Node) -> Value | Refusal:
    """What a condition chooses that is the same everywhere."""
    condition = everywhere(c)
    if condition is None:
        return Refusal("the condition is not known to be the same everywhere")
    chosen = a if condition else b
    return chosen if chosen.type == w.output.type else emit(Expand(w.output.shape), chosen)


@rule("a := Attention(q, k, v, mask)")
def mask_of_nothing(emit: Emit, q: Value, k: Value, v: Value, mask: Value, a: Node) -> Value | Refusal:
    """Attention needs no mask that adds 0 to all scores."""
    number = everywhere(mask)
    if number is None or number != 0:
        return Refusal("the mask is not known to be 0 everywhere")
    return emit(a.op, q, k, v)


@rule("t := Transpose(w := Where(rows, number, x))")
def transpose_of_some_rows(emit: Site, rows: Value, number: Value, x: Value, t: Node, w: Node) -> Value | Refusal:
    """Rows are replaced by a number behind a transpose, where that costs nothing: it is a part of attention."""
    assert isinstance(t.op, Transpose)
    if x.producer is None or x.producer.op.name not in ("Attention", "Transpose") or not emit.alone(w.output):
        return Refusal("what is transposed is no result of attention, or something else reads it")
    if (
        product(number.shape) != 1
        or rows.shape[-1:] != (1,)
        or len(rows.shape) != len(x.shape)
        or x.type != w.output.type
    ):
        return Refusal("what is replaced are not whole rows, or it is not by one number")
    return emit(Where(), emit(t.op, rows), number, emit(t.op, x))


def everywhere(value: Value, farthest: int = FARTHEST) -> Any:
    """The number that all elements of a value are, or None: by constants, and what is done to each of their elements alike. The
    numbers of parameters are not looked at, for another checkpoint has others."""
    if value.static:
        size = product(value.shape)
        known = isinstance(size, int) and 0 < size <= LARGEST and not has_parameter(value)
        return decided(value, _the_only) if known else None
    node = value.producer
    if node is None or farthest == 0 or len(node.outputs) != 1:
        return None
    if node.op.name in MOVES or (isinstance(node.op, Reduce) and node.op.kind in ("max", "min")):
        fits = (lower_bound(product(node.inputs[0].shape)) or 0) > 0
        return everywhere(node.inputs[0], farthest - 1) if fits else None
    if isinstance(node.op, Where):
        condition = everywhere(node.inputs[0], farthest - 1)
        return None if condition is None else everywhere(node.inputs[1 if condition else 2], farthest - 1)
    if not isinstance(node.op, Binary | Unary | Cast):
        return None
    operands = [everywhere(each, farthest - 1) for each in node.inputs]
    if any(each is None for each in operands):
        return None
    return node.op.eval(*(np.asarray(each, x.dtype) for each, x in zip(operands, node.inputs, strict=True)))[0][()]


def _the_only(array: np.ndarray) -> Any:
    """The number that all elements are; None if they differ, or are not numbers."""
    first = array.reshape(-1)[0]
    return first if (array == first).all() else None


RULES = [choice_of_one, mask_of_nothing]

ORDER = [transpose_of_some_rows]
"""What is done when it is known what attention is."""
