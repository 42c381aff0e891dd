"""What tensors of a program are for generated kernels: an element as an expression of its index.

An index has four entries, in ggml's order: the innermost axis first. A `Buffer` is memory, filled by a launch, an input, a
weight or a call that ggml computes; its axes lie in it in an order of its own. An `Array` is what a tensor holds, in memory or
not: views and what is computed element by element take no memory, but are part of the kernel that reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from graphc.ir.types import F32, I64
from graphc.kernels.gpu.tile import index as scalar
from graphc.kernels.nest import walk
from graphc.kernels.scalar import Kernel, Scalar, constant, make, variable
from graphc.shapes import Dim, divisible, lower_bound
from graphc.targets.ggml.program.tensor import Quad, Tensor

Index: TypeAlias = tuple[Scalar, Scalar, Scalar, Scalar]
Order: TypeAlias = tuple[int, int, int, int]

PLAIN: Order = (3, 2, 1, 0)
"""The order in which ggml's axes lie in memory, the outermost first."""

CHANNELS_LAST: Order = (3, 1, 0, 2)
"""The order of images [W, H, C, N] in which the channels of a pixel are neighbours."""

KERNELS_LAST: Order = (3, 1, 0, 2)
"""The order of kernels [KW, KH, C, C_out] in which the channels of a place are neighbours."""

K = Kernel(())
ZERO = constant(0, I64)


@dataclass(eq=False)
class Buffer:
    """Memory: the tensor of the new program that it is, the element type, sizes, and the order of its axes. What is filled by a
    kernel that is not launched yet is no tensor until then (`Generator.later`)."""

    tensor: Tensor
    dtype: np.dtype
    ne: Quad
    order: Order = PLAIN

    def offset(self, at: Index) -> Scalar:
        """The place of an element."""
        found = ZERO
        for axis in self.order:
            found = (
                at[axis]
                if self.ne[axis] == 1 and found is ZERO
                else found * self.ne[axis] + _in(at[axis], self.ne[axis])
            )
        return found

    def element(self, at: Index) -> Scalar:
        """An element."""
        return make("element", self.dtype, (self.offset(at),), self)


@dataclass(frozen=True, eq=False)
class Array:
    """What a tensor holds: its element type, its sizes, and an element for an index. `buffers` are those that it reads, `work`
    counts what is computed for an element, and `buffer` is the memory that it is, if it is all of some. `joined` are an axis and
    the arrays that it is along it, one behind the other. Of `doubled`, each pixel is there twice along each line, and each line
    twice. A kernel that computes it, an element at a time, is `called` so."""

    dtype: np.dtype
    ne: Quad
    element: Callable[[Index], Scalar]
    buffers: tuple[Buffer, ...]
    work: int = 0
    buffer: Buffer | None = None
    joined: tuple[int, tuple[Array, ...]] | None = None
    doubled: Array | None = None
    called: str = "pointwise"

    @staticmethod
    def of(buffer: Buffer) -> Array:
        """All of some memory."""
        return Array(buffer.dtype, buffer.ne, buffer.element, (buffer,), 0, buffer)


def computed(
    ne: Quad, sources: Sequence[Array], element: Callable[[Index], Scalar], work: int = 1, dtype: np.dtype = F32
) -> Array:
    """What is computed, an element at a time, of elements of other arrays."""
    buffers = tuple(dict.fromkeys(buffer for each in sources for buffer in each.buffers))
    return Array(dtype, ne, element, buffers, work + sum(each.work for each in sources))


def viewed(source: Array, ne: Quad, element: Callable[[Index], Scalar]) -> Array:
    """The elements of an array elsewhere."""
    return computed(ne, [source], element, 0, source.dtype)


def reshaped(source: Array, ne: Quad) -> Array:
    """The same elements by other sizes."""
    return source if source.ne == ne else viewed(source, ne, lambda at: source.element(unflat(flat(at, ne), source.ne)))


def variables(ne: Quad) -> Index:
    """An index that runs over an array."""
    found = tuple(ZERO if size == 1 else variable(f"i{axis}", size) for axis, size in enumerate(ne))
    return found[0], found[1], found[2], found[3]


def flat(at: Index, ne: Quad) -> Scalar:
    """The number of an element, in ggml's order."""
    found = ZERO
    for axis in PLAIN:
        found = found * ne[axis] + _in(at[axis], ne[axis])
    return found


def unflat(number: Scalar, ne: Quad) -> Index:
    """The index of the element with a number."""
    entries, rest = [], number
    outermost = max((axis for axis in range(4) if ne[axis] != 1), default=0)
    for axis in range(4):
        if ne[axis] == 1:
            entries.append(ZERO)
        elif axis == outermost:
            entries.append(rest)
        else:
            entries.append(rest % ne[axis])
            rest = rest // ne[axis]
    return entries[0], entries[1], entries[2], entries[3]


def repeated(source: Array, at: Index, ne: Quad) -> Scalar:
    """An element of an array that is repeated to other sizes."""
    entries = [
        own if size == target else ZERO if size == 1 else own % size
        for own, size, target in zip(at, source.ne, ne, strict=True)
    ]
    return source.element((entries[0], entries[1], entries[2], entries[3]))


def buffers_of(*values: Scalar) -> list[Buffer]:
    """The buffers that values read, each once."""
    found = (node.data for node in walk(*values) if node.kind == "element")
    return list(dict.fromkeys(each for each in found if isinstance(each, Buffer)))


def shifted(view: Tensor, source: Tensor, offset: Dim) -> tuple[Dim, ...] | None:
    """Where a view begins in what it looks into, along each axis, if it has its strides; None if that cannot be seen."""
    if view.nb != source.nb:
        return None
    starts: list[Dim] = [0, 0, 0, 0]
    rest = offset
    axes = [axis for axis in range(4) if source.ne[axis] != 1]
    if all(isinstance(step, int) for step in (offset, *(source.nb[axis] for axis in axes))):
        for axis in sorted(axes, key=lambda axis: source.nb[axis], reverse=True):
            starts[axis], rest = rest // source.nb[axis], rest % source.nb[axis]
    else:
        axis = next((axis for axis in axes if _begins(view, source, offset, axis)), -1)
        if axis >= 0:
            starts[axis], rest = offset // source.nb[axis], 0
    fits = all(not negative(source.ne[axis] - starts[axis] - view.ne[axis]) for axis in range(4))
    return tuple(starts) if rest == 0 and fits else None


def _begins(view: Tensor, source: Tensor, offset: Dim, axis: int) -> bool:
    """True if a view is proven to begin within one axis."""
    if not divides(source.nb[axis], offset):
        return False
    return not negative(source.ne[axis] - offset // source.nb[axis] - view.ne[axis])


def negative(size: Dim) -> bool:
    """True unless a size is proven to be 0 or more."""
    least = lower_bound(size)
    return least is None or least < 0


def divides(step: Dim, offset: Dim) -> bool:
    """True if a stride is proven to divide an offset."""
    return divisible(offset, step) if isinstance(step, int) else offset % step == 0


def _in(entry: Scalar, size: Dim) -> Scalar:
    return ZERO if size == 1 else entry


def entries(at: Sequence[Dim | Scalar]) -> Index:
    """Four entries as an index."""
    found = [each if isinstance(each, Scalar) else scalar(each) for each in at]
    return found[0], found[1], found[2], found[3]
