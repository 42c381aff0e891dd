"""The memory of intermediate results: what is said of it is what a run uses."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import pytest
from frontend_models import model, node, value
from test_control import GROWING, add_loop

import graphc
from graphc.commands.inspect_memory import HEIGHT, WIDTH, timeline
from graphc.compiler import compile_program
from graphc.runtime.arena import Arena, Held, arenas


def branching() -> onnx.ModelProto:
    """Two products of x, one of which is needed again at the end."""
    nodes = [
        node("MatMul", "x w", "a", "/first/MatMul"),
        node("Softmax", "a", "b", "/second/Softmax"),
        node("MatMul", "b w", "c", "/third/MatMul"),
        node("Softmax", "c", "d", "/third/Softmax"),
        node("Add", "a d", "y", "/last/Add"),
    ]
    return model(nodes, [value("x", ["n", 64])], ["y"], {"w": np.eye(64, dtype=np.float32)})


def test_the_arena_is_what_a_run_reserves_and_the_arrays_of_its_caller() -> None:
    loaded = graphc.compile(branching(), threads=2)
    for n in (100, 1000):
        ((arena,), unknown) = arenas(loaded.program, {"n": n}, threads=2)
        x = np.ones((n, 64), np.float32)
        arrays = x.nbytes + loaded.run(x=x)["y"].nbytes
        assert unknown == 0
        assert arena.nbytes - arrays <= loaded.executor.compute_bytes < arena.nbytes + 4096
        assert max(arena.live()) <= arena.nbytes


def test_what_is_needed_lies_apart() -> None:
    ((arena,), _) = arenas(compile_program(branching()), {"n": 100})
    tensor = 100 * 64 * 4
    (first,) = (each for each in arena.held if each.module == "first")
    assert (first.nbytes, first.shape, first.last) == (tensor, (100, 64), arena.steps - 1)
    assert next(each.step for each in arena.held if each.first == 0) == "input x"
    for step in range(arena.steps):
        held = sorted(arena.at(step), key=lambda each: each.offset)
        for left, right in pairwise(held):
            in_place = left.offset == right.offset and step in (left.last, right.last)
            assert in_place or left.offset + left.nbytes <= right.offset
    assert max(arena.live()) >= 3 * tensor  # x is not given up, the first product is needed at the end


def test_results_in_place_count_once() -> None:
    held = (Held("a", "", (10,), 40, 0, 0, 1), Held("b", "", (10,), 40, 0, 1, 2), Held("c", "", (5,), 20, 30, 2, 2))
    assert Arena("p", 50, 3, held).live() == [40, 40, 50]


def test_sections_between_what_the_host_does() -> None:
    found, unknown = arenas(compile_program(add_loop()), {"n": 5})
    assert unknown == 0
    assert any(each.steps for each in found)
    _, unknown = arenas(compile_program(GROWING), {"n": 5})
    assert unknown > 0


@pytest.mark.parametrize("steps", [1, 5, WIDTH, 1000])
def test_a_timeline(steps: int) -> None:
    live = [1024 * (1 + step) for step in range(steps)]
    lines = timeline(live)
    assert len(lines) == HEIGHT + 2
    columns = [line.partition("|")[2] for line in lines[:HEIGHT]]
    assert columns[0].rstrip().endswith("#")
    assert len(columns[0]) == min(steps, WIDTH)
    assert lines[0].lstrip().startswith(("1.0", f"{steps}.0", f"{steps / 1024:.1f}"))
    assert lines[-1].endswith(f"step {steps - 1}")
    assert [line.count("#") for line in columns] == sorted(line.count("#") for line in columns)
