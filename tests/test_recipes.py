"""Recipes: every weight says what it is made of, and a document that says anything else is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from frontend_models import model, value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refitting import SHAPES, node, several, weights

import graphc
from graphc.compiler import Settings, compile_program
from graphc.errors import CheckpointError, EngineError
from graphc.graph_text import parse_graph
from graphc.ir.graph import Graph
from graphc.ir.interp import evaluate
from graphc.ir.types import F32, I32, TensorType
from graphc.ops.pointwise import Binary, Cast
from graphc.targets.ggml.engine import read_engine, write_engine
from graphc.targets.ggml.lowering.lower import lower
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.program.text import write_text
from graphc.weights.recipes import described, recipes_of, write_recipes
from graphc.weights.refit import Refit


def test_recipes_name_every_parameter(tmp_path: Path) -> None:
    recipes = recipes_of(compile_program(several(weights(1))))
    assert {each.parameter for each in recipes.parameters} == set(SHAPES)
    texts = [described(each) for each in recipes.weights if each is not None]
    assert "table.weight" in texts
    assert any(re.fullmatch(r"Mul\(.*query\.weight.*gate.*\)", text) for text in texts), texts
    assert any("conv.weight" in text and "bn.running_var" in text for text in texts)


UNDONE = """
graph g(%x: float32[2, 6])
  %w: float32[6, 2, 3] = constant
  %a: float32[6, 6] = Reshape[shape=(6, 6)](%w)
  %b: float32[6, 2, 3] = Reshape[shape=(6, 2, 3)](%a)
  %c: float32[2, 3, 6] = Transpose[perm=(1, 2, 0)](%b)
  %d: float32[6, 2, 3] = Transpose[perm=(2, 0, 1)](%c)
  %e: float32[3, 6, 2] = Transpose[perm=(2, 0, 1)](%d)
  %f: float32[6, 3, 2] = Reshape[shape=(6, 3, 2)](%e)
  return f=%f
"""


def test_movements_that_undo_each_other_are_left_out_of_recipes() -> None:
    graph = parse_graph(UNDONE)
    (weight,) = graph.constants()
    graph.declare_parameter(weight, "w")
    program = Program("g")
    program.add_weight("f", weight.dtype, (6, 3, 2), graph.outputs[0])
    program.recipes = write_recipes(program, graph.parameters)
    (recipe,) = recipes_of(program).weights
    assert recipe is not None
    assert described(recipe) == "Reshape[shape=(6, 3, 2)](Transpose[perm=(2, 0, 1)](w))"
    array = np.random.default_rng(3).standard_normal((6, 2, 3)).astype(np.float32)
    expected = evaluate(graph.outputs[0], {weight: array})
    assert Refit(program, [None], {"w": array}).array(0).tobytes() == expected.tobytes()


def test_numbers_that_are_the_same_in_every_checkpoint_are_one_weight() -> None:
    graph = Graph("g")
    x = graph.input("x", TensorType(F32, (1024,)))
    for parameter, kind in (("", F32), ("", F32), ("w.weight", F32), ("", I32)):
        constant = graph.constant(np.arange(1024).astype(kind))
        if parameter:
            graph.declare_parameter(constant, parameter)
        if kind == I32:
            constant = graph.add(Cast(F32), [constant]).output
        x = graph.add(Binary("Add"), [x, constant]).output
    graph.output(x, "y")
    assert [(each.dtype, each.value.parameter) for each in lower(graph).weights if each.value] == [
        (np.float32, ""),
        (np.float32, "w.weight"),
        (np.float32, ""),
    ]


READS_NUMBERS = re.compile(r"\.data\b(?! is (not )?None)|\bevaluate\(")


def test_rules_read_numbers_in_one_place_only() -> None:
    """What looks at a constant's elements pins the parameters below it."""
    folder = Path(graphc.__file__).parent
    files = [
        *(folder / "rewrite").rglob("*.py"),
        *(folder / "ops").glob("*.py"),
        folder / "targets/ggml/lowering/lower.py",
    ]
    allowed = {"pattern.py": 2, "explain.py": 2}  # whether there are elements, and how many; what is shown
    for file in files:
        lines = [line for line in file.read_text().splitlines() if READS_NUMBERS.search(line)]
        assert len(lines) <= allowed.get(file.name, 0), (file, lines)


