"""Measuring ways: every way of a call is measured, whatever it reads; what is clearly faster is remembered and followed."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from frontend_models import model, node, value
from ways import ways_in

import graphc
from graphc.runtime import tuning
from graphc.runtime.tuning import alone, choose, tune
from graphc.targets.ggml.run.graph import BuiltGraph

RANDOM = np.random.default_rng(7)
INPUTS = {"x": RANDOM.standard_normal((1, 4, 12, 10)).astype(np.float32)}


def images() -> onnx.ModelProto:
    """Two convolutions of one size and one of another, of an image of free size, and attention of views."""
    sizes = {"a": (4, 4, 3, 3), "b": (4, 4, 3, 3), "point": (8, 4, 1, 1)}
    kernels = {name: (RANDOM.standard_normal(shape) / 6).astype(np.float32) for name, shape in sizes.items()}
    nodes = [
        node("Conv", "x a", "p", pads=[1, 1, 1, 1]),
        node("Relu", "p", "q"),
        node("Conv", "q b", "r", pads=[1, 1, 1, 1]),
        node("Conv", "r point", "s"),
        node("Reshape", "s heads", "t"),
        node("Transpose", "t", "k", perm=[0, 1, 3, 2]),
        node("MatMul", "k t", "scores"),
        node("Softmax", "scores", "weights", axis=-1),
        node("MatMul", "weights k", "z"),
        node("Transpose", "z", "turned", perm=[0, 2, 1, 3]),
        node("Reshape", "turned merged", "y"),
    ]
    shapes = {"heads": np.array([1, 2, 4, -1]), "merged": np.array([1, -1, 8])}
    return model(nodes, [value("x", [1, 4, "h", "w"])], ["y"], {**kernels, **shapes})


def stored(proto: onnx.ModelProto, folder: Path) -> Path:
    """The model's file."""
    onnx.save(proto, folder / "model.onnx")
    return folder / "model.onnx"


def test_every_way_of_every_call_is_measured():
    found = {each.key: each for each in tune(graphc.compile(images(), threads=2), INPUTS)}
    assert {key: (each.count, each.usual, set(each.seconds)) for key, each in found.items()} == {
        "conv_2d f32 3x3x4x4 10x12x4x1 stride 1x1 pad 1x1 dilation 1x1": (2, "tiles", {"winograd", "tiles", "direct"}),
        "conv_2d f32 1x1x4x8 10x12x4x1 stride 1x1 pad 0x0 dilation 1x1": (1, "tiles", {"tiles", "direct"}),
        "attention f32 4x120x2x1 4x120x2x1 values 4 mask 0": (1, "flash", {"flash", "scores"}),
    }
    for each in found.values():
        assert all(seconds > 0 for seconds in each.seconds.values())
        assert each.way in each.seconds


def test_a_call_alone_gives_what_it_gives_in_the_model():
    """It is computed with the views that it reads, and what it does on its way out."""
    loaded = graphc.compile(images(), threads=2)
    expected = loaded.run(INPUTS)["y"]
    (graph,) = loaded.executor.graphs
    made: dict[int, np.ndarray] = {}
    functions = []
    for index in graph.section.calls:
        if graph.program.is_view(graph.program.calls[index].result):
            continue
        section = alone(graph, index)
        single = BuiltGraph(graph.owner, graph.program, section, graph.binding)
        assert single.taken == {each: taken for each, taken in graph.taken.items() if each == index}
        made.update(single.run([INPUTS["x"]], made, {})[0])
        single.free()
        functions += [graph.program.calls[index].function] * len(single.taken)
    assert functions == [*["graphc_conv_2d"] * 3, "graphc_attention"]
    np.testing.assert_allclose(made[section.writes[0]].view(np.float32).reshape(expected.shape), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"tiles": [4, 4, 4], "winograd": [3, 3, 3], "direct": [2, 2, 2]}, "direct"),
        ({"tiles": [4, 4, 4], "winograd": [3.9, 3.9, 3.9]}, "tiles"),
        ({"tiles": [4, 4, 9], "winograd": [3.9, 3.9, 3.0]}, "tiles"),
        ({"tiles": [4, 9, 9], "winograd": [3.9, 3.9, 3.9]}, "tiles"),
        ({"tiles": [4, 4, 4], "winograd": [8]}, "tiles"),
    ],
)
def test_only_what_is_clearly_faster_is_chosen(times, expected):
    assert choose(times, "tiles") == expected


def test_what_was_measured_is_followed_from_then_on(graphc_command, tmp_path, monkeypatch):
    """Had everything been fastest in another way than usual, every model would compute it so."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("GRAPHC_WAYS")
    path = stored(images(), tmp_path)
    usual = graphc.compile(path, threads=2)
    before = usual.run(INPUTS)
    seconds = {"winograd": [3.0], "tiles": [2.0], "direct": [1.0], "flash": [2.0], "scores": [1.0]}
    monkeypatch.setattr(tuning, "compute_once", lambda graph, arrays: seconds[next(iter(graph.taken.values())).way][0])
    done = graphc_command("tune", path, "--threads", 2, "--dim", "h=12", "--dim", "w=10", "--output", "ways.txt")
    assert done.status == 0, done.err
    assert "3 of them in another way than usual" in done.out
    (store,) = (tmp_path / "cache" / "graphc" / "ways").glob("*.txt")
    assert sorted(ways_in(store.read_bytes()).values()) == ["direct", "direct", "scores"]
    assert ways_in(Path("ways.txt").read_bytes()) == ways_in(store.read_bytes())
    tuned = graphc.compile(path, threads=2)
    after = tuned.run(INPUTS)
    (graph,) = tuned.executor.graphs
    assert sorted(each.way for each in graph.taken.values()) == ["direct", "direct", "direct", "scores"]
    np.testing.assert_allclose(after["y"], before["y"], rtol=1e-5, atol=1e-6)
    assert graphc.compile(path, threads=1).executor.choices == b""
    monkeypatch.setenv("GRAPHC_WAYS", "none")
    assert graphc.compile(path, threads=2).run(INPUTS)["y"].tobytes() == before["y"].tobytes()


def test_what_a_busy_machine_measures_chooses_nothing(graphc_command, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = stored(images(), tmp_path)
    turns = itertools.count()
    monkeypatch.setattr(tuning, "compute_once", lambda graph, arrays: 4.0 ** (next(turns) % 7))
    done = graphc_command("tune", path, "--threads", 1, "--dim", "h=12", "--dim", "w=10")
    assert done.status == 0, done.err
    assert "3 could not be measured, because other programs used the machine: try again" in done.err
    (store,) = (tmp_path / "cache" / "graphc" / "ways").glob("*.txt")
    assert ways_in(store.read_bytes()) == {}


def test_the_command_prints_json(graphc_command, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = stored(images(), tmp_path)
    done = graphc_command("tune", path, "--threads", 1, "--dim", "h=7", "--dim", "w=7", "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert Path(found["file"]).is_file()
    assert {each["key"] for each in found["calls"] if each["steady"]} == set(ways_in(Path(found["file"]).read_bytes()))


def test_without_code_of_our_own_nothing_is_measured(graphc_command, tmp_path, monkeypatch):
    monkeypatch.setattr("graphc.targets.ggml.run.choose.choices.own_code", lambda: "")
    done = graphc_command("tune", stored(images(), tmp_path), "--dim", "h=7", "--dim", "w=7")
    assert done.status == 1
    assert "on the CPU that needs a C compiler" in done.err
