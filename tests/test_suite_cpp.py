"""What goes wrong with cases through compiled C++; that nothing does is in `test_suite.py`."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from suite.cases import load_cases
from suite.cpp import build, compare_results, folder_of, prepare, run
from suite.run import outcome

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("c++"), reason="needs cmake and a C++ compiler"),
]


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
