"""Rows' sums and largest values as tile kernels, also of what earlier ones gave."""

from __future__ import annotations

import numpy as np
import pytest
from tile_runs import both_ways

from graphc.ir.types import F32
from graphc.kernels.gpu.skeletons.reduction import Stage, WrittenRows, reduction
from graphc.kernels.gpu.tile import Load, walk
from graphc.kernels.scalar import Kernel, Scalar, make
from graphc.shapes import symbol


@pytest.mark.parametrize(("rows", "columns"), [(13, 300), (3, 5000), (1, 1), (9, 4097), (8, 256), (2, 4095)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_stages(rows: int, columns: int, symbolic: bool) -> None:
    r, c = symbol("r"), symbol("c") if symbolic else columns

    def read(row: Scalar, column: Scalar) -> Scalar:
        return make("element", F32, (row * c + column,), 0)

    def squared(row: Scalar, column: Scalar, mean: Scalar) -> Scalar:
        return (read(row, column) - mean) * (read(row, column) - mean)

    stages = [
        Stage("sum", read, lambda total: total * (1 / columns)),
        Stage("sum", squared, lambda total: total * 0.5),
        Stage("max", lambda row, column, *_: read(row, column)),
        Stage("min", lambda row, column, mean, *_: read(row, column) * mean),
    ]
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32) + 3
    result = np.zeros((4, rows), np.float32)
    kernel = reduction("statistics", r, c, [(F32, r * c)], stages)
    interpreted, emulated, counters = both_ways([(kernel, [x, result])], {"r": rows, "c": columns})
    wide = x.astype(np.float64)
    mean = wide.mean(1)
    expected = [mean, ((wide - mean[:, None]) ** 2).sum(1) / 2, wide.max(1), (wide * mean[:, None]).min(1)]
    np.testing.assert_allclose(interpreted, expected, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(emulated, expected, rtol=1e-5, atol=1e-9)
    assert counters[0].conflicts == 0


@pytest.mark.parametrize("own", [1, 3, 6, 20])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (5, 7), (40, 64)])
def test_groups_of_channels(own: int, height: int, width: int) -> None:
    """Images with channels last, each group of channels normalized: what a lane has of a pixel is read and written at once."""
    count, groups = 2, 3
    h, w = symbol("h"), symbol("w")

    def place(line: Scalar, column: Scalar) -> Scalar:
        return (line // groups * (h * w) + column // own) * (groups * own) + line % groups * own + column % own

    def read(line: Scalar, column: Scalar) -> Scalar:
        return make("element", F32, (place(line, column),), 0)

    def squared(line: Scalar, column: Scalar, mean: Scalar) -> Scalar:
        return (read(line, column) - mean) * (read(line, column) - mean)

    each = 1.0 / (height * width * own)
    stages = [
        Stage("sum", read, lambda total: total * each),
        Stage("sum", squared, lambda total: 1.0 / Kernel(()).call("sqrt", total * each + 1e-5)),
    ]
    written = WrittenRows(F32, lambda line, column, mean, inverse: (read(line, column) - mean) * inverse, place)
    x = np.random.default_rng(own).standard_normal((count, height, width, groups, own)).astype(np.float32) + 2
    result, size = np.zeros_like(x), count * h * w * groups * own
    kernel = reduction("normalized", count * groups, h * w * own, [(F32, size)], stages, written, long=True)
    interpreted, emulated, counters = both_ways([(kernel, [x, result])], {"h": height, "w": width})
    wide = x.astype(np.float64)
    mean, variance = wide.mean((1, 2, 4), keepdims=True), wide.var((1, 2, 4), keepdims=True)
    expected = (wide - mean) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(interpreted, expected, atol=2e-5)
    np.testing.assert_allclose(emulated, expected, atol=2e-5)
    assert counters[0].wide_share > 0.9 or own % 4


@pytest.mark.parametrize("columns", [4, 320, 2048])
def test_short_rows_are_read_once(columns: int) -> None:
    def read(row: Scalar, column: Scalar, *_: Scalar) -> Scalar:
        return make("element", F32, (row * columns + column,), 0)

    stages = [Stage("sum", read), Stage("max", read)]
    written = WrittenRows(F32, lambda row, column, total, most: read(row, column) * total - most)
    kernel = reduction("rows", 9, columns, [(F32, 9 * columns)], stages, written)
    assert sum(isinstance(each, Load) for each in walk(kernel.body)) == 1
    x = np.random.default_rng(0).standard_normal((9, columns)).astype(np.float32)
    interpreted, emulated, _ = both_ways([(kernel, [x, np.zeros_like(x)])], {})
    expected = x * x.sum(1, keepdims=True) - x.max(1, keepdims=True)
    np.testing.assert_allclose(interpreted, expected, atol=1e-3)
    np.testing.assert_allclose(emulated, expected, atol=1e-3)
