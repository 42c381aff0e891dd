"""Common subexpressions: what is computed twice is computed once.

An operator's settings say all that it does; a random one's name its stream. Operators of the host are left alone: they bind
sizes, and may fail.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from itertools import takewhile

from graphc.ir.graph import Graph, Node, Value
from graphc.ir.numbers import identity
from graphc.ops.control import Control
from graphc.rewrite.pattern import COMMUTATIVE

FEW = 1 << 15
"""Bytes of constants that are compared."""


def common(graph: Graph) -> None:
    """Replace every node by an earlier one that does the same to the same values, in place."""
    replaced: dict[Value, Value] = {}
    seen: dict[Hashable, Node] = {}
    numbers: dict[Hashable, int] = {}
    kept: list[Node] = []

    def number(value: Value) -> int:
        """A number for a value, and for those that are the same."""
        return numbers.setdefault(identity(value, FEW), len(numbers))

    for node in graph.nodes:
        node.inputs = [replaced.get(value, value) for value in node.inputs]
        operands = tuple(map(number, node.inputs))
        if node.op.name in COMMUTATIVE:
            operands = tuple(sorted(operands))
        key = (node.op, str(node.op), operands)  # the text tells 0.0 from -0.0
        if isinstance(node.op, Control) or key not in seen:
            seen[key] = node
            kept.append(node)
            continue
        first = seen[key]
        pairs = zip(first.source.scope, node.source.scope, strict=False)
        shared = takewhile(lambda pair: pair[0] == pair[1], pairs)
        first.source = replace(first.source, scope=tuple(name for name, _ in shared))
        replaced.update(zip(node.outputs, first.outputs, strict=True))
    graph.nodes = kept
    graph.replace(lambda value: replaced.get(value, value))
