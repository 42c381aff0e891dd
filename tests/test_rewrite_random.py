"""Random chains of movements: optimizing them keeps every element."""

import numpy as np
import pytest

from graphc.ir import interp
from graphc.ir.graph import Graph
from graphc.ir.types import TensorType
from graphc.ir.verify import verify
from graphc.ops.movement import Concat, Expand, Reshape, Slice, Transpose
from graphc.ops.pointwise import Binary, Unary
from graphc.optimize import optimize

SIZES = (1, 1, 2, 3, 4, 6)
LARGEST = 4096


def transposed(random, graph, values):
    x = values[-1]
    return graph.add(Transpose(tuple(map(int, random.permutation(len(x.shape))))), [x])


def reshaped(random, graph, values):
    """Axes merged at random, then split at random, with axes of size 1 between."""
    x = values[-1]
    merged = [1]
    for size in x.shape:
        if random.random() < 0.4:
            merged[-1] *= size
        else:
            merged.append(size)
    shape = []
    for size in merged:
        parts = [part for part in (2, 3, 4) if size % part == 0 and random.random() < 0.4][:1]
        shape += [*parts, size // parts[0]] if parts else [size]
        shape += [1] * int(random.random() < 0.15)
    return graph.add(Reshape(tuple(shape)), [x])


def sliced(random, graph, values):
    x = values[-1]
    settings = []
    for size in x.shape:
        start, step = int(random.integers(size)), int(random.choice((1, 1, 1, 2, -1)))
        most = (size - start + step - 1) // step if step > 0 else start + 1
        whole = random.random() < 0.6
        settings.append((0, size, 1) if whole else (start, int(random.integers(1, most + 1)), step))
    return graph.add(Slice(*zip(*settings, strict=True)), [x]) if settings else transposed(random, graph, values)


def joined(random, graph, values):
    x = values[-1]
    if not x.shape:
        return graph.add(Unary("Neg"), [x])
    axis = int(random.integers(len(x.shape)))
    rest = [*x.shape[:axis], *x.shape[axis + 1 :]]
    others = [
        value
        for value in values
        if [*value.shape[:axis], *value.shape[axis + 1 :]] == rest and len(value.shape) == len(x.shape)
    ]
    return graph.add(Concat(axis), [x, others[int(random.integers(len(others)))]])


def expanded(random, graph, values):
    x = values[-1]
    return graph.add(Expand(tuple(2 if size == 1 and random.random() < 0.5 else size for size in x.shape)), [x])


def combined(random, graph, values):
    """With a value of the same shape, moved in the same order or not."""
    x = values[-1]
    others = [value for value in values if value.shape == x.shape]
    return graph.add(Binary(str(random.choice(("Add", "Mul")))), [x, others[int(random.integers(len(others)))]])


def negated(random, graph, values):
    return graph.add(Unary("Neg"), [values[-1]])


MOVES = (transposed, transposed, reshaped, reshaped, sliced, sliced, joined, expanded, combined, negated)


def drawn(seed):
    """A graph of up to nine movements, with up to three outputs."""
    random, graph = np.random.default_rng(seed), Graph()
    shape = tuple(int(random.choice(SIZES)) for _ in range(random.integers(1, 6)))
    values = [graph.input(name, TensorType(np.dtype(np.float32), shape)) for name in "xy"]
    for _ in range(random.integers(2, 10)):
        if random.random() < 0.15:
            values.append(values[int(random.integers(len(values)))])
        value = MOVES[int(random.integers(len(MOVES)))](random, graph, values).output
        if value.type.size <= LARGEST:
            values.append(value)
    for number, value in enumerate(dict.fromkeys([values[-1], *values[-3:-1:2]])):
        graph.output(value, f"o{number}")
    return graph


@pytest.mark.parametrize("seed", range(300))
def test_movements_keep_every_element(seed):
    graph = drawn(seed)
    random = np.random.default_rng(seed)
    inputs = {value.name: random.integers(-4, 5, value.shape).astype(np.float32) for value in graph.inputs}
    expected, text = interp.run(graph, inputs), str(graph)
    optimize(graph)
    verify(graph)
    for name, array in interp.run(graph, inputs).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=text)
