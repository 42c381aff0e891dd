"""What a profile says beside the times: the machine's peaks, shares, copies, the roofline."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from frontend_models import model, node, value
from test_memory import deep_model

import graphc
from graphc.commands.charts import roofline
from graphc.runtime.peaks import Peaks, peaks
from graphc.runtime.profile import Total, profile, together
from graphc.targets.ggml.run import executor
from graphc.view.document import document

SVG = "{http://www.w3.org/2000/svg}"


def test_peaks_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measured = peaks(1)
    assert measured is not None
    assert measured.gflops > 0.1
    assert measured.gbytes > 0.1
    (stored,) = (tmp_path / "graphc" / "peaks").iterdir()
    stored.write_text(json.dumps({"threads": 1, "gflops": 123.0, "gbytes": 45.0}))
    assert peaks(1) == Peaks(1, 123.0, 45.0)
    assert peaks(1, again=True) != Peaks(1, 123.0, 45.0)
    for damage in ("", "[]", '{"threads": 1}', '{"threads": 1, "gflops": 0, "gbytes": 0}'):
        stored.write_text(damage)
        assert peaks(1) is not None
        assert json.loads(stored.read_text())["gflops"] > 0.1


def test_without_a_compiler_there_are_no_peaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("graphc.runtime.peaks.find_compiler", lambda: None)
    assert peaks(1) is None


def test_the_share_is_of_the_nearer_peak() -> None:
    machine = Peaks(2, gflops=100, gbytes=10)
    assert machine.share(50e9, 1e9, 1.0) == 0.5
    assert machine.share(1e9, 8e9, 1.0) == 0.8
    assert machine.share(1e9, 1e9, 0.0) == 0


def test_copies_are_told_apart() -> None:
    proto = model(
        [node("Transpose", "x", "t", perm=[1, 0]), node("Softmax", "t", "s"), node("Gather", "table rows", "g")],
        [value("x", [30, 20]), value("rows", [7], np.int64)],
        ["s", "g"],
        {"table": np.ones((1000, 4), np.float32)},
    )
    inputs = {"x": np.ones((30, 20), np.float32), "rows": np.arange(7)}
    timings = profile(graphc.compile(proto, threads=1), inputs)
    copies = {each.step: each.nbytes for each in timings if each.copies}
    assert copies["copy"] == 2 * 30 * 20 * 4
    assert copies["ggml_get_rows"] == 2 * 7 * 4 * 4 + 7 * 4
    assert "soft_max" in {each.step for each in timings if not each.copies}
    assert together("all", timings).count == len(timings)


def test_a_view_of_the_last_result_is_no_step() -> None:
    """A convolution of volumes with a sum gives rows of planes; the output is these in its own shape."""
    kernel, bias = np.ones((4, 16, 3, 1, 1), np.float32), np.ones(4, np.float32)
    convolution = node("Conv", "x kernel bias", "y", pads=[1, 0, 0, 1, 0, 0])
    proto = model([convolution], [value("x", [1, 16, 5, 6, 7])], ["y"], {"kernel": kernel, "bias": bias})
    timings = profile(graphc.compile(proto, threads=1), {"x": np.ones((1, 16, 5, 6, 7), np.float32)})
    assert [each.step.split()[0] for each in timings] == ["conv_3d"]


def test_times_of_several_runs_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock says that the runs take 1, 9 and 2 seconds a step."""
    proto = model([node("Exp", "x", "a"), node("Softmax", "a", "y")], [value("x", [3, 4])], ["y"])
    loaded = graphc.compile(proto, threads=1)
    inputs = {"x": np.ones((3, 4), np.float32)}
    steps = len(profile(loaded, inputs))
    pace = iter([pause for seconds in (1.0, 9.0, 2.0) for _ in range(steps) for pause in (0.0, seconds)])
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += next(pace)
        return now

    monkeypatch.setattr("graphc.runtime.profile.perf_counter", clock)
    timings = profile(loaded, inputs, rounds=3)
    assert [each.seconds for each in timings] == [2.0] * steps
    assert [each.start for each in timings] == [2.0 * index for index in range(steps)]


