"""Attention without its matrix of scores: softmax(q @ k^T * scale + mask) @ v, a tile of keys at a time.

Each warp has 16 rows of queries. For each tile of keys it multiplies, keeps the largest score of a row so far and the sum of the
powers, and scales what it has added up by how much the largest one rose. The powers are the first operand of the second product
in the registers in which the first product left them. Numbers are float16, sums and powers float32.

As in FlashAttention-2 (arXiv 2307.08691).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphc.ir.types import F16, F32, I64
from graphc.kernels.gpu.instructions import INSTRUCTIONS
from graphc.kernels.gpu.skeletons.operands import RowPlace, Rows
from graphc.kernels.gpu.tile import BLOCKS, Builder, Global, Shared, Swizzle, Tile, TileKernel, index
from graphc.kernels.scalar import Kernel, Scalar, constant
from graphc.shapes import Dim

WARPS, KEYS = 4, 64
"""Warps of a block, and keys of a tile, half as many where heads are wider than `WIDE`: the tiles are in shared memory."""

WIDE = 128

MOST_WIDTH = 160
"""What a head has at most: more would not fit into registers."""

INSTRUCTION = INSTRUCTIONS["m16n8k16_half"]
DEPTH = INSTRUCTION.k
K = Kernel(())


@dataclass(frozen=True)
class Attention:
    """result[batch, row], of `result_dtype`, for queries [batch, rows, width], keys [batch, keys, width] and values [batch, keys,
    results], float16. `mask` is added to the scores, for a batch, a row and a key; it reads the tensors `masks`, which are
    numbered from 3."""

    name: str
    batch: Dim
    rows: Dim
    keys: Dim
    width: int
    results: int
    scale: float
    q: Rows
    k: Rows
    v: Rows
    result_size: Dim
    result_dtype: np.dtype
    result_offset: RowPlace
    masks: Sequence[tuple[np.dtype, Dim]] = ()
    mask: Callable[[Scalar, Scalar, Scalar], Scalar] | None = None


def attention(what: Attention) -> TileKernel:
    """The kernel; its tensors are q, k, v, those of the mask, and the result."""
    return _Attention(what).kernel()


class _Attention:
    def __init__(self, what: Attention) -> None:
        self.what = what
        self.tile_keys = KEYS if max(what.width, what.results) <= WIDE else KEYS // 2
        self.k = k = Builder(what.name, WARPS * INSTRUCTION.lanes)
        self.sources = [
            k.tensor(name, F16, each.size) for name, each in zip("qkv", (what.q, what.k, what.v), strict=True)
        ]
        for number, (dtype, size) in enumerate(what.masks):
            k.tensor(f"mask_{number}", dtype, size)
        self.result = k.tensor("result", what.result_dtype, what.result_size, written=True)
        self.rows = WARPS * INSTRUCTION.m
        self.first, self.batch = BLOCKS[0] * self.rows, BLOCKS[2]
        self.q_buffer = self.buffer("q_buffer", self.rows, what.width, 1)
        self.k_buffer = self.buffer("k_buffer", self.tile_keys, what.width, 2)
        self.v_buffer = self.buffer("v_buffer", self.tile_keys, what.results, 2)
        warps = (WARPS, 1)
        self.q_rows = k.tile("q_rows", INSTRUCTION.a_layout(warps, 1), F16, "a")
        self.k_rows = k.tile("k_rows", INSTRUCTION.b_layout(warps, 2), F16, "b")
        self.v_rows = k.tile("v_rows", INSTRUCTION.b_layout(warps, -(-what.results // 8)), F16, "b")
        self.powers = k.tile("powers", INSTRUCTION.a_layout(warps, 1), F16, "a")
        self.scores = [
            k.tile(f"scores_{number}", INSTRUCTION.total_layout(warps, (1, 2)))
            for number in range(self.tile_keys // DEPTH)
        ]
        self.total = k.tile("total", INSTRUCTION.total_layout(warps, (1, -(-what.results // 8))), role="total")
        column = self.total.layout.without(1)
        self.largest, self.sum, self.part, self.rise = (
            k.tile(each, column) for each in ("largest", "sum", "part", "rise")
        )

    def buffer(self, name: str, rows: int, width: int, stages: int) -> Shared:
        """Shared memory for rows, which are multiples of all banks long."""
        return self.k.array(name, F16, (rows, -(-width // 64) * 64), stages, Swizzle(0, 7))

    def kernel(self) -> TileKernel:
        """The kernel."""
        what, k = self.what, self.k
        k.map(self.total, 0.0)
        k.map(self.largest, -math.inf)
        k.map(self.sum, 0.0)
        self.copy(self.q_buffer, constant(0, I64), self.sources[0], what.q, self.first, what.rows, what.width)
        self.copies(constant(0, I64))
        k.commit()
        with k.loop("step", -(-what.keys // self.tile_keys)) as step:
            k.wait(0)
            k.barrier()
            self.copies(step + 1)
            k.commit()
            self.score(step)
            self.add(step)
        k.wait(0)
        k.map(self.total, self.total.value / self.sum.value)
        k.store(
            self.result, lambda row, column: what.result_offset(self.batch, self.first + row, column), self.total,
            lambda row, column: (self.first + row < index(what.rows)).and_(column < index(what.results)),
            2 if what.results % 2 == 0 else 1,
        )  # fmt: skip
        return k.finished(-(-what.rows // self.rows), 1, what.batch)

    def copy(
        self, target: Shared, stage: Scalar, source: Global, rows: Rows, first: Scalar, count: Dim, width: int
    ) -> None:
        """Begin to copy rows; what lies beyond them is 0."""
        aligned = min(rows.aligned, 8, width & -width)

        def offset(row: Scalar, column: Scalar) -> Scalar:
            return rows.offset(self.batch, first + row, constant(0, I64)) + column

        def where(row: Scalar, column: Scalar) -> Scalar:
            return (first + row < index(count)).and_(column < index(width))

        self.k.copy(target, stage, source, offset, where, aligned)

    def copies(self, step: Scalar) -> None:
        """Begin to copy a tile of keys and values."""
        what, stage = self.what, step % 2
        self.copy(self.k_buffer, stage, self.sources[1], what.k, step * self.tile_keys, what.keys, what.width)
        self.copy(self.v_buffer, stage, self.sources[2], what.v, step * self.tile_keys, what.keys, what.results)

    def score(self, step: Scalar) -> None:
        """The scores of a tile of keys, and the largest of each row so far."""
        what, k = self.what, self.k
        for tile in self.scores:
            k.map(tile, 0.0)
        for piece in range(-(-what.width // DEPTH)):
            k.get(self.q_rows, self.q_buffer, column=piece * DEPTH)
            for number, tile in enumerate(self.scores):
                k.get(self.k_rows, self.k_buffer, step % 2, row=number * DEPTH, column=piece * DEPTH)
                k.multiply(tile, self.q_rows, self.k_rows, INSTRUCTION)
        k.map(self.rise, self.largest.value)
        for number, tile in enumerate(self.scores):
            k.map(tile, self.masked(tile, step * self.tile_keys + number * DEPTH))
            k.reduce(self.part, tile, 1, "max")
            k.map(self.largest, self.largest.value.maximum(self.part.value))
        k.map(self.rise, K.call("exp", self.rise.value - self.base()))

    def base(self) -> Scalar:
        """What powers are relative to: the largest score, 0 where all are masked so far."""
        return K.select(self.largest.value.eq(-math.inf), constant(0.0, F32), self.largest.value)

    def masked(self, tile: Tile, first: Scalar) -> Callable[[Scalar, Scalar], Scalar]:
        """Scores with their scale and mask; keys that there are not have none."""
        what = self.what

        def value(row: Scalar, column: Scalar) -> Scalar:
            inside = (first + column < index(what.keys)).and_(self.first + row < index(what.rows))
            score = tile.value * what.scale
            if what.mask is not None:
                score = score + what.mask(self.batch, self.first + row, first + column)
            return K.select(inside, score, -math.inf)

        return value

    def add(self, step: Scalar) -> None:
        """Add the values of a tile of keys, by their powers."""
        k = self.k
        k.map(self.sum, self.sum.value * self.rise.value)
        k.map(self.total, self.total.value * self.rise.value)
        for number, tile in enumerate(self.scores):
            k.map(tile, K.call("exp", tile.value - self.base()))
            k.reduce(self.part, tile, 1, "sum")
            k.map(self.sum, self.sum.value + self.part.value)
            k.map(self.powers, tile.value)
            k.get(self.v_rows, self.v_buffer, step % 2, column=number * DEPTH, transposed=True)
            k.multiply(self.total, self.powers, self.v_rows, INSTRUCTION)
