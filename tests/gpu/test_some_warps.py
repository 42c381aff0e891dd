"""What some warps of a block do, and sums of each thread's part: by the interpreter, in the emulator and on Vulkan."""

from __future__ import annotations

import numpy as np
import pytest
import test_spirv
import tile_runs

from graphc.ir.types import F32
from graphc.kernels.gpu.layout import spread
from graphc.kernels.gpu.tile import Builder, TileKernel

ROWS, COLUMNS, WARPS = 16, 64, 4
device = test_spirv.device


def kernel(lanes: int) -> TileKernel:
    """The sums of a row's elements that a thread has. Of a warp that has one above 2 they are taken of the elements' doubles."""
    k = Builder("some_warps", WARPS * lanes)
    x, y = k.tensor("x", F32, ROWS * COLUMNS), k.tensor("y", F32, ROWS * COLUMNS, written=True)
    values = k.tile("values", spread((ROWS, COLUMNS), 4, WARPS, lanes))
    sums = k.tile("sums", values.layout.of_threads(1))
    k.load(values, x, lambda row, column: row * COLUMNS + column, vector=4)
    with k.when(values.value > 2, values):
        k.map(values, values.value * 2)
    k.reduce(sums, values, 1, "sum")
    k.store(y, lambda row, column: row * sums.shape[1] + column, sums)
    return k.finished(1)


def wanted(x: np.ndarray, lanes: int) -> np.ndarray:
    """The same, warp by warp and lane by lane: four neighbours each, 16 lanes a row; fewer lanes have several fours."""
    strips = x.reshape(WARPS, -1)
    strips = np.where((strips > 2).any(1, keepdims=True), strips * 2, strips)
    across = min(lanes, COLUMNS // 4)
    return strips.reshape(ROWS, -1, across, 4).sum((1, 3))


def drawn() -> np.ndarray:
    """Numbers of which two warps have one above 2; where it is not a number, it is not."""
    x = np.random.default_rng(0).uniform(-1, 1, ROWS * COLUMNS).astype(np.float32)
    x[5 * COLUMNS + 7], x[12 * COLUMNS], x[0] = 3, 2.5, np.nan
    return x


@pytest.mark.parametrize("seed", range(3))
def test_in_the_emulator(seed: int) -> None:
    x, y = drawn(), np.zeros(ROWS * COLUMNS, np.float32)
    interpreted, found, _ = tile_runs.both_ways([(kernel(32), [x, y])], {}, seed)
    for each in (interpreted, found):
        np.testing.assert_allclose(each[: ROWS * 16].reshape(ROWS, 16), wanted(x, 32), rtol=1e-6)


def test_on_vulkan(device: test_spirv.lavapipe.Vulkan) -> None:
    x, y = drawn(), np.zeros(ROWS * COLUMNS, np.float32)
    interpreted, found = test_spirv.both_ways(device, [(kernel(device.lanes), [x, y])], {})
    expected = wanted(x, device.lanes)
    for each in (interpreted, found):
        np.testing.assert_allclose(each[: expected.size].reshape(expected.shape), expected, rtol=1e-6)
