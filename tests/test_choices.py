"""Ways that were chosen for calls: they are followed, are exact, and their file survives damage and other processes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from remarks import remarked

from graphc.errors import GraphcError
from graphc.ir.graph import Graph
from graphc.ir.types import TensorType
from graphc.ops.attention import Attention
from graphc.ops.base import Op
from graphc.ops.conv import Conv
from graphc.targets.ggml.built import BuiltGraph
from graphc.targets.ggml.choices import WAYS, choices_for, chosen, remember, store_for
from graphc.targets.ggml.devices import open_backends
from graphc.targets.ggml.executor import Executor
from graphc.targets.ggml.lower import lower
from graphc.targets.ggml.tensors import ggml

KEY = "conv_2d f32 3x3x40x96 64x32x40x1 stride 1x1 pad 1x1 dilation 1x1"
OTHER = "conv_2d f32 1x1x8x8 4x4x8x1 stride 1x1 pad 0x0 dilation 1x1"

CONVOLUTIONS = {
    "3x3": (((1, 40, 32, 64), (96, 40, 3, 3)), Conv((1, 1), (1, 1), (1, 1), (1, 1)), ("winograd", "tiles", "direct")),
    "few channels": (((2, 3, 9, 5), (2, 3, 3, 3)), Conv((1, 1), (1, 1), (2, 0), (2, 0)), ("winograd", "tiles", "direct")),
    "many weights": (((1, 1500, 24, 24), (1500, 1500, 3, 3)), Conv((1, 1), (1, 1), (1, 1), (1, 1)), ("tiles", "direct")),
    "pointwise": (((1, 8, 20, 24), (13, 8, 1, 1)), Conv((1, 1), (1, 1), (0, 0), (0, 0)), ("tiles", "direct")),
    "stride": (((1, 70, 17, 40), (33, 70, 3, 3)), Conv((2, 2), (1, 1), (1, 1), (1, 1)), ("tiles", "direct")),
}  # fmt: skip
"""Shapes of image and kernel, and the ways that can compute it."""

ATTENTIONS = {
    "many queries": ((1, 2, 70, 40), (1, 2, 300, 40), (1, 2, 300, 24)),
    "few queries": ((1, 2, 3, 40), (1, 2, 50, 40), (1, 2, 50, 24)),
}


def built(
    op: Op, shapes: tuple[tuple[int, ...], ...], choices: dict[str, str]
) -> tuple[np.ndarray, np.ndarray, BuiltGraph]:
    """The result, the exact one, and the graph, with these choices."""
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    graph = Graph()
    values = [graph.input(f"x{i}", TensorType(array.dtype, array.shape)) for i, array in enumerate(arrays)]
    graph.output(graph.add(op, values).output, "y")
    executor = Executor(lower(graph), [], threads=2)
    executor.choices = choices
    (result,) = executor.run({f"x{i}": array for i, array in enumerate(arrays)}, {})
    (made,) = executor.graphs
    return result, op.eval(*(array.astype(np.float64) for array in arrays))[0], made


def key_of(op: Op, shapes: tuple[tuple[int, ...], ...]) -> tuple[str, str]:
    """What a choice for it depends on, and the way that is taken without one."""
    (taken,) = built(op, shapes, {})[2].taken.values()
    return taken.key, taken.way


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("way", ["winograd", "tiles", "direct", "columns", "flash"])
def test_the_way_that_was_chosen_computes_a_convolution(name, way):
    shapes, op, possible = CONVOLUTIONS[name]
    key, usual = key_of(op, shapes)
    result, exact, graph = built(op, shapes, {key: way})
    taken = way if way in possible else usual
    assert [each.way for each in graph.taken.values()] == [taken]
    expected = {"winograd": "winograd", "tiles": "conv_2d"}.get(taken)
    assert [own.name for own in graph.own.values()] == ([expected] if expected else [])
    operators = {ggml.ggml_op_name(node.contents.op) for node in graph.placement.nodes}
    assert (b"CONV_2D" in operators) == (taken == "direct")
    assert np.abs(result - exact).max() <= 3e-6 * np.abs(exact).max()


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("way", ["flash", "scores", "tiles"])
def test_the_way_that_was_chosen_computes_attention(name, way):
    op, shapes = Attention(0.3), ATTENTIONS[name]
    key, usual = key_of(op, shapes)
    assert usual == ("flash" if name == "many queries" else "scores")
    result, exact, graph = built(op, shapes, {key: way})
    taken = way if way != "tiles" else usual
    assert [each.way for each in graph.taken.values()] == [taken]
    operators = [ggml.ggml_op_name(node.contents.op) for node in graph.placement.nodes]
    assert (b"SOFT_MAX" in operators) == (taken == "scores")
    assert ("attention" in {own.name for own in graph.own.values()}) == (taken == "flash")
    assert np.abs(result - exact).max() <= 3e-6 * np.abs(exact).max()


def test_cpp_programs_know_the_same_ways():
    text = files("graphc.targets.ggml").joinpath("project", "graphc", "choices.cpp").read_text(encoding="utf-8")
    known = re.findall(r'^    \{"(\w+)", \{(.*)\}\},$', text, re.MULTILINE)
    assert {kind: tuple(json.loads(f"[{ways}]")) for kind, ways in known} == dict(WAYS)


def test_several_devices_and_those_of_servers_have_no_choices_of_their_own(tmp_path, monkeypatch):
    (cpu,) = open_backends("cpu", 1)
    monkeypatch.setattr("graphc.targets.ggml.choices.backend_name", lambda backend: "Vulkan")
    assert store_for([cpu, cpu], 1) is not None
    assert store_for([cpu, cpu, cpu], 1) is None
    monkeypatch.setenv("GRAPHC_WAYS", str(path := tmp_path / "ways.txt"))
    path.write_text(f"{KEY} = direct\n")
    assert choices_for([cpu, cpu], 1) == {KEY: "direct"}
    assert choices_for([cpu, cpu, cpu], 1) == {}
    monkeypatch.setattr("graphc.targets.ggml.choices.backend_name", lambda backend: "RPC")
    assert store_for([cpu, cpu], 1) is None


def test_what_was_chosen_is_read_back(tmp_path):
    path = tmp_path / "ways.txt"
    remember(path, "a machine", {KEY: "winograd  # winograd 1 ms, tiles 2 ms"})
    remember(path, "a machine", {OTHER: "tiles"})
    assert chosen(path) == {KEY: "winograd", OTHER: "tiles"}
    remember(path, "a machine", {OTHER: "direct"})
    assert chosen(path) == {KEY: "winograd", OTHER: "direct"}
    assert path.read_text().splitlines() == [
        "# a machine; measured by graphc tune", f"{OTHER} = direct", f"{KEY} = winograd  # winograd 1 ms, tiles 2 ms"
    ]  # fmt: skip


def test_a_way_that_there_is_not_is_refused(tmp_path):
    path = tmp_path / "ways.txt"
    path.write_text(f"{KEY} = sorcery\n{OTHER} = tiles\n")
    with remarked(r"ways.txt: conv_2d has no way 'sorcery'"):
        assert chosen(path) == {OTHER: "tiles"}


@pytest.mark.parametrize(
    "damage", [b"\xff\xfe\x00", b"conv_2d\n", b"= tiles\n", b"poetry = tiles\n", b"conv_2d f32 =\n"]
)
def test_a_damaged_file_is_ignored_and_mended(tmp_path, damage):
    path = tmp_path / "ways.txt"
    path.write_bytes(f"{KEY} = winograd\n".encode() + damage)
    with remarked("is ignored") as warned:
        assert [chosen(path), chosen(path)] == [{}, {}]
    assert len(warned) == 1
    remember(path, "a machine", {OTHER: "tiles"})
    assert chosen(path) == {OTHER: "tiles"}


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    path = tmp_path / "ways.txt"
    code = """
