"""Folding: what constants alone determine is computed when compiling.

Small results are computed here and become constants. Large ones (a transposed weight) stay nodes: their arrays would fill
the memory, so they are computed one at a time when the engine is written, and the nodes are the weight's recipe. A small
one that a parameter is in remembers what it was before.
"""

from __future__ import annotations

from graphc.ir.graph import Graph, Node, Value
from graphc.ir.interp import apply
from graphc.ir.numbers import has_parameter

FOLD_BYTES = 1 << 20
"""Constants up to this size are computed at once; a bound on what folding can allocate."""


def fold(graph: Graph) -> None:
    """Replace nodes of small constants by their results, in place."""
    folded: dict[Value, Value] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        node.inputs = [folded.get(value, value) for value in node.inputs]
        if foldable(node):
            arrays = apply(node, {value: value.data for value in node.inputs if value.data is not None})
            for value, array in zip(node.outputs, arrays, strict=True):
                made = value if has_parameter(value) else None
                folded[value] = Value(value.name, value.type, data=array, static=True, unfolded=made)
        else:
            kept.append(node)
    graph.nodes = kept
    graph.outputs = [folded.get(value, value) for value in graph.outputs]


def foldable(node: Node) -> bool:
    """True if every input is a constant and neither they nor the results are large."""
    if not all(value.is_constant for value in node.inputs) or not all(value.static for value in node.outputs):
        return False
    sizes = [value.type.nbytes for value in (*node.inputs, *node.outputs)]
    return all(isinstance(size, int) and size <= FOLD_BYTES for size in sizes)
