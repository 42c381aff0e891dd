"""Sizes that a model computes become attributes, symbols included; what is not a size is never guessed to be one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend_models import agrees, model, node, operators, value
from onnx import TensorProto

import graphc
from graphc.errors import GraphcError, ModelError
from graphc.frontend.onnx import load
from graphc.ir import Graph, interp
from graphc.ir.interp import bound
from graphc.ops.blocks import Tile
from graphc.shapes import symbol, symbols

RANDOM = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def run_at(graph: Graph, binding: dict[str, int], **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """The graph's outputs for inputs whose symbolic sizes have these values."""
    for each in graph.nodes:
        each.op = bound(each.op, binding)
    return interp.run(graph, inputs)


def test_sizes_become_attributes() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "batch"),
        node("Gather", "s one", "channels"),
        node("Div", "channels two", "half"),
        node("Cast", "half", "half_float", to=TensorProto.FLOAT),
        node("Floor", "half_float", "floored"),
        node("Cast", "floored", "whole", to=TensorProto.INT64),
        node("Unsqueeze", "batch axis", "batch1"),
        node("Unsqueeze", "whole axis", "whole1"),
        node("Concat", "batch1 minus whole1", "shape", axis=0),
        node("Reshape", "x shape", "y"),
    ]
    numbers = {"zero": 0, "one": 1, "two": 2}
    constants = {name: np.array(number) for name, number in numbers.items()}
    constants |= {"axis": np.array([0]), "minus": np.array([-1])}
    proto = model(nodes, [value("x", ["batch", 6, 4])], [value("y", None)], constants)
    graph = load(proto)
    assert operators(graph) == ["Reshape"]
    assert graph.outputs[0].shape == (symbol("batch"), 8, 3)


def test_symbols_flow_through_size_arithmetic() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Slice", "s one three", "tail"),
        node("ReduceProd", "tail", "pixels", keepdims=1),
        node("Concat", "zero pixels", "shape", axis=0),
        node("Reshape", "x shape", "flat"),
        node("Range", "start pixels0 step", "positions"),
        node("Squeeze", "pixels", "pixels0"),
        node("Cast", "positions", "p", to=TensorProto.FLOAT),
        node("Add", "flat p", "y"),
    ]
    nodes[5], nodes[6] = nodes[6], nodes[5]
    constants = {
        "one": np.array([1]),
        "three": np.array([3]),
        "zero": np.array([0]),
        "start": np.array(0),
        "step": np.array(1),
    }
    graph = load(model(nodes, [value("x", ["n", "h", "w"])], [value("y", None)], constants))
    h, w = symbol("h"), symbol("w")
    assert graph.outputs[0].shape == (symbol("n"), h * w)
    x = floats(2, 3, 4)
    found = run_at(graph, {"n": 2, "h": 3, "w": 4}, x=x)
    np.testing.assert_allclose(found["y"], x.reshape(2, 12) + np.arange(12), rtol=1e-6)


def test_sizes_used_as_numbers() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Cast", "s", "f", to=TensorProto.FLOAT),
        node("ReduceSum", "f", "total", keepdims=0),
        node("Sqrt", "total", "root"),
        node("Mul", "x root", "y"),
        node("Identity", "s", "sizes"),
    ]
    graph = load(model(nodes, [value("x", ["n", 3])], [value("y", None), value("sizes", None, np.int64)]))
    x = floats(6, 3)
    found = run_at(graph, {"n": 6}, x=x)
    np.testing.assert_allclose(found["y"], x * 3, rtol=1e-6)
    np.testing.assert_array_equal(found["sizes"], [6, 3])


