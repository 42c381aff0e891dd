"""ONNX's backend tests: every case passes but those that `suite/refusals.py` lists, and has C++. A sample of that is compiled: it
does what the model in this process does, bit for bit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from suite.cases import load_cases
from suite.cpp import run_cpp, sample
from suite.refusals import DIFFERENT, DRAWN, REFUSED, expected_status

LEAST = 2000
"""How many of the 2,024 small cases must pass."""

COMPILED = [
    pytest.param(100, 180, id="first"),
    pytest.param(4, 600, id="fourth", marks=pytest.mark.thorough),
]
"""The first case of each operator is compiled, and one of so many; how many models must have been compiled and run."""


@pytest.mark.slow
@pytest.mark.parametrize(("stride", "least_compiled"), COMPILED)
def test_every_case_does_what_is_known_of_it(tmp_path: Path, stride: int, least_compiled: int) -> None:
    cases = load_cases()
    compiled = sample(cases, stride) if shutil.which("cmake") and shutil.which("c++") else []
    outcomes = run_cpp(cases, tmp_path, compiled)
    surprising = [outcome for outcome in outcomes if outcome.status != expected_status(outcome.name)]
    assert not surprising, "\n".join(f"{each.status} {each.group}/{each.name}: {each.reason}" for each in surprising)
    assert all(outcome.status == "pass" for outcome in outcomes if outcome.group == "real")
    small = [outcome for outcome in outcomes if outcome.group != "real"]
    assert len(small) >= 2024
    assert sum(outcome.status == "pass" for outcome in small) >= LEAST
    assert not compiled or len(list(tmp_path.glob("case_*/out0.npy"))) >= least_compiled


def test_every_listed_case_exists() -> None:
    names = {case.name for case in load_cases()}
    assert not {name for listed in (REFUSED, DIFFERENT, DRAWN) for cases in listed.values() for name in cases} - names
