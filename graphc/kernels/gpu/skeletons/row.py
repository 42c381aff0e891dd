"""A product with one row: every number of the matrix is used once, so memory alone decides how long it takes.

A warp has a row of the matrix, its lanes neighbours of it. Each adds its products with those of the vector; then lanes are added.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.types import I64
from graphc.kernels.gpu.layout import spread
from graphc.kernels.gpu.skeletons.contraction import Contraction
from graphc.kernels.gpu.skeletons.operands import Computed, RowPlace, Rows, tensors_of
from graphc.kernels.gpu.skeletons.pointwise import largest_width
from graphc.kernels.gpu.skeletons.results import Columns, second_operands, tensors_beside
from graphc.kernels.gpu.tile import BLOCKS, Builder, Global, Place, Tile, TileKernel, index
from graphc.kernels.scalar import Scalar, constant
from graphc.shapes import Dim

ROWS, COLUMNS, VECTOR = 8, 256, 8
"""Rows of the matrix that a block has, of each the columns that it reads at a time, at least, and how many of them a lane has
side by side."""

ZERO = constant(0, I64)


def row_product(what: Contraction, lanes: int = 32, others: Sequence[Contraction] = ()) -> TileKernel:
    """The kernel of a contraction, and others, that have one row, no batches and no taps. Its tensors are those of
    `contraction`."""
    return _RowProduct((what, *others), lanes).kernel()


class _RowProduct:
    def __init__(self, every: Sequence[Contraction], lanes: int) -> None:
        self.what = what = every[0]
        assert (what.rows, what.batch, what.taps) == (1, 1, 1)
        self.columns = max(COLUMNS, VECTOR * lanes)
        self.layout = spread((ROWS, self.columns), VECTOR, ROWS, lanes)
        self.k = k = Builder(what.name, self.layout.threads)
        self.a, self.b, self.beside = tensors_of(k, "a", what.a)[0], second_operands(k, every), tensors_beside(k, every)
        self.result = k.tensor("result", what.result_dtype, what.result_size, written=True)
        self.rows = Columns(k, every, ROWS)

    def kernel(self) -> TileKernel:
        """The kernel."""
        k, what = self.k, self.what
        a, b = k.tile("a_read", self.layout.without(0)), k.tile("b_read", self.layout)
        partial = k.map(k.tile("partial", self.layout), 0.0)
        with k.loop("step", -(-what.channels // self.columns)) as step:
            self.read(a, what.a, self.a, step, ZERO, 1)
            for tensor, (each, first) in zip(self.b, self.rows.of(BLOCKS[0]), strict=True):
                self.read(b, each.b, tensor, step, first, each.columns)
            k.map(partial, partial.value + a.value * b.value)
        total = k.reduce(k.tile("total", self.layout.without(1)), partial, 1, "sum")
        for beside, (each, first) in zip(self.beside, self.rows.of(BLOCKS[0]), strict=True):
            self.write(total, each, first, beside)
        return k.finished(self.rows.count)

    def read(
        self, tile: Tile, operand: Rows | Computed, tensor: Global, step: Scalar, first: Scalar, count: Dim
    ) -> None:  # fmt: skip
        """Read, or compute, a piece of an operand's rows."""
        channels, begin = self.what.channels, step * self.columns

        def line(row: Scalar) -> Scalar:
            return row if first is ZERO else first + row

        def where(row: Scalar, column: Scalar) -> Scalar:
            return (begin + column < index(channels)).and_(line(row) < index(count))

        if isinstance(operand, Rows):
            width = min(largest_width(channels, 16 // operand.dtype.itemsize), operand.aligned)
            offset = operand.offset
            self.k.load(tile, tensor, lambda row, column: offset(ZERO, line(row), ZERO) + begin + column, where, width)
            return
        unit, value = operand.together, operand.value

        def computed(row: Scalar, column: Scalar) -> Scalar:
            """Of a place that there is, whatever the row and the step."""
            units = (step * (self.columns // unit) + column // unit).minimum(index(channels // unit - 1))
            return value(ZERO, line(row).minimum(index(count - 1)), ZERO, units * unit + column % unit)

        self.k.map(tile, computed, where, min(unit, tile.layout.vector()))

    def write(self, total: Tile, what: Contraction, first: Scalar, beside: Sequence[Global]) -> None:
        """Read what is beside, compute the tail, and write it."""
        k = self.k

        def at(offset: RowPlace) -> Place:
            return lambda row, column: offset(ZERO, ZERO, first + row)

        def where(row: Scalar, column: Scalar) -> Scalar:
            return first + row < index(what.columns)

        tiles = [
            k.load(k.tile(f"{each.name}_here", total.layout), tensor, at(each.offset), where)
            for each, tensor in zip(what.beside, beside, strict=True)
        ]
        k.map(total, what.tail(total.value, *(tile.value for tile in tiles)))
        k.store(self.result, at(what.result_offset), total, where)
