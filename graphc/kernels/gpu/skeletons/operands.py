"""What a contraction reads, for matrices and for images: where rows begin, as functions of their numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphc.kernels.gpu.tile import Builder, Global, index
from graphc.kernels.scalar import Scalar
from graphc.shapes import Dim

RowPlace = Callable[[Scalar, Scalar, Scalar], Scalar]
"""A value for a batch, a row and a tap, or for a batch, a row and a column."""


@dataclass(frozen=True)
class Rows:
    """An operand: `size` elements; where a row of channels begins, for a batch, a row and a tap; and where there is one: what it
    lacks is 0. Rows begin at multiples of `aligned` elements, a power of two, if `channels` are one of it too. They begin at sums
    of multiples of `steps`, if there are any: when sizes are known, these may turn out to be multiples of more."""

    dtype: np.dtype
    size: Dim
    offset: RowPlace
    where: RowPlace | None = None
    aligned: int = 16
    steps: tuple[Dim, ...] = ()


@dataclass(frozen=True)
class Computed:
    """An operand whose elements are computed when they are read: the types and sizes of the `tensors` that they depend on, and
    what one is, for a batch, a row, a tap and a channel, of elements of the kernel's tensors. `together` neighbours along the
    channels, from multiples of so many, share what is read for them; it divides `channels`."""

    tensors: tuple[tuple[np.dtype, Dim], ...]
    value: Callable[[Scalar, Scalar, Scalar, Scalar], Scalar]
    together: int = 1


@dataclass(frozen=True)
class Products:
    """Products of the rows of two operands, over `taps` and `channels`."""

    a: Rows | Computed
    b: Rows | Computed
    channels: Dim
    taps: int = 1


def tensors_of(k: Builder, name: str, operand: Rows | Computed) -> list[Global]:
    """The tensors of an operand among those of a kernel."""
    if isinstance(operand, Rows):
        return [k.tensor(name, operand.dtype, operand.size)]
    return [k.tensor(f"{name}_{number}", *each) for number, each in enumerate(operand.tensors)]


def matrix(dtype: np.dtype, rows: Dim, columns: Dim, batch: Dim = 1, shared: bool = False) -> Rows:
    """Matrices [batch, rows, columns], or one that all batches read if it is `shared`."""

    def offset(number: Scalar, row: Scalar, tap: Scalar) -> Scalar:
        return row * columns if shared or batch == 1 else (number * rows + row) * columns

    return Rows(dtype, (1 if shared else batch) * rows * columns, offset)


@dataclass(frozen=True)
class Window:
    """A convolution along one axis: `size` elements, of which each result reads `taps`, `dilation` apart, from `stride` times its
    place less `pad`. `scale` is how often each element stands there beside itself: 2 for an image that is enlarged before."""

    size: Dim
    taps: int
    results: Dim
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    scale: int = 1

    def place(self, result: Scalar, tap: Scalar) -> Scalar:
        """The element that a result reads at a tap, as if the axis went on beyond its ends."""
        found = result * self.stride + tap * self.dilation
        return found - self.pad if self.pad else found

    def within(self, place: Scalar) -> Scalar:
        """True for a place that there is."""
        above = place < index(self.size * self.scale)
        return (place >= 0).and_(above) if self.pad else above


def images(dtype: np.dtype, count: Dim, rows: Window, columns: Window, channels: Dim, groups: int = 1) -> Rows:
    """Images [count, rows, columns, groups * channels] as a matrix that has a row for each place of the result, image after
    image; a tap is a place of the kernel, row after row; a batch is a group."""
    width = groups * channels

    def places(row: Scalar, tap: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        down, across = tap // columns.taps, tap % columns.taps
        line, column = row // columns.results, row % columns.results
        return line // rows.results, rows.place(line % rows.results, down), columns.place(column, across)

    def offset(group: Scalar, row: Scalar, tap: Scalar) -> Scalar:
        image, y, x = places(row, tap)
        y, x = (y // rows.scale if rows.scale > 1 else y), (x // columns.scale if columns.scale > 1 else x)
        place = ((image * rows.size + y) * columns.size + x) * width
        return place if groups == 1 else place + group * channels

    def where(group: Scalar, row: Scalar, tap: Scalar) -> Scalar:
        _, y, x = places(row, tap)
        return rows.within(y).and_(columns.within(x))

    return Rows(dtype, count * rows.size * columns.size * width, offset, where)


def kernels(dtype: np.dtype, results: Dim, taps: int, channels: Dim, groups: int = 1) -> Rows:
    """Kernels [groups, results, taps, channels] of a convolution, the channels of each place side by side."""

    def offset(group: Scalar, row: Scalar, tap: Scalar) -> Scalar:
        number = row if groups == 1 else group * results + row
        return (number * taps + tap) * channels

    return Rows(dtype, groups * results * taps * channels, offset)
