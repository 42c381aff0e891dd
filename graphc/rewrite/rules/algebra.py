"""Rules of arithmetic: one spelling for what has several."""

from __future__ import annotations

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ir.types import FLOATS
from graphc.ops.base import Emit, broadcast_shapes
from graphc.ops.movement import Concat
from graphc.ops.pointwise import NARROW, Binary, Unary
from graphc.rewrite.engine import Refusal, Site, rule
from graphc.shapes import product

KNOWN = 4096
"""Signs of at most so many elements are a constant."""


@rule("y := Mul(x, 1)", "y := Div(x, 1)", "y := Add(x, 0)", "y := Sub(x, 0)")
def neutral(emit: Emit, x: Value, y: Node) -> Value | Refusal:
    """Times 1, and plus 0, is nothing."""
    if x.type != y.output.type:
        return Refusal("the constant broadcasts")
    return x


@rule("y := Pow(x, 2)", "y := Mul(x, x)")
def square(emit: Emit, x: Value, y: Node) -> Value | Refusal:
    """x * x."""
    if x.type != y.output.type:
        return Refusal("the constant broadcasts")
    return emit(Unary("Sqr"), x)


@rule("y := Pow(x, 3)")
def cube(emit: Emit, x: Value, y: Node) -> Value | Refusal:
    """x * x * x."""
    if x.type != y.output.type or x.dtype in NARROW:
        return Refusal("the constant broadcasts, or halves would be rounded twice")
    return emit(Binary("Mul"), x, emit(Unary("Sqr"), x))


@rule("y := Pow(x, 0.5)")
def root(emit: Emit, x: Value, y: Node) -> Value | Refusal:
    """The square root."""
    if x.type != y.output.type or x.dtype not in FLOATS:
        return Refusal("the constant broadcasts, or the power is of integers")
    return emit(Unary("Sqrt"), x)


@rule("y := Div(1, x)", "y := Pow(x, -1)")
def reciprocal(emit: Emit, x: Value, y: Node) -> Value | Refusal:
    """1 / x."""
    if x.type != y.output.type or x.dtype not in FLOATS:
        return Refusal("the constant broadcasts, or integers are divided")
    return emit(Unary("Reciprocal"), x)


@rule("y := Pow(x, -0.5)")
def reciprocal_root(emit: Emit, x: Value, y: Node) -> Value | Refusal:
    """1 / sqrt(x)."""
    if x.type != y.output.type or x.dtype not in FLOATS - set(NARROW):
        return Refusal("the constant broadcasts, or it is no float of full precision")
    return emit(Unary("Reciprocal"), emit(Unary("Sqrt"), x))


@rule("y := Add(inner := Add(x, a), b)", "y := Mul(inner := Mul(x, a), b)")
def constants_together(emit: Site, x: Value, a: Value, b: Value, inner: Node, y: Node) -> Value | Refusal:
    """Two constants that are added, or multiplied with, are one."""
    if x.static or not a.static or not b.static or x.dtype in NARROW or not emit.alone(inner.output):
        return Refusal("not both are constants, or something else reads what is between")
    if broadcast_shapes(a.shape, b.shape) not in (a.shape, b.shape):
        return Refusal("one constant would be larger than the two")
    return emit(y.op, x, emit(y.op, a, b))


@rule("r := Reshape(Neg(x))")
def negated_reshape(emit: Emit, x: Value, r: Node) -> Value:
    """A sign changes places with a reshape, toward where it may be left out."""
    return emit(Unary("Neg"), emit(r.op, x))


@rule("y := Mul(cat := Concat(Neg(a), b), factor)", "y := Mul(r := Reshape(cat := Concat(Neg(a), b)), factor)")
def negated_part(
    emit: Emit, a: Value, b: Value, factor: Value, cat: Node, y: Node, r: Node | None = None
) -> Value | Refusal:
    """A sign that is multiplied with numbers shared by many is theirs: so rotary positions need no negation."""
    assert isinstance(cat.op, Concat)
    turned = cat if r is None else r
    shape, axis = turned.output.shape, cat.op.axis if r is None else len(turned.output.shape) - 1
    count, part, size = a.shape[cat.op.axis], cat.output.shape[cat.op.axis], shape[axis] if shape else 0
    if not isinstance(count, int) or not isinstance(part, int) or not isinstance(size, int) or size > KNOWN:
        return Refusal("the sizes are not known")
    if r is not None and (cat.op.axis != len(cat.output.shape) - 1 or size % part):
        return Refusal("the negated do not follow each other regularly")
    if product(factor.shape) == product(shape) or y.output.type != turned.output.type or factor.dtype in NARROW:
        return Refusal("the numbers are not shared")
    signs = np.where(np.arange(size) % part < count, -1, 1).astype(factor.dtype)
    signed = emit(y.op, factor, emit.constant(signs.reshape(size, *[1] * (len(shape) - 1 - axis))))
    joined = emit(cat.op, a, b)
    return emit(y.op, joined if r is None else emit(r.op, joined), signed)


RULES = [negated_reshape, negated_part, neutral, square, cube, root, reciprocal, reciprocal_root]
