"""Weights of a few bits of onnxruntime's own domain, drawn, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from microsoft_nodes import Case, agrees

Draw = Callable[[np.random.Generator], Case]

DRAWS = 8


def floats(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def few_bits(random: np.random.Generator) -> Case:
    bits, block = int(random.choice([2, 4, 8])), int(random.choice([16, 32, 64]))
    rows, columns = int(random.integers(1, 9)), int(random.integers(1, 100))
    blocks = -(-columns // block)
    zeros: np.ndarray | None = None
    if random.random() < 0.7:
        zeros = random.integers(0, 256, (rows, -(-blocks * bits // 8))).astype(np.uint8)
        if bits == 4 and random.random() < 0.5:
            zeros = (random.integers(0, 160, (rows, blocks)) / 10).astype(np.float32)
    inputs = [
        floats(random, 2, 3, columns),
        random.integers(0, 256, (rows, blocks, block * bits // 8)).astype(np.uint8),
        np.abs(floats(random, rows, blocks)),
        zeros,
        None,
        floats(random, rows) if random.random() < 0.5 else None,
    ]
    settings = {"N": rows, "K": columns, "bits": bits, "block_size": block}
    return Case("MatMulNBits", inputs, settings, constants=[i for i in (1, 2, 3) if inputs[i] is not None])


def gathered(random: np.random.Generator) -> Case:
    bits, block = int(random.choice([2, 4, 8])), int(random.choice([16, 32]))
    rows, columns = int(random.integers(1, 9)), int(random.integers(1, 4)) * block
    blocks = columns // block
    zeros = random.integers(0, 256, (rows, -(-blocks * bits // 8))).astype(np.uint8)
    inputs = [
        random.integers(0, 256, (rows, columns * bits // 8)).astype(np.uint8),
        random.integers(0, rows, (2, 3)),
        np.abs(floats(random, rows, blocks)),
        zeros if random.random() < 0.5 else None,
    ]
    settings = {"bits": bits, "block_size": block, "quantize_axis": -1}
    return Case("GatherBlockQuantized", inputs, settings, constants=[i for i in (0, 2, 3) if inputs[i] is not None])


def gathered_narrow(random: np.random.Generator) -> Case:
    dtype, low, high = (ml_dtypes.uint4, 0, 16) if random.random() < 0.5 else (ml_dtypes.int4, -8, 8)
    block, axis = 16, int(random.integers(0, 3))
    blocked = int(random.choice([i for i in range(3) if i != axis]))
    shape = [3, 4, 2]
    shape[blocked] = int(random.integers(1, 40))
    scales = list(shape)
    scales[blocked] = -(-shape[blocked] // block)
    inputs = [
        random.integers(low, high, shape).astype(dtype),
        random.integers(0, shape[axis], int(random.integers(1, 4))).astype(np.int32),
        np.abs(floats(random, *scales)),
        random.integers(low, high, scales).astype(dtype) if random.random() < 0.5 else None,
    ]
    settings = {"block_size": block, "gather_axis": axis, "quantize_axis": blocked}
    return Case("GatherBlockQuantized", inputs, settings, constants=[i for i in (0, 2, 3) if inputs[i] is not None])


def bitsandbytes(random: np.random.Generator) -> Case:
    rows, columns, block = int(random.integers(1, 9)), 16 * int(random.integers(1, 6)), 32
    count = rows * columns
    inputs = [
        floats(random, 2, columns),
        random.integers(0, 256, (count + 1) // 2).astype(np.uint8),
        np.abs(floats(random, -(-count // block))),
    ]
    settings = {"N": rows, "K": columns, "block_size": block, "quant_type": int(random.integers(0, 2))}
    return Case("MatMulBnb4", inputs, settings, constants=(1, 2))


OPERATORS: dict[str, Draw] = {
    "MatMulNBits": few_bits,
    "GatherBlockQuantized": gathered,
    "GatherBlockQuantized of narrow types": gathered_narrow,
    "MatMulBnb4": bitsandbytes,
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_agrees_with_onnxruntime(operator: str) -> None:
    for seed in range(DRAWS):
        agrees(OPERATORS[operator](np.random.default_rng(seed)), compiled=seed == 0)
