"""Attention as a tile kernel, against float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tile_runs import Steps, both_ways

from graphc.ir.types import F16, F32
from graphc.kernels.gpu.instructions import INSTRUCTIONS
from graphc.kernels.gpu.skeletons import attention as skeleton
from graphc.kernels.gpu.skeletons.attention import MOST_WIDTH, Attention, Tiling, attention
from graphc.kernels.gpu.skeletons.attention_anywhere import AnyTiling, attention_anywhere, tiling_for
from graphc.kernels.gpu.skeletons.attention_together import TogetherTiling, attention_together
from graphc.kernels.gpu.skeletons.operands import matrix
from graphc.kernels.gpu.tile import Load, TileKernel, walk
from graphc.kernels.gpu.verify import verify
from graphc.kernels.scalar import Scalar, make
from graphc.shapes import symbol

CASES = [
    (2, 70, 130, 40, 40, False, 0.3), (1, 1, 1, 64, 64, False, 0.3), (3, 64, 64, 16, 8, True, 0.3),
    (1, 130, 77, 128, 96, True, 0.3), (2, 5, 200, 7, 9, True, 0.3), (1, 140, 70, 72, 80, False, -0.3),
    (1, 20, 128, 80, 80, False, 3.0), (1, 130, 70, 160, 160, False, 0.0), (2, 33, 128, 40, 40, True, 0.3),
]  # fmt: skip
"""Batches, rows, keys, widths of heads and of results, whether there is a mask, and the scale."""


@pytest.mark.parametrize(("batch", "rows", "keys", "width", "results", "masked", "scale"), CASES)
def test_attention(batch: int, rows: int, keys: int, width: int, results: int, masked: bool, scale: float) -> None:
    check(attention, batch, rows, keys, width, results, masked, scale)


@pytest.mark.parametrize(
    "tiling",
    [
        TogetherTiling(2, 64, 1),
        TogetherTiling(1, 128, 2),
        pytest.param(TogetherTiling(3, 32, 1), marks=pytest.mark.thorough),
    ],
    ids=str,
)
@pytest.mark.parametrize("case", [each for each in CASES if each[3] <= 128], ids=str)
def test_attention_of_warps_that_multiply_together(case: tuple, tiling: TogetherTiling) -> None:
    check(lambda what: attention_together(what, tiling), *case)


ANYWHERE = [
    ("m16n8k16_half", AnyTiling(32, 32, 64, 128, 4)), ("m16n8k16_half", AnyTiling(64, 16, 32, 128, held=False, shares=2)),
    ("fma_4x4", AnyTiling(32, 32, 32, 64, 3)), ("fma_4x4", AnyTiling(64, 32, 16, 128, held=False)),
]  # fmt: skip
"""Instructions, and tilings that suit them."""


@pytest.mark.parametrize(
    ("instruction", "tiling"),
    [
        pytest.param(*each, id=str(each), marks=[pytest.mark.thorough] * (number % 2))
        for number, each in enumerate(ANYWHERE)
    ],
)
@pytest.mark.parametrize("case", [*CASES, (1, 70, 40, 512, 512, False, 0.04), (1, 33, 70, 8, 300, True, 0.3)], ids=str)
def test_attention_by_any_instruction(instruction: str, tiling: AnyTiling, case: tuple) -> None:
    one = INSTRUCTIONS[instruction]
    assert tiling.suits(one)
    check(lambda what: attention_anywhere(what, tiling, one), *case, dtype=one.operand)


@pytest.mark.parametrize("width", [40, 64, 80, 128, 160, 512])
@pytest.mark.parametrize("name", ["m16n8k16_half", "fma_4x4", "coop_16x16x16_half", "coop_8x8x8_half_8lanes"])
def test_a_block_has_what_its_tiling_needs(width: int, name: str) -> None:
    one, shared = INSTRUCTIONS[name], 32 << 10 if "8lanes" in name else 48 << 10 if "coop" in name else 99 << 10
    tiling = tiling_for(width, width, one, shared, 256)
    assert tiling is not None
    rows = matrix(one.operand, 1000, width)
    what = Attention("attention", 1, 1000, 1000, width, width, 1.0, rows, rows, rows, 1000 * width, F32, rows.offset)
    kernel = attention_anywhere(what, tiling, one)
    verify(kernel)
    assert kernel.shared_bytes <= shared
    assert kernel.threads <= 256
    assert tiling_for(width, width, one, 8 << 10, 256) is None
    assert tiling_for(513, width, one, shared, 256) is None


def check(
    made: Callable[[Attention], TileKernel], batch: int, rows: int, keys: int, width: int, results: int, masked: bool,
    scale: float, dtype: np.dtype = F16,
) -> None:  # fmt: skip
    steps, symbols, expected = attended(made, batch, rows, keys, width, results, masked, scale, dtype)
    interpreted, emulated, counters = both_ways(steps, symbols)
    limit = 2e-3 if dtype == F16 else 2e-6 * max(1, 10 * scale)  # what a large score loses, its power has lost
    assert np.abs(interpreted - expected).max() < limit
    assert np.abs(emulated - expected).max() < limit
    assert np.abs(emulated - interpreted).max() < limit / 4
    assert counters[0].load_matrix_conflicts == 0


def attended(
    made: Callable[[Attention], TileKernel], batch: int, rows: int, keys: int, width: int, results: int, masked: bool,
    scale: float, dtype: np.dtype,
) -> tuple[Steps, dict[str, int], np.ndarray]:  # fmt: skip
    """A kernel with its arrays, its sizes, and what it should give."""
    m, n = symbol("m"), symbol("n") if keys != 128 else keys
    random = np.random.default_rng(0)
    q, k, v = (
        random.standard_normal(size).astype(dtype)
        for size in ((batch, rows, width), (batch, keys, width), (batch, keys, results))
    )
    mask = np.where(random.random((rows, keys)) < 0.3, -np.inf, random.standard_normal((rows, keys))).astype(F32)
    mask[:, -1] = 0  # no row without a key; the first tile of one is masked whole
    mask[0, : min(64, keys - 1)] = -np.inf

    def added(number: Scalar, row: Scalar, key: Scalar) -> Scalar:
        offset = row * n + key if keys != 128 else row * keys + key
        return make("element", F32, (offset,), 3)

    what = Attention(
        "attention", batch, m, n, width, results, scale, matrix(dtype, m, width, batch), matrix(dtype, n, width, batch),
        matrix(dtype, n, results, batch), batch * m * results, F32,
        lambda number, row, column: (number * m + row) * results + column,
        ((F32, m * n),) if masked else (), added if masked else None,
    )  # fmt: skip
    result = np.full((batch, rows, results), np.nan, F32)
    arrays = [q, k, v, *([mask] if masked else []), result]
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2) * scale + (mask if masked else 0)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = powers / powers.sum(-1, keepdims=True) @ v.astype(np.float64)
    return [(made(what), arrays)], {"m": rows, "n": keys}, expected


def test_masks_are_read_several_numbers_at_once() -> None:
    """Where rows of a mask are whole vectors: as many as a thread has scores side by side."""
    (((kernel, _),), *_) = attended(attention, *CASES[-1], dtype=F16)
    assert [it.vector for it in walk(kernel.body) if isinstance(it, Load)] == [4] * 4
    (((kernel, _),), *_) = attended(attention, 2, 33, 77, 40, 40, True, 0.3, F16)
    assert not [it for it in walk(kernel.body) if isinstance(it, Load)]


@pytest.mark.parametrize(
    "tiling", [Tiling(4, 2, 48, 2, False), Tiling(12, 1, 64, 1), Tiling(2, 3, 16, 1), Tiling(1, 1, 128, 1, False)], ids=str
)  # fmt: skip
@pytest.mark.parametrize("masked", [False, True])
def test_tilings(tiling: Tiling, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skeleton, "TILINGS", {MOST_WIDTH: tiling})
    test_attention(2, 70, 130, 40, 24, masked, 0.3)
