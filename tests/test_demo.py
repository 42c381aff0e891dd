"""The demonstration: what a new user sees first."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from graphc import cli
from graphc.demo.demonstration import demonstrate, picture_lines
from graphc.targets.ggml.run.device.options import Place


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory):
    return demonstrate(tmp_path_factory.mktemp("demo"), chosen=5, place=Place(threads=1))


def test_the_network_reads_digits(shown) -> None:
    assert shown.count == 450
    assert shown.accuracy > 0.97
    assert shown.difference < 1e-5
    assert 0 < shown.seconds < 1
    assert shown.probabilities.argmax() == shown.label
    assert shown.probabilities.sum() == pytest.approx(1)


def test_the_files_are_there(shown) -> None:
    assert shown.model.read_bytes() == (files("graphc.demo") / "digits.onnx").read_bytes()
    assert shown.engine.stat().st_size < 500_000
    assert any(path.name == "CMakeLists.txt" for path in shown.project.rglob("*"))


def test_the_picture(shown) -> None:
    lines = picture_lines(shown.picture)
    assert [len(line) for line in lines] == [16] * 8
    assert picture_lines(np.array([[0, 16]])) == ["  ██"]


def test_the_test_digits_are_held_out() -> None:
    found = find_spec("sklearn")  # its file alone: importing it fails where many libraries are loaded already
    if found is None or found.origin is None:
        pytest.skip("needs scikit-learn")
    rows = np.loadtxt(Path(found.origin).with_name("datasets") / "data" / "digits.csv.gz", delimiter=",")
    everything = {(row[:-1].astype(np.uint8).tobytes(), int(row[-1])) for row in rows}
    with np.load(str(files("graphc.demo") / "digits.npz")) as held_out:
        shown = set(zip((image.tobytes() for image in held_out["images"]), map(int, held_out["labels"]), strict=True))
    assert shown <= everything
    assert len(everything - shown) > 1300


def test_the_package_data_is_small_and_of_no_machine() -> None:
    content = (files("graphc.demo") / "digits.onnx").read_bytes()
    assert len(content) < 300_000
    assert b"site-packages" not in content
    assert b"/home/" not in content


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        cli.main(["demo", "--digit", "5", "--threads", "1"])
    assert not caught.value.code
    out = capsys.readouterr().out
    for word in ("answer", "accuracy", "time", "agreement", "engine", "C++", "█"):
        assert word in out
    assert os.listdir(tmp_path) == ["graphc-demo"]


def test_a_terminal_without_blocks(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "graphc.cli", "demo", "-o", str(tmp_path / "demo"), "--threads", "1"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0
