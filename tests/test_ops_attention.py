"""Attention: its definition and its ggml calls against NumPy."""

import numpy as np
import pytest

import graphc
import graphc.ops
from graphc.errors import ShapeError
from graphc.ir import Graph, TensorType, interp
from graphc.ir.types import F32
from graphc.ops.attention import Attention
from graphc.ops.base import Emit

CASES = {
    "self": ((2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4), None),
    "cross": ((1, 2, 6, 8), (1, 2, 77, 8), (1, 2, 77, 3), None),
    "grouped heads": ((2, 6, 5, 4), (2, 2, 7, 4), (2, 2, 7, 4), None),
    "mask of rows and columns": ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4), (5, 7)),
    "mask of a batch": ((2, 4, 5, 4), (2, 2, 7, 4), (2, 2, 7, 4), (2, 1, 5, 7)),
    "mask of columns": ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4), (1, 1, 1, 7)),
}


def build(shapes):
    graph = Graph("attention")
    shapes = [shape for shape in shapes if shape is not None]
    values = [graph.input(f"x{i}", TensorType(F32, shape)) for i, shape in enumerate(shapes)]
    graph.output(graph.add(Attention(0.4), values).output, "y")
    random = np.random.default_rng(3)
    return graph, {value.name: random.standard_normal(value.shape).astype(np.float32) for value in values}


@pytest.mark.parametrize("case", sorted(CASES))
def test_ggml_and_numpy_agree(case):
    graph, inputs = build(CASES[case])
    expected = interp.run(graph, inputs)["y"]
    np.testing.assert_allclose(graphc.compile(graph, threads=1).run(inputs)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_definition_agrees(case):
    graph, inputs = build(CASES[case])
    expected = interp.run(graph, inputs)["y"]
    emit = Emit(graph)
    (node,) = graph.nodes
    (result,) = node.op.define(emit, *node.inputs)
    assert result.type == node.output.type
    graph.nodes, graph.outputs = emit.nodes, [result]
    np.testing.assert_allclose(interp.run(graph, inputs)["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 5, 4), (2, 3, 7, 5), (2, 3, 7, 4)),
        ((2, 3, 5, 4), (2, 2, 7, 4), (2, 2, 7, 4)),
        ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 6, 4)),
        ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4), (4, 7)),
        ((3, 5, 4), (3, 7, 4), (3, 7, 4)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes):
    with pytest.raises(ShapeError):
        Attention(1.0).infer(*(TensorType(F32, shape) for shape in shapes))
