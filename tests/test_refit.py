"""Another checkpoint in a compiled engine gives what compiling the model with it gives, bit for bit."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from frontend_models import model, value
from onnx import helper
from refitting import INPUTS, file_of, node, same, several, weights
from suite.quick_cpp import build_quickly

import graphc
from graphc.compiler import Settings, compile_program, refit
from graphc.errors import CheckpointError, EngineError
from graphc.targets.ggml.engine import read_stripped_engine
from graphc.targets.ggml.program.text import write_text
from graphc.weights.recipes import recipes_of


def test_a_loaded_model_takes_other_weights_and_the_first_again() -> None:
    first, other = (graphc.compile(several(weights(seed)), threads=1) for seed in (1, 2))
    before = first.run(INPUTS)
    assert all(np.any(before[name] != array) for name, array in other.run(INPUTS).items())
    first.load_weights(weights(2))
    same(first.run(INPUTS), other.run(INPUTS))
    first.load_weights(weights(1))
    same(first.run(INPUTS), before)


def test_an_engine_is_refitted(tmp_path: Path) -> None:
    graphc.compile(several(weights(1)), tmp_path / "first.gguf").close()
    (tmp_path / "other").mkdir()
    graphc.compile(several(weights(2)), tmp_path / "other/first.gguf").close()
    checkpoint = file_of(tmp_path / "m.safetensors", weights(2))
    refit(tmp_path / "first.gguf", checkpoint, tmp_path / "refitted.gguf")
    assert (tmp_path / "refitted.gguf").read_bytes() == (tmp_path / "other/first.gguf").read_bytes()
    refit(tmp_path / "first.gguf", checkpoint, tmp_path / "first.gguf")
    assert (tmp_path / "refitted.gguf").read_bytes() == (tmp_path / "first.gguf").read_bytes()


def test_half_precision_is_widened(tmp_path: Path) -> None:
    halves = {name: array.astype(np.float16) for name, array in weights(2).items()}
    wide = {name: halves[name].astype(array.dtype) for name, array in weights(1).items()}
    found = graphc.compile(several(weights(1)), threads=1)
    found.load_weights(file_of(tmp_path / "m.safetensors", halves))
    same(found.run(INPUTS), graphc.compile(several(wide), threads=1).run(INPUTS))


@pytest.mark.parametrize("shift", [0, 8, 2])
def test_an_engine_without_weights(tmp_path: Path, shift: int) -> None:
    program = compile_program(several(weights(1)), Settings(name="m"))
    graphc.compiler.write(program, tmp_path / "stripped.gguf", strip_weights=True)
    graphc.compiler.write(program, tmp_path / "whole.gguf")
    with pytest.raises(EngineError, match=r"stripped\.gguf: \d+ of its \d+ weights were left out .*--weights"):
        graphc.load(tmp_path / "stripped.gguf")
    checkpoint = file_of(tmp_path / "m.safetensors", weights(1), shift)
    loaded = graphc.load(tmp_path / "stripped.gguf", weights=checkpoint, threads=1)
    whole = graphc.load(tmp_path / "whole.gguf", threads=1)
    same(loaded.run(INPUTS), whole.run(INPUTS))
    _, stored = read_stripped_engine(tmp_path / "stripped.gguf")
    assert sum(each is None for each in stored) == len(whole.executor.arrays)
    table = [each.name for each in loaded.program.weights].index("table.weight")
    assert loaded.executor.arrays[table].flags.owndata is False
    assert loaded.executor.arrays[table].flags.writeable is (shift == 2), (
        "mapped where elements are aligned, else copied"
    )
    refit(tmp_path / "stripped.gguf", checkpoint, tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()


def changed(**more: Any) -> dict[str, np.ndarray]:
    """The parameters, without those that are None."""
    found = {**weights(2), **{name.replace("__", "."): array for name, array in more.items()}}
    return {name: array for name, array in found.items() if array is not None}


def test_all_that_does_not_fit_is_listed_and_nothing_is_changed(tmp_path: Path) -> None:
    found = graphc.compile(several(weights(1)), tmp_path / "m.gguf", threads=1)
    before = found.run(INPUTS)
    wrong = changed(
        gate=None, conv__bias=np.zeros(6, np.float32), bn__bias=np.zeros(5), extra=np.zeros(2, np.float32),
        ids=np.arange(3), head__half=np.zeros((8, 4), np.float32),
    )  # fmt: skip
    with pytest.raises(CheckpointError) as caught:
        found.load_weights(wrong)
    assert sorted(str(caught.value).split("\n  ")[1:]) == [
        "bn.bias: dtype float64, must be float32",
        "conv.bias: shape [6], must be [5]",
        "extra: the model has no such parameter",
        "gate: missing (float32[8])",
        "head.half: dtype float32, must be float16",
    ]
    same(found.run(INPUTS), before)
    with pytest.raises(CheckpointError):
        refit(tmp_path / "m.gguf", wrong, tmp_path / "new.gguf")
    assert not (tmp_path / "new.gguf").exists()


def test_differences_can_be_allowed() -> None:
    found = graphc.compile(several(weights(1)), threads=1)
    table = weights(2)["table.weight"]
    found.load_weights({"table.weight": table, "other": np.zeros(2, np.float32)}, strict=False)
    same(found.run(INPUTS), graphc.compile(several({**weights(1), "table.weight": table}), threads=1).run(INPUTS))
    with pytest.raises(CheckpointError, match=r"query\.bias: missing"):
        found.load_weights({"gate": weights(2)["gate"]}, strict=False)


def test_another_architecture_is_one_message() -> None:
    found = graphc.compile(several(weights(1)), threads=1)
    for strict in (True, False):
        expected = r"none of the model's parameters \(table\.weight, .*, …\), but x; nor is it in a layout of .*Flux"
        with pytest.raises(CheckpointError, match=expected):
            found.load_weights({"x": np.zeros(3, np.float32)}, strict=strict)


def scaled(parameters: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    nodes = [
        node("MatMul", ["x", "w"], ["y"]),
        node("Mul", ["y", "scale"], ["z"]),
        node("Exp", ["t"], ["e"]),
        node("Mul", ["z", "e"], ["u"]),
    ]
    return model(nodes, [value("x", [2, 3])], ["z", "u"], parameters)


def test_numbers_that_decided_something_are_pinned() -> None:
    first = {"w": np.ones((3, 4), np.float32) * 2, "scale": np.ones((2, 4), np.float32), "t": np.array(0.5, np.float32)}
    found = graphc.compile(scaled(first), threads=1)
    assert [each.parameter for each in recipes_of(found.program).pinned] == ["scale", "t"]
    x = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    other = {**first, "w": np.full((3, 4), -0.3, np.float32)}
    expected = graphc.compile(scaled(other), threads=1).run(x)
    for checkpoint in (other, {"w": other["w"]}):
        found.load_weights(checkpoint)
        same(found.run(x), expected)
    for name, array in (
        ("scale", first["scale"] * 2),
        ("t", np.array(1, np.float32)),
        ("scale", np.ones(4, np.float32)),
    ):
        with pytest.raises(
            CheckpointError, match=f"{name}: other numbers than those that the program was compiled for"
        ):
            found.load_weights({**other, name: array})
        same(found.run(x), expected)


def test_numbers_that_decided_nothing_are_not_pinned() -> None:
    first = {"w": np.ones((3, 4), np.float32), "scale": np.full((2, 4), 3, np.float32), "t": np.array(0.5, np.float32)}
    found = graphc.compile(scaled(first), threads=1)
    other = {**first, "scale": np.ones((2, 4), np.float32)}
    x = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    found.load_weights(other)
    same(found.run(x), graphc.compile(scaled(other), threads=1).run(x))


def branched(parameters: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """One of two parameters, which only the bodies of branches read."""
    bodies = [
        helper.make_graph([node(operator, ["x", name], [f"{name}_y"])], name, [], [value(f"{name}_y", [2, 3])])
        for operator, name in (("MatMul", "w"), ("Mul", "s"))
    ]
    choice = node("If", ["c"], ["y"], then_branch=bodies[0], else_branch=bodies[1])
    return model([choice], [value("c", [], np.bool_), value("x", [2, 3])], ["y"], parameters)


def test_weights_that_only_branches_read() -> None:
    first, other = (graphc.compile(branched(weights(seed, {"w": (3, 3), "s": (3,)})), threads=1) for seed in (1, 2))
    first.load_weights(weights(2, {"w": (3, 3), "s": (3,)}))
    for chosen in (True, False):
        inputs = {"c": np.array(chosen), "x": np.arange(6, dtype=np.float32).reshape(2, 3)}
        same(first.run(inputs), other.run(inputs))


def test_an_engine_of_before_has_no_recipes(tmp_path: Path) -> None:
    program = compile_program(several(weights(1)))
    program.recipes = ""
    graphc.compiler.write(program, tmp_path / "m.gguf")
    loaded = graphc.load(tmp_path / "m.gguf", threads=1)
    same(loaded.run(INPUTS), graphc.compile(several(weights(1)), threads=1).run(INPUTS))
    with pytest.raises(EngineError, match="it does not say how its weights are made; compile it again"):
        loaded.load_weights(weights(2))


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("c++"), reason="needs cmake and a C++ compiler")
def test_a_cpp_program_reads_a_refitted_engine(tmp_path: Path) -> None:
    for seed in (1, 2):
        graphc.compile(several(weights(seed)), tmp_path / f"{seed}.gguf", threads=1).close()
    graphc.compiler.write_project(compile_program(several(weights(1)), Settings(name="1")), tmp_path / "cpp")
    binary = build_quickly(tmp_path / "cpp")
    refit(tmp_path / "1.gguf", weights(2), tmp_path / "refitted.gguf")
    program = compile_program(several(weights(1)), Settings(name="1"))
    graphc.compiler.write(program, tmp_path / "stripped.gguf", strip_weights=True)
    assert (
        hashlib.sha256(write_text(program).encode()).hexdigest().encode() in (tmp_path / "refitted.gguf").read_bytes()
    )
    args = []
    for name, array in INPUTS.items():
        np.save(tmp_path / f"{name}.npy", array)
        args += ["--input", f"{name}={tmp_path / name}.npy"]

    def run(engine: str) -> subprocess.CompletedProcess[str]:
        command = [str(binary), "--engine", str(tmp_path / engine), *args, "--output", str(tmp_path / "out")]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    (tmp_path / "out").mkdir()
    done = run("refitted.gguf")
    assert done.returncode == 0, done.stderr
    found = {name: np.load(tmp_path / "out" / f"{name}.npy") for name in ("scores", "positive")}
    same(found, graphc.load(tmp_path / "2.gguf", threads=1).run(INPUTS))
    done = run("stripped.gguf")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr


def test_what_an_exporter_computed_is_said_where_parameters_are_too_many() -> None:
    first = weights(1, {"conv": (2, 2, 3, 3), "bias": (2,)})
    nodes = [node("Conv", ["x", "onnx::Conv_7", "bias"], ["y"])]
    made = model(nodes, [value("x", [1, 2, 5, 5])], ["y"], {"onnx::Conv_7": first["conv"], "bias": first["bias"]})
    with pytest.raises(
        CheckpointError, match=r"\n  conv: the model has no such parameter\n  \(1 weights .*onnx::Conv_7.*--names\)$"
    ):
        graphc.compile(made, threads=1).load_weights(first)
