"""Running a graph node by node in NumPy: the reference that every target is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from graphc.ir.graph import Graph, Node, Value


def run(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by name, for inputs by name."""
    values = dict(trace(graph, inputs))
    return {name: values[value] for name, value in zip(graph.output_names, graph.outputs, strict=True)}


def trace(graph: Graph, inputs: Mapping[str, np.ndarray]) -> Iterator[tuple[Value, np.ndarray]]:
    """Every value with its array, in running order: inputs, constants, then each node's results."""
    known: dict[Value, np.ndarray] = {value: inputs[value.name] for value in graph.inputs}
    known.update({value: value.data for value in graph.constants() if value.data is not None})
    yield from known.items()
    for node in graph.nodes:
        for value, array in zip(node.outputs, apply(node, known), strict=True):
            known[value] = array
            yield value, array


def apply(node: Node, known: Mapping[Value, np.ndarray]) -> tuple[np.ndarray, ...]:
    """One node's results, of the dtypes that its values have."""
    with np.errstate(all="ignore"):
        results = node.op.eval(*(known[value] for value in node.inputs))
    return tuple(np.asarray(array, value.dtype) for array, value in zip(results, node.outputs, strict=True))


def evaluate(value: Value) -> np.ndarray:
    """A value that depends on constants alone. Raises ValueError if it depends on an input."""
    known: dict[Value, np.ndarray] = {}
    stack = [value]
    while stack:
        top = stack[-1]
        if top.data is not None:
            known[top] = top.data
        if top in known:
            stack.pop()
            continue
        if top.producer is None:
            raise ValueError(f"{top} is an input of the model")
        missing = [needed for needed in top.producer.inputs if needed not in known]
        if missing:
            stack += missing
        else:
            known.update(zip(top.producer.outputs, apply(top.producer, known), strict=True))
    return known[value]
