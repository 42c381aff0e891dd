"""Tensors that are repeated along axes: rows of every length, by any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import model, node, value

import graphc
from graphc.targets.ggml.lowering.compose import composed

SIZES = [
    ((1,), (5000,)), ((3, 1), (3, 1000)), ((1, 7), (4, 7)), ((2, 1, 9), (2, 5, 9)), ((1, 1, 1, 1), (2, 3, 4, 5)),
    ((2, 1, 3, 1), (2, 4, 3, 6)), ((1, 3), (1, 3)),
]  # fmt: skip


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("size", "larger"), SIZES)
def test_expanded(size: tuple[int, ...], larger: tuple[int, ...], threads: int) -> None:
    nodes = [node("Neg", "x", "a"), node("Expand", "a shape", "b"), node("Neg", "b", "y")]
    proto = model(nodes, [value("x", size)], ["y"], {"shape": np.array(larger)})
    x = np.random.default_rng(0).random(size, np.float32)
    np.testing.assert_array_equal(graphc.compile(proto, threads=threads).run(x=x)["y"], np.broadcast_to(x, larger))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 5000])
@pytest.mark.parametrize("times", [1, 3])
def test_tiled(length: int, times: int, threads: int) -> None:
    nodes = [node("Neg", "x", "a"), node("Tile", "a times", "b"), node("Neg", "b", "y")]
    proto = model(nodes, [value("x", (2, 3, length))], ["y"], {"times": np.array([times, 2, times])})
    x = np.random.default_rng(0).random((2, 3, length), np.float32)
    compiled = graphc.compile(proto, threads=threads)
    np.testing.assert_array_equal(compiled.run(x=x)["y"], np.tile(x, (times, 2, times)))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("operator", ["Add", "Mul"])
@pytest.mark.parametrize(
    ("row", "column"), [((1, 5), (7, 1)), ((3, 1, 14), (3, 14, 1)), ((1, 1, 1100), (2, 9, 1)), ((4, 1), (1, 1))]
)
def test_what_broadcasts_both_ways_is_not_written(
    row: tuple[int, ...], column: tuple[int, ...], operator: str, threads: int
) -> None:
    nodes = [node("Neg", "row", "a"), node("Neg", "column", "b"), node(operator, "a b", "c"), node("Relu", "c", "y")]
    random = np.random.default_rng(0)
    x, z = random.standard_normal(row, np.float32), random.standard_normal(column, np.float32)
    compiled = graphc.compile(model(nodes, [value("row", row), value("column", column)], ["y"]), threads=threads)
    assert "graphc_repeat" not in [call.function for call in composed(compiled.program).calls]
    expected = np.maximum(-x - z if operator == "Add" else x * z, 0)
    np.testing.assert_array_equal(compiled.run(row=x, column=z)["y"], expected)
