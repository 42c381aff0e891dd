"""What kernels cost, as counted of their statements and by the emulator; and which of several a roofline thinks the fastest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_contraction import drawn, product
from tile_runs import both_ways, steps_of

from graphc.ir.types import F16, F32
from graphc.kernels.gpu.analyse import cost
from graphc.kernels.gpu.devices import GPUS
from graphc.kernels.gpu.roofline import estimate
from graphc.kernels.gpu.schedule import parsed
from graphc.kernels.gpu.skeletons.contraction import Contraction, contraction
from graphc.kernels.gpu.skeletons.operands import matrix
from graphc.kernels.gpu.tile import index
from graphc.shapes import symbol


@pytest.mark.parametrize("schedule", ["m64n64k32 w32x32 s3 z1 m16n8k16_half", "m128n128k32 w64x32 s2 z2 m16n8k16_half"])
def test_what_is_counted_is_what_the_emulator_counts(schedule: str) -> None:
    rows, columns, channels = 256, 128, 192
    a, b = drawn((rows, channels), F16, 0), drawn((columns, channels), F16, 1)
    bias, residual = drawn((columns,), F32, 2), drawn((rows, columns), F16, 3)
    result = np.zeros((rows, columns), F16)
    steps = steps_of(product(columns, channels, F16), schedule, [a, b, bias, residual, result], {"m": rows})
    _, _, counters = both_ways(steps, {"m": rows})
    for (kernel, _), counted in zip(steps, counters, strict=True):
        found = cost(kernel, {"m": rows})
        assert found.blocks == counted.blocks
        assert sum(each.written * each.blocks for each in found.phases) == counted.global_store_bytes
        assert found.products * found.blocks == counted.mma * 2 * 16 * 8 * 16
        assert sum(each.read * each.blocks for each in found.phases) == counted.global_load_bytes
        assert sum(each.wide * each.blocks for each in found.phases) == counted.global_wide_bytes


@pytest.mark.parametrize(("channels", "share"), [(192, 1), (196, 0), (193, 0)])
def test_narrow_copies_count(channels: int, share: int) -> None:
    """Of 8 and of 2 bytes: no longer sum takes as long, for each copy has its place computed."""
    rows, columns, schedule = 256, 128, "m64n64k32 w32x32 s3 z1 m16n8k16_half"
    a, b = drawn((rows, channels), F16, 0), drawn((columns, channels), F16, 1)
    bias, residual = drawn((columns,), F32, 2), drawn((rows, columns), F16, 3)
    result = np.zeros((rows, columns), F16)
    steps = steps_of(product(columns, channels, F16), schedule, [a, b, bias, residual, result], {"m": rows})
    _, _, (counted,) = both_ways(steps, {"m": rows})
    found, longer = (
        cost(contraction(product(columns, size, F16), parsed(schedule)), {"m": rows}) for size in (channels, 256)
    )
    assert found.wide * found.blocks == counted.global_wide_bytes
    assert found.read * found.blocks == counted.global_load_bytes
    assert (found.operations < 1.1 * longer.operations) == (share == 1)
    of_operands = (found.reads[0] + found.reads[1]) * found.blocks
    assert (
        counted.global_wide_bytes
        == (counted.global_load_bytes + counted.global_store_bytes) - (1 - share) * of_operands
    )


@pytest.mark.parametrize("schedule", ["m64n64k32 w32x32 s3 z1 m16n8k16_half", "m64n64k32 w32x32 s2 z2 m16n8k16_half"])
@pytest.mark.parametrize("channels", [128, 72, 77, 5])
def test_sums_of_free_length_are_copied_as_their_length_allows(schedule: str, channels: int) -> None:
    rows, columns, free = 128, 64, symbol("channels")
    a, b = drawn((rows, channels), F16, 0), drawn((columns, channels), F16, 1)
    result, size = np.zeros((rows, columns), F32), {"channels": channels}
    what = Contraction(
        "product", rows, columns, free, matrix(F16, rows, free), matrix(F16, columns, free), F32, rows * columns,
        lambda batch, row, column: row * columns + column,
    )  # fmt: skip
    steps = steps_of(what, schedule, [a, b, result], size)
    interpreted, emulated, (counted,) = both_ways(steps, size)
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(interpreted - expected).max() < 2e-6 * np.abs(expected).max()
    assert np.abs(emulated - expected).max() < 2e-6 * np.abs(expected).max()
    if parsed(schedule).parts == 1:
        assert (counted.wide_share == 1) == (channels % 8 == 0)
        found = cost(steps[0][0], size)
        assert found.wide * found.blocks == counted.global_wide_bytes


def test_each_product_of_several_counts() -> None:
    rows, channels, columns = 256, 192, (128, 64, 320)
    a, bs = drawn((rows, channels), F16, 0), [drawn((each, channels), F16, each) for each in columns]
    result = np.zeros(rows * sum(columns), F16)

    def part(number: int) -> Contraction:
        width, before = columns[number], rows * sum(columns[:number])
        return Contraction(
            "products", rows, width, channels, matrix(F16, rows, channels), matrix(F16, width, channels), F16, result.size,
            lambda batch, row, column: index(before) + row * width + column,
        )  # fmt: skip

    first, *others = map(part, range(len(columns)))
    steps = steps_of(first, "m64n64k32 w32x32 s3 z1 m16n8k16_half", [a, *bs, result], {}, others)
    _, _, (counted,) = both_ways(steps, {})
    found = cost(steps[0][0], {})
    assert found.blocks == counted.blocks
    assert found.written * found.blocks == counted.global_store_bytes
    assert found.read * found.blocks == pytest.approx(counted.global_load_bytes, rel=1e-3)
    weights = [found.reads[number] * found.blocks for number in range(1, 4)]
    assert weights == pytest.approx([rows // 64 * each.nbytes for each in bs], rel=1e-2)


def seconds(schedule: str, rows: int, columns: int, channels: int, gpu: str) -> float:
    kernel = contraction(product(columns, channels, F16), parsed(f"{schedule} m16n8k16_half"))
    return estimate(kernel, {"m": rows}, GPUS[gpu]).seconds


def test_large_tiles_win_where_there_are_many() -> None:
    large, small = (
        seconds(f"{tile} s3 z1", 8192, 8192, 1024, "rtx4090") for tile in ("m128n128k32 w64x32", "m32n32k32 w16x16")
    )
    assert large < small


def test_sums_in_parts_win_where_there_are_few_tiles() -> None:
    whole, parts = (seconds(f"m128n128k32 w64x32 s3 z{count}", 128, 1280, 11520, "rtx3090") for count in (1, 8))
    assert parts < whole


def test_parts_that_the_second_cache_holds_do_not_come_to_memory() -> None:
    rows, columns, channels, count = 128, 1280, 11520, 8
    kernel = contraction(product(columns, channels, F16), parsed(f"m128n128k32 w64x32 s3 z{count} m16n8k16_half"))
    parts, gpu = 4 * count * rows * columns, GPUS["h200"]
    discarding, older, small = (
        estimate(kernel, {"m": rows}, each).nbytes
        for each in (gpu, replace(gpu, architecture="sm_75"), replace(gpu, cache=GPUS["rtx3060"].cache))
    )
    assert discarding < 0.05 * parts + 2 * (columns * channels + rows * channels) + 12 * rows * columns
    assert 0.95 * parts < older - discarding <= parts
    assert small > older + 0.5 * parts


def test_what_does_not_fit_is_never_the_fastest() -> None:
    assert seconds("m256n256k64 w64x64 s4 z1", 4096, 4096, 4096, "rtx3090") == np.inf


def test_what_limits_a_kernel() -> None:
    heavy = contraction(product(4096, 4096, F16), parsed("m128n128k32 w64x32 s3 z1 m16n8k16_half"))
    assert estimate(heavy, {"m": 4096}, GPUS["rtx4090"]).limit == "tensor cores"
    assert estimate(heavy, {"m": 64}, GPUS["h200"]).limit in ("occupancy", "latency")
    light = contraction(product(64, 32, F16), parsed("m64n64k32 w32x32 s3 z1 m16n8k16_half"))
    assert estimate(light, {"m": 64}, GPUS["h200"]).limit in ("launch", "latency")
