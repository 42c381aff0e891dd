"""Files from strangers: damaged, invalid, hostile. Each gives one clear error of ours, or a valid graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from frontend_models import dense, model, value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from graphc.errors import GraphcError, InputError, ModelError, UnsupportedError
from graphc.frontend.onnx import importer, load
from graphc.ir import interp
from graphc.shapes import symbol


def test_huge_results_are_not_computed() -> None:
    shape = numpy_helper.from_array(np.array([1 << 20, 1 << 10, 1 << 10]), "s")
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])]
    proto = model(nodes, [value("x", [1])], [value("y", None)], {"s": numpy_helper.to_array(shape)})
    assert load(proto).outputs[0].shape == (1 << 20, 1 << 10, 1 << 10)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file"):
        load(tmp_path / "nothing.onnx")
    with pytest.raises(ModelError, match="cannot read"):
        load(tmp_path)


def test_truncated_files(tmp_path: Path) -> None:
    data = dense().SerializeToString()
    for size in range(len(data)):
        (tmp_path / "m.onnx").write_bytes(data[:size])
        with pytest.raises(GraphcError):
            load(tmp_path / "m.onnx")


def edges(*pairs: tuple[str, str], outputs: tuple[str, ...] = ("y",)) -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", [a], [b], name=f"{a}->{b}") for a, b in pairs]
    return model(nodes, [value("x", [2])], [value(name, [2]) for name in outputs])


@pytest.mark.parametrize(
    "proto",
    [
        pytest.param(edges(("b", "a"), ("a", "b"), ("b", "y")), id="a cycle"),
        pytest.param(edges(("y", "y")), id="a loop"),
        pytest.param(edges(("nothing", "y")), id="undefined"),
        pytest.param(edges(("x", "y"), ("x", "y")), id="defined twice"),
        pytest.param(edges(("x", "a")), id="an output that nothing makes"),
        pytest.param(edges(("x", "y"), outputs=("y", "y")), id="one output twice"),
        pytest.param(edges(("x", "x"), outputs=("x",)), id="an input that is made"),
        pytest.param(edges(("x", "y"), outputs=()), id="no outputs"),
    ],
)
def test_graphs_that_are_none(proto: onnx.ModelProto, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ModelError):
        load(proto)
    assert not caplog.records


def sparse(places: np.ndarray, *shape: int) -> onnx.ModelProto:
    """A product with three numbers at places of a weight, and with as many in a constant."""
    numbers, where = (numpy_helper.from_array(each, "w") for each in (np.float32([1, 2, 3]), places))
    weight = helper.make_sparse_tensor(numbers, where, shape)
    nodes = [
        helper.make_node("Constant", [], ["c"], sparse_value=weight),
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "c"], ["y"]),
    ]
    proto = model(nodes, [value("x", [4, 4])], [value("y", None)])
    proto.graph.sparse_initializer.append(weight)
    return proto


@pytest.mark.parametrize("places", [np.array([0, 7, 19]), np.array([[0, 0], [1, 2], [3, 4]])])
def test_sparse_weights(places: np.ndarray, tmp_path: Path) -> None:
    proto = sparse(places, 4, 5)
    onnx.save(proto, tmp_path / "m.onnx")
    feed = {"x": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)}
    (expected,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feed)
    for source in (proto, tmp_path / "m.onnx"):
        np.testing.assert_allclose(interp.run(load(source), feed)["y"], expected, rtol=1e-6)
    assert len(proto.graph.sparse_initializer) == 1


@pytest.mark.parametrize(("places", "shape"), [
    (np.array([0, 7, 20]), (4, 5)), (np.array([-1, 0, 1]), (4, 5)), (np.array([0, 1]), (4, 5)),
    (np.array([[0, 0], [1, 2], [3, 5]]), (4, 5)), (np.array([[0], [1], [3]]), (4, 5)), (np.float32([0, 1, 2]), (4, 5)),
    (np.array([0, 1, 2]), (2**40, 2**40)), (np.array([0, 1, 2]), (-4, -5)),
])  # fmt: skip
def test_sparse_weights_that_are_none(places: np.ndarray, shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="sparse weight w is"):
        load(sparse(places, *shape))


def test_types_are_compared_with_those_declared() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    inputs, outputs = [value("x", [2, "n"])], [value("y", ["m", "n"])]
    proto = model(nodes, inputs, outputs)
    proto.graph.value_info.append(value("a", [2, 5], np.int32))
    with pytest.raises(ModelError, match="a is declared"):
        load(proto)
    assert load(model(nodes, inputs, outputs)).nodes


def test_shapes_of_results_are_what_they_are(caplog: pytest.LogCaptureFixture) -> None:
    """Tools change operators and leave what was declared; of an output the difference is worth a remark."""
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    for wrong in ([3, 5], [2]):
        proto = model(nodes, [value("x", [2, "n"])], ["y"])
        proto.graph.value_info.append(value("a", wrong))
        assert load(proto).outputs[0].shape == (2, symbol("n"))
        assert not caplog.records
        del proto.graph.value_info[:]
        proto.graph.output[0].CopyFrom(value("y", wrong))
        assert load(proto).outputs[0].shape == (2, symbol("n"))
        assert "y is declared with shape" in caplog.text
        caplog.clear()


def test_an_initializer_is_what_it_holds() -> None:
    """onnxruntime's conversion to float16 leaves declarations of weights that it does not convert."""
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", [2])], ["y"])
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    proto.graph.value_info.append(value("w", [3], np.float16))
    assert load(proto).outputs[0].dtype == np.float32


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("Conv", {"strides": [0, 0]}),
        ("Conv", {"pads": [1, 2, 3]}),
        ("Conv", {"pads": [-1, 0, 0, 0]}),
        ("Conv", {"dilations": [1 << 62, 1]}),
        ("Conv", {"group": 0}),
        ("Conv", {"group": 7}),
        ("Conv", {"kernel_shape": [2, 2]}),
        ("Conv", {"auto_pad": "SIDEWAYS"}),
        ("MaxPool", {"kernel_shape": [0, 1]}),
        ("MaxPool", {"kernel_shape": [1 << 60, 3]}),
        ("Transpose", {"perm": [0, 0, 1, 2]}),
        ("Transpose", {"perm": [0, 1, 2, 9]}),
        ("Concat", {"axis": 9}),
        ("Gather", {"axis": -7}),
        ("DepthToSpace", {"blocksize": 0}),
        ("DepthToSpace", {"blocksize": -1}),
        ("Softmax", {"axis": 1 << 60}),
        ("LRN", {"size": 0}),
        ("GroupNormalization", {"num_groups": 0}),
        ("Cast", {"to": 999}),
        ("Cast", {"to": 0}),
        ("Einsum", {"equation": "a->->"}),
        ("Split", {"num_outputs": 0}),
    ],
)
def test_attributes_that_make_no_sense(operator: str, attributes: dict[str, object]) -> None:
    more = {"Conv": ["w"], "Gather": ["w"], "Concat": ["w"], "GroupNormalization": ["w", "w"]}.get(operator, [])
    nodes = [helper.make_node(operator, ["x", *more], ["y"], **attributes)]
    proto = model(nodes, [value("x", [1, 4, 6, 6])], [value("y", None)], {"w": np.ones((4, 4, 3, 3), np.float32)})
    with pytest.raises(GraphcError):
        load(proto)