def test_division_of_sizes_is_never_guessed() -> None:
    """h / 2 is not a size if it may have a fraction, and h - 9 may be negative, where ONNX truncates."""
    for arithmetic in (
        [node("Cast", "s", "f", to=TensorProto.FLOAT), node("Div", "f two_float", "half")],
        [node("Sub", "s nine", "less"), node("Div", "less two", "quotient"), node("Cast", "quotient", "half", to=1)],
    ):
        nodes = [node("Shape", "x", "s"), *arithmetic, node("Mul", "x half", "y")]
        constants = {"two_float": np.array(2, np.float32), "two": np.array(2), "nine": np.array(9)}
        graph = load(model(nodes, [value("x", ["h"])], [value("y", None)], constants))
        x = floats(5)
        half = 2.5 if len(arithmetic) == 2 else -2.0
        np.testing.assert_allclose(run_at(graph, {"h": 5}, x=x)["y"], x * half, rtol=1e-6)


H = symbol("h")


@pytest.mark.parametrize(
    ("arithmetic", "size"),
    [
        ([("Mul", 0.5), ("Floor", None)], H // 2),
        ([("Mul", 1.5), ("Floor", None)], 3 * H // 2),
        ([("Div", 3), ("Ceil", None)], -(-H // 3)),
        ([("Mul", 0.5), ("Mul", 2)], H),
        ([("Mul", 0.25), ("Add", 0.5)], (H + 2) // 4),
        ([("Mul", 0.7), ("Floor", None)], None),
        ([("Sub", 9), ("Mul", 0.5)], None),
        ([("Mul", 0.5), ("Sqrt", None)], None),
    ],
)
def test_sizes_in_floating_point(arithmetic: list[tuple[str, float | None]], size: object) -> None:
    """Fractions are kept exactly where the float's result is certain; else the size is measured when the model runs."""
    nodes, last = [node("Shape", "x", "s"), node("Cast", "s", "f", to=TensorProto.FLOAT)], "f"
    constants = {}
    for index, (operator, number) in enumerate(arithmetic):
        constants |= {} if number is None else {f"c{index}": np.array(number, np.float32)}
        nodes.append(node(operator, last if number is None else f"{last} c{index}", f"r{index}"))
        last = f"r{index}"
    nodes += [node("Cast", last, "i", to=TensorProto.INT64), node("Concat", "one i", "shape", axis=0)]
    nodes.append(node("Expand", "half shape", "y"))
    constants |= {"one": np.array([1]), "half": np.zeros((1, 1), np.float32)}
    proto = model(nodes, [value("x", ["h"])], [value("y", None)], constants)
    graph = load(proto)
    if size is not None:
        assert graph.outputs[0].shape == (1, size)
        return
    assert len(symbols(*graph.outputs[0].shape)) == 1
    agrees(proto, {"x": floats(25)})


def test_division_by_numbers_below_zero() -> None:
    """Which ONNX truncates, so what PyTorch means by `-(h // -2)`, a half that is rounded up, is one that is rounded down."""
    nodes = [
        node("Shape", "x", "s"),
        node("Div", "s minus_two", "quotient"),
        node("Neg", "quotient", "half"),
        node("Expand", "one half", "y"),
    ]
    constants = {"minus_two": np.array(-2), "one": np.ones(1, np.float32)}
    proto = model(nodes, [value("x", ["h"])], [value("y", None)], constants)
    assert load(proto).outputs[0].shape == (H // 2,)
    agrees(proto, {"x": floats(5)})


def test_a_division_by_zero_names_its_node() -> None:
    proto = model(
        [node("Div", "one zero", "y")],
        [value("x", ["h"])],
        [value("y", None, np.int64)],
        {"one": np.array([1]), "zero": np.array([0])},
    )
    with pytest.raises(ModelError, match=r"node y \(Div\): an integer is divided by zero"):
        load(proto)


@pytest.mark.parametrize(("positions", "largest"), [(100, 10), (110, 10), (24, 4)])
def test_a_table_of_positions_for_images(positions: int, largest: int) -> None:
    """Whose rows and columns are multiplied: both sizes have the same end, and neither what a guess at the other leaves."""
    nodes = [
        node("Shape", "x", "s"),
        node("ReduceProd", "s", "pixels", keepdims=1),
        node("Slice", "table zero pixels", "part"),
        node("Reshape", "x minus_one", "line"),
        node("Add", "line part", "y"),
    ]
    constants = {"zero": np.array([0]), "minus_one": np.array([-1]), "table": floats(positions)}
    proto = model(nodes, [value("x", [1, "h", "w"])], [value("y", None)], constants)
    ranges = symbols(*load(proto).inputs[0].shape)
    assert [(atom.low, atom.high) for atom in ranges.values()] == [(1, largest)] * 2
    agrees(proto, {"x": floats(1, largest, largest)})


@pytest.mark.parametrize(
    ("bounds", "size"),
    [
        ((0, 1 << 62, 1), 5),
        ((-3, -1, 1), 2),
        ((1, 4, 2), 2),
        ((-1, -(1 << 62), -1), 5),
        ((0, -1, 1), 4),
        ((2, 9, 1), 3),
    ],
)
def test_slices_of_symbolic_axes(bounds: tuple[int, int, int], size: int) -> None:
    constants = {name: np.array([number]) for name, number in zip(("a", "b", "step"), bounds, strict=True)}
    constants["axis"] = np.array([0])
    graph = load(model([node("Slice", "x a b axis step", "y")], [value("x", ["n"])], [value("y", None)], constants))
    x = floats(5)
    found = run_at(graph, {"n": 5}, x=x)["y"]
    assert len(found) == size
    np.testing.assert_array_equal(found, x[slice(*bounds)])


def test_sizes_that_must_agree_narrow_the_symbols() -> None:
    """A U-Net's level: half of it, doubled again, beside what it was."""
    nodes = [
        node("MaxPool", "x", "half", kernel_shape=[2], strides=[2]),
        node("Resize", "half  scales", "double"),
        node("Concat", "x double", "y", axis=1),
    ]
    nodes[1].input[:] = ["half", "", "scales"]
    graph = load(
        model(nodes, [value("x", [1, 2, "w"])], [value("y", None)], {"scales": np.array([1, 1, 2], np.float32)})
    )
    assert graph.inputs[0].shape[2] == symbol("w", 2, None, 2)


TWO_SEQUENCES = """<ir_version: 10, opset_import: ["": 21]>
    joined (float[batch, img, 8] x, float[batch, text, 8] y, float[ids_1, 8] p, float[ids_2, 8] q) => (float[batch, n, 8] out) {
        both = Concat<axis = 1>(y, x)
        ids = Concat<axis = 0>(q, p)
        turned = Cos(ids)
        out = Mul(both, turned)
    }"""
CACHED = """<ir_version: 10, opset_import: ["": 21]>
    cached (float[1, 2, past, 8] k, float[1, 2, 1, 8] now, float[1, 1, 1, length] mask) => (float[1, 2, 1, n] out) {
        keys = Concat<axis = 2>(k, now)
        turned = Transpose<perm = [0, 1, 3, 2]>(keys)
        scores = MatMul(now, turned)
        out = Add(scores, mask)
    }"""


@pytest.mark.parametrize(("text", "told", "fitting", "unfit", "problem"), [
    (TWO_SEQUENCES, {"q": "-ids_1 + img + text"},
     ({"img": 5, "text": 3, "ids_1": 4, "ids_2": 4}, {"img": 5, "text": 3, "ids_1": 7, "ids_2": 1}),
     {"img": 5, "text": 3, "ids_1": 4, "ids_2": 5}, r"q: axis 0 has size 5, must be 4 \(-ids_1 \+ img \+ text\)"),
    (CACHED, {"mask": "past + 1"}, ({"past": 4, "length": 5}, {"past": 1, "length": 2}),
     {"past": 4, "length": 4}, r"mask: axis 3 has size 4, must be 5 \(past \+ 1\)"),
])  # fmt: skip
def test_a_size_that_others_tell(
    text: str, told: dict[str, str], fitting: tuple[dict[str, int], ...], unfit: dict[str, int], problem: str
) -> None:
    """By sums of sizes, which no input has alone; whatever else is given is refused when the model runs."""
    proto = onnx.parser.parse_model(text)
    compiled = graphc.compile(proto)
    shapes = {each.name: each.shape for each in compiled.inputs}
    assert {name: next(str(size) for size in shapes[name] if str(size) == text) for name, text in told.items()} == told

    def inputs(sizes: dict[str, int]) -> dict[str, np.ndarray]:
        named = {**sizes, "batch": 2}
        return {
            each.name: floats(*(named.get(d.dim_param, d.dim_value) for d in each.type.tensor_type.shape.dim))
            for each in proto.graph.input
        }

    reference = onnx.reference.ReferenceEvaluator(proto)
    for sizes in fitting:
        feed = inputs(sizes)
        np.testing.assert_allclose(compiled.run(feed)["out"], reference.run(None, feed)[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(GraphcError, match=problem):
        compiled.run(inputs(unfit))


def test_broadcasts_that_cannot_be() -> None:
    with pytest.raises(ModelError, match="broadcast"):
        load(model([node("Add", "x w", "y")], [value("x", ["n", 3])], [value("y", None)], {"w": floats(4)}))


def test_multiples_of_a_symbol_are_symbols() -> None:
    graph = load(model([node("Relu", "x", "y")], [value("x", ["8*h", "h"])], [value("y", None)]))
    eight, one = graph.inputs[0].shape
    assert eight == 8 * one
    assert str(eight).isidentifier()


LARGE = {
    "Expand": "(float[1] x) => (y) <int64[1] s = {N}> { y = Expand(x, s) }",
    "Tile": "(float[4] x) => (y) <int64[1] s = {N}> { y = Tile(x, s) }",
    "Pad": "(float[4] x) => (y) <int64[2] s = {N, 0}> { y = Pad(x, s) }",
    "OneHot": "(int64[4] i) => (y) <int64 n = {N}, float[2] v = {0, 1}> { y = OneHot(i, n, v) }",
    "Range": "(int64[1] x) => (y) <int64 a = {0}, int64 b = {1}, int64 n = {N}> { r = Range(a, n, b) y = Add(x, r) }",
    "ConstantOfShape": "(float[1] x) => (y) <int64[1] s = {N}> { r = ConstantOfShape(s) y = Add(x, r) }",
    "Resize": '(float[1,1,4,4] x) => (y) <int64[4] s = {1, 1, 4, N}> { y = Resize<mode: string = "nearest">(x, , , s) }',
    "a sum": "(float[1] x) => (y) <int64[1] s = {N}> { e = Expand(x, s) y = ReduceSum(e) }",
    "no elements": "(float[1] x) => (y) <int64[3] s = {0, N, 8}> { y = Expand(x, s) }",
    "an input": "(float[N, 4] x) => (y) { y = Abs(x) }",
}


@pytest.mark.parametrize("size", [2**43, 2**60, 2**60 + 2, 2**61, 2**62, 2**63 - 1])
@pytest.mark.parametrize("name", LARGE)
def test_sizes_that_no_machine_has(name: str, size: int) -> None:
    """64 bits do not suffice to count the bytes of some: that was a crash, or a sum of nothing."""
    text = LARGE[name].replace("N", str(size)).replace("=> (y)", "=> (float[] y)")
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> large {text}')
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(GraphcError, match=r"larger than 16 TiB|cannot be given size"):
        graphc.compile(proto)


def test_a_constant_that_does_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> object:
        raise MemoryError

    proto = model([node("Tile", "c s", "t"), node("Add", "t x", "y")], [value("x", [1])], ["y"],
                  {"c": floats(3), "s": np.array([2**16])})  # fmt: skip
    monkeypatch.setattr(Tile, "eval", nothing)
    with pytest.raises(GraphcError, match=r"not enough memory to compute .*float32\[196608\]"):
        graphc.compile(proto)
