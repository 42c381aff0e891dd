"""Ways that were chosen for calls: they are followed, are exact, and their file survives damage and other processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from remarks import remarked

from graphc.errors import GraphcError
from graphc.ir.graph import Graph
from graphc.ir.types import TensorType
from graphc.ops.attention import Attention
from graphc.ops.base import Op
from graphc.ops.conv import Conv
from graphc.targets.ggml.lowering.lower import lower
from graphc.targets.ggml.program.composites import COMPOSITES, PREFIX
from graphc.targets.ggml.run.choose.choices import choices_for, read_choices, remember, store_for
from graphc.targets.ggml.run.choose.library import load_own
from graphc.targets.ggml.run.device.devices import open_backends
from graphc.targets.ggml.run.device.tensors import ggml
from graphc.targets.ggml.run.executor import Executor
from graphc.targets.ggml.run.graph import BuiltGraph

KEY = "conv_2d f32 3x3x40x96 64x32x40x1 stride 1x1 pad 1x1 dilation 1x1"
OTHER = "conv_2d f32 1x1x8x8 4x4x8x1 stride 1x1 pad 0x0 dilation 1x1"

CONVOLUTIONS = {
    "3x3": (((1, 40, 32, 64), (96, 40, 3, 3)), Conv((1, 1), (1, 1), (1, 1), (1, 1)), ("winograd", "tiles", "direct")),
    "few channels": (((2, 3, 9, 5), (2, 3, 3, 3)), Conv((1, 1), (1, 1), (2, 0), (2, 0)), ("winograd", "tiles", "direct")),
    "many weights": (((1, 1500, 1, 516), (1500, 1500, 3, 3)), Conv((1, 1), (1, 1), (1, 1), (1, 1)), ("tiles", "direct")),
    "pointwise": (((1, 8, 20, 24), (13, 8, 1, 1)), Conv((1, 1), (1, 1), (0, 0), (0, 0)), ("tiles", "direct")),
    "a line": (((2, 40, 1, 300), (33, 40, 1, 3)), Conv((1, 1), (1, 1), (0, 1), (0, 1)), ("winograd", "tiles", "direct")),
    "a column": (((2, 40, 50, 3), (33, 40, 3, 1)), Conv((1, 1), (1, 1), (1, 0), (1, 0)), ("winograd", "tiles", "direct")),
    "stride": (((1, 70, 17, 40), (33, 70, 3, 3)), Conv((2, 2), (1, 1), (1, 1), (1, 1)), ("tiles", "direct")),
}  # fmt: skip
"""Shapes of image and kernel, and the ways that can compute it."""

ATTENTIONS = {
    "many queries": ((1, 2, 70, 40), (1, 2, 300, 40), (1, 2, 300, 24)),
    "few queries": ((1, 2, 3, 40), (1, 2, 50, 40), (1, 2, 50, 24)),
}


class Built(NamedTuple):
    """The result of an operator, the exact one, and what computed it, whose graph is there as long."""

    result: np.ndarray
    exact: np.ndarray
    executor: Executor

    @property
    def graph(self) -> BuiltGraph:
        (made,) = self.executor.graphs
        return made

    @property
    def ways(self) -> list[str]:
        return [each.way for each in self.graph.taken.values()]

    @property
    def operators(self) -> list[bytes]:
        return [ggml.ggml_op_name(node.contents.op) for node in self.graph.placement.nodes]


def built(op: Op, shapes: tuple[tuple[int, ...], ...], choices: bytes) -> Built:
    """What is computed with these choices."""
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    graph = Graph()
    values = [graph.input(f"x{i}", TensorType(array.dtype, array.shape)) for i, array in enumerate(arrays)]
    graph.output(graph.add(op, values).output, "y")
    executor = Executor(lower(graph), [], threads=2)
    executor.choices = choices
    (result,) = executor.run({f"x{i}": array for i, array in enumerate(arrays)}, {})
    return Built(result, op.eval(*(array.astype(np.float64) for array in arrays))[0], executor)


def line(key: str, way: str) -> bytes:
    return f"{key} = {way}\n".encode()


def key_of(op: Op, shapes: tuple[tuple[int, ...], ...]) -> tuple[str, str]:
    """What a choice for it depends on, and the way that is taken without one."""
    found = built(op, shapes, b"")
    (taken,) = found.graph.taken.values()
    return taken.key, taken.way


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("way", ["winograd", "tiles", "direct", "columns", "flash"])
def test_the_way_that_was_chosen_computes_a_convolution(name, way):
    shapes, op, possible = CONVOLUTIONS[name]
    key, usual = key_of(op, shapes)
    found = built(op, shapes, line(key, way))
    taken = way if way in possible else usual
    assert found.ways == [taken]
    expected = {"winograd": "winograd", "tiles": "conv_2d"}.get(taken)
    assert list(found.graph.own.values()) == ([expected] if expected else [])
    assert (b"CONV_2D" in found.operators) == (taken == "direct")
    assert np.abs(found.result - found.exact).max() <= 3e-6 * np.abs(found.exact).max()


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("way", ["flash", "scores", "tiles"])
def test_the_way_that_was_chosen_computes_attention(name, way):
    op, shapes = Attention(0.3), ATTENTIONS[name]
    key, usual = key_of(op, shapes)
    assert usual == ("flash" if name == "many queries" else "scores")
    found = built(op, shapes, line(key, way))
    taken = way if way != "tiles" else usual
    assert found.ways == [taken]
    assert (b"SOFT_MAX" in found.operators) == (taken == "scores")
    assert ("attention" in found.graph.own.values()) == (taken == "flash")
    assert np.abs(found.result - found.exact).max() <= 3e-6 * np.abs(found.exact).max()


def test_several_devices_and_those_of_servers_have_no_choices_of_their_own(tmp_path, monkeypatch):
    (cpu,) = open_backends("cpu", 1)
    monkeypatch.setattr("graphc.targets.ggml.run.choose.choices.backend_name", lambda backend: "Vulkan")
    assert store_for([cpu, cpu], 1) is not None
    assert store_for([cpu, cpu, cpu], 1) is None
    monkeypatch.setenv("GRAPHC_WAYS", str(path := tmp_path / "ways.txt"))
    path.write_text(f"{KEY} = direct\n")
    assert choices_for([cpu, cpu], 1) == line(KEY, "direct")
    assert choices_for([cpu, cpu, cpu], 1) == b""
    monkeypatch.setattr("graphc.targets.ggml.run.choose.choices.backend_name", lambda backend: "RPC")
    assert store_for([cpu, cpu], 1) is None


def test_what_was_chosen_is_read_back(tmp_path):
    path = tmp_path / "ways.txt"
    remember(path, "a machine", {KEY: "winograd  # winograd 1 ms, tiles 2 ms"})
    remember(path, "a machine", {OTHER: "tiles"})
    remember(path, "a machine", {OTHER: "direct"})
    assert path.read_text().splitlines() == [
        "# a machine; measured by graphc tune", f"{OTHER} = direct", f"{KEY} = winograd  # winograd 1 ms, tiles 2 ms"
    ]  # fmt: skip


WRONG = [
    b"\xff\xfe\x00",
    b"conv_2d",
    b"= tiles",
    b"poetry = tiles",
    b"conv_2d f32 =",
    b"conv_2d f32 = sorcery",
    b"attention = flash",  # of no sizes
    b"attention f32 = tiles",
    b"conv_2d f32 = tiles winograd",
    b"conv_2d f32 \x00 = tiles",
]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_line_that_is_no_choice_does_not_count_and_is_mended(tmp_path, wrong):
    path = tmp_path / "ways.txt"
    path.write_bytes(
        f"{KEY} = winograd\n".encode() + wrong + f"\n\n # a remark = tiles\n{OTHER} = direct # best".encode()
    )
    with remarked("line 2 is not a choice between known ways") as warned:
        assert read_choices(path) == read_choices(path) == path.read_bytes()
    assert len(warned) == 1
    shapes, op, _ = CONVOLUTIONS["pointwise"]
    key = key_of(op, shapes)[0]
    choices = wrong + b"\n" + line(key, "direct")
    assert built(op, shapes, choices).ways == ["direct"]
    remember(path, "a machine", {OTHER: "tiles"})
    assert path.read_bytes() == f"# a machine; measured by graphc tune\n{OTHER} = tiles\n{KEY} = winograd\n".encode()


def test_the_last_of_several_lines_counts():
    shapes, op, _ = CONVOLUTIONS["pointwise"]
    key = key_of(op, shapes)[0]
    for way in ("tiles", "direct"):
        choices = line(key, "direct") + line(key, "tiles") + f"  {key}\t= {way} # so \r\n".encode()
        assert built(op, shapes, choices).ways == [way]


def test_a_star_stands_for_all_calls_of_a_kind_that_no_line_is_about():
    shapes, op, _ = CONVOLUTIONS["pointwise"]
    key = key_of(op, shapes)[0]
    for choices, way in (
        (line("conv_2d *", "direct"), "direct"),
        (line("conv_2d *", "direct") + line(key, "tiles"), "tiles"),
        (line(key, "tiles") + line("conv_2d *", "direct"), "tiles"),
        (line("attention *", "flash"), "tiles"),
    ):
        assert built(op, shapes, choices).ways == [way]


def test_c_knows_the_ways_of_composites():
    own = load_own()
    assert own is not None
    ways = {name.removeprefix(PREFIX): each.ways for name, each in COMPOSITES.items() if each.ways}
    assert ways["attention"] == ("flash", "scores")
    for kind, names in ways.items():
        assert [own.wrong_choice(f"{kind} * = {name}".encode()) for name in (*names, "slowly")] == [0] * len(names) + [
            1
        ]
    assert own.wrong_choice(b"linear * = flash") == own.wrong_choice(b"poetry * = flash") == 1


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    path = tmp_path / "ways.txt"
    code = """
