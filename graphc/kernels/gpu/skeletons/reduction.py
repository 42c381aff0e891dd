"""Sums, largest and smallest values along rows: of anything that is a function of the row and the column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from graphc.ir.types import F32
from graphc.kernels.gpu.evaluate import identity
from graphc.kernels.gpu.layout import spread
from graphc.kernels.gpu.tile import BLOCKS, Builder, Shared, Tile, TileKernel, index
from graphc.kernels.scalar import Kernel, Scalar
from graphc.shapes import Dim

ROWS, COLUMNS = 8, 256
"""Of a block, where rows are not long."""

LONG = 4096
"""Columns from which on a row has a block of its own."""


@dataclass(frozen=True)
class Stage:
    """One number for each row: `finish` of the sum, or the like, of a value for the row, a column, and the numbers of the stages
    before."""

    kind: Literal["sum", "max", "min"]
    value: Callable[..., Scalar]
    finish: Callable[[Scalar], Scalar] = lambda total: total


def reduction(
    name: str,
    rows: Dim,
    columns: Dim,
    inputs: Sequence[tuple[np.dtype, Dim]],
    stages: Sequence[Stage],
    lanes: int = 32,
) -> TileKernel:
    """result[stage, row], float32. `inputs` are the types and sizes of the tensors that values read, as elements of those
    numbers; the result comes last. Each lane adds what it reads in order; then lanes and warps are added in pairs."""
    return _Reduction(name, rows, columns, inputs, lanes).kernel(stages)


class _Reduction:
    def __init__(self, name: str, rows: Dim, columns: Dim, inputs: Sequence[tuple[np.dtype, Dim]], lanes: int) -> None:
        self.rows, self.columns = rows, columns
        self.shape = (ROWS, COLUMNS) if isinstance(columns, int) and columns < LONG else (1, ROWS * COLUMNS)
        self.layout = spread(self.shape, 4, 8, lanes)
        self.k = k = Builder(name, self.layout.threads)
        for number, (dtype, size) in enumerate(inputs):
            k.tensor(f"x{number}", dtype, size)
        self.partial = k.tile("partial", self.layout)
        self.first = BLOCKS[0] * self.shape[0]

    def kernel(self, stages: Sequence[Stage]) -> TileKernel:
        """The kernel."""
        k = self.k
        result = k.tensor("result", F32, len(stages) * self.rows, written=True)
        totals: list[Tile] = []
        for number, stage in enumerate(stages):
            totals.append(self.total(number, stage, totals))
            begin = index(number * self.rows)
            k.store(result, lambda row, column, begin=begin: begin + self.first + row, totals[-1], self.within)  # type: ignore[misc]
        return k.finished(-(-self.rows // self.shape[0]))

    def within(self, row: Scalar, column: Scalar) -> Scalar:
        """True for a row that there is."""
        return self.first + row < index(self.rows)

    def total(self, number: int, stage: Stage, before: Sequence[Tile]) -> Tile:
        """One stage: a number for each row of the block."""
        k, partial = self.k, self.partial
        nothing = float(identity(stage.kind, F32))
        k.map(partial, nothing)
        with k.loop(f"step_{number}", -(-self.columns // self.shape[1])) as step:

            def added(row: Scalar, column: Scalar) -> Scalar:
                place = step * self.shape[1] + column
                inside = self.within(row, column).and_(place < index(self.columns))
                value = stage.value(self.first + row, place, *(each.value for each in before))
                read = Kernel.select(Kernel(()), inside, value, nothing)
                if stage.kind == "sum":
                    return partial.value + read
                return partial.value.maximum(read) if stage.kind == "max" else partial.value.minimum(read)

            k.map(partial, added)
        total = k.tile(f"total_{number}", self.layout.without(1))
        k.reduce(total, partial, 1, stage.kind, self.scratch())
        return k.map(total, stage.finish(total.value))

    def scratch(self) -> Shared | None:
        """Shared memory for what warps tell each other, if several hold parts of a row."""
        if not any(axis == 1 and count > 1 for count, axis in self.layout.warps):
            return None
        return self.k.shared[0] if self.k.shared else self.k.array("scratch", F32, (8, 4 * -(-self.shape[0] // 4)))