MOVES = ["Transpose", "Neg", "Reshape", "Mul", "Add", "Slice", "Concat", "ReduceSum", "Exp", "Cast"]


def static_chain(steps: list[tuple[str, int]], parameters: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """x times what steps make of the parameters; `step` is an operator and which operand is the other."""
    nodes, constants, made = [], dict(parameters), ["a", "b"]
    for index, (operator, other) in enumerate(steps):
        name, x = f"v{index}", made[-1 - other % len(made)]
        inputs, attributes = [x], {}
        if operator in ("Mul", "Add", "Concat"):
            inputs = [x, "a"]
            nodes.append(node("Flatten", [x], [f"{name}_flat"], axis=0))
            nodes.append(node("Slice", [f"{name}_flat", "zero", "twelve", "one"], [f"{name}_part"]))
            nodes.append(node("Reshape", [f"{name}_part", "shape"], [f"{name}_x"]))
            inputs[0] = f"{name}_x"
            attributes = {"axis": 1} if operator == "Concat" else {}
        elif operator == "Reshape":
            inputs.append("flat")
        elif operator == "Slice":
            nodes.append(node("Flatten", [x], [f"{name}_flat"], axis=0))
            inputs = [f"{name}_flat", "zero", "twelve", "one"]
        elif operator == "ReduceSum":
            nodes.append(node("ReduceSum", [x], [f"{name}_sum"], keepdims=1))
            operator, inputs = "Add", [f"{name}_sum", x]
        elif operator == "Cast":
            attributes = {"to": onnx.TensorProto.DOUBLE}
            nodes.append(node("Cast", [x], [f"{name}_wide"], **attributes))
            inputs, attributes = [f"{name}_wide"], {"to": onnx.TensorProto.FLOAT}
        nodes.append(node(operator, inputs, [name], **attributes))
        made.append(name)
    nodes += [node("Flatten", [made[-1]], ["row"], axis=0), node("Mul", ["x", "row"], ["y"])]
    ints = {"zero": [0], "one": [1], "twelve": [12], "flat": [-1], "shape": [3, 4]}
    constants |= {name: np.array(numbers) for name, numbers in ints.items()}
    return model(nodes, [value("x", [1, 1])], ["y"], constants)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 5)), max_size=6), st.integers(0, 99))
def test_recipes_of_random_constants(steps: list[tuple[str, int]], seed: int) -> None:
    shapes = {"a": (3, 4), "b": (2, 3, 4)}
    first, other = weights(seed, shapes), weights(seed + 1, shapes)
    program, expected = compile_program(static_chain(steps, first)), compile_program(static_chain(steps, other))
    recipes = recipes_of(program)
    free = {name: array for name, array in other.items() if name in {each.parameter for each in recipes.parameters}}
    assert free
    assert not recipes.pinned
    assert write_text(program) == write_text(expected)
    found = Refit(program, [None] * len(program.weights), free, strict=False)
    for index, weight in enumerate(expected.weights):
        array = graphc.compiler.weight_array(expected, index)
        old = graphc.compiler.weight_array(program, index)
        assert recipes.weights[index] is not None or old.tobytes() == array.tobytes(), weight.name
        if recipes.weights[index] is not None:
            assert found.array(index).tobytes() == array.tobytes()


def with_recipes(path: Path, change: Callable[[dict[str, Any]], Any]) -> Program:
    """The program of an engine in whose recipes something was changed, with a checksum that fits."""
    program = compile_program(several(weights(1)))
    document = json.loads(program.recipes)
    change(document)
    whole = [graphc.compiler.weight_array(program, index) for index in range(len(program.weights))]
    program.recipes = json.dumps(document)
    write_engine(path, program, whole.__getitem__)
    return read_engine(path)[0]


DAMAGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another version": lambda d: d.update(version=2),
    "no version": lambda d: d.pop("version"),
    "a weight too few": lambda d: d["weights"].pop(),
    "a reference ahead": lambda d: d["nodes"][0]["inputs"].__setitem__(0, {"node": 99}),
    "a negative reference": lambda d: d["nodes"][0]["inputs"].__setitem__(0, {"node": -1}),
    "a reference of two keys": lambda d: d["weights"].__setitem__(0, {"node": 0, "parameter": 0}),
    "an unknown operator": lambda d: d["nodes"][0].update(operator="System"),
    "an operator that is a base": lambda d: d["nodes"][0].update(operator="Op"),
    "other attributes": lambda d: d["nodes"][0].update(attributes={"command": {"text": "ls"}}),
    "a shape that overflows": lambda d: d["parameters"][0].update(shape=[1 << 40, 1 << 40]),
    "a negative size": lambda d: d["parameters"][0].update(shape=[-1]),
    "an unknown dtype": lambda d: d["parameters"][0].update(dtype="object"),
    "a parameter twice": lambda d: d["parameters"].append(d["parameters"][0]),
    "a result of terabytes": lambda d: d["nodes"].append(
        {"operator": "Expand", "attributes": {"shape": [1 << 21, 1 << 21]}, "inputs": [{"constant": 0}]}
    ),
    "too little data": lambda d: d["constants"].append({"dtype": "float32", "shape": [3], "data": "AAAAAAAAAAA="}),
    "data that is no base64": lambda d: d["constants"].append({"dtype": "float32", "shape": [], "data": "§§§§"}),
    "another type": lambda d: d["weights"].reverse(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_recipes(tmp_path: Path, damage: str) -> None:
    program = with_recipes(tmp_path / "m.gguf", DAMAGES[damage])
    with pytest.raises(EngineError, match="its recipes are"):
        recipes_of(program)


def test_recipes_have_a_checksum(tmp_path: Path) -> None:
    graphc.compile(several(weights(1)), tmp_path / "m.gguf").close()
    content = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(content.replace(b'"parameters":[{"name":"table', b'"parameters":[{"name":"tablE'))
    with pytest.raises(EngineError, match="the recipes are not those"):
        graphc.load(tmp_path / "m.gguf")


LOST = {"same": (3, 4), "flat": (12,), "turned": (4, 3), "rows": (6, 5), "uniform": (2, 6), "few": (2,)}


def without_names(parameters: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """What an exporter makes of these: constants of other names and shapes."""
    made = {
        "onnx::Add_1": parameters["same"],
        "onnx::Add_2": parameters["flat"].reshape(2, 1, 6),
        "onnx::Add_3": np.ascontiguousarray(parameters["turned"].T),
        "onnx::Add_4": parameters["rows"][:4].reshape(1, 4, 5),
        "onnx::Add_5": parameters["uniform"],
        "onnx::Add_6": parameters["few"],
    }
    sums = [node("Add", ["x", name], [f"y{index}"]) for index, name in enumerate(made)]
    return model(sums, [value("x", [1])], [f"y{index}" for index in range(len(made))], made)


def test_lost_names_are_found_by_what_constants_hold() -> None:
    first, other = ({**weights(seed, LOST), "uniform": np.ones((2, 6), np.float32)} for seed in (1, 2))
    plain, found = compile_program(without_names(first)), compile_program(without_names(first), Settings(names=first))
    assert write_text(plain) == write_text(found)
    assert not recipes_of(plain).parameters
    recipes = recipes_of(found)
    assert [each and described(each) for each in recipes.weights] == [
        "same", "Reshape[shape=(2, 1, 6)](flat)", "Transpose[perm=(1, 0)](turned)",
        "Reshape[shape=(1, 4, 5)](Slice[starts=(0, 0), sizes=(4, 5), steps=(1, 1)](rows))", None, None,
    ]  # fmt: skip
    del other["uniform"], other["few"]
    refit_again = Refit(found, [None] * 6, other)
    expected = compile_program(without_names({**first, **other}))
    for index in range(4):
        assert refit_again.array(index).tobytes() == graphc.compiler.weight_array(expected, index).tobytes()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from('0123456789[]{}",:-eE.ax')), min_size=1, max_size=3))
def test_recipes_with_other_characters(changes: list[tuple[int, str]]) -> None:
    """Whatever they say, nothing but an EngineError or a CheckpointError is raised."""
    program = compile_program(several(weights(1)))
    text = list(program.recipes)
    for place, character in changes:
        text[place % len(text)] = character
    program.recipes = "".join(text)
    try:
        found = Refit(program, [None] * len(program.weights), weights(2))
        for index, recipe in enumerate(found.recipes.weights):
            if recipe is not None:
                assert found.array(index).shape == program.weights[index].shape
    except (EngineError, CheckpointError):
        return
