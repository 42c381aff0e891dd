"""One element of a result as a function of its index: every operator that has an `element`, and what was fused of several.

The loops are those of a kernel on the CPU (`kernels/nest.py`); a block computes a tile of rows of the innermost. What lies side
by side in memory as it does in the result is read as rows, several elements at a time; everything else one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphc.ir.types import TensorType
from graphc.kernels.gpu.evaluate import COMPUTED
from graphc.kernels.gpu.layout import Layout, spread
from graphc.kernels.gpu.tile import BLOCKS, Builder, Global, Place, Tile, TileKernel, index, place
from graphc.kernels.linear import linear
from graphc.kernels.nest import Nest, Rewrite, extent, walk
from graphc.kernels.nest import name as name_of
from graphc.kernels.scalar import Kernel, Scalar, constant, make
from graphc.shapes import Dim, divisible

THREADS = 128
"""Of a block."""

WIDE, TALL, FLAT = (4, 256), (64, 16), (1, 1024)
"""Rows and columns of a block: where the innermost loop is long, where it is short, and where it is all there is."""

LEAST = 64
"""Columns of a block where a long loop is known to be a multiple of so many, and none of 256."""


def pointwise(
    name: str, loops: Nest, inputs: Sequence[TensorType], dtype: np.dtype, size: Dim, lanes: int = 32
) -> TileKernel:
    """The kernel of a nest of loops; its tensors are the inputs, and the result, `size` elements of `dtype`."""
    return _Pointwise(name, loops, inputs, dtype, size, lanes).kernel


def shape_of(rows: Dim, columns: Dim) -> tuple[int, int]:
    """Rows and columns of a block."""
    if rows == 1:
        return FLAT
    if isinstance(columns, int) and columns <= TALL[1]:
        return TALL
    height, width = WIDE
    fitting = largest_width(columns, width)
    return (height * width // fitting, fitting) if fitting >= LEAST else WIDE


class _Pointwise:
    def __init__(
        self, name: str, loops: Nest, inputs: Sequence[TensorType], dtype: np.dtype, size: Dim, lanes: int
    ) -> None:
        *outer, columns = [1, *map(extent, loops.axes)]
        rows = outer[-1] if outer else 1
        shape = shape_of(rows, columns)
        widest = max(each.itemsize for each in (dtype, *(each.dtype for each in inputs)))
        self.vector = largest_width(columns, min(16 // widest, 8))
        layout = spread(shape, self.vector, THREADS // lanes, lanes)
        self.k = k = Builder(name, layout.threads)
        self.tensors = [k.tensor(f"x{number}", each.dtype, each.size) for number, each in enumerate(inputs)]
        result = k.tensor("result", dtype, size, written=True)
        row, column = place(shape)
        self.places = dict(
            zip(loops.axes[::-1], (BLOCKS[1] * shape[1] + column, BLOCKS[0] * shape[0] + row), strict=False)
        )
        self.order = (*BLOCKS, row, column)
        self.inner = loops.axes[-1] if loops.axes else None
        self.within = (BLOCKS[0] * shape[0] + row < index(rows)).and_(BLOCKS[1] * shape[1] + column < index(columns))
        tiles = self.read_in_rows(loops, layout)
        body = Rewrite({**self.places, **tiles}, self.order, ())(loops.body)
        if any(each.kind in ("element", "require") for each in walk(body)):
            body = Kernel.select(NO_INPUTS, self.within, body, constant(0, body.dtype))
        found = k.map(k.tile("found", layout, COMPUTED.get(dtype, dtype)), body)
        self.store(result, loops.place, found)
        self.kernel = k.finished(-(-rows // shape[0]), -(-columns // shape[1]))

    def placed(self, offset: Scalar) -> Scalar:
        """An offset that the loops have, as one of the tile's place."""
        return Rewrite(self.places, self.order, ())(offset)

    def read_in_rows(self, loops: Nest, layout: Layout) -> dict[Scalar, Scalar]:
        """Load what lies in rows as the result does; the elements of tiles by what they stand for."""
        found: dict[Scalar, Scalar] = {}
        if self.inner is None:
            return found
        for node, condition in read_in_rows(loops.body, self.inner, self.together):
            tensor = self.tensors[node.data]  # type: ignore[call-overload]
            tile = self.k.tile(f"{tensor.name}_{len(found)}", layout, COMPUTED.get(tensor.dtype, tensor.dtype))
            where = self.within if condition is None else self.within.and_(self.placed(condition))
            self.k.load(tile, tensor, always(self.placed(node.args[0])), always(where), self.vector)
            found[node] = make("tile", tensor.dtype, (), tile)
        return found

    def together(self, offset: Scalar) -> int:
        """How many elements are read or written at once from an offset on: as many as the result has side by side, or one."""
        return self.vector if self.inner is not None and in_rows(offset, self.inner, self.vector) else 1

    def store(self, result: Global, offset: Scalar, found: Tile) -> None:
        """Write the result, side by side where it lies so."""
        self.k.store(result, always(self.placed(offset)), found, always(self.within), self.together(offset))


NO_INPUTS = Kernel(())


