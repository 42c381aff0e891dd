"""The stages of `benchmarks/gpu.py` on the emulated device: what is wrong with the script shows before there is a GPU."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from emulated_device import fake

from graphc.backends import precision

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.usefixtures("every_instruction")
@pytest.mark.parametrize("name", ["contractions", "attention"])
def test_a_stage_notes_times_and_errors_of_all_its_shapes(name, tmp_path, monkeypatch):
    fake()
    monkeypatch.setattr(precision, "_chosen", "high")
    monkeypatch.syspath_prepend(
        BENCHMARKS
    )  # it must not stay there: its gpu.py would be found in the place of this folder
    stage = importlib.import_module("gpu_stages.stage").Stage(
        name, "emulated0", tmp_path / "lines", tmp_path, tiny=True
    )
    getattr(importlib.import_module(f"gpu_stages.{name}"), name)(stage)
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert {line["stage"] for line in lines} == {name}
    assert len({line["what"] for line in lines}) == 2
    assert "wgmma" in str(lines) or "Together" in str(lines)
    for line in lines:
        assert line["seconds"] > 0
        assert line["operations"] > 0
        assert 0 < line["error"] < 2e-3


def test_a_stage_that_fails_ends_alone(tmp_path):
    stages = ["attention", "contractions"]
    command = [sys.executable, BENCHMARKS / "gpu.py", "--device", "nothing7", "--tiny", "--stages", *stages]
    command += ["--work", tmp_path, "--output", tmp_path / "lines"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    for stage in stages:
        assert f"{stage}: ended with 1: " in done.stdout
    assert "nothing7" in done.stdout
