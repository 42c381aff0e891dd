"""Choices that are the same everywhere: masks that let all through, as exporters write them where a model was given none."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ir.numbers import decided, has_parameter
from graphc.ops.base import Emit
from graphc.ops.movement import Expand
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.reduce import Reduce
from graphc.rewrite.engine import Refusal, rule
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


RULES = {"masks": [choice_of_one]}