def in_tiles(
    k: Builder, tensors: Sequence[Global], value: Scalar, column: Scalar, layout: Layout, inside: Scalar,
    width_of: Callable[[Scalar], int], known: dict[Scalar, Scalar] | None = None,
) -> Scalar:  # fmt: skip
    """A value of the place within a tile, whose elements that lie in rows are read into tiles, several at a time: as many as
    `width_of` says of an offset at most. `known` are those that are there already, to which these are added."""
    tiles = {} if known is None else known
    for node, condition in read_in_rows(value, column, width_of):
        if node not in tiles:
            tensor = tensors[node.data]  # type: ignore[call-overload]
            tile = k.tile(f"read_{len(k.tiles)}", layout, COMPUTED.get(tensor.dtype, tensor.dtype))
            where = inside if condition is None else inside.and_(condition)
            k.load(tile, tensor, always(node.args[0]), always(where), width_of(node.args[0]))
            tiles[node] = make("tile", tensor.dtype, (), tile)
    return Rewrite(tiles, tuple(sorted(value.free, key=name_of)), ())(value) if tiles else value


def in_rows(offset: Scalar, column: Scalar, width: int) -> bool:
    """True if what has an offset lies side by side for so many columns side by side, from a multiple of so many on, and begins at
    multiples of so many elements."""
    return _in_groups(offset, column, width) == (1, True)


def _in_groups(value: Scalar, column: Scalar, width: int) -> tuple[int, bool] | None:
    """How much a value grows from each of `width` columns to the next, from a multiple of so many on, and whether it is a
    multiple of so many there; None if it does not grow evenly."""
    form = linear(value)
    grows, aligned = 0, divisible(form.constant, width)
    for atom, factor in form.terms.items():
        own = _atom_in_groups(atom, column, width)
        if own is None or (own[0] and not isinstance(factor, int)):
            return None
        grows += own[0] * factor if isinstance(factor, int) else 0
        aligned = aligned and (own[1] or divisible(factor, width))
    return grows, aligned


def _atom_in_groups(atom: Scalar, column: Scalar, width: int) -> tuple[int, bool] | None:
    if atom is column:
        return 1, True
    if column not in atom.free:
        return 0, False
    if atom.kind != "operate" or atom.data not in ("//", "%"):
        return None
    value, divisor = atom.args
    own, size = _in_groups(value, column, width), linear(divisor)
    if own != (1, True) or size.terms or not divisible(size.constant, width):
        return None
    return (1, True) if atom.data == "%" else (0, False)


def steps_of_rows(offset: Scalar, column: Scalar) -> list[Dim] | None:
    """What the places where rows begin are sums of multiples of, if what has an offset lies side by side for columns side by
    side; else None."""
    form = linear(offset)
    others = {atom: factor for atom, factor in form.terms.items() if atom is not column}
    if form.terms.get(column) != 1 or any(column in atom.free for atom in others):
        return None
    return [*others.values(), form.constant]


def read_in_rows(
    value: Scalar, column: Scalar, width_of: Callable[[Scalar], int]
) -> list[tuple[Scalar, Scalar | None]]:
    """The elements that a value reads side by side for `width_of` their offset columns side by side, and on what condition: None
    if it reads them whatever its conditions are."""
    found: dict[Scalar, Scalar | None] = {node: None for node in always_computed(value) if width_of(node.args[0]) > 1}
    seen = set[Scalar]()

    def visit(node: Scalar, condition: Scalar | None) -> None:
        """What is read on a condition that is the same for all columns that are read at once. What is read on several is left."""
        if node.kind == "select":
            test = node.args[0]
            for here, branch in zip((test, test.not_()), node.args[1:], strict=True):
                chosen = here if condition is None else condition.and_(here)
                for each in always_computed(branch):
                    width = width_of(each.args[0])
                    if width > 1 and each not in seen and alike(chosen, column, width):
                        found.setdefault(each, chosen)
                    seen.add(each)
                visit(branch, chosen)
        elif node.kind not in ("reduce", "element", "require") and node.data not in ("and", "or"):
            for arg in node.args:
                visit(arg, condition)

    visit(value, None)
    return list(found.items())


def widest(offset: Scalar, column: Scalar, most: int) -> int:
    """How many columns, from multiples of so many on, are neighbours at this offset too: a power of two, `most` or less."""
    while most > 1 and not in_rows(offset, column, most):
        most //= 2
    return most


def alike(condition: Scalar, column: Scalar, width: int) -> bool:
    """True if a condition of places is one for so many columns side by side, from a multiple of so many on, as far as its form
    says."""
    if any(each.kind == "element" for each in walk(condition)):
        return False
    if column not in condition.free:
        return True
    if condition.data in ("and", "or", "not"):
        return all(alike(each, column, width) for each in condition.args)
    return condition.data in ("<", ">=") and in_rows(condition.args[0] - condition.args[1], column, width)


def always(value: Scalar) -> Place:
    """A value that is written in terms of the place already."""
    return lambda row, column: value


def always_computed(body: Scalar) -> list[Scalar]:
    """The elements that an expression reads whatever its conditions are, and once for each of its values."""
    found: dict[Scalar, None] = {}
    seen: set[Scalar] = set()

    def visit(node: Scalar) -> None:
        if node in seen:
            return
        seen.add(node)
        if node.kind == "element" and not any(each.kind == "element" for each in walk(*node.args)):
            found[node] = None
        elif node.kind in ("select", "require") or node.data in ("and", "or"):
            visit(node.args[0])
        elif node.kind not in ("reduce", "element"):
            for arg in node.args:
                visit(arg)

    visit(body)
    return list(found)


def largest_width(size: Dim, most: int) -> int:
    """The largest power of two, `most` or less, that divides a size."""
    width = most
    while width > 1 and not divisible(size, width):
        width //= 2
    return width
