"""Folding: what constants alone determine is computed when compiling.

Small results are computed here and become constants. Large ones (a transposed weight) stay nodes: their arrays would fill
the memory, so they are computed one at a time when the engine is written, and the nodes are the weight's recipe. A small
one that a parameter is in remembers what it was before.
"""

from __future__ import annotations

from graphc.errors import Problem, UnsupportedError
from graphc.ir.graph import Graph, Node, Origin, Value
from graphc.ir.interp import apply
from graphc.ir.numbers import has_parameter
from graphc.ops.control import bodies

FOLD_BYTES = 1 << 20
"""Constants up to this size are computed at once; a bound on what folding can allocate."""

GROWN_BYTES, GROWTH = 1 << 30, 8
"""What a constant may take that is computed from others: so many bytes, or so many times what all that the model holds take."""


GROWN_HELP = "it is computed from what takes far less; give a smaller size, or make it an input"


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
                folded[value] = Value(value.name, value.type, data=array, origin=Origin(unfolded=made))
        else:
            kept.append(node)
    graph.nodes = kept
    graph.outputs = [folded.get(value, value) for value in graph.outputs]


def check_grown(graph: Graph) -> None:
    """Raise UnsupportedError for constants of gigabytes that a few bytes ask for, before any is computed."""
    graphs = [graph]
    for each in graphs:
        graphs += [body.graph for body in bodies(each)]
    held = {value: value.data.nbytes for each in graphs for value in each.constants() if value.data is not None}
    limit = max(GROWN_BYTES, GROWTH * sum(held.values()))
    problems = [
        Problem(value.name, node.op.name, f"a constant of {value.type} takes {value.type.nbytes >> 20} MiB", GROWN_HELP)
        for each in graphs
        for node in each.nodes
        for value in node.outputs
        if value.static and isinstance(value.type.nbytes, int) and value.type.nbytes > limit
    ]
    if problems:
        raise UnsupportedError(problems)


def foldable(node: Node) -> bool:
    """True if every input is a constant and neither they nor the results are large."""
    if not all(value.is_constant for value in node.inputs) or not all(value.static for value in node.outputs):
        return False
    sizes = [value.type.nbytes for value in (*node.inputs, *node.outputs)]
    return all(isinstance(size, int) and size <= FOLD_BYTES for size in sizes)
