"""Sums, largest and smallest values along rows, of anything that is a function of the row and the column; and rows that are
computed of them, such as normalized ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np

from graphc.ir.types import F32, I64
from graphc.kernels.gpu.evaluate import identity
from graphc.kernels.gpu.layout import spread
from graphc.kernels.gpu.skeletons.pointwise import NO_INPUTS, always, in_tiles, largest_width, widest
from graphc.kernels.gpu.tile import BLOCKS, Builder, Global, Shared, Tile, TileKernel, index, place
from graphc.kernels.scalar import Kernel, Scalar, constant
from graphc.shapes import Dim

ROWS, COLUMNS, WARPS = 8, 256, 8
"""Of a block, where rows are not long."""

NEIGHBOURS = 4
"""Columns that a lane has side by side."""

LONG = 4096
"""Columns from which on a row has a block of its own."""

MOST_HELD = 16
"""Times that a lane has neighbours of a row, for the whole row to be in registers: it is read once then."""

LONG_COLUMNS, MOST_WARPS, MOST_THREADS = 4096, 16, 512
"""Of a block whose rows are certainly long: what it reads at once is what hides how long memory takes."""


@dataclass(frozen=True)
class Stage:
    """One number for each row: `finish` of the sum, or the like, of a value for the row, a column, and the numbers of the stages
    before."""

    kind: Literal["sum", "max", "min"]
    value: Callable[..., Scalar]
    finish: Callable[[Scalar], Scalar] = lambda total: total


@dataclass(frozen=True)
class WrittenRows:
    """A value for the row, the column, and the numbers of all stages, of a type; and where it goes, for the row and the column,
    if rows do not lie one behind the other."""

    dtype: np.dtype
    value: Callable[..., Scalar]
    offset: Callable[[Scalar, Scalar], Scalar] | None = None


def reduction(
    name: str, rows: Dim, columns: Dim, inputs: Sequence[tuple[np.dtype, Dim]], stages: Sequence[Stage],
    written: WrittenRows | None = None, lanes: int = 32, long: bool = False,
) -> TileKernel:  # fmt: skip
    """result[stage, row], float32, or the rows that are `written`. `inputs` are the types and sizes of the tensors that values
    read, as elements of those numbers; the result comes last. Rows whose size is not known are few and `long`, or many. Rows may
    lie `beside` each other, some neighbours of one before some of the next: a warp has several of them then. Each lane adds what
    it reads in order; then lanes and warps are added in pairs."""
    return _Reduction(name, rows, columns, inputs, lanes, long).kernel(stages, written)


class _Reduction:
    def __init__(
        self, name: str, rows: Dim, columns: Dim, inputs: Sequence[tuple[np.dtype, Dim]], lanes: int, long: bool
    ) -> None:  # fmt: skip
        self.rows, self.columns = rows, columns
        short = isinstance(columns, int) and columns < LONG
        warps = min(MOST_WARPS, MOST_THREADS // lanes) if long and not short else WARPS
        self.shape = (ROWS, COLUMNS) if short else (1, LONG_COLUMNS if long else ROWS * COLUMNS)
        once = -(-columns // (NEIGHBOURS * lanes)) if isinstance(columns, int) else 0
        if 0 < once <= MOST_HELD:
            self.shape = ROWS, once * NEIGHBOURS * lanes
        self.layout = spread(self.shape, NEIGHBOURS, warps, lanes)
        self.k = k = Builder(name, self.layout.threads)
        self.tensors = [k.tensor(f"x{number}", dtype, size) for number, (dtype, size) in enumerate(inputs)]
        self.partial = k.tile("partial", self.layout)
        self.held: dict[Scalar, Scalar] = {}
        self.row, self.column = place(self.shape)
        self.line = BLOCKS[0] * self.shape[0] + self.row

    def kernel(self, stages: Sequence[Stage], written: WrittenRows | None) -> TileKernel:
        """The kernel."""
        k, rows = self.k, self.rows
        size = len(stages) * rows if written is None else rows * self.columns
        result = k.tensor("result", F32 if written is None else written.dtype, size, written=True)
        totals: list[Tile] = []
        for number, stage in enumerate(stages):
            totals.append(self.total(number, stage, totals))
        if written is not None:
            self.write(result, written, totals)
        else:
            for number, total in enumerate(totals):
                k.store(result, always(index(number * rows) + self.line), total, always(self.line < index(rows)))
        return k.finished(-(-rows // self.shape[0]))

    @contextmanager
    def columns_of_rows(self, name: str) -> Iterator[tuple[Scalar, Scalar]]:
        """A loop over the columns: those of a tile, and whether a place is one that there is."""
        steps = -(-self.columns // self.shape[1])
        loop = self.k.loop(name, steps) if steps != 1 else nullcontext(constant(0, I64))
        with loop as step:
            here = step * self.shape[1] + self.column
            yield here, (self.line < index(self.rows)).and_(here < index(self.columns))
            if steps != 1:
                self.held.clear()

    def total(self, number: int, stage: Stage, before: Sequence[Tile]) -> Tile:
        """One stage: a number for each row of the block."""
        k, partial = self.k, self.partial
        nothing = float(identity(stage.kind, F32))
        k.map(partial, nothing)
        with self.columns_of_rows(f"step_{number}") as (here, inside):
            value = self.read(stage.value(self.line, here, *(each.value for each in before)), inside)
            found = Kernel.select(NO_INPUTS, inside, value, nothing)
            if stage.kind == "sum":
                k.map(partial, partial.value + found)
            else:
                k.map(partial, partial.value.maximum(found) if stage.kind == "max" else partial.value.minimum(found))
        total = k.tile(f"total_{number}", self.layout.without(1))
        k.reduce(total, partial, 1, stage.kind, self.scratch())
        return k.map(total, stage.finish(total.value))

    def write(self, result: Global, written: WrittenRows, totals: Sequence[Tile]) -> None:
        """Compute the rows and write them."""
        k = self.k
        found = k.tile("found", self.layout)
        with self.columns_of_rows("step_written") as (here, inside):
            value = self.read(written.value(self.line, here, *(each.value for each in totals)), inside)
            k.map(found, Kernel.select(NO_INPUTS, inside, value, 0.0))
            offset = written.offset(self.line, here) if written.offset else self.line * self.columns + here
            k.store(result, always(offset), found, always(inside), self.together(offset))

    def together(self, offset: Scalar) -> int:
        """How many of the columns at hand, from multiples of so many on, are neighbours at this offset too: they are read or
        written at once."""
        return widest(offset, self.column, largest_width(self.columns, NEIGHBOURS))

    def read(self, value: Scalar, inside: Scalar) -> Scalar:
        """A value whose elements that lie in rows are read several at a time, and once for each step of a loop."""
        return in_tiles(self.k, self.tensors, value, self.column, self.layout, inside, self.together, self.held)

    def scratch(self) -> Shared | None:
        """Shared memory for what warps tell each other, if several hold parts of a row."""
        across = max((count for count, axis in self.layout.warps if axis == 1), default=1)
        if across == 1:
            return None
        return self.k.shared[0] if self.k.shared else self.k.array("scratch", F32, (across, 4 * -(-self.shape[0] // 4)))
