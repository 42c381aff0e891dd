"""A sample of ONNX's backend tests through compiled C++: it does what the model in this process does, bit for bit."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from suite.cases import load_cases
from suite.cpp import build, compare_results, folder_of, prepare, run, run_cpp, sample
from suite.refusals import expected_status
from suite.run import outcome

from graphc.compiler import Settings, compile_program
from graphc.errors import UnsupportedError
from graphc.targets.ggml.cpp import render_project

STRIDE = 4
"""Every fourth case."""

LEAST = 600
"""Models that must have been compiled and run."""

LEAST_PROGRAMS = 1600
"""Cases that are compiled for all inputs."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("c++"), reason="needs cmake and a C++ compiler"),
]


def test_cases_of_every_operator_run_in_cpp(tmp_path: Path) -> None:
    outcomes = run_cpp(sample(load_cases(), STRIDE), tmp_path)
    surprising = [each for each in outcomes if each.status != expected_status(each.name)]
    assert not surprising, "\n".join(f"{each.status} {each.group}/{each.name}: {each.reason}" for each in surprising)
    assert len(list(tmp_path.glob("case_*/out0.npy"))) >= LEAST


def test_every_program_has_cpp() -> None:
    programs = []
    for case in load_cases():
        with contextlib.suppress(UnsupportedError):  # refused, or compiled for the inputs of a run
            programs.append(compile_program(case.model(), Settings(name=case.name)))
    assert len(programs) >= LEAST_PROGRAMS
    for program in programs:
        assert render_project(program)["model.cpp"]


def test_what_goes_wrong_is_one_case(tmp_path: Path) -> None:
    """Other bits, a crash, an engine that is no longer there, code that is not taken: the others pass."""
    names = ("test_abs", "test_add", "test_celu", "test_cos", "test_exp")
    abs_, add, _, cos, exp = cases = [next(case for case in load_cases() if case.name == name) for name in names]
    for case in cases:
        assert prepare(tmp_path, case).status == "pass"
    right = folder_of(tmp_path, abs_) / "right0.npy"
    np.save(right, np.nextafter(np.load(right), np.inf))
    for case, planted in ((add, "__builtin_trap();"), (cos, "#error planted")):
        source = folder_of(tmp_path, case) / "model.cpp"
        source.write_text(
            source.read_text().replace("graphc::ModelInfo info;", f"graphc::ModelInfo info;\n{planted}\n")
        )
    build(tmp_path, [case.number for case in cases])
    (folder_of(tmp_path, exp) / "model.gguf").unlink()
    run(tmp_path)
    found = {case.name: outcome(case, lambda case: compare_results(tmp_path, case)) for case in cases}
    assert {name: each.status for name, each in found.items()} == dict.fromkeys(names, "wrong") | {"test_celu": "pass"}
    assert "not the bits" in found["test_abs"].reason
    assert "crash: signal" in found["test_add"].reason
    assert "#error planted" in found["test_cos"].reason
    assert "model.gguf cannot be opened" in found["test_exp"].reason
