"""Files that quantize and dequantize around their operators: computed in integers, with the numbers that onnxruntime gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

import graphc
from graphc.frontend.onnx import load
from graphc.graph_text import parse_graph
from graphc.ir import Graph, interp
from graphc.ir.verify import verify
from graphc.optimize import optimize
from graphc.rewrite.engine import Log, rewrite
from graphc.rewrite.rules import packed, quantize

RULES = {rule.name: rule for module in (quantize, packed) for rules in module.RULES.values() for rule in rules}

FIRES = {
    "scaled_product": """graph g(%x: float32[2, 3, 64])
        %b: uint8[64, 6] = constant
        %t: float32[2, 6] = constant(0.25)
        %y: uint8[2, 1] = constant(2)
        %w = Dequantize(%b, %t, %y)
        %p = MatMul(%x, %w)
        return p=%p""",
    "integer_product": """graph g(%a: uint8[3, 40])
        %s: float32[] = constant(0.5)
        %z: uint8[] = constant(3)
        %b: int8[40, 6] = constant
        %t: float32[1, 6] = constant(0.25)
        %y: int8[1, 6] = constant(2)
        %x = Dequantize(%a, %s, %z)
        %w = Dequantize(%b, %t, %y)
        %p = MatMul(%x, %w)
        return p=%p""",
    "integer_convolution": """graph g(%a: uint8[1, 20, 6, 6])
        %s: float32[] = constant(0.5)
        %z: uint8[] = constant(3)
        %b: int8[8, 20, 3, 3] = constant
        %t: float32[8, 1, 1, 1] = constant(0.25)
        %y: int8[8, 1, 1, 1] = constant(2)
        %c: int32[8] = constant(41)
        %u: float32[] = constant(0.125)
        %v: int32[] = constant(0)
        %x = Dequantize(%a, %s, %z)
        %w = Dequantize(%b, %t, %y)
        %d = Dequantize(%c, %u, %v)
        %p = Conv[strides=(1, 1), dilations=(1, 1), pads_before=(1, 0), pads_after=(1, 0), group=1](%x, %w, %d)
        return p=%p""",
    "integer_bias": """graph g(%a: uint8[3, 40])
        %z: uint8[] = constant(3)
        %b: int8[40, 6] = constant
        %y: int8[] = constant(0)
        %none: int32[] = constant(0)
        %s: float32[] = constant(0.125)
        %c: int32[6] = constant(41)
        %p = IntegerMatMul[transpose_b=False](%a, %b, %z, %y, %none)
        %x = Dequantize(%p, %s, %none)
        %d = Dequantize(%c, %s, %none)
        %r = Add(%d, %x)
        return r=%r""",
    "scaled_sums": """graph g(%a: uint8[3, 40], %s: float32[1])
        %z: uint8[] = constant(3)
        %b: int8[40, 6] = constant
        %y: int8[] = constant(0)
        %none: int32[] = constant(0)
        %p = IntegerMatMul[transpose_b=False](%a, %b, %z, %y, %none)
        %f = Cast[dtype=float32](%p)
        %r = Mul(%s, %f)
        return r=%r""",
    "requantized": """graph g(%x: int32[3, 4])
        %s: float32[] = constant(0.125)
        %none: int32[] = constant(0)
        %t: float32[] = constant(0.5)
        %z: uint8[] = constant(3)
        %d = Dequantize(%x, %s, %none)
        %y = Quantize(%d, %t, %z)
        return y=%y""",
    "quantized_relu": """graph g(%x: float32[3, 4])
        %s: float32[] = constant(0.125)
        %z: int8[] = constant(3)
        %d = Relu(%x)
        %y = Quantize(%d, %s, %z)
        return y=%y""",
    "quantized_clip": """graph g(%x: float32[3, 4])
        %s: float32[] = constant(0.01)
        %z: int8[] = constant(3)
        %d = Clip[low=-0.3, high=0.6](%x)
        %y = Quantize(%d, %s, %z)
        return y=%y""",
    "moved_integers": """graph g(%x: uint8[1, 2, 6, 6])
        %s: float32[1] = constant(0.125)
        %z: uint8[1] = constant(3)
        %d = Dequantize(%x, %s, %z)
        %y = Transpose[perm=(0, 2, 3, 1)](%d)
        return y=%y""",
    "concatenated_integers": """graph g(%x: uint8[2, 3], %y: uint8[2, 4])
        %s: float32[] = constant(0.125)
        %z: uint8[] = constant(3)
        %a = Dequantize(%x, %s, %z)
        %b = Dequantize(%y, %s, %z)
        %c = Concat[axis=1](%a, %b)
        return c=%c""",
    "requantized_floats": """graph g(%x: float32[3, 4])
        %s: float32[] = constant(0.125)
        %z: uint8[] = constant(3)
        %t = Round(%x)
        %i = Cast[dtype=int32](%t)
        %y = Requantize(%i, %s, %z)
        return y=%y""",
    "scaled_floats": """graph g(%x: float32[3, 4])
        %s: float32[] = constant(0.125)
        %none: int32[] = constant(0)
        %t = Round(%x)
        %i = Cast[dtype=int32](%t)
        %y = Dequantize(%i, %s, %none)
        return y=%y""",
    "packed_convolution": """graph g(%x: uint8[1, 5, 6, 7])
        %w: int8[18, 5, 3, 3] = constant
        %z: uint8[] = constant(3)
        %v: int8[18] = constant(2)
        %b: int32[] = constant(41)
        %f: float32[18, 1, 1] = constant(0.002)
        %t = IntegerConv[strides=(2, 1), dilations=(1, 1), pads_before=(1, 0), pads_after=(0, 1)](%x, %w, %z, %v, %b)
        %y = Requantize(%t, %f, %z)
        return y=%y""",
    "packed_product": """graph g(%x: int8[2, 3, 40])
        %w: int8[40, 20] = constant
        %z: int8[] = constant(3)
        %v: int8[] = constant(2)
        %b: int32[] = constant(41)
        %f: float32[20] = constant(0.002)
        %u: uint8[1, 1] = constant(7)
        %t = IntegerMatMul[transpose_b=False](%x, %w, %z, %v, %b)
        %y = Requantize(%t, %f, %u)
        return y=%y""",
    "packed_scaled_product": """graph g(%x: uint8[2, 3, 40], %z: uint8[1], %f: float32[1, 1, 20])
        %w: int8[20, 40] = constant
        %v: int8[] = constant(2)
        %b: int32[20] = constant(41)
        %none: int32[] = constant(0)
        %t = IntegerMatMul[transpose_b=True](%x, %w, %z, %v, %b)
        %y = Dequantize(%t, %f, %none)
        return y=%y""",
    "depthwise_convolution": """graph g(%x: uint8[1, 18, 6, 7])
        %w: int8[18, 1, 3, 3] = constant
        %z: uint8[] = constant(3)
        %v: int8[18] = constant(2)
        %b: int32[] = constant(41)
        %f: float32[18, 1, 1] = constant(0.002)
        %t = IntegerConv[strides=(2, 1), dilations=(1, 1), pads_before=(1, 0), pads_after=(0, 1), group=18](%x, %w, %z, %v, %b)
        %y = Requantize(%t, %f, %z)
        return y=%y""",
    "quantized_binary": """graph g(%x: uint8[2, 3], %y: int8[2, 1])
        %s: float32[] = constant(0.3)
        %r: float32[1] = constant(0.7)
        %z: uint8[] = constant(3)
        %v: int8[1] = constant(2)
        %a = Dequantize(%x, %s, %z)
        %b = Dequantize(%y, %r, %v)
        %c = Mul(%b, %a)
        %q = Quantize(%c, %r, %z)
        return q=%q""",
    "byte_function": """graph g(%x: int8[2, 3])
        %s: float32[1] = constant(0.05)
        %r: float32[] = constant(0.02)
        %z: int8[1] = constant(3)
        %v: uint8[] = constant(9)
        %h: float32[1, 1] = constant(0.5)
        %a = Dequantize(%x, %s, %z)
        %b = Sigmoid(%a)
        %c = Mul(%b, %a)
        %d = Add(%c, %h)
        %q = Quantize(%d, %r, %v)
        return q=%q""",
    "table_with_channels_last": """graph g(%x: uint8[2, 4, 5, 3])
        %t: uint8[256] = constant(7)
        %a = ChannelsFirst(%x)
        %y = ByteTable(%a, %t)
        return y=%y""",
    "channels_stay": """graph g(%x: uint8[2, 4, 5, 3])
        %a = ChannelsFirst(%x)
        %y = ChannelsLast(%a)
        return y=%y""",
    "binary_with_channels_last": """graph g(%x: uint8[2, 4, 5, 3], %y: uint8[2, 4, 5, 3])
        %s: float32[] = constant(0.3)
        %z: uint8[] = constant(3)
        %a = ChannelsFirst(%x)
        %b = ChannelsFirst(%y)
        %c = QuantizedBinary[function='Add'](%a, %s, %z, %b, %s, %z, %s, %z)
        return c=%c""",
    "quantized_parts": """graph g(%x: uint8[2, 3], %y: int8[2, 4])
        %s: float32[] = constant(0.125)
        %t: float32[] = constant(0.25)
        %z: uint8[] = constant(3)
        %v: int8[] = constant(5)
        %a = Dequantize(%x, %s, %z)
        %b = Dequantize(%y, %t, %v)
        %c = Concat[axis=1](%a, %b)
        %q = Quantize(%c, %t, %z)
        return q=%q""",
    "part_with_channels_last": """graph g(%x: uint8[2, 7, 5, 6])
        %a = ChannelsFirst(%x)
        %y = Slice[starts=(1, 4, 0, 3), sizes=(1, 2, 7, 2), steps=(1, -2, 1, 1)](%a)
        return y=%y""",
    "size_with_channels_last": """graph g(%x: uint8[2, 3, 4, 5])
        %a = ChannelsFirst(%x)
        %y = Resize[sizes=(2, 5, 6, 4), scales=(1.0, 1.0, 2.0, 1.0)](%a)
        return y=%y""",
    "joined_with_channels_last": """graph g(%x: uint8[2, 3, 4, 5], %y: uint8[2, 3, 4, 6])
        %a = ChannelsFirst(%x)
        %b = ChannelsFirst(%y)
        %c = Concat[axis=1](%a, %b)
        return c=%c""",
    "windows_with_channels_last": """graph g(%x: uint8[2, 7, 5, 3])
        %a = ChannelsFirst(%x)
        %m = MaxPool[kernel=(3, 2), strides=(2, 1), dilations=(1, 2), pads_before=(1, 0), pads_after=(0, 1), ceil_mode=True](%a)
        return m=%m""",
}

ALWAYS = {"channels_stay", "binary_with_channels_last", "table_with_channels_last", "part_with_channels_last"}
"""The rules that never refuse."""


def changed(name: str, *pairs: tuple[str, str]) -> str:
    """The graph on which a rule fires, but for some of its text."""
    text = FIRES[name]
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


OTHER = "%t: float32[] = constant(0.5)\n"

REFUSES = {
    "scaled_product": """graph g(%x: float32[2, 3, 64])
        %b: int8[6, 64] = constant
        %t: float32[3, 1] = constant(0.25)
        %y: int8[] = constant(0)
        %w = Dequantize(%b, %t, %y)
        %p = MatMul[transpose_b=True](%x, %w)
        return p=%p""",
    "integer_product": changed("integer_product", ("float32[1, 6]", "float32[40, 1]")),
    "integer_convolution": changed("integer_convolution", ("constant(0.125)", "constant(0.12501)")),
    "integer_bias": changed("integer_bias", ("int32[6] = constant(41)", "int32[6] = constant(2147483000)")),
    "scaled_sums": changed("scaled_sums", ("%s: float32[1]", "%s: float32[2, 1, 1]")),
    "requantized": changed("requantized", ("%x: int32", "%x: uint8"), ("%none: int32", "%none: uint8")),
    "quantized_relu": changed("quantized_relu", ("constant(0.125)", "constant(-0.125)")),
    "quantized_clip": changed("quantized_clip", ("constant(0.01)", "constant(-0.01)")),
    "moved_integers": changed("moved_integers", ("float32[1] = ", "float32[6] = ")),
    "concatenated_integers": changed("concatenated_integers", ("%b = Dequantize(%y, %s", f"{OTHER} %b = Dequantize(%y, %t")),
    "requantized_floats": changed("requantized_floats", ("%x: float32", "%x: float64")),
    "scaled_floats": changed("scaled_floats", ("%x: float32", "%x: float64")),
    "packed_convolution": changed("packed_convolution", ("float32[18, 1, 1]", "float32[6]")),
    "packed_product": changed("packed_product", ("return y=%y", "return y=%y, t=%t")),
    "packed_scaled_product": changed("packed_scaled_product", ("int8[20, 40]", "int8[8, 40]"), ("20]", "8]")),
    "windows_with_channels_last": changed("windows_with_channels_last", ("7, 5, 3]", "7, 5, 3, 3]"), ("(3, 2)", "(3, 2, 2)"),
        ("(2, 1)", "(2, 1, 1)"), ("(1, 2)", "(1, 2, 1)"), ("(1, 0)", "(1, 0, 0)"), ("(0, 1)", "(0, 1, 0)")),
    "depthwise_convolution": changed("depthwise_convolution", ("18, 1, 3, 3", "18, 1, 9, 9"), ("6, 7]", "16, 17]")),
    "quantized_binary": changed("quantized_binary", ("%x: uint8[2, 3]", "%x: uint8[1, 3]")),
    "quantized_parts": changed("quantized_parts", ("return q=%q", "return q=%q, c=%c")),
    "size_with_channels_last": changed(
        "size_with_channels_last", ("scales=(", "roi=(0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0), scales=(")
    ),
    "joined_with_channels_last": changed(
        "joined_with_channels_last", ("ChannelsFirst(%y)", "Max(%y, %y)"), ("%y: uint8[2, 3, 4, 6]", "%y: uint8[2, 6, 3, 4]")
    ),
    "byte_function": changed("byte_function", ("%h: float32[1, 1] = constant(0.5)", "%h: float32[1, 3] = constant(0.5)")),
}  # fmt: skip


def parsed(text: str) -> Graph:
    """The graph, with weights that use all of a byte."""
    graph, random = parse_graph(text), np.random.default_rng(9)
    for value in graph.constants():
        if value.dtype == np.int8 and value.data is not None and value.data.ndim:
            value.data = random.integers(-128, 128, value.data.shape, np.int8)
    return graph


def random_inputs(graph: Graph) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    return {
        value.name: random.standard_normal(value.shape).astype(value.dtype)
        if value.dtype.kind == "f"
        else random.integers(0, 255, value.shape).astype(value.dtype)
        for value in graph.inputs
    }


def test_each_rule_has_a_graph() -> None:
    assert set(FIRES) == set(REFUSES) | ALWAYS == set(RULES)


@pytest.mark.parametrize("name", sorted(FIRES))
def test_a_rule_fires_and_keeps_the_numbers(name: str) -> None:
    graph = parsed(FIRES[name])
    inputs, log = random_inputs(graph), Log()
    expected = interp.run(graph, inputs)
    assert rewrite(graph, [RULES[name]], log)
    verify(graph)
    assert [step.name for step in log.steps] == [name]
    for output, array in interp.run(graph, inputs).items():  # these scales are powers of 2: not even roundings differ
        np.testing.assert_array_equal(array, expected[output])


@pytest.mark.parametrize("name", sorted(REFUSES))
def test_a_rule_refuses_with_a_reason(name: str) -> None:
    graph = parsed(REFUSES[name])
    before, log = str(graph), Log()
    assert not rewrite(graph, [RULES[name]], log)
    assert str(graph) == before
    assert any(rule == name and reason for rule, _, reason in log.refused)


@pytest.mark.parametrize(("steps", "fires"), [(60, True), (3000, False)])
def test_a_byte_that_is_met_along_many_ways(steps: int, fires: bool) -> None:
    lines = [f"%m{i + 1} = Mul(%m{i}, %m{i})" for i in range(steps)]
    text = ["graph g(%x: uint8[2, 3])", "%s: float32[] = constant(0.01)", "%z: uint8[] = constant(3)"]
    graph = parsed(
        "\n".join([*text, "%m0 = Dequantize(%x, %s, %z)", *lines, f"%q = Quantize(%m{steps}, %s, %z)", "return q=%q"])
    )
    assert rewrite(graph, [RULES["byte_function"]], Log()) == fires


@dataclass
class File:
    """An ONNX file of one input, written node by node."""

    shape: tuple[int, ...]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(11))

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        name = f"w{len(self.weights)}"
        array = (self.random.standard_normal(shape) * scale).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def __call__(self, operator: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def save(self, path: Path, output: str) -> None:
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        made = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "g", [given], [made], self.weights)
        opset = [helper.make_opsetid("", 19)]
        onnx.save(onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opset, ir_version=9)), path)


def residual(f: File) -> str:
    """A stem, a block of three convolutions around which the input goes, and a classifier."""
    x = f("Relu", f("Conv", "x", f.weight(32, 3, 3, 3, scale=0.2), f.weight(32), strides=[2, 2], pads=[1] * 4))
    x = f("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = f("Relu", f("Conv", x, f.weight(16, 32, 1, 1, scale=0.2), f.weight(16)))
    y = f("Relu", f("Conv", y, f.weight(16, 16, 3, 3, scale=0.1), f.weight(16), pads=[1] * 4))
    y = f("Conv", y, f.weight(32, 16, 1, 1, scale=0.2), f.weight(32))
    x = f("Relu", f("Add", x, y))
    x = f("Clip", f("Conv", x, f.weight(32, 1, 3, 3, scale=0.3), f.weight(32), group=32, pads=[1] * 4))
    x = f("Concat", x, x, axis=1)
    return f("Gemm", f("Flatten", f("GlobalAveragePool", x)), f.weight(10, 64, scale=0.2), f.weight(10), transB=1)


def transformer(f: File) -> str:
    """Attention of one head and two layers, with shapes that change between."""

    def linear(x: str, rows: int, columns: int) -> str:
        return f("Add", f("MatMul", x, f.weight(rows, columns, scale=0.1)), f.weight(columns))

    q, k, v = (linear("x", 160, 160) for _ in range(3))
    scores = f("Softmax", f("MatMul", q, f("Transpose", k, perm=[0, 2, 1])), axis=-1)
    x = f("Add", "x", linear(f("MatMul", scores, v), 160, 160))
    return linear(f("Relu", linear(x, 160, 300)), 300, 160)


def mobile(f: File) -> str:
    """What small networks have: kernels of single channels, SiLU, a factor for each channel, images of other sizes, joined."""

    def silu(x: str) -> str:
        return f("Mul", x, f("Sigmoid", x))

    def conv(x: str, out: int, channels: int, size: int = 1, **attributes: object) -> str:
        return f("Conv", x, f.weight(out, channels, size, size, scale=0.3), f.weight(out), **attributes)

    f.weights.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "twice"))
    x = silu(conv("x", 32, 3, 3, strides=[2, 2], pads=[1] * 4))
    y = silu(conv(x, 32, 1, 3, group=32, pads=[1] * 4))
    factor = f("Relu", conv(f("GlobalAveragePool", y), 8, 32))
    y = f("Mul", y, f("Sigmoid", conv(factor, 32, 8)))
    z = silu(conv(f("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 24, 32))
    z = f("Resize", z, "", "twice", mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    return conv(f("Concat", y, z, axis=1), 40, 56)


MODELS: dict[str, tuple[Callable[[File], str], tuple[int, ...]]] = {
    "residual": (residual, (1, 3, 32, 32)),
    "transformer": (transformer, (2, 7, 160)),
    "mobile": (mobile, (1, 3, 32, 32)),
}


class Samples(CalibrationDataReader):
    """Some random inputs."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        random = np.random.default_rng(1)
        self.left = [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(4)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self.left.pop() if self.left else None


TYPES = {
    "u8s8": (QuantType.QUInt8, QuantType.QInt8, False),
    "u8s8 by channel": (QuantType.QUInt8, QuantType.QInt8, True),
    "s8s8 by channel": (QuantType.QInt8, QuantType.QInt8, True),
    "u8u8": (QuantType.QUInt8, QuantType.QUInt8, False),
}


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("model", MODELS)
def test_a_quantized_model_is_as_near_as_onnxruntime_is(model: str, types: str, tmp_path: Path) -> None:
    """Where scales are no powers of 2, an integer may be another by 1, in onnxruntime's own integer kernels too: the results are
    not further from the reference evaluator's than twice what onnxruntime's with and without fusions are from each other
    and from that."""
    make, shape = MODELS[model]
    file = File(shape)
    file.save(tmp_path / "float.onnx", make(file))
    activations, weights, channels = TYPES[types]
    path = tmp_path / "quantized.onnx"
    quantize_static(
        tmp_path / "float.onnx",
        path,
        Samples(shape),
        quant_format=QuantFormat.QDQ,
        activation_type=activations,
        weight_type=weights,
        per_channel=channels,
    )
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    (reference,) = ReferenceEvaluator(onnx.load(path)).run(None, {"x": x})
    fused, literal = by_onnxruntime(path, x, True), by_onnxruntime(path, x, False)
    log, graph = Log(), load(onnx.load(path))
    optimize(graph, log)
    fired = Counter(step.name for step in log.steps)
    compiled = graphc.compile(path, tmp_path / "model.gguf")
    ours = next(iter(compiled.run(x=x).values()))
    spread = max(np.abs(fused - literal).max(), np.abs(literal - reference).max(), np.abs(fused - reference).max())
    assert np.abs(ours - reference).max() <= 2 * spread + 1e-5 * np.abs(reference).max()
    products = {
        "residual": {"integer_convolution": 5, "integer_product": 1},
        "transformer": {"integer_product": 8},
        "mobile": {
            "integer_convolution": 6,
            "depthwise_convolution": 1,
            "byte_function": 8,
            "joined_with_channels_last": 1,
        },
    }
    assert {name: fired[name] for name in products[model]} == products[model]
    (interpreted,) = interp.run(graph, {"x": x}).values()
    assert np.abs(interpreted - ours).max() <= spread + 1e-5 * np.abs(reference).max()


@pytest.mark.filterwarnings("ignore")
def test_scales_that_each_run_finds(tmp_path: Path) -> None:
    """onnxruntime's dynamic quantizer: the scales of the activations are computed, the products exact."""
    make, shape = MODELS["transformer"]
    file, path = File(shape), tmp_path / "quantized.onnx"
    file.save(tmp_path / "float.onnx", make(file))
    quantize_dynamic(tmp_path / "float.onnx", path)
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    compiled = graphc.compile(path)
    kinds = Counter(use.op.name for use in compiled.program.kernels)
    assert kinds["PackedConv"] > 0
    expected = by_onnxruntime(path, x, True)
    np.testing.assert_allclose(
        next(iter(compiled.run(x=x).values())), expected, rtol=0, atol=1e-5 * np.abs(expected).max()
    )


def exact_options() -> onnxruntime.SessionOptions:
    """For onnxruntime's exact products of unsigned with signed bytes: on x86 without VNNI, sums of two would overflow 16 bits."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def by_onnxruntime(path: Path, x: np.ndarray, fused: bool) -> np.ndarray:
    """What onnxruntime computes: by its integer kernels, or literally."""
    options = exact_options()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if fused else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def quantized_product(kind: str, types: tuple[np.dtype, np.dtype], channels: bool) -> tuple[onnx.ModelProto, ...]:
    """The same product of quantized tensors twice: among QuantizeLinear and DequantizeLinear, and as one operator."""
    random = np.random.default_rng(17)
    conv = kind == "Conv"
    shapes = ((2, 40, 9, 9), (24, 40, 3, 3)) if conv else ((64, 300), (300, 40))
    columns = shapes[1][0] if conv else shapes[1][1]
    count = (columns,) if channels else ()

    def bytes_of(dtype: np.dtype, *shape: int) -> np.ndarray:
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)

    w_scale = random.uniform(0.01, 0.03, count).astype(np.float32)
    arrays = {
        "w": bytes_of(types[1], *shapes[1]),
        "xs": np.float32(0.037),
        "xz": bytes_of(types[0]),
        "ws": w_scale,
        "wz": np.full(count, 128 if types[1] == np.uint8 else 0, types[1]),
        "ys": np.float32(2.7),
        "yz": bytes_of(types[0]),
        "b": random.integers(-(1 << 20), 1 << 20, columns).astype(np.int32),
        "bs": np.asarray(np.float32(0.037) * w_scale),
    }
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    axis = 0 if conv else 1
    literal = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=axis),
        *([helper.make_node("DequantizeLinear", ["b", "bs"], ["bf"], axis=0)] if conv else []),
        helper.make_node(kind, ["xf", "wf", *(["bf"] if conv else [])], ["yf"]),
        helper.make_node("QuantizeLinear", ["yf", "ys", "yz"], ["y"]),
    ]
    operator = "QLinearConv" if conv else "QLinearMatMul"
    one = [helper.make_node(operator, ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", *(["b"] if conv else [])], ["y"])]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(types[0]))
    ends = [[helper.make_tensor_value_info(n, element, s)] for n, s in (("x", shapes[0]), ("y", None))]
    graphs = (helper.make_graph(nodes, "g", *ends, weights) for nodes in (literal, one))
    opset = [helper.make_opsetid("", 19)]
    return tuple(helper.make_model(graph, opset_imports=opset, ir_version=9) for graph in graphs)


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize(
    "types", [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)], ids=["u8s8", "s8s8", "u8u8"]
)
@pytest.mark.parametrize("kind", ["Conv", "MatMul"])
def test_the_bytes_are_those_of_the_integer_operators(
    kind: str, types: tuple[np.dtype, np.dtype], channels: bool
) -> None:
    """The same bits as onnxruntime's QLinearConv and QLinearMatMul. Those of the float operators differ by 1, and seldom."""
    literal, one = quantized_product(kind, types, channels)
    shape = [size.dim_value for size in literal.graph.input[0].type.tensor_type.shape.dim]
    limits = np.iinfo(types[0])
    x = np.random.default_rng(3).integers(limits.min, limits.max, shape, types[0], endpoint=True)
    options = exact_options() if types == (np.uint8, np.int8) else onnxruntime.SessionOptions()
    session = onnxruntime.InferenceSession(one.SerializeToString(), options, ["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    for model in (literal, one):
        compiled = graphc.compile(model)
        assert any(use.op.name == "PackedConv" for use in compiled.program.kernels)
        np.testing.assert_array_equal(compiled.run(x=x)["y"], expected)
    (floats,) = ReferenceEvaluator(literal).run(None, {"x": x})
    apart = np.abs(floats.astype(int) - expected.astype(int))
    assert len(np.unique(expected)) > 60
    assert apart.max() <= 1
    assert np.count_nonzero(apart) <= 1e-3 * apart.size
