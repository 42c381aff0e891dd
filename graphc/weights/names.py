"""Constants whose names an exporter lost, found in a checkpoint by what they hold.

An exporter computes what it can: the rows of a table of positions become a constant of another name. Where the constant has
the numbers of a tensor of the checkpoint, in another shape, transposed, or its first rows, that is how it was made.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from graphc.ir.graph import Graph, Origin, Value
from graphc.ir.types import FLOATS, TensorType
from graphc.ops.base import Op
from graphc.ops.movement import Reshape, Slice, Transpose
from graphc.weights.formats.tensors import Tensors

FEWEST = 8
"""Elements of a constant that is looked for: fewer may be the same by chance."""


def find_names(graph: Graph, tensors: Tensors) -> None:
    """Say of constants without a name which parameter they are made of. The graph's nodes stay what they are."""
    taken = {each.parameter for each in graph.parameters}
    free: dict[bytes, list[tuple[str, np.ndarray]]] = defaultdict(list)
    for name, array in tensors.items():
        if isinstance(array, np.ndarray) and array.dtype in FLOATS and array.size >= FEWEST and name not in taken:
            free[_first(array)].append((name, array))
    found: dict[str, Value] = {}
    for value in list(graph.constants()):
        if value.data is None or value.parameter or value.dtype not in FLOATS or value.data.size < FEWEST:
            continue
        for name, array in free.get(_first(value.data), ()) if np.any(value.data != value.data.flat[0]) else ():
            steps = _steps(array, value.data)
            if steps is not None:
                if name not in found:
                    found[name] = _parameter(graph, name, array)
                made = found[name]
                for step in steps:
                    made = Graph().make(step, [made]).output
                value.origin = Origin(unfolded=made)
                break


def _first(array: np.ndarray) -> bytes:
    """The bits of the first element, which a constant shares with what it is made of."""
    return array.dtype.name.encode() + np.asarray(array.flat[0]).tobytes()


def _parameter(graph: Graph, name: str, array: np.ndarray) -> Value:
    value = Value(name, TensorType(array.dtype, array.shape), data=array, origin=Origin())
    graph.declare_parameter(value, name)
    return value


def _steps(array: np.ndarray, constant: np.ndarray) -> list[Op] | None:
    """What makes the constant of an array of the same dtype: nothing, a reshape, a transposition, or its first rows."""
    shape = constant.shape
    if array.size == constant.size:
        if np.array_equal(array.reshape(-1), constant.reshape(-1)):
            return [] if array.shape == shape else [Reshape(shape)]
        transposed = array.ndim == 2 and array.T.shape == shape and np.array_equal(array.T, constant)
        return [Transpose((1, 0))] if transposed else None
    row = array.size // array.shape[0]
    if constant.size > array.size or constant.size % row:
        return None
    first = (constant.size // row, *array.shape[1:])
    if not np.array_equal(array[: first[0]].reshape(-1), constant.reshape(-1)):
        return None
    return [Slice((0,) * array.ndim, first, (1,) * array.ndim), Reshape(shape)]
