"""Kernels that are none are refused, and barriers, waits and stages that are missing or wrong are found without running."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from test_contraction import CASES, product

from graphc.ir.types import F16, F32
from graphc.kernels.gpu.layout import spread
from graphc.kernels.gpu.schedule import parsed
from graphc.kernels.gpu.skeletons.contraction import contraction
from graphc.kernels.gpu.skeletons.reduction import Stage, reduction
from graphc.kernels.gpu.tile import (
    Barrier,
    Builder,
    Commit,
    Copy,
    Loop,
    Map,
    MultiplyShared,
    Statement,
    TileKernel,
    Wait,
    index,
)
from graphc.kernels.gpu.verify import TileError, verify, verify_order
from graphc.kernels.scalar import make

SCHEDULE = "m64n64k32 w32x32 s3 z1 m16n8k16_half"


@pytest.mark.parametrize(("schedule", "dtype", "rows", "columns", "channels", "batch"), CASES)
def test_contractions(schedule: str, dtype: np.dtype, rows: int, columns: int, channels: int, batch: int) -> None:
    kernel = contraction(product(columns, channels, dtype, batch), parsed(schedule))
    verify(kernel)
    verify_order(kernel, {"m": rows})


@pytest.mark.parametrize("columns", [300, 5000])
def test_reductions(columns: int) -> None:
    stage = Stage("sum", lambda row, column, *_: make("element", F32, (row * columns + column,), 0))
    kernel = reduction("sums", 9, columns, [(F32, 9 * columns)], [stage, stage])
    verify(kernel)
    verify_order(kernel, {})


def changed(body: tuple[Statement, ...], change: Callable[[Statement], list[Statement]]) -> tuple[Statement, ...]:
    """Statements with others in their places, also within loops."""
    found: list[Statement] = []
    for each in body:
        inner = replace(each, body=changed(each.body, change)) if isinstance(each, Loop) else each
        found += change(inner)
    return tuple(found)


def without(kind: type, number: int) -> Callable[[Statement], list[Statement]]:
    """Leaves out the n-th statement of a kind."""
    seen = iter(range(100))
    return lambda it: [] if isinstance(it, kind) and next(seen) == number else [it]


def later(it: Statement) -> list[Statement]:
    """Waits for one group fewer."""
    return [Wait(it.pending + 1) if isinstance(it, Wait) else it]


def next_stage(it: Statement) -> list[Statement]:
    """Copies to the stage that is read."""
    return [replace(it, stage=(it.stage + 1) % 3) if isinstance(it, Copy) else it]


def kernel_of() -> TileKernel:
    return contraction(product(64, 128, F16), parsed(SCHEDULE))


FAULTS = {
    "no barrier in the loop": without(Barrier, 0),
    "no barrier behind it": without(Barrier, 1),
    "no barrier before a strip is read": without(Barrier, 2),
    "no barrier before the next is written": without(Barrier, 3),
    "no wait": without(Wait, 0),
    "waits too late": later,
    "no commit": without(Commit, 1),
    "the wrong stage": next_stage,
}


TOGETHER_FAULTS = {
    "a stage is overwritten while it is multiplied": without(Wait, 1),
    "sums are read before products are done": without(Wait, 3),
    "no end of products": without(Commit, 2),
    "products of what no barrier was behind": without(Barrier, 0),
    "copies too near": next_stage,
    "sums are touched": lambda it: [it, Map(it.total, it.total.value * 2)] if isinstance(it, MultiplyShared) else [it],
}


@pytest.mark.parametrize("name", TOGETHER_FAULTS)
def test_each_fault_of_warps_that_multiply_together_is_found(name: str) -> None:
    kernel = contraction(product(64, 256, F16), parsed("m64n64k64 w16x64 s4 z1 wgmma_half"))
    verify_order(kernel, {"m": 64})
    wrong = replace(kernel, body=changed(kernel.body, TOGETHER_FAULTS[name]))
    assert wrong.body != kernel.body
    with pytest.raises(TileError):
        verify_order(wrong, {"m": 64})


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found(name: str) -> None:
    kernel = kernel_of()
    wrong = replace(kernel, body=changed(kernel.body, FAULTS[name]))
    assert wrong.body != kernel.body
    with pytest.raises(TileError):
        verify_order(wrong, {"m": 64})


def test_what_is_no_kernel() -> None:
    layout = spread((4, 256), 4, 4)

    def refused(said: str, write: Callable[[Builder], None], threads: int = 128) -> None:
        k = Builder("small", threads)
        write(k)
        with pytest.raises(TileError, match=said):
            verify(k.finished(1))

    def tensors(k: Builder) -> tuple:
        return k.tensor("x", F32, 1024), k.tensor("y", F32, 1024, written=True), k.tile("values", layout)

    def by_three(k: Builder) -> None:
        x, _, values = tensors(k)
        k.load(values, x, lambda row, column: row * 256 + column, vector=3)

    def read_result(k: Builder) -> None:
        _, y, values = tensors(k)
        k.load(values, y, lambda row, column: row * 256 + column)

    def write_input(k: Builder) -> None:
        x, _, values = tensors(k)
        k.store(x, lambda row, column: row * 256 + column, values)

    def discard_result(k: Builder) -> None:
        _, y, _ = tensors(k)
        k.discard(y, index(0), 32)

    def outside(k: Builder) -> None:
        _, _, values = tensors(k)
        k.put(k.array("strip", F32, (2, 256)), values)

    def index_of_no_loop(k: Builder) -> None:
        x, _, values = tensors(k)
        with k.loop("step", 3) as step:
            pass
        k.load(values, x, lambda row, column: row * 256 + column + step)

    def held_by_others(k: Builder) -> None:
        _, _, values = tensors(k)
        other = k.tile("other", spread((4, 256), 1, 4))
        k.map(values, other.value)

    def where_others_do(k: Builder) -> None:
        _, _, values = tensors(k)
        other = k.tile("other", spread((4, 256), 1, 4))
        with k.when(other.value.eq(1.0), values):
            k.map(values, 0.0)

    def all_in_some_warps(k: Builder) -> None:
        _, _, values = tensors(k)
        with k.when(values.value.eq(1.0), values):
            k.barrier()

    def rows_of_several_warps(k: Builder) -> None:
        _, _, values = tensors(k)
        sums = k.tile("sums", values.layout.without(0))
        with k.when(values.value.eq(1.0), values):
            k.map(sums, 0.0)

    def twice(k: Builder) -> None:
        tensors(k)
        k.tile("values", layout)

    def nothing(k: Builder) -> None:
        tensors(k)

    refused("by 3", by_three)
    refused("read and written", read_result)
    refused("not to be written", write_input)
    refused("discarded where others may read it", discard_result)
    refused("do not lie within", outside)
    refused("depends on step", index_of_no_loop)
    refused("other threads hold", held_by_others)
    refused("other threads hold", where_others_do)
    refused("Barrier is for all warps", all_in_some_warps)
    refused("held by several warps", rows_of_several_warps)
    refused("called the same", twice)
    refused("not for 64 threads", nothing, threads=64)
