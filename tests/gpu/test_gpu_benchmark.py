"""The stages of `benchmarks/gpu.py` on the emulated device: what is wrong with the script shows before there is a GPU."""

import json
import sys
from pathlib import Path

import pytest
from emulated_device import fake

from graphc.backends import precision

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from gpu import PLAN, main
from gpu_stages.attention import attention
from gpu_stages.contractions import contractions
from gpu_stages.stage import Stage


@pytest.mark.parametrize("measure", [contractions, attention])
def test_a_stage_notes_times_and_errors_of_all_its_shapes(measure, tmp_path, monkeypatch):
    fake()
    monkeypatch.setattr(precision, "_chosen", "high")
    measure(Stage(measure.__name__, "emulated0", tmp_path / "lines", tmp_path, tiny=True))
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert {line["stage"] for line in lines} == {measure.__name__}
    assert len({line["what"] for line in lines}) == 2
    for line in lines:
        assert line["seconds"] > 0
        assert line["operations"] > 0
        assert 0 < line["error"] < 2e-3


def test_a_stage_that_fails_ends_alone(monkeypatch, capsys, tmp_path):
    stages = ["attention", "contractions"]
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "gpu.py",
            "--device",
            "nothing7",
            "--tiny",
            "--stages",
            *stages,
            "--work",
            str(tmp_path),
            "--output",
            str(tmp_path / "lines"),
        ],
    )
    main()
    told = capsys.readouterr().out
    for stage in stages:
        assert stage in PLAN
        assert f"{stage}: ended with 1: " in told
    assert "nothing7" in told
