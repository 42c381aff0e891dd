"""Weights in blocks, read by kernels where they lie: the bits of ggml's own dequantization, products and convolutions of them
interpreted and emulated."""

from __future__ import annotations

import numpy as np
import pytest
from tile_runs import Steps, both_ways, steps_of

from graphc.ggml_types import TYPES, dequantize, quantize
from graphc.ir.types import F16, F32
from graphc.kernels.gpu.evaluate import Evaluation
from graphc.kernels.gpu.schedule import parsed
from graphc.kernels.gpu.skeletons.contraction import Beside, Contraction
from graphc.kernels.gpu.skeletons.operands import Computed, Rows, Window, images, matrix
from graphc.kernels.gpu.skeletons.row import row_product
from graphc.kernels.scalar import Scalar, variable
from graphc.shapes import product as size_of
from graphc.shapes import symbol
from graphc.targets.ggml.generate.arrays import ZERO, Array
from graphc.targets.ggml.generate.blocks import FORMATS, TOGETHER, decoded
from graphc.targets.ggml.generate.generator import numbered
from graphc.targets.ggml.program.tensor import dense

M = symbol("m")


def stored(type: str, shape: tuple[int, ...], seed: int) -> tuple[Array, list[np.ndarray], np.ndarray]:
    """A weight in blocks: the array of its elements, the buffers that it reads, and the numbers that ggml makes of it."""
    raw = quantize(type, np.random.default_rng(seed).standard_normal(shape).astype(F32))
    ne = (*reversed(shape), 1, 1, 1)[:4]
    array = decoded(dense(type, ne, len(shape), weight=0))
    memory = [raw.reshape(-1).view(buffer.dtype) for buffer in array.buffers]
    return array, memory, dequantize(type, raw, int(np.prod(shape))).reshape(shape)


@pytest.mark.parametrize("type", FORMATS)
@pytest.mark.parametrize("damaged", [False, True])
def test_elements_have_the_bits_of_ggml(type: str, damaged: bool) -> None:
    array, memory, expected = stored(type, (3, 512), 0)
    if damaged:
        raw = np.random.default_rng(1).integers(0, 256, memory[0].nbytes, np.uint8)
        memory, expected = [raw.view(each.dtype) for each in memory], dequantize(type, raw, 3 * 512).reshape(3, 512)
    row, column = variable("row", 3), variable("column", 512)
    value = numbered(array.element((column, row, ZERO, ZERO)), array.buffers)
    places = {row: np.arange(3)[:, None], column: np.arange(512)[None, :]}

    def no_tile(tile: object) -> np.ndarray:
        raise AssertionError(tile)

    found = Evaluation(places, {}, no_tile, lambda number, offset, where: memory[number][offset])(value)
    numbers = ~np.isnan(expected)
    assert np.array_equal(np.isnan(found), ~numbers)
    assert np.array_equal(found[numbers].view(np.int32), expected[numbers].view(np.int32))


def operand(array: Array, first: int) -> Computed:
    """A weight [rows, taps, channels] as an operand."""

    def value(batch: Scalar, line: Scalar, tap: Scalar, channel: Scalar) -> Scalar:
        return numbered(array.element((channel, tap, line, ZERO)), array.buffers, first)

    return Computed(tuple((each.dtype, size_of(each.ne)) for each in array.buffers), value, TOGETHER)


def multiplied(type: str, schedule: str, rows: int, columns: int, channels: int) -> tuple[Steps, np.ndarray]:
    """The kernels of a product of so many rows, and what it is."""
    dtype = parsed(schedule).instruction.operand
    array, memory, weight = stored(type, (columns, 1, channels), 1)
    a = np.random.default_rng(2).standard_normal((rows, channels)).astype(dtype)
    bias, result = np.arange(columns, dtype=F32), np.full((rows, columns), np.nan, F32)
    beside = Beside("bias", F32, columns, lambda batch, row, column: column, by_column=True)
    what = Contraction(
        "product", M, columns, channels, matrix(dtype, M, channels), operand(array, 1), F32, M * columns,
        lambda batch, row, column: row * columns + column, beside=(beside,), tail=lambda total, bias: total + bias,
    )  # fmt: skip
    expected = a.astype(np.float64) @ weight.reshape(columns, channels).astype(dtype).astype(np.float64).T + bias
    return steps_of(what, schedule, [a, *memory, bias, result], {"m": rows}), expected


