"""Branches, loops, sequences and functions: gone once a model is imported."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import agrees, model, node, operators, value
from onnx import AttributeProto, ModelProto, helper

from graphc.errors import UnsupportedError
from graphc.frontend.onnx import load
from graphc.ir.interp import run

RANDOM = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def test_a_branch_that_is_known() -> None:
    then = helper.make_graph([node("Neg", "x", "t")], "then", [], [value("t", None)])
    other = helper.make_graph([node("Unheard", "x", "t")], "else", [], [value("t", None)])
    nodes = [
        node("Shape", "x", "s"),
        node("Size", "x", "n"),
        node("Equal", "n six", "cond"),
        helper.make_node("If", ["cond"], ["y"], then_branch=then, else_branch=other),
    ]
    inputs = [value("x", [2, 3])]
    assert operators(load(model(nodes, inputs, [value("y", None)], {"six": np.array(6)}))) == ["Neg"]
    with pytest.raises(UnsupportedError, match="Unheard"):
        load(model(nodes, inputs, [value("y", None)], {"six": np.array(7)}))


def loop(trips: int | None, stop: int) -> ModelProto:
    """Doubles x until the counter reaches `stop`, and collects what it was."""
    body = helper.make_graph(
        [
            node("Add", "v v", "v_out"),
            node("Identity", "v", "seen"),
            node("Less", "i stop", "cond_out"),
        ],
        "body",
        [value("i", [], np.int64), value("cond", [], np.bool_), value("v", [2])],
        [value("cond_out", [], np.bool_), value("v_out", [2]), value("seen", [2])],
    )
    nodes = [helper.make_node("Loop", ["trips" if trips is not None else "", "go", "x"], ["y", "all"], body=body)]
    constants = {"go": np.array(True), "stop": np.array(stop)}
    constants |= {} if trips is None else {"trips": np.array(trips)}
    return model(nodes, [value("x", [2])], [value("y", None), value("all", None)], constants)


@pytest.mark.parametrize(("trips", "stop"), [(3, 99), (99, 2), (None, 4)])
def test_loops_that_are_known(trips: int | None, stop: int) -> None:
    agrees(loop(trips, stop), {"x": floats(2)})


def test_long_loops_are_repeated() -> None:
    graph = load(loop(None, 100))
    assert operators(graph) == ["Loop"]
    assert graph.outputs[1].shape[1:] == (2,)
    x = np.ones(2, np.float32)
    assert run(graph, {"x": x})["all"].shape == (101, 2)


def test_scans() -> None:
    body = helper.make_graph(
        [node("Add", "state slice", "state_out"), node("Identity", "state_out", "row")],
        "body",
        [value("state", [3]), value("slice", [3])],
        [value("state_out", [3]), value("row", [3])],
    )
    nodes = [
        helper.make_node(
            "Scan",
            ["x0", "x"],
            ["last", "rows"],
            body=body,
            num_scan_inputs=1,
            scan_input_axes=[1],
            scan_input_directions=[1],
            scan_output_axes=[1],
        )
    ]
    proto = model(nodes, [value("x0", [3]), value("x", [3, 4])], [value("last", None), value("rows", None)])
    agrees(proto, {"x0": floats(3), "x": floats(3, 4)})


def test_sequences() -> None:
    nodes = [
        node("SplitToSequence", "x", "parts", axis=1, keepdims=0),
        node("SequenceAt", "parts minus", "last"),
        node("SequenceInsert", "parts last zero", "more"),
        node("SequenceErase", "more", "fewer"),
        node("SequenceLength", "fewer", "length"),
        node("ConcatFromSequence", "fewer", "y", axis=-1, new_axis=1),
    ]
    constants = {"minus": np.array(-1), "zero": np.array(0)}
    proto = model(nodes, [value("x", [2, 3, 4])], [value("y", None), value("length", [], np.int64)], constants)
    agrees(proto, {"x": floats(2, 3, 4)})
    proto.graph.output.append(helper.make_tensor_sequence_value_info("fewer", 1, None))
    with pytest.raises(UnsupportedError, match=r"fewer .output.: is a sequence"):
        load(proto)


def test_local_functions_and_their_attributes() -> None:
    scaled = node("LeakyRelu", "a", "b")
    scaled.attribute.append(
        helper.make_attribute_ref_name("alpha", 1, "slope") if False else reference("alpha", "slope")
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "Scaled", ["a"], ["b"], [scaled], opsets, ["slope"])
    nodes = [
        helper.make_node("Scaled", ["x"], ["m"], "first", domain="local", slope=0.5),
        helper.make_node("Scaled", ["m"], ["y"], "second", domain="local"),
    ]
    graph_proto = helper.make_graph(nodes, "g", [value("x", [4])], [value("y", [4])])
    graph = load(helper.make_model(graph_proto, opset_imports=opsets, functions=[function], ir_version=10))
    assert [each.op.alpha for each in graph.nodes] == [0.5, 0.01]  # type: ignore[attr-defined]
    assert [each.source.name for each in graph.nodes] == ["first", "second"]


def reference(name: str, to: str) -> AttributeProto:
    attribute = helper.make_attribute(name, 0.0)
    attribute.ClearField("f")
    attribute.ref_attr_name = to
    return attribute


def test_operators_that_onnx_defines_by_others() -> None:
    q, k, v = (floats(1, 2, n, 4) for n in (3, 5, 5))
    nodes = [node("Attention", "q k v", "y")]
    inputs = [value(name, list(x.shape)) for name, x in zip("qkv", (q, k, v), strict=True)]
    agrees(model(nodes, inputs, ["y"], opset=23), {"q": q, "k": k, "v": v})
