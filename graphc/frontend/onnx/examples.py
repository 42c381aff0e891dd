"""Sizes that the exporter's example had, where a file says them: what a model with free sizes is tried with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from graphc.ir import Value
from graphc.shapes import bind, symbols
from graphc.shapes.dim import Expr
from graphc.shapes.ranges import range_of

EXAMPLE = "graphc.example"
"""The key of an ONNX file's metadata under which the sizes of the example's inputs are, as JSON: `{"x": [2, 3, 64, 64]}`."""


def example_sizes(metadata: Mapping[str, str], inputs: Sequence[Value]) -> dict[str, int]:
    """The sizes that the example had, by symbol; none where the file does not say, or says what does not fit the model."""
    try:
        shapes = json.loads(metadata.get(EXAMPLE, "{}"))
        given = {value: tuple(shapes[value.name]) for value in inputs if value.name in shapes}
    except (ValueError, TypeError, RecursionError):
        return {}
    found: dict[str, int] = {}
    for value, shape in given.items():
        for size, dim in zip(shape, value.shape, strict=False):
            atom = symbols(dim).get(str(dim)) if isinstance(dim, Expr) else None
            if atom is not None and type(size) is int and not range_of(atom).misfit(size):
                found.setdefault(str(dim), size)
    for value, shape in given.items():
        free = symbols(*value.shape).keys() - found.keys()
        if free or shape != tuple(bind(dim, found) for dim in value.shape):
            return {}
    return found
