"""Branches of a few numbers are both computed, and one is selected: that takes less than to have the host choose one."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.graph import Graph, Node, Value
from graphc.ir.types import TensorType
from graphc.ops.control import Body, If
from graphc.ops.movement import Reshape
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.shapes import is_static

MOST_NODES = 16
"""Of a branch that is computed though it may not be taken."""

MOST_ELEMENTS = 64
"""Of what a branch or one of its nodes gives."""

FAILING = ("Div", "Mod", "Pow")
"""Of whole numbers, there are some that a processor does not divide."""


def select(graph: Graph) -> None:
    """Replace branches that are cheap, cannot fail and give the same types, in place."""
    replaced: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        node.inputs = [replaced.get(value, value) for value in node.inputs]
        if not isinstance(node.op, If) or node.inputs[0].shape or not _is_cheap(node.op):
            nodes.append(node)
            continue
        condition, *captured = node.inputs
        first, second = (_copied(graph, body, captured, nodes) for body in node.op.bodies)
        for old, then, other in zip(node.outputs, first, second, strict=True):
            chosen = graph.make(Where(), [condition, then, other], node.source)
            nodes.append(chosen)
            replaced[old] = chosen.output
    graph.nodes = nodes
    graph.replace(lambda value: replaced.get(value, value))


def _is_cheap(op: If) -> bool:
    results = [tuple(value.type for value in body.graph.outputs) for body in op.bodies]
    if results != [op.results] * 2 or op.binds or not _are_few(op.results):
        return False
    for body in op.bodies:
        select(body.graph)
    return all(len(body.graph.nodes) <= MOST_NODES and all(map(_is_simple, body.graph.nodes)) for body in op.bodies)


def _is_simple(node: Node) -> bool:
    """True if a node has few results, each of which depends on one element of what it is given."""
    failing = isinstance(node.op, Binary) and node.op.name in FAILING and node.inputs[0].dtype.kind in "iu"
    simple = isinstance(node.op, Unary | Binary | Cast | Where | Reshape) and not failing
    return simple and _are_few([value.type for value in node.outputs])


def _are_few(types: Sequence[TensorType]) -> bool:
    sizes = [type.size for type in types]
    return is_static(*sizes) and all(size <= MOST_ELEMENTS for size in sizes)


def _copied(graph: Graph, body: Body, captured: Sequence[Value], nodes: list[Node]) -> list[Value]:
    """What a branch gives, by nodes of the graph around."""
    known = dict(zip(body.graph.inputs, captured, strict=True))
    for node in body.graph.nodes:
        made = graph.make(node.op, [known.get(value, value) for value in node.inputs], node.source)
        nodes.append(made)
        known.update(zip(node.outputs, made.outputs, strict=True))
    return [known.get(value, value) for value in body.graph.outputs]
