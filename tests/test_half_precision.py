"""Models of half precision: numbers are rounded where the model says so, and where it ends, not from operator to operator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import graphc
from graphc.ir.types import F16


def model_of(nodes, shape, weights=()):
    """A model of float16 from x to y."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape) for name in "xy")
    y.type.tensor_type.ClearField("shape")
    tensors = [
        helper.make_tensor(f"w{i}", TensorProto.FLOAT16, each.shape, each.ravel()) for i, each in enumerate(weights)
    ]
    graph = helper.make_graph(
        [helper.make_node(op, read.split(), [made], **more) for op, read, made, more in nodes],
        "half",
        [x],
        [y],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.torch
def test_what_is_between_operators_is_not_rounded(tmp_path):
    """Not where it is moved on the way either: the numbers are those of float32, rounded once."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    kernel, matrix = (rng.standard_normal(shape).astype(F16) for shape in ((8, 4, 3, 3), (12, 5)))
    nodes = [
        ("Conv", "x w0", "a", {"pads": [1] * 4}),
        ("Relu", "a", "b", {}),
        ("Reshape", "b s", "c", {}),
        ("Transpose", "c", "d", {"perm": [0, 2, 1]}),
        ("MatMul", "d w1", "e", {}),
        ("Sigmoid", "e", "f", {}),
        ("Concat", "f e", "g", {"axis": 2}),
        ("Exp", "g", "y", {}),
    ]
    onnx_model = model_of(nodes, (2, 4, 6, 6), (kernel, matrix))
    onnx_model.graph.initializer.append(helper.make_tensor("s", TensorProto.INT64, (3,), [2, 12, 24]))
    model = graphc.compile(onnx_model, tmp_path / "half.gguf", threads=2)
    assert [call.function for call in model.program.calls].count("ggml_cast") == 2  # of the input and of the result
    x = rng.standard_normal((2, 4, 6, 6)).astype(F16) / F16.type(4)
    image = torch.nn.functional.conv2d(torch.tensor(x).double(), torch.tensor(kernel).double(), padding=1).relu()
    e = image.reshape(2, 12, 24).transpose(1, 2) @ torch.tensor(matrix).double()
    exact = torch.cat([e.sigmoid(), e], 2).exp().numpy()
    found = model.run(x=x)["y"]
    assert found.dtype == F16
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(found.astype(np.float64), exact.astype(F16).astype(np.float64), rtol=2**-10)


def test_what_the_model_rounds_itself_is_rounded(tmp_path):
    nodes = [
        ("Cast", "x", "a", {"to": TensorProto.FLOAT}),
        ("Exp", "a", "b", {}),
        ("Cast", "b", "c", {"to": TensorProto.FLOAT16}),
        ("Cast", "c", "d", {"to": TensorProto.FLOAT}),
        ("Sub", "b d", "e", {}),
        ("Cast", "e", "y", {"to": TensorProto.FLOAT16}),
    ]
    model = graphc.compile(model_of(nodes, (1000,)), tmp_path / "half.gguf", threads=2)
    x = np.linspace(-3, 3, 1000).astype(F16)
    wide = np.exp(x.astype(np.float32))
    expected = wide - wide.astype(F16).astype(np.float32)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(model.run(x=x)["y"].astype(np.float32), expected, atol=4e-6)


def test_an_output_and_what_else_reads_it_have_numbers_of_their_own(tmp_path):
    """What leaves the model is rounded, though what goes on is not."""
    nodes = [("Exp", "x", "a", {}), ("Sin", "a", "y", {})]
    onnx_model = model_of(nodes, (500,))
    onnx_model.graph.output.append(helper.make_tensor_value_info("a", TensorProto.FLOAT16, (500,)))
    model = graphc.compile(onnx_model, tmp_path / "half.gguf", threads=1)
    x = np.linspace(-2, 4, 500).astype(F16)
    found = model.run(x=x)
    wide = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(found["a"], wide.astype(F16), rtol=1e-3)
    np.testing.assert_allclose(found["y"].astype(np.float64), np.sin(wide), atol=6e-4)
    assert np.abs(np.sin(wide.astype(F16).astype(np.float64)) - np.sin(wide)).max() > 5e-3


@pytest.mark.parametrize("type", ["half", "bfloat16"])
@pytest.mark.torch
def test_pytorch_s_models(tmp_path, type):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    x = torch.randn(2, 9, 32)
    with torch.no_grad():
        exact = layer(x).numpy()
        narrow = getattr(layer, type)()
        given = x.to(getattr(torch, {"half": "float16"}.get(type, type)))
        rounded = narrow(given).float().numpy()
        model = graphc.from_torch(narrow, (given,), tmp_path / "layer.gguf", threads=2)
    (name,) = (each.name for each in model.inputs)
    (found,) = model.run({name: given}).values()
    found = np.asarray(found, np.float32)
    assert np.abs(found - exact).max() <= 1.2 * np.abs(rounded - exact).max()


def test_weights_stay_in_half_precision(tmp_path):
    """With the numbers that they have as float32, to the bit; what only float32 can be added to is float32."""
    rng = np.random.default_rng(0)
    kernel, matrix, bias = (rng.standard_normal(shape).astype(F16) for shape in ((8, 4, 3, 3), (36, 50), (50,)))
    nodes = [
        ("Conv", "x w0", "a", {"pads": [1] * 4}),
        ("Flatten", "a", "b", {"axis": 2}),
        ("MatMul", "b w1", "c", {}),
        ("Add", "c w2", "d", {}),
        ("Relu", "d", "y", {}),
    ]
    made = model_of(nodes, (2, 4, 6, 6), (kernel, matrix, bias))
    x = rng.standard_normal((2, 4, 6, 6)).astype(F16)
    found = {}
    for dtype in ("as it is", "f32", "q8_0"):
        asked = {} if dtype == "as it is" else {"dtype": dtype}
        model = graphc.compile(made, tmp_path / f"{dtype}.gguf", threads=2, **asked)
        found[dtype] = model.run(x=x)["y"], [weight.tensor.type for weight in model.program.weights]
    assert [types for _, types in found.values()] == [["F16", "F16", "F32"], ["F32"] * 3, ["F32"] * 3]
    np.testing.assert_array_equal(found["as it is"][0], found["f32"][0])
