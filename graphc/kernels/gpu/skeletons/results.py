"""Which columns of a result a block has, and what is done with sums on their way out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from graphc.kernels.gpu.skeletons.operands import RowPlace, tensors_of
from graphc.kernels.gpu.skeletons.pointwise import largest_width
from graphc.kernels.gpu.tile import Builder, Global, Place, Tile, index
from graphc.kernels.scalar import Scalar

if TYPE_CHECKING:
    from graphc.kernels.gpu.skeletons.contraction import Contraction


def tensors_beside(k: Builder, every: Sequence[Contraction]) -> list[list[Global]]:
    """The tensors beside each contraction among those of a kernel."""
    return [[k.tensor(it.name, it.dtype, it.size) for it in each.beside] for each in every]


def second_operands(k: Builder, every: Sequence[Contraction]) -> list[Global]:
    """The tensors of each contraction's second operand among those of a kernel: the first of each."""
    return [tensors_of(k, "b" if len(every) == 1 else f"b{number}", each.b)[0] for number, each in enumerate(every)]


class Columns:
    """Which of several contractions has a block's columns, if each has so many: `count` blocks along an axis of the grid."""

    def __init__(self, k: Builder, every: Sequence[Contraction], width: int) -> None:
        self.k, self.every, self.width = k, every, width
        self.ends = list(accumulate(-(-each.columns // width) for each in every))
        self.count = self.ends[-1]

    def of(self, block: Scalar) -> Iterator[tuple[Contraction, Scalar]]:
        """Each contraction, and a block's first column. What is added meanwhile happens in the contraction's blocks alone."""
        if len(self.every) == 1:
            yield self.every[0], block * self.width
            return
        for each, begin, end in zip(self.every, (0, *self.ends), self.ends, strict=False):
            with self.k.when((block >= index(begin)).and_(block < index(end))):
                yield each, (block - index(begin)) * self.width


class Out:
    """What is done with sums that lie in rows: the tail, and writing. `row_of` is the row of the result for one of a tile."""

    def __init__(
        self, k: Builder, what: Contraction, batch: Scalar, row_of: Callable[[Scalar], Scalar], first_column: Scalar
    ) -> None:
        self.k, self.what, self.batch, self.row_of, self.first_column = k, what, batch, row_of, first_column

    def within(self, row: Scalar, column: Scalar) -> Scalar:
        """True for a place of the result."""
        return (self.row_of(row) < index(self.what.rows)).and_(self.inside(row, column))

    def inside(self, row: Scalar, column: Scalar) -> Scalar:
        """True for a column of the result."""
        return self.first_column + column < index(self.what.columns)

    def at(self, offset: RowPlace) -> Place:
        """An offset for a place of a tile."""
        return lambda row, column: offset(self.batch, self.row_of(row), self.first_column + column)

    def width(self, dtype: np.dtype) -> int:
        """How many neighbours can be read or written at once."""
        return largest_width(self.what.columns, 16 // dtype.itemsize)

    def write(self, totals: Sequence[Tile], beside: Sequence[Global], result: Global) -> None:
        """Read what is beside, compute the tail in the place of the first sums, and write it."""
        k, what, sums = self.k, self.what, totals[0]
        tiles = []
        for each, tensor in zip(what.beside, beside, strict=True):
            layout = sums.layout.without(0) if each.by_column else sums.layout
            where = self.inside if each.by_column else self.within
            width = min(self.width(each.dtype), each.neighbours)
            tiles.append(k.load(k.tile(f"{each.name}_here", layout), tensor, self.at(each.offset), where, width))
        k.map(sums, what.tail(*(tile.value for tile in (*totals, *tiles))))
        k.store(result, self.at(what.result_offset), sums, self.within, self.width(what.result_dtype))
