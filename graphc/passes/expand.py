"""Expanding: operators that no target computes by themselves are replaced by their definitions.

Done before the rules run, so that the parts fold with what is around them: a batch normalization becomes a multiplication
and an addition of constants.
"""

from __future__ import annotations

from graphc.ir.graph import Graph, Node, Value
from graphc.ops.base import Emit, Op


def expand(graph: Graph) -> None:
    """Replace every node whose operator has a definition and no calls of its own, in place."""
    replaced: dict[Value, Value] = {}
    kept: list[Node] = []

    def visit(node: Node) -> None:
        node.inputs = [replaced.get(value, value) for value in node.inputs]
        emit = Emit(graph, node.source)
        results = None if type(node.op).to_ggml is not Op.to_ggml else node.op.define(emit, *node.inputs)
        if results is None:
            kept.append(node)
            return
        for inner in emit.nodes:
            visit(inner)
        replaced.update((old, replaced.get(new, new)) for old, new in zip(node.outputs, results, strict=True))

    for node in graph.nodes:
        visit(node)
    graph.nodes = kept
    graph.outputs = [replaced.get(value, value) for value in graph.outputs]