def test_attributes_of_another_type() -> None:
    with pytest.raises(ModelError):
        load(model([helper.make_node("Softmax", ["x"], ["y"], axis="last")], [value("x", [2])], ["y"]))


def test_everything_unsupported_is_said_at_once() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], name="measured"),
        helper.make_node("Relu", ["a"], ["b"], name="fine"),
        helper.make_node("MaxRoiPool", ["b", "b"], ["c"], name="unknown", pooled_shape=[1, 1]),
        helper.make_node("Frob", ["c"], ["y"], name="foreign", domain="acme"),
    ]
    graph = helper.make_graph(nodes, "g", [value("x", [2])], [value("y", None)])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("acme", 1)])
    with pytest.raises(UnsupportedError) as caught:
        load(proto)
    found = {(problem.node, problem.operator) for problem in caught.value.problems}
    assert found == {("unknown", "MaxRoiPool"), ("foreign", "Frob")}


@pytest.mark.parametrize("opset", [1, 5, onnx.defs.onnx_opset_version() + 1, 1 << 40])
def test_opsets_that_are_not_known(opset: int) -> None:
    proto = edges(("x", "y"))
    proto.opset_import[0].version = opset
    with pytest.raises(GraphcError):
        load(proto)


def test_functions_that_call_themselves() -> None:
    inner = helper.make_node("F", ["a"], ["b"], domain="local")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "F", ["a"], ["b"], [inner], opsets)
    nodes = [helper.make_node("F", ["x"], ["y"], domain="local")]
    graph = helper.make_graph(nodes, "g", [value("x", [2])], [value("y", [2])])
    with pytest.raises(ModelError):
        load(helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10))


def test_functions_that_double(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "MAX_NODES", 10_000)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    functions = []
    for level in range(40):
        called = f"F{level - 1}" if level else "Relu"
        domain = "local" if level else ""
        nodes = [
            helper.make_node(called, ["a"], ["m"], domain=domain),
            helper.make_node(called, ["m"], ["b"], domain=domain),
        ]
        functions.append(helper.make_function("local", f"F{level}", ["a"], ["b"], nodes, opsets))
    nodes = [helper.make_node("F39", ["x"], ["y"], domain="local")]
    graph = helper.make_graph(nodes, "g", [value("x", [2])], [value("y", [2])])
    with pytest.raises(ModelError, match="more than"):
        load(helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10))


LEAF = helper.make_graph([helper.make_node("Abs", ["x"], ["leaf"])], "leaf", [], [value("leaf", None)])