import sys
from pathlib import Path
from graphc.targets.ggml.choices import remember
for number in range(20):
    remember(Path(sys.argv[1]), "a machine", {f"conv_2d {sys.argv[2]} {number}": "tiles"})
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "abc"]
    assert [writer.wait(100) for writer in writers] == [0, 0, 0]
    assert chosen(path) == {f"conv_2d {name} {number}": "tiles" for name in "abc" for number in range(20)}


def test_a_file_may_be_named_or_none(tmp_path, monkeypatch):
    shapes, op, _ = CONVOLUTIONS["pointwise"]
    key, _ = key_of(op, shapes)
    path = tmp_path / "ways.txt"
    path.write_text(f"{key} = direct\n")
    monkeypatch.setenv("GRAPHC_WAYS", str(path))
    assert Executor(lower(Graph()), []).choices == {key: "direct"}
    monkeypatch.setenv("GRAPHC_WAYS", str(tmp_path / "missing"))
    with pytest.raises(GraphcError, match=r"GRAPHC_WAYS names .*missing, which is not a file"):
        Executor(lower(Graph()), [])
    monkeypatch.setenv("GRAPHC_WAYS", "none")
    assert Executor(lower(Graph()), []).choices == {}


def test_the_store_is_the_devices_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("GRAPHC_WAYS")
    backends = open_backends("cpu", 2)
    stores = {threads: store_for(backends, threads) for threads in (1, 2)}
    assert stores[1].path != stores[2].path
    assert Path(stores[2].path).parent == tmp_path / "graphc" / "ways"
    remember(stores[2].path, stores[2].device, {KEY: "tiles"})
    assert Executor(lower(Graph()), [], threads=2).choices == {KEY: "tiles"}
    assert Executor(lower(Graph()), [], threads=1).choices == {}
    monkeypatch.setattr("graphc.targets.ggml.choices.own_code", lambda: "other code")
    assert Executor(lower(Graph()), [], threads=2).choices == {}
