"""Running a graph node by node in NumPy: the reference that every target is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from graphc.errors import GraphcError
from graphc.ir.graph import Graph, Node, Value
from graphc.shapes import Dim, Expr, bind


def run(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by name, for inputs by name."""
    values = dict(trace(graph, inputs))
    return {name: values[value] for name, value in zip(graph.output_names, graph.outputs, strict=True)}


def trace(
    graph: Graph, inputs: Mapping[str, np.ndarray], binding: dict[str, int] | None = None
) -> Iterator[tuple[Value, np.ndarray]]:
    """Every value with its array, in running order: inputs, constants, then each node's results.

    `binding` gives size symbols that the inputs' shapes do not.
    """
    sizes = {} if binding is None else binding
    known: dict[Value, np.ndarray] = {value: inputs[value.name] for value in graph.inputs}
    for value, array in known.items():
        sizes_of(value.shape, array, sizes)
    known.update({value: value.data for value in graph.constants() if value.data is not None})
    own = {value for node in graph.nodes for value in node.outputs}
    around = set(graph.reads()) - own - known.keys()
    known.update({value: evaluate(value) for value in around})
    yield from known.items()
    for node in graph.nodes:
        arrays = apply(node, known, sizes)
        node.op.settle([value.shape for value in node.outputs], arrays, sizes)
        for value, array in zip(node.outputs, arrays, strict=True):
            known[value] = array
            yield value, array


def apply(
    node: Node, known: Mapping[Value, np.ndarray], binding: Mapping[str, int] | None = None
) -> tuple[np.ndarray, ...]:
    """One node's results, of the dtypes that its values have. Raises GraphcError where there is no memory for them."""
    op = bound(node.op, binding) if binding else node.op
    try:
        with np.errstate(all="ignore"):
            results = op.eval(*(known[value] for value in node.inputs))
    except MemoryError as error:
        types = ", ".join(str(value.type) for value in node.outputs)
        raise GraphcError(f"not enough memory to compute {node.source.name or op.name}, {types}") from error
    return tuple(np.asarray(array, value.dtype) for array, value in zip(results, node.outputs, strict=True))


def sizes_of(shape: Sequence[Dim], array: np.ndarray, binding: dict[str, int]) -> None:
    """Give the symbols that stand alone in a shape, and have no value yet, the sizes of an array."""
    for dim, size in zip(shape, array.shape, strict=True):
        if isinstance(dim, Expr) and dim.only is not None:
            binding.setdefault(dim.only.name, int(size))


def bound(thing: Any, binding: Mapping[str, int]) -> Any:
    """An operator with its symbolic sizes, wherever they stand in its fields, replaced by their values."""
    match thing:
        case Expr():
            return bind(thing, binding)
        case tuple():
            return tuple(bound(item, binding) for item in thing)
        case _ if hasattr(thing, "bound"):
            return thing.bound(binding)
        case _ if is_dataclass(thing) and not isinstance(thing, type):
            changed = {field.name: bound(getattr(thing, field.name), binding) for field in fields(thing)}
            return replace(thing, **changed)
    return thing


def evaluate(value: Value, given: Mapping[Value, np.ndarray] | None = None) -> np.ndarray:
    """A value that depends on constants alone, and on those `given`. Raises ValueError if it depends on another."""
    known: dict[Value, np.ndarray] = dict(given or {})
    stack = [value]
    while stack:
        top = stack[-1]
        if top.data is not None:
            known.setdefault(top, top.data)
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
