"""Schedules that are measured on a device: the fastest is used from then on, in this process and later ones, and what is in the
file is looked at with care. The device's clock is set by the tests, by what a launch needs of a multiprocessor."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated_device import fake
from frontend_models import model, node, value

import graphc
from graphc.kernels.gpu.candidates import Sizes
from graphc.kernels.gpu.roofline import usual
from graphc.runtime import schedules
from graphc.runtime.schedules import tune_schedules
from graphc.targets.ggml.generate.schedules import device_of, read, remember, scheduling_for
from graphc.targets.ggml.run.executor import Executor

DEVICE = "emulated0"
PACE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)
RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((40, 48)).astype(np.float32)


@pytest.fixture(autouse=True)
def _fewer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(schedules, "CANDIDATES", 3)
    monkeypatch.setattr(schedules, "ROUNDS", 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fake()


@pytest.fixture
def pace() -> Iterator[Callable[[Callable[[int, int, int], float]], None]]:
    """Sets the device's clock: the seconds of a launch by its blocks, threads and bytes of shared memory."""
    kept = []

    def set_clock(seconds: Callable[[int, int, int], float]) -> None:
        kept.append(PACE(seconds))
        fake().functions.fake_cuda_pace(kept[-1])

    yield set_clock
    fake().functions.fake_cuda_pace(None)


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """Two products of one size, and one of another."""
    weights = {name: RANDOM.standard_normal(shape).astype(np.float32) for name, shape in
               (("a", (48, 48)), ("b", (48, 48)), ("c", (48, 72)))}  # fmt: skip
    nodes = [
        node("MatMul", "x a", "p"), node("Sigmoid", "p", "q"), node("MatMul", "q b", "r"), node("Sigmoid", "r", "s"),
        node("MatMul", "s c", "y"),
    ]  # fmt: skip
    graphc.compile(model(nodes, [value("x", ["rows", 48])], ["y"], weights), tmp_path / "model.gguf", threads=1).close()
    return tmp_path / "model.gguf"


def executor_of(loaded: graphc.Model) -> Executor:
    return next(each for each in vars(loaded).values() if isinstance(each, Executor))


def launched(loaded: graphc.Model) -> list[str]:
    """The schedules of a model's products in a run with X."""
    executor = executor_of(loaded)
    loaded.run(x=X)
    found = executor.launched
    assert found is not None
    names = []
    for graph in executor.graphs:
        for index in graph.works:
            call = graph.program.calls[index]
            choice = call.launches and call.launches.choice
            if choice:
                chosen = found.launches_for(call, graph.binding)
                (name,) = (str(each) for each, way in choice.ways.items() if way.each == chosen.each)
                names.append(name)
    return names


def test_the_fastest_is_used_from_then_on(engine: Path, pace) -> None:
    pace(lambda blocks, threads, shared: 1e-6 * (1 + shared))
    with closing(graphc.load(engine, device=DEVICE)) as loaded:
        before = loaded.run(x=X)["y"]
        assert len(launched(loaded)) == 3
        found = {str(each.sizes): each for each in tune_schedules(loaded, {"x": X})}
        assert {key: each.count for key, each in found.items()} == {
            "f32 m40 n48 k48 t1 b1": 2,
            "f32 m40 n72 k48 t1 b1": 1,
        }
        for each in found.values():
            assert 3 <= len(each.seconds) <= 4
            assert each.seconds[each.best] == min(each.seconds.values())
            assert all(seconds > 0 for seconds in each.seconds.values())
            assert each.saved >= 0
        best = [str(found[f"f32 m40 n{columns} k48 t1 b1"].best) for columns in (48, 48, 72)]
        assert launched(loaded) == best
        np.testing.assert_allclose(loaded.run(x=X)["y"], before, rtol=0, atol=1e-4)
        device = device_of(executor_of(loaded).backends[0])
        remember(device, {each.sizes: each.seconds for each in found.values()})
    with closing(graphc.load(engine, device=DEVICE)) as again:
        assert launched(again) == best


def test_another_clock_chooses_another_schedule(engine: Path, pace) -> None:
    chosen = []
    for seconds in (lambda blocks, threads, shared: 1e-6 * blocks, lambda blocks, threads, shared: 1e-3 / blocks):
        pace(seconds)
        with closing(graphc.load(engine, device=DEVICE)) as loaded:
            chosen.append([(str(each.sizes), str(each.best)) for each in tune_schedules(loaded, {"x": X})])
    assert chosen[0] != chosen[1]


def test_the_command(graphc_command, engine: Path, pace) -> None:
    pace(lambda blocks, threads, shared: 1e-6 * (1 + shared))
    words = ("tune", engine, "--device", DEVICE, "--dim", "rows=40")
    found = json.loads(graphc_command(*words, "--json").out)
    assert [each["count"] for each in found["calls"]] == [2, 1]
    lines = Path(found["file"]).read_text().splitlines()
    assert lines[0].endswith("multiprocessors; measured by graphc tune")
    assert len(lines) == 1 + sum(len(each["seconds"]) for each in found["calls"])
    shown = graphc_command(*words)
    assert "2 kinds of products and convolutions" in shown.out
    assert shown.err.count("wrote ") == 1
    refused = graphc_command(*words, "--output", "ways.txt")
    assert (refused.status, refused.out) == (1, "")


def test_what_is_in_the_file(engine: Path, tmp_path: Path, caplog) -> None:
    with closing(graphc.load(engine, device=DEVICE)) as loaded:
        backend = executor_of(loaded).backends[0]
        device = device_of(backend)
        assert scheduling_for(backend).coefficients == usual(device.gpu)
        schedule = scheduling_for(backend).ranked(Sizes(np.dtype(np.float32), 40, 48, 48))[5]
        key = f"f32 m40 n48 k48 t1 b1 by {schedule}"
        device.path.parent.mkdir(parents=True)
        bad = [f"{key}: 0", f"{key}: nan", f"{key}: 1e-3 s", "f32 m0 n1 k1 t1 b1 by x: 1", "x", f"{key}: -1", f"{key}: 1e999",
               f"f64{key[3:]}: 1", f"{key[:-3]}: 1", "\0",
               f"{key.replace(' by', ' of 1 terms by')}: 1"]  # fmt: skip
        further = key.replace(" by", " of 2 terms by")
        device.path.write_text("\n".join([device.head, *bad, f"{key}: 1.5e-4", f"{further}: 2e-4", ""]))
        found = read(device.path)
        known = Sizes(np.dtype(np.float32), 40, 48, 48)
        assert found == {known: {schedule: 1.5e-4}, replace(known, terms=2): {schedule: 2e-4}}
        assert [str(each) for each in found] == ["f32 m40 n48 k48 t1 b1", "f32 m40 n48 k48 t1 b1 of 2 terms"]
        assert caplog.text.count("is no measurement, and does not count") == len(bad)
        scheduling = scheduling_for(backend)
        assert scheduling.coefficients != usual(device.gpu)
        assert scheduling.schedules(Sizes(np.dtype(np.float32), 40, 48, 48)) == [schedule]
        relative = device.path.with_name(device.path.name.replace("emulated", "other"))
        device.path.rename(device.path.with_name("another-" + device.path.name))
        assert not relative.exists()
        inherited = scheduling_for(backend)
        assert inherited.measured == {}
        assert inherited.coefficients == scheduling.coefficients
