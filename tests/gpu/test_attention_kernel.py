"""Attention as a tile kernel, against float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tile_runs import both_ways

from graphc.ir.types import F16, F32
from graphc.kernels.gpu.skeletons import attention as skeleton
from graphc.kernels.gpu.skeletons.attention import MOST_WIDTH, Attention, Tiling, attention
from graphc.kernels.gpu.skeletons.attention_together import TogetherTiling, attention_together
from graphc.kernels.gpu.skeletons.operands import matrix
from graphc.kernels.gpu.tile import TileKernel
from graphc.kernels.scalar import Scalar, make
from graphc.shapes import symbol

CASES = [
    (2, 70, 130, 40, 40, False, 0.3), (1, 1, 1, 64, 64, False, 0.3), (3, 64, 64, 16, 8, True, 0.3),
    (1, 130, 77, 128, 96, True, 0.3), (2, 5, 200, 7, 9, True, 0.3), (1, 140, 70, 72, 80, False, -0.3),
    (1, 20, 128, 80, 80, False, 3.0), (1, 130, 70, 160, 160, False, 0.0),
]  # fmt: skip
"""Batches, rows, keys, widths of heads and of results, whether there is a mask, and the scale."""


@pytest.mark.parametrize(("batch", "rows", "keys", "width", "results", "masked", "scale"), CASES)
def test_attention(batch: int, rows: int, keys: int, width: int, results: int, masked: bool, scale: float) -> None:
    check(attention, batch, rows, keys, width, results, masked, scale)


@pytest.mark.parametrize(
    "tiling", [TogetherTiling(2, 64, 1), TogetherTiling(1, 128, 2), TogetherTiling(3, 32, 1)], ids=str
)
@pytest.mark.parametrize("case", [each for each in CASES if each[3] <= 128], ids=str)
def test_attention_of_warps_that_multiply_together(case: tuple, tiling: TogetherTiling) -> None:
    check(lambda what: attention_together(what, tiling), *case)


def check(
    made: Callable[[Attention], TileKernel], batch: int, rows: int, keys: int, width: int, results: int, masked: bool,
    scale: float,
) -> None:  # fmt: skip
    m, n = symbol("m"), symbol("n") if keys != 128 else keys
    random = np.random.default_rng(0)
    q, k, v = (
        random.standard_normal(size).astype(F16)
        for size in ((batch, rows, width), (batch, keys, width), (batch, keys, results))
    )
    mask = np.where(random.random((rows, keys)) < 0.3, -np.inf, random.standard_normal((rows, keys))).astype(F32)
    mask[:, -1] = 0  # no row without a key; the first tile of one is masked whole
    mask[0, : min(64, keys - 1)] = -np.inf

    def added(number: Scalar, row: Scalar, key: Scalar) -> Scalar:
        return make("element", F32, (row * n + key,), 3)

    what = Attention(
        "attention", batch, m, n, width, results, scale, matrix(F16, m, width, batch), matrix(F16, n, width, batch),
        matrix(F16, n, results, batch), batch * m * results, F32,
        lambda number, row, column: (number * m + row) * results + column,
        ((F32, m * n),) if masked else (), added if masked else None,
    )  # fmt: skip
    result = np.full((batch, rows, results), np.nan, F32)
    arrays = [q, k, v, *([mask] if masked else []), result]
    interpreted, emulated, counters = both_ways([(made(what), arrays)], {"m": rows, "n": keys})
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2) * scale + (mask if masked else 0)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = powers / powers.sum(-1, keepdims=True) @ v.astype(np.float64)
    assert np.abs(interpreted - expected).max() < 2e-3
    assert np.abs(emulated - expected).max() < 2e-3
    assert np.abs(emulated - interpreted).max() < 5e-4
    assert counters[0].load_matrix_conflicts == 0


@pytest.mark.parametrize(
    "tiling", [Tiling(4, 2, 48, 2, False), Tiling(12, 1, 64, 1), Tiling(2, 3, 16, 1), Tiling(1, 1, 128, 1, False)], ids=str
)  # fmt: skip
@pytest.mark.parametrize("masked", [False, True])
def test_tilings(tiling: Tiling, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skeleton, "TILINGS", {MOST_WIDTH: tiling})
    test_attention(2, 70, 130, 40, 24, masked, 0.3)