import sys
from pathlib import Path
from typing import NamedTuple
from graphc.targets.ggml.run.choose.choices import remember
for number in range(20):
    remember(Path(sys.argv[1]), "a machine", {f"conv_2d {sys.argv[2]} {number}": "tiles"})
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "abc"]
    assert [writer.wait(100) for writer in writers] == [0, 0, 0]
    lines = {f"conv_2d {name} {number} = tiles" for name in "abc" for number in range(20)}
    assert set(path.read_text().splitlines()[1:]) == lines


def test_a_file_may_be_named_or_none(tmp_path, monkeypatch):
    shapes, op, _ = CONVOLUTIONS["pointwise"]
    key, _ = key_of(op, shapes)
    path = tmp_path / "ways.txt"
    path.write_text(f"{key} = direct\n")
    monkeypatch.setenv("GRAPHC_WAYS", str(path))
    assert Executor(lower(Graph()), []).choices == line(key, "direct")
    monkeypatch.setenv("GRAPHC_WAYS", str(tmp_path / "missing"))
    with pytest.raises(GraphcError, match=r"GRAPHC_WAYS names .*missing, which is not a file"):
        Executor(lower(Graph()), [])
    monkeypatch.setenv("GRAPHC_WAYS", "none")
    assert Executor(lower(Graph()), []).choices == b""


def test_the_store_is_the_devices_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("GRAPHC_WAYS")
    backends = open_backends("cpu", 2)
    stores = {threads: store_for(backends, threads) for threads in (1, 2)}
    assert stores[1].path != stores[2].path
    assert Path(stores[2].path).parent == tmp_path / "graphc" / "ways"
    remember(stores[2].path, stores[2].device, {KEY: "tiles"})
    assert Executor(lower(Graph()), [], threads=2).choices.endswith(line(KEY, "tiles"))
    assert Executor(lower(Graph()), [], threads=1).choices == b""
    monkeypatch.setattr("graphc.targets.ggml.run.choose.choices.own_code", lambda: "other code")
    assert Executor(lower(Graph()), [], threads=2).choices == b""