def test_what_our_code_takes_over_is_no_copy() -> None:
    """Attention writes its result in the order in which a copy after it would put it."""
    shape = [1, 2, 64, 32]
    nodes = [
        node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "q kt", "scores"),
        node("Softmax", "scores", "weights", axis=-1),
        node("MatMul", "weights v", "mixed"),
        node("Transpose", "mixed", "order", perm=[0, 2, 1, 3]),
        node("Reshape", "order shape", "y"),
    ]
    proto = model(nodes, [value(name, shape) for name in "qkv"], ["y"], {"shape": np.array([1, 64, 64])})
    rng = np.random.default_rng(0)
    loaded = graphc.compile(proto, threads=1)
    timings = profile(loaded, {name: rng.standard_normal(shape, np.float32) for name in "qkv"})
    assert any(each.step == "attention (flash)" for each in timings)
    assert not any(each.copies for each in timings if each.step.startswith("attention"))
    kinds = {step["name"]: step["kind"] for step in document(loaded.program, {}, timings)["steps"] if "seconds" in step}
    assert kinds["attention (flash)"] == "product"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device before the CPU, which computes as the CPU does."""
    open_one = executor.open_backends
    monkeypatch.setattr(executor, "open_backends", lambda *args: open_one("cpu", 1) + open_one("cpu", 1))
    monkeypatch.setattr(
        "graphc.runtime.profile.device_name", lambda backend: NAMES.setdefault(backend, f"D{len(NAMES)}")
    )
    NAMES.clear()


NAMES: dict[int, str] = {}


def test_streamed_weights_are_waited_for(device: None) -> None:
    loaded = graphc.compile(deep_model(), memory=24 << 10, threads=1, device="d")
    feed = {"rows": np.arange(3)}
    before = loaded.run(feed)
    timings = profile(loaded, feed)
    waits = [each for each in timings if each.step == "wait for weights"]
    (context,) = loaded.executor.contexts.idle
    assert len(waits) == sum(len(each.stretches) - 1 for each in context.compute._streams.streams.values()) > 2
    products = [each for each in timings if each.step.startswith("linear")]
    assert len(products) == sum(call.function == "ggml_mul_mat" for call in loaded.program.calls)
    for name, array in loaded.run(feed).items():
        np.testing.assert_array_equal(array, before[name])


def test_a_device_has_no_peaks(device: None, graphc_command, tmp_path: Path) -> None:
    onnx.save(deep_model(), tmp_path / "deep.onnx")
    arguments = ("profile", "deep.onnx", "--dim", "n=3", "--device", "d")
    found = json.loads(graphc_command(*arguments, "--memory", "24KiB", "--json").out)
    assert found["peaks"] is None
    assert {each["device"] for each in found["steps"]} <= {"D0", "D1"}
    shown = graphc_command(*arguments)
    assert "peak" not in shown.out
    assert re.search(r"\ndevice +count +time", shown.out)
    for option in ("--roofline=r.svg", "--remeasure"):
        refused = graphc_command(*arguments, option)
        assert (refused.status, refused.out) == (1, "")
        assert "are for the CPU" in refused.err


def test_a_roofline_places_steps_under_the_roof() -> None:
    kinds = [
        Total("a & <b>", 3, 2.0, int(100e9), int(1e9)),
        Total("sum", 1, 1.0, int(1e9), int(8e9)),
        Total("copy", 1, 1.0, 0, int(8e9)),
        Total("short", 1, 1e-6, 10, 10),
    ]
    picture = ElementTree.fromstring(roofline("a <title>", kinds, Peaks(2, 200, 20)))
    texts = ["".join(each.itertext()) for each in picture.iter(f"{SVG}text")]
    assert "a <title>" in texts
    assert "a & <b> 50.0%" in texts
    assert any(text.startswith("compute nothing, 25.0%: copy") for text in texts)
    assert "200 GFLOP/s, 2 threads" in texts
    discs = [each for each in picture.iter(f"{SVG}circle") if each.get("fill-opacity")]
    assert len(discs) == 2
    product, added = ((float(each.get("cx", "")), float(each.get("cy", ""))) for each in discs)
    assert product[0] > added[0]  # more operations for each byte
    assert product[1] < added[1]  # more in a second
    roof = next(each for each in picture.iter(f"{SVG}path")).get("d", "")
    assert float(roof.split()[5]) < product[1]
