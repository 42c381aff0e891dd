"""Small ONNX files for the tests of what stands around the compiler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4) / 10 - 0.5
BIAS = np.array([0.1, -0.2, 0.3, -0.4], np.float32)


def dense_model(output: str = "scores") -> onnx.ModelProto:
    """`relu(x @ weight + bias)` for x [batch, 3], and the product before the bias as the output `product`."""
    nodes = [
        helper.make_node("MatMul", ["x", "dense.weight"], ["product"], name="/dense/MatMul"),
        helper.make_node("Add", ["product", "dense.bias"], ["sum"], name="/dense/Add"),
        helper.make_node("Relu", ["sum"], [output], name="/Relu"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in (output, "product")]
    weights = [numpy_helper.from_array(WEIGHT, "dense.weight"), numpy_helper.from_array(BIAS, "dense.bias")]
    graph = helper.make_graph(nodes, "dense", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def dense_result(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the model gives."""
    product = x @ WEIGHT
    return np.maximum(product + BIAS, 0), product


def unsupported_model() -> onnx.ModelProto:
    """A model with two nodes of an operator that nobody knows."""
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first", domain="acme"),
        helper.make_node("Relu", ["a"], ["b"], name="middle"),
        helper.make_node("Frobnicate", ["b"], ["y"], name="second", domain="acme"),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xaby"]
    graph = helper.make_graph(nodes, "unsupported", info[:1], info[3:], value_info=info[1:3])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("acme", 1)], ir_version=10
    )


def stored(model: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path
