"""The modules that nodes come from, and the parameters whose names an exporter lost."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import agrees, model, node, value
from onnx import ModelProto, helper

from graphc.frontend.onnx import load
from graphc.frontend.onnx.parameters import NAMELESS
from graphc.frontend.onnx.scopes import node_scope

RANDOM = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


PATHS = "pkg.torch.onnx.name_scopes"


@pytest.mark.parametrize(
    ("name", "metadata", "scope"),
    [
        (
            "n",
            {PATHS: """['', "__dict__['_modules']['blocks'].0", "__dict__['_modules']['blocks'].0.norm", 'norm']"""},
            ("blocks.0", "norm"),
        ),
        ("/layer1/layer1.0/conv1/Conv", {}, ("layer1", "0", "conv1")),
        ("/down_blocks.0/attn/to_q/MatMul_3", {}, ("down_blocks.0", "attn", "to_q")),
        ("/Relu", {}, ()),
        ("Conv_12", {}, None),
        ("n", {PATHS: "['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d']"}, ("layer1", "0", "conv1")),
        ("n", {PATHS: "['', 'a.b', 'a.b.c', 'add']"}, ("a.b", "c")),
        ("n", {PATHS: "['', 'caller', 'shared.norm', 'mul']"}, ("shared.norm",)),
        ("n", {PATHS: "['', 'mul']"}, ()),
        ("n", {PATHS: "__import__('os').system('true')"}, None),
        ("n", {PATHS: "[1, 2]"}, None),
        ("n", {PATHS: "[" * 5000}, None),
    ],
)
def test_scopes(name: str, metadata: dict[str, str], scope: tuple[str, ...] | None) -> None:
    assert node_scope(name, metadata) == scope


def test_nodes_without_a_module_adopt_one() -> None:
    nodes = [
        node("Relu", "x", "a", "/block/ff/proj/Relu"),
        node("Neg", "a", "b", "Neg_0"),
        node("Abs", "b", "c", "Abs_0"),
        node("Relu", "c", "y", "/block/ff/act/Relu"),
    ]
    graph = load(model(nodes, [value("x", [2])], ["y"]))
    assert [each.source.scope for each in graph.nodes[1:3]] == [("block", "ff", "proj"), ("block", "ff")]


def linear(name: str, weight: str, metadata: str = "") -> ModelProto:
    """A `Linear` as exporters leave it: its weight transposed, without its name."""
    nodes = [node("MatMul", f"x {weight}", "m", name), node("Add", "proj.bias m", "y", name.replace("MatMul", "Add"))]
    for each in nodes if metadata else ():
        each.metadata_props.add(key=PATHS, value=metadata)
    return model(nodes, [value("x", [2, 5, 3])], ["y"], {weight: floats(3, 4), "proj.bias": floats(4)})


@pytest.mark.parametrize(
    "proto",
    [
        linear("/proj/MatMul", "onnx::MatMul_7"),
        linear("node_linear", "val_12", "['', 'proj', 'linear']"),
    ],
)
def test_the_weight_of_a_linear_is_found(proto: ModelProto) -> None:
    graph = agrees(proto, {"x": floats(2, 5, 3)})
    names = {each.name: each.shape for each in graph.constants()}
    assert names == {"proj.weight": (4, 3), "proj.bias": (4,)}
    assert all(each.source.scope == ("proj",) for each in graph.nodes)


def test_the_parameters_of_a_group_norm_are_found() -> None:
    nodes = [
        node("Reshape", "x groups", "g", "/norm/Reshape"),
        node("InstanceNormalization", "g ones zeros", "n", "/norm/InstanceNormalization"),
        node("Reshape", "n whole", "r", "/norm/Reshape_1"),
        node("Mul", "r onnx::Mul_9", "m", "/norm/Mul"),
        node("Add", "m onnx::Add_10", "y", "/norm/Add"),
    ]
    constants = {
        "groups": np.array([0, 2, -1]),
        "whole": np.array([1, 4, 3, 3]),
        "ones": np.ones(2, np.float32),
        "zeros": np.zeros(2, np.float32),
        "onnx::Mul_9": floats(4, 1, 1),
        "onnx::Add_10": floats(4, 1, 1),
    }
    graph = agrees(model(nodes, [value("x", [1, 4, 3, 3])], ["y"], constants), {"x": floats(1, 4, 3, 3)})
    names = {each.name: each.shape for each in graph.constants()}
    assert names["norm.weight"] == names["norm.bias"] == (4,)


def test_a_name_that_is_taken_or_unsure_is_not_given() -> None:
    proto = linear("/proj/MatMul", "onnx::MatMul_7")
    proto.graph.node.append(node("MatMul", "x onnx::MatMul_8", "z", "/proj/MatMul_1"))
    proto.graph.initializer.append(helper.make_tensor("onnx::MatMul_8", 1, [3, 4], floats(3, 4).ravel()))
    proto.graph.output.append(value("z", None))
    assert "proj.weight" not in {each.name for each in load(proto).constants()}


def test_folded_batch_norms_are_no_parameters() -> None:
    for name, names, path in (
        ("node_Conv", ("stem.0.weight", "stem.0.weight_bias"), "['', 'stem', 'stem.1', 'batch_norm']"),
        ("/stem/stem.0/Conv", ("onnx::Conv_8", "onnx::Conv_9"), ""),
    ):
        conv = helper.make_node("Conv", ["x", *names], ["y"], name)
        if path:
            conv.metadata_props.add(key=PATHS, value=path)
        constants = dict(zip(names, (floats(4, 3, 1, 1), floats(4)), strict=True))
        graph = load(model([conv], [value("x", [1, 3, 2, 2])], ["y"], constants))
        assert [each.name for each in graph.constants()] == ["stem.0.folded.weight", "stem.0.folded.bias"]
        assert graph.nodes[0].source.scope == ("stem", "0")


def test_names_that_exporters_make_up() -> None:
    assert NAMELESS.fullmatch("onnx::MatMul_123")
    assert NAMELESS.fullmatch("val_4")
    assert not NAMELESS.fullmatch("val_4.weight")