PRODUCTS = [
    ("Q8_0", "m64n64k32 w32x32 s3 z1 m16n8k16_half", 65, 40, 96),
    ("Q8_0", "m64n64k64 w32x32 s2 z1 m16n8k16_half", 3, 64, 32),
    ("Q8_0", "m64n32k64 w16x32 s2 z2 m16n8k16_half", 7, 33, 160),
    ("Q8_0", "m64n64k32 w32x32 s2 z1 fma_4x4", 65, 40, 96),
    ("Q4_0", "m64n32k32 w16x32 s2 z1 fma_4x4", 5, 7, 32),
    ("Q4_K", "m64n64k32 w32x32 s3 z1 m16n8k16_half", 17, 72, 256),
    ("Q4_K", "m128n128k32 w64x32 s3 z1 m16n8k16_half", 129, 130, 256),
    ("Q4_K", "m64n64k32 w32x32 s2 z3 fma_4x4", 5, 72, 512),
    ("Q6_K", "m32n64k16 w16x32 s4 z1 m16n8k16_half", 1, 64, 256),
    ("Q5_1", "m64n64k32 w32x32 s2 z1 fma_4x4", 9, 36, 64),
]


@pytest.mark.parametrize(("type", "schedule", "rows", "columns", "channels"), PRODUCTS)
def test_products(type: str, schedule: str, rows: int, columns: int, channels: int) -> None:
    steps, expected = multiplied(type, schedule, rows, columns, channels)
    interpreted, emulated, counters = both_ways(steps, {"m": rows})
    assert np.abs(interpreted - expected).max() < 2e-6 * np.abs(expected).max()
    assert np.abs(interpreted - emulated).max() < 1e-6 * np.abs(expected).max()
    assert sum(each.conflicts for each in counters) == 0


@pytest.mark.parametrize("type", ["", "Q8_0", "Q4_0", "Q4_K", "Q6_K"])
@pytest.mark.parametrize("columns", [1, 13, 64])
@pytest.mark.parametrize("blocks", [1, 3])
def test_a_single_row(type: str, columns: int, blocks: int) -> None:
    channels = blocks * TYPES[type].elements if type else 20 * blocks
    a = np.random.default_rng(2).standard_normal((1, channels)).astype(F32)
    if type:
        array, memory, weight = stored(type, (columns, 1, channels), 1)
        b: Rows | Computed = operand(array, 1)
    else:
        weight = np.random.default_rng(1).standard_normal((columns, channels)).astype(F16)
        memory, b = [weight], matrix(F16, columns, channels)
    bias, result = np.arange(columns, dtype=F32), np.full((1, columns), np.nan, F32)
    beside = Beside("bias", F32, columns, lambda batch, row, column: column, by_column=True)
    what = Contraction(
        "product", 1, columns, channels, matrix(F32, 1, channels), b, F32, columns, lambda batch, row, column: column,
        beside=(beside,), tail=lambda total, bias: total + bias,
    )  # fmt: skip
    interpreted, emulated, _ = both_ways([(row_product(what), [a, *memory, bias, result])], {})
    expected = a.astype(np.float64) @ weight.reshape(columns, channels).astype(np.float64).T + bias
    limit = 1e-6 * max(np.abs(expected).max(), 1)
    assert np.abs(interpreted - expected).max() < limit
    assert np.abs(interpreted - emulated).max() < limit


@pytest.mark.parametrize("schedule", ["m64n64k32 w32x32 s3 z1 m16n8k16_half", "m64n64k16 w32x32 s2 z2 fma_4x4"])
def test_a_convolution(schedule: str) -> None:
    dtype, channels, results = F32 if "fma" in schedule else F16, 32, 40
    array, memory, weight = stored("Q8_0", (results, 9, channels), 3)
    image = np.random.default_rng(4).standard_normal((2, 5, 6, channels)).astype(dtype)
    symbols = {"n": 2, "h": 5, "w": 6}
    n, h, w = map(symbol, symbols)
    result = np.full((2, 5, 6, results), np.nan, F32)
    rows: Rows = images(dtype, n, Window(h, 3, h, pad=1), Window(w, 3, w, pad=1), channels)
    what = Contraction(
        "convolution", n * h * w, results, channels, rows, operand(array, 1), F32, n * h * w * results,
        lambda batch, row, column: row * results + column, taps=9,
    )  # fmt: skip
    interpreted, emulated, _ = both_ways(steps_of(what, schedule, [image, *memory, result], symbols), symbols)
    padded = np.pad(image.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = np.stack([padded[:, y : y + 5, x : x + 6] for y in range(3) for x in range(3)], -2)
    expected = np.einsum("nhwtc,rtc->nhwr", taps, weight.astype(dtype).astype(np.float64))
    assert np.abs(interpreted - expected).max() < 2e-6 * np.abs(expected).max()
    assert np.abs(interpreted - emulated).max() < 1e-6 * np.abs(expected).max()
