"""ONNX's backend tests: every case passes but those that `suite/refusals.py` lists."""

from __future__ import annotations

import pytest
from suite.cases import load_cases
from suite.pool import run_all
from suite.refusals import DIFFERENT, DRAWN, REFUSED, expected_status

LEAST = 2000
"""How many of the 2,024 small cases must pass."""


@pytest.mark.slow
def test_every_case_does_what_is_known_of_it() -> None:
    outcomes = run_all(load_cases())
    surprising = [outcome for outcome in outcomes if outcome.status != expected_status(outcome.name)]
    assert not surprising, "\n".join(f"{each.status} {each.group}/{each.name}: {each.reason}" for each in surprising)
    assert all(outcome.status == "pass" for outcome in outcomes if outcome.group == "real")
    small = [outcome for outcome in outcomes if outcome.group != "real"]
    assert len(small) >= 2024
    assert sum(outcome.status == "pass" for outcome in small) >= LEAST


def test_every_listed_case_exists() -> None:
    names = {case.name for case in load_cases()}
    assert not {name for listed in (REFUSED, DIFFERENT, DRAWN) for cases in listed.values() for name in cases} - names
