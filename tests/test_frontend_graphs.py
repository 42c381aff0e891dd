"""What an import leaves as it is: weights, inputs, outputs, element types."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import model, node, operators, value

from graphc.frontend.onnx import load

RANDOM = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def test_weights_stay_nodes() -> None:
    nodes = [node("Transpose", "w", "t"), node("MatMul", "x t", "y")]
    graph = load(model(nodes, [value("x", [2, 3])], [value("y", None)], {"w": floats(4, 3)}))
    assert operators(graph) == ["Transpose", "MatMul"]
    assert [each.name for each in graph.constants()] == ["w"]


def test_outputs_that_nothing_computes() -> None:
    nodes = [node("Identity", "x", "same"), node("Constant", "", "c", value_float=2.0)]
    proto = model(nodes, [value("x", [2]), value("unused", [1])], ["same", "c", "w"], {"w": floats(3)})
    proto.graph.output[2].CopyFrom(value("w", [3]))
    graph = load(proto)
    assert graph.output_names == ["same", "c", "w"]
    assert [each.name for each in graph.inputs] == ["x", "unused"]
    assert graph.outputs[0] is graph.inputs[0]
    assert not graph.nodes


def test_initializers_that_are_inputs() -> None:
    proto = model(
        [node("Add", "x w", "y")], [value("x", [2]), value("w", [2])], ["y"], {"w": floats(2)}, ir_version=3, opset=8
    )
    graph = load(proto)
    assert [each.name for each in graph.inputs] == ["x"]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_element_types_are_kept(dtype: type) -> None:
    graph = load(model([node("Relu", "x", "y")], [value("x", [2], dtype)], [value("y", [2], dtype)]))
    assert graph.outputs[0].dtype == dtype
