"""A convolution by hand, in the dialect: right ones and seeded faults are run by several tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphc.kernels.gpu.dialect import divisor
from graphc.kernels.gpu.emulate import Counters, compile_emulated

CONVOLUTION = (Path(__file__).parent / "programs" / "convolution.cu").read_text()
SHARED_BYTES = 3 * 2 * 128 * 64


def convolve(
    text: str, seed: int = 0, sizes: tuple[int, ...] = (1, 11, 13, 32, 136), workers: int = 1
) -> tuple[float, Counters]:
    """The largest error of a convolution's text, as a share of the largest number, and what it cost."""
    n, h, w, c, k = sizes
    draw = np.random.default_rng(0).uniform
    x = draw(-1, 1, (n, h, w, c)).astype(np.float16)
    weight = (draw(-1, 1, (k, 3, 3, c)) / np.sqrt(9 * c)).astype(np.float16)
    bias = draw(-1, 1, k).astype(np.float32)
    y = np.zeros((n, h, w, k), np.float16)
    counters = compile_emulated(text).launch(
        "convolution", (-(-n * h * w // 128), -(-k // 128)), SHARED_BYTES,
        [x, weight, bias, y, n, h, w, c, k, divisor(w), divisor(h), divisor(c // 32)], seed, workers,
    )  # fmt: skip
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [[padded[:, i : i + h, j : j + w] for j in range(3)] for i in range(3)]
    sums = sum(
        shifted[i][j].reshape(-1, c) @ weight[:, i, j].astype(np.float64).T for i in range(3) for j in range(3)
    ).reshape(y.shape)
    right = (sums + bias) / (1 + np.exp(-(sums + bias)))
    with np.errstate(invalid="ignore"):
        error = np.abs(y - right).max() / np.abs(right).max()
    return float(error), counters
