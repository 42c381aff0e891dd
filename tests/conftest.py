"""What all tests have: every compilation in their own process verifies its graph after each stage, and its kernels are compiled
quickly; fixed rules choose between ways of computing, whatever was measured on the machine; the command line."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest
from suite.run import quick_kernels

from graphc import cli

os.environ["GRAPHC_WAYS"] = "none"
# PyTorch's threads: those of several processes would wait for each other for minutes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
quick_kernels()
# A test that takes long on a busy machine has not failed.
hypothesis.settings.register_profile("graphc", deadline=None)
hypothesis.settings.load_profile("graphc")


@pytest.fixture(autouse=True)
def verified(monkeypatch):
    if not os.environ.get("GRAPHC_DEBUG"):
        monkeypatch.setattr("graphc.debug.Debug.show", lambda self, text: None)
        monkeypatch.setattr("graphc.debug.Debug.from_environment", lambda: quiet())


def quiet():
    from graphc.debug import Debug

    return Debug(1)


class Finished:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def graphc_command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs a command in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Finished:
        with pytest.raises(SystemExit) as caught:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Finished(int(caught.value.code or 0), captured.out, captured.err)

    return run
