"""Rules of arithmetic: one spelling for what has several."""

from __future__ import annotations

from graphc.ir.graph import Node, Value
from graphc.ir.types import FLOATS
from graphc.ops.base import Emit, broadcast_shapes
from graphc.ops.pointwise import NARROW, Binary, Unary
from graphc.rewrite.engine import Refusal, Site, rule


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
        return Refusal("the constant broadcasts, or it is not a float of full precision")
    return emit(Unary("Reciprocal"), emit(Unary("Sqrt"), x))


@rule("y := Add(inner := Add(x, a), b)", "y := Mul(inner := Mul(x, a), b)")
def constants_together(emit: Site, x: Value, a: Value, b: Value, inner: Node, y: Node) -> Value | Refusal:
    """Two constants that are added, or multiplied with, are one."""
    if x.static or not a.static or not b.static or x.dtype in NARROW or not emit.alone(inner.output):
        return Refusal("not both are constants, or something else reads what is between")
    if broadcast_shapes(a.shape, b.shape) not in (a.shape, b.shape):
        return Refusal("one constant would be larger than the two")
    return emit(y.op, x, emit(y.op, a, b))


RULES = {"spellings": [neutral, square, cube, root, reciprocal, reciprocal_root], "together": [constants_together]}
