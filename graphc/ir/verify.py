"""Checking that a graph is sound: after every stage in tests, and with GRAPHC_DEBUG."""

from __future__ import annotations

from graphc.ir.graph import Graph, Value


def verify(graph: Graph) -> None:
    """Raise AssertionError with the first thing that is wrong: a value read before it is made, made twice, or of a type
    that its operator does not infer. The graphs inside it are checked too."""
    made: set[Value] = set(graph.inputs)
    assert len(made) == len(graph.inputs), "an input occurs twice"
    for value in graph.inputs:
        assert value.producer is None, f"input {value} has a producer"
        assert value.data is None, f"input {value} has data"
    for node in graph.nodes:
        for value in node.inputs:
            assert value in made or value.static, f"{value} is read by {node} before it is made"
        inferred = node.op.infer(*(value.type for value in node.inputs))
        assert inferred == tuple(value.type for value in node.outputs), f"{node}: inferred {list(map(str, inferred))}"
        for body in getattr(node.op, "bodies", ()):
            verify(body.graph)
        for value in node.outputs:
            assert value.producer is node, f"{value} does not know that {node} makes it"
            assert value not in made, f"{value} is made twice"
            made.add(value)
    for value in graph.outputs:
        assert value in made or value.static, f"output {value} is never made"
    for value in graph.constants():
        assert value.data is not None
        assert value.data.shape == value.shape, f"constant {value}: data of shape {value.data.shape}"
        assert value.data.dtype == value.dtype, f"constant {value}: data of dtype {value.data.dtype}"
    assert len(graph.outputs) == len(graph.output_names), "outputs and their names differ in number"