HOSTILE = '"); system("rm -rf /"); //\n\0../../%s${x}`id`'


def test_hostile_names() -> None:
    nodes = [helper.make_node("Relu", [HOSTILE], ["y"], name=HOSTILE)]
    proto = model(nodes, [value(HOSTILE, [HOSTILE, "min", "class", "9", "h*", ""])], [value("y", None)])
    graph = load(proto)
    assert graph.inputs[0].name == HOSTILE
    for size in graph.inputs[0].shape:
        assert str(size).isidentifier()
    assert len(set(graph.inputs[0].shape)) == 6


def test_pinned_dimensions() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    proto = model(nodes, [value("x", ["batch", "2*h", "h", None])], [value("y", None)])
    assert load(proto, dims={"batch": 3, "h": 5}).inputs[0].shape[:3] == (3, 10, 5)
    assert load(proto, dims={"x_3": 7}).inputs[0].shape[3] == 7
    with pytest.raises(InputError, match="no dimension named width"):
        load(proto, dims={"width": 3})
    with pytest.raises(InputError, match="positive"):
        load(proto, dims={"batch": 0})


def test_fixed_inputs() -> None:
    proto = model([helper.make_node("Reshape", ["x", "s"], ["y"])], [value("x", [6]), value("s", [2], np.int64)], ["y"])
    assert [each.name for each in load(proto).inputs] == ["x", "s"]
    graph = load(proto, fixed={"s": np.array([2, 3])})
    assert [each.name for each in graph.inputs] == ["x"]
    assert graph.outputs[0].shape == (2, 3)
    with pytest.raises(InputError, match="no input named z"):
        load(proto, fixed={"z": np.zeros(1)})
    with pytest.raises(InputError, match="s is declared int64 but is float64"):
        load(proto, fixed={"s": np.array([2.0, 3.0])})
    with pytest.raises(InputError, match="s is declared with shape"):
        load(proto, fixed={"s": np.array([3])})


def test_branches_in_branches() -> None:
    inner = helper.make_graph([helper.make_node("Neg", ["x"], ["t0"])], "g0", [], [value("t0", None)])
    for depth in range(1, 30):
        node = helper.make_node("If", ["c"], [f"t{depth}"], then_branch=inner, else_branch=inner if depth < 4 else LEAF)
        inner = helper.make_graph([node], f"g{depth}", [], [value(f"t{depth}", None)])
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=LEAF)]
    graph = helper.make_graph(
        nodes, "g", [value("x", [2])], [value("y", None)], [numpy_helper.from_array(np.array(True), "c")]
    )
    assert len(load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])).nodes) == 1


def seed() -> bytes:
    """A small model with a bit of everything: shape arithmetic, a branch, a function, weights."""
    then = helper.make_graph([helper.make_node("Neg", ["r"], ["t"])], "then", [], [value("t", None)])
    other = helper.make_graph([helper.make_node("Abs", ["r"], ["e"])], "else", [], [value("e", None)])
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], name="/conv/Conv"),
        helper.make_node("Shape", ["c"], ["s"]),
        helper.make_node("Gather", ["s", "i"], ["n"]),
        helper.make_node("Concat", ["n", "m"], ["t2"], axis=0),
        helper.make_node("Reshape", ["c", "t2"], ["r"]),
        helper.make_node("If", ["cond"], ["z"], then_branch=then, else_branch=other),
        helper.make_node("F", ["z"], ["y"], domain="local"),
    ]
    body = [helper.make_node("Softmax", ["a"], ["b"], axis=-1)]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    constants = {
        "w": np.ones((2, 3, 3, 3), np.float32),
        "b": np.zeros(2, np.float32),
        "i": np.array([0]),
        "m": np.array([-1]),
        "cond": np.array(True),
    }
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", [value("x", ["batch", 3, 5, "w"])], [value("y", None)], weights)
    function = helper.make_function("local", "F", ["a"], ["b"], body, opsets)
    proto = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)
    assert load(proto).nodes
    data: bytes = proto.SerializeToString()
    return data


SEED = seed()


def clean(data: bytes) -> None:
    """Bytes give an error of ours, or a graph that holds together."""
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception:
        return
    try:
        graph = load(proto)
    except GraphcError:
        return
    known = {*graph.inputs, *graph.constants()}
    for node in graph.nodes:
        assert known.issuperset(node.inputs)
        assert [each.type for each in node.outputs] == list(node.op.infer(*(each.type for each in node.inputs)))
        known.update(node.outputs)
    assert known.issuperset(graph.outputs)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(0, len(SEED) - 1), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, len(SEED)),
    st.integers(0, 8),
)
def test_mutated_bytes(changes: list[tuple[int, int]], cut: int, gap: int) -> None:
    data = bytearray(SEED)
    for place, byte in changes:
        data[place] = byte
    if gap:
        del data[cut : cut + gap - 1]
    clean(bytes(data))
