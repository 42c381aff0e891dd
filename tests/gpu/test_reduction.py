"""Rows' sums and largest values as tile kernels, also of what earlier ones gave."""

from __future__ import annotations

import numpy as np
import pytest
from tile_runs import both_ways

from graphc.ir.types import F32
from graphc.kernels.gpu.skeletons.reduction import Stage, reduction
from graphc.kernels.scalar import Scalar, make
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
