"""Runtimes side by side: those that work, those that cannot, those that crash or hang. No test looks at how long they take."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from small_models import BIAS, WEIGHT, dense_model, dense_result, stored

from graphc.commands.charts import bars
from graphc.errors import InputError
from graphc.runtime import bench
from graphc.runtime.bench import Result
from graphc.runtime.compare import relative_error
from graphc.runtime.peers import PEERS, Peer, Task, chosen_peers, torch_module

X = np.array([[1, 2, 3], [-1, 0.5, 2]], np.float32)

MODULE = f"""
import torch
class Dense(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(3, 4)
        self.dense.weight.data = torch.tensor({WEIGHT.T.tolist()})
        self.dense.bias.data = torch.tensor({BIAS.tolist()})
    def forward(self, x):
        return self.dense(x).relu(), x @ self.dense.weight.T
def dense():
    return Dense(), {{"x": None}}
"""


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.chdir(tmp_path)
    Path("dense_of_torch.py").write_text(MODULE)
    path = stored(dense_model(), tmp_path / "m.onnx")
    return Task(path, {"x": X}, ("scores", "product"), 1, "dense_of_torch:dense")


@pytest.mark.torch
@pytest.mark.slow
def test_every_runtime_gives_the_same(task: Task) -> None:
    pytest.importorskip("torch")
    results = bench.bench(task, 2, chosen_peers(None, task.torch))
    assert {"graphc", "onnxruntime", "torch", "torch.compile", "ggml-python"} <= {each.runtime for each in results}
    for each in results:
        assert not each.problem
        assert each.error is not None
        assert each.error < 1e-6
        assert len(each.times) == 2
        assert each.fastest == min(each.times) <= each.median
        assert each.peak_bytes > 1 << 20


def _crash(task: Task):
    if task.threads == 2:  # while loading
        os.kill(os.getpid(), signal.SIGSEGV)
    return lambda: os.kill(os.getpid(), signal.SIGABRT)


def _hang(task: Task):
    time.sleep(1000)


def _other(task: Task):
    return lambda: {"scores": dense_result(X)[0] + 1, "product": dense_result(X)[1][:1]}


def _late(task: Task):
    runs = iter(range(3))

    def run():
        if next(runs) == 2:
            os._exit(7)
        return dict(zip(task.outputs, dense_result(X), strict=True))

    return run


def _wrong(task: Task):
    raise ValueError("a name <b>\x1b[31m")


OTHERS = {"crash": _crash, "hang": _hang, "other": _other, "late": _late, "wrong": _wrong}


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_what_fails_is_said_and_the_others_go_on(task: Task, threads: int) -> None:
    task = Task(task.path, task.inputs, task.outputs, threads)
    runtimes = {name: Peer("graphc", prepare) for name, prepare in OTHERS.items()}
    runtimes |= {name: PEERS[name] for name in ("onnxruntime", "graphc")}
    results = {each.runtime: each for each in bench.bench(task, 3, runtimes, patience=15)}
    assert list(results) == list(runtimes)
    assert results["crash"].problem == f"crashed ({'SIGSEGV' if threads == 2 else 'SIGABRT'})"
    assert results["hang"].problem == "no answer in 15 s"
    assert results["late"].problem == "its process ended with status 7"
    assert results["wrong"].problem.startswith("ValueError: a name")
    assert results["other"].error == np.inf
    assert (results["graphc"].problem, len(results["graphc"].times)) == ("", 3)
    assert results["graphc"].error < 1e-6


def test_peers_that_are_wanted() -> None:
    assert list(chosen_peers(["onnxruntime", "graphc"], "")) == ["graphc", "onnxruntime"]
    assert "torch" not in chosen_peers(None, "")
    for wanted, torch, message in ((["abacus"], "", "no runtime is called abacus"), (["torch"], "", "needs --torch")):
        with pytest.raises(InputError, match=message):
            chosen_peers(wanted, torch)
    for origin in ("dense", "dense:", "no_such_module:x", "math:no.such"):
        with pytest.raises(InputError, match="--torch"):
            torch_module(origin)


def test_the_memory_is_of_the_process_alone() -> None:
    held = np.ones(100 << 20, np.uint8)
    with bench.SPAWN.Pool(1) as pool:
        assert pool.apply(bench.peak_memory) < held.nbytes


def test_a_plot_has_a_bar_for_each_runtime() -> None:
    results = [
        Result("graphc", 1.0, 2.0, 1.5, 1e-7, 1 << 30, times=(1.5, 2.0, 3.0)),
        Result("other & <one>", 1.0, 4.0, 4.0, None, 0, times=(4.0,)),
        Result("third", problem="crashed (SIGSEGV)\nmore"),
    ]
    picture = ElementTree.fromstring(bars("title", results))
    svg = "{http://www.w3.org/2000/svg}"
    widths = [float(each.get("width", "")) for each in picture.iter(f"{svg}rect")][1:]
    assert widths[1] == 2 * widths[0]
    texts = [each.text or "" for each in picture.iter(f"{svg}text")]
    assert "other & <one>" in texts
    assert "crashed (SIGSEGV)" in texts
    assert any("2 s" in text and "1.0 GiB" in text and "1.0e-07" in text for text in texts)


def test_the_error_of_outputs() -> None:
    right = {
        "a": np.array([1.0, -4.0], np.float32),
        "b": np.array([[2, 3]]),
        "none": np.zeros((0, 2)),
        "text": np.array("x", object),
    }
    assert relative_error(right, right) == 0
    assert relative_error({**right, "a": np.array([1.0, -3.0], np.float32)}, right) == 0.25
    for wrong in ({"a": right["a"][:1]}, {"a": np.array([np.nan, -4], np.float32)}, {"b": np.array([2, 3])}):
        assert relative_error({**right, **wrong}, right) == np.inf
    assert relative_error({"a": right["a"]}, right) == np.inf
    assert relative_error({"a": np.zeros(1)}, {"a": np.full(1, np.nan)}) == np.inf
    assert relative_error({}, {}) == 0
