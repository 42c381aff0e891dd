"""What an import leaves as it is: weights, inputs, outputs, element types."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend_models import model, node, operators, value
from onnx import TensorProto, helper

import graphc
from graphc.errors import ModelError
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


def shuffled(nodes: list[onnx.NodeProto], random: np.random.Generator) -> list[onnx.NodeProto]:
    return [nodes[i] for i in random.permutation(len(nodes))]


@pytest.mark.parametrize("seed", range(6))
def test_nodes_in_any_order(seed: int) -> None:
    """Also those of a branch, which reads what lies outside, and of a function."""
    random, f = np.random.default_rng(seed), "local"
    branches = []
    for name, by in (("then", "a"), ("else", "b")):
        nodes = [
            helper.make_node("Neg", [by], [f"{name}_1"]),
            helper.make_node("Add", [f"{name}_1", "x"], [f"{name}_2"]),
            helper.make_node("Exp", [f"{name}_2"], [f"{name}_3"]),
        ]
        result = helper.make_tensor_value_info(f"{name}_3", TensorProto.FLOAT, [3])
        branches.append(helper.make_graph(shuffled(nodes, random), name, [], [result]))
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Twice", ["a"], ["b"], domain=f),
        helper.make_node("ReduceSum", ["b"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "one"], ["c"]),
        helper.make_node("Constant", [], ["one"], value_float=1.0),
        helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    body = [
        helper.make_node("Add", ["p", "p"], ["q"]),
        helper.make_node("Neg", ["q"], ["r"]),
        helper.make_node("Neg", ["r"], ["t"]),
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(f, 1)]
    twice = helper.make_function(f, "Twice", ["p"], ["t"], shuffled(body, random), opsets[:1])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph(shuffled(nodes, random), "g", ends[:1], ends[1:])
    proto = helper.make_model(graph, opset_imports=opsets, functions=[twice], ir_version=9)
    before = proto.SerializeToString()
    for x in (np.array([1, -2, 3], np.float32), np.array([-1, 0, 0.1], np.float32)):
        a = np.maximum(x, 0)
        expected = np.exp(x - (a if 2 * a.sum() > 1 else 2 * a))
        np.testing.assert_allclose(graphc.compile(proto).run(x=x)["y"], expected, rtol=1e-6)
    assert proto.SerializeToString() == before


def test_nodes_that_read_one_another() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xb"]
    proto = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]), ir_version=9)
    with pytest.raises(ModelError, match="topologically sorted"):
        graphc.compile(proto)
