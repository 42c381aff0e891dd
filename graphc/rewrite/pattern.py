"""Patterns: a small graph to look for, written as the mathematics looks.

    "Mul(x, Sigmoid(x))"              x stands for any value, the same one everywhere
    "Add(Mul(n := InstanceNorm(r, one, zero), scale), bias)"
    "Mul(x, 0.5)"                     a constant whose every element is 0.5
    "Conv(x, w, *bias)"               an operand that may be missing; it is not captured then

A name is captured as a `Value`; `name := Operator(...)` captures the node. Operands of commutative operators match in
either order. A name that is used again stands for the same value, or the captured node's result. An operator is named
as it prints: the class, or the function of a row of a table.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias, Union

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ir.numbers import decided
from graphc.ops.functions import BINARY

COMMUTATIVE = frozenset(name for name, row in BINARY.items() if row.commutes)
CONSTANT_TOLERANCE = 1e-6

Captures: TypeAlias = dict[str, Union[Value, Node]]


@dataclass(frozen=True)
class Any_:
    """Any value, captured by name; an `optional` operand may be missing."""

    name: str
    optional: bool = False

    def match(self, value: Value, found: Captures) -> Iterator[Captures]:
        """The ways in which the value matches, given what is captured already."""
        known = found.get(self.name)
        if known is None:
            yield {**found, self.name: value}
        elif value is known or (isinstance(known, Node) and value in known.outputs):
            yield found


@dataclass(frozen=True)
class Number:
    """A constant whose every element is `number` (to a relative 1e-6)."""

    number: float

    def match(self, value: Value, found: Captures) -> Iterator[Captures]:
        """Yields `found` if the value is that constant."""
        data = value.data
        small = data is not None and data.size and data.size <= 4096 and value.dtype.kind in "fiuV"
        if small and decided(value, self._is_everywhere):
            yield found

    def _is_everywhere(self, array: np.ndarray) -> bool:
        return np.allclose(np.asarray(array, np.float64), self.number, rtol=CONSTANT_TOLERANCE, atol=0)


@dataclass(frozen=True)
class Apply:
    """An operator applied to patterns; `capture` names the node."""

    operator: str
    args: tuple[Pattern, ...]
    capture: str = ""

    def fits(self, node: Node) -> bool:
        """True if a node is of the operator and has so many operands."""
        least = sum(not (isinstance(arg, Any_) and arg.optional) for arg in self.args)
        return node.op.name == self.operator and least <= len(node.inputs) <= len(self.args)

    def match(self, value: Value, found: Captures) -> Iterator[Captures]:
        """The ways in which the node that makes the value matches."""
        node = value.producer
        if node is not None:
            yield from self.match_node(node, found)

    def match_node(self, node: Node, found: Captures) -> Iterator[Captures]:
        """The ways in which a node matches."""
        if not self.fits(node):
            return
        if self.capture:
            found = {**found, self.capture: node}
        orders = [node.inputs]
        if self.operator in COMMUTATIVE:
            orders.append(node.inputs[::-1])
        for order in orders:
            yield from _match_all(self.args, order, found)


Pattern: TypeAlias = Union[Any_, Number, Apply]


def _match_all(patterns: tuple[Pattern, ...], values: list[Value], found: Captures) -> Iterator[Captures]:
    if not values:  # what is left are operands that may be missing
        yield found
        return
    for partial in patterns[0].match(values[0], found):
        yield from _match_all(patterns[1:], values[1:], partial)


@cache
def parse(text: str) -> Pattern:
    """Read a pattern. Raises ValueError."""
    return _build(ast.parse(f"({text})", mode="eval").body, text)


def _build(node: ast.expr, text: str) -> Pattern:
    match node:
        case ast.Name(id=name):
            return Any_(name)
        case ast.Starred(value=ast.Name(id=name)):
            return Any_(name, optional=True)
        case ast.Constant(value=int() | float() as number):
            return Number(float(number))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return Number(-float(number))
        case ast.NamedExpr(target=ast.Name(id=name), value=ast.Call(func=ast.Name(id=operator), args=args)):
            return Apply(operator, _operands(operator, args, text), name)
        case ast.Call(func=ast.Name(id=operator), args=args, keywords=[]):
            return Apply(operator, _operands(operator, args, text))
    raise ValueError(f"not a pattern: {ast.unparse(node)!r} in {text!r}")


def _operands(operator: str, args: list[ast.expr], text: str) -> tuple[Pattern, ...]:
    optional = [isinstance(arg, ast.Starred) for arg in args]
    if any(optional) and (operator in COMMUTATIVE or optional != sorted(optional)):
        raise ValueError(
            f"only the last operands of {operator} may be missing, and none of two that change places: {text!r}"
        )
    return tuple(_build(arg, text) for arg in args)
