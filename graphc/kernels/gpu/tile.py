"""The tile language: what one block of a kernel does, where values are tiles and not numbers.

A `TileKernel` is a straight list of statements, with loops and branches that all threads of the block take together. Three kinds
of memory are named in it: `Global` (a tensor), `Shared` (of the block) and `Tile` (registers, by a `Layout`). What is computed,
read and written is said by `Scalar`s, the language of loop bodies: of the place within the tile (`row` and `column`), of loops'
indices, of the block's number, of sizes, and of elements of tiles. So an operator's `element`, and any tail, is at home here.

Three read a kernel: `interpret.py` says what it computes, `render/` writes it for a device, `analyse.py` counts what it costs.
`verify.py` says whether it is one.

Offsets and sizes count elements. Where `where` is false, nothing is read (what is read is 0) or written. `vector` promises that
so many neighbours along a row have neighbouring offsets, the first a multiple of it, and one `where`; it is 1 where nothing is
known.

Kernels that say the same are equal. What a block has, its tensors, arrays and tiles, is told apart by its names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, Union

import numpy as np

from graphc.ir.types import F32, I64
from graphc.kernels.gpu.instructions import MatrixInstruction
from graphc.kernels.gpu.layout import Layout
from graphc.kernels.nest import Rewrite, name
from graphc.kernels.scalar import Operand, Scalar, constant, make, variable
from graphc.shapes import Dim

U32 = np.dtype("uint32")
"""The type of counters."""

Where: TypeAlias = "Scalar | None"
Place: TypeAlias = Callable[[Scalar, Scalar], Scalar]
"""A value for a row and a column of a tile."""

AXES = ("row", "column")

CHUNK = 16
"""Bytes that an access moves at most, and that swizzles keep together."""

LINE = 128
"""Bytes that caches keep together."""


@dataclass(frozen=True)
class Global:
    """A tensor in the device's memory, `size` elements; its place among the kernel's parameters is `number`."""

    name: str
    dtype: np.dtype
    size: Dim
    number: int
    written: bool = False

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True)
class Swizzle:
    """Where the 16-byte chunks of a row of shared memory lie, so that what is read and written together lies in different banks:
    chunk c of row r at place `c ^ (r >> shift & mask) << up ^ (c >> fold & 1)`; without `fold` the last term is 0."""

    shift: int = 0
    mask: int = 0
    up: int = 0
    fold: int = 0

    def place(self, row: np.ndarray, chunk: np.ndarray) -> np.ndarray:
        """The places of chunks in their rows."""
        found = chunk ^ (row >> self.shift & self.mask) << self.up
        return np.asarray(found ^ (chunk >> self.fold & 1) if self.fold else found)


@dataclass(frozen=True)
class Shared:
    """An array in a block's shared memory: `stages` of it, each of rows and columns; every row is a multiple of 16 bytes.
    `offset` is its place in bytes: arrays whose uses are apart in time may lie in one place."""

    name: str
    dtype: np.dtype
    shape: tuple[int, int]
    stages: int
    swizzle: Swizzle
    offset: int
    padding: int = 0
    """Bytes between a row and the next, a multiple of 16: for rows whose chunks must lie in order."""
    in_panels: bool = False
    """Columns are cut into panels of 128 bytes, as warps that multiply together read them: all rows of one, then the next."""

    @property
    def pitch(self) -> int:
        """Bytes from a row to the next."""
        return LINE if self.in_panels else self.shape[1] * self.dtype.itemsize + self.padding

    @property
    def nbytes(self) -> int:
        """Bytes of all stages."""
        return self.stages * self.shape[0] * (self.shape[1] * self.dtype.itemsize + self.padding)

    @property
    def panel(self) -> tuple[int, int]:
        """Columns of a panel, and bytes from one to the next."""
        return LINE // self.dtype.itemsize, self.shape[0] * LINE

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True)
class Tile:
    """Registers: elements of `dtype`, which threads hold as the layout says. Statements change a tile in place."""

    name: str
    dtype: np.dtype
    layout: Layout
    role: Literal["values", "a", "b", "total"] = "values"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.layout.shape
        return rows, columns

    @property
    def value(self) -> Scalar:
        """Its element at the place that is computed, or the only one along an axis of size 1."""
        return make("tile", self.dtype, (), self)

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True)
class Part:
    """Some repetitions of a tile along an axis, `count` of them, in the registers that the tile has for them, which are
    neighbours; `index` says which, as a number or as that of an unrolled loop."""

    tile: Tile
    index: Scalar
    axis: int = 0
    count: int = 1

    @property
    def layout(self) -> Layout:
        """The layout of the part alone."""
        return self.tile.layout.part(self.axis, self.count)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.layout.shape
        return rows, columns

    @property
    def dtype(self) -> np.dtype:
        """The tile's."""
        return self.tile.dtype


@dataclass(frozen=True)
class Load:
    """Read a tile from global memory; numbers of another type are converted."""

    tile: Tile
    source: Global
    offset: Scalar
    where: Where
    vector: int


@dataclass(frozen=True)
class Store:
    """Write a tile to global memory; numbers of another type are converted."""

    target: Global
    offset: Scalar
    where: Where
    vector: int
    tile: Tile


@dataclass(frozen=True)
class Copy:
    """Begin to copy from global memory to a stage of shared memory. It belongs to the group that the next `Commit` ends, and
    is there, for the thread that began it, after a `Wait` for that group."""

    target: Shared
    stage: Scalar
    source: Global
    offset: Scalar
    where: Where
    vector: int


@dataclass(frozen=True)
class Commit:
    """End a group of copies, or of products that are under way; it may be empty."""

    what: Literal["copies", "products"] = "copies"


@dataclass(frozen=True)
class Wait:
    """Wait until at most `pending` groups of copies, or of products, are under way; `totals` are there then, and used."""

    pending: int
    what: Literal["copies", "products"] = "copies"
    totals: tuple[Tile, ...] = ()


@dataclass(frozen=True)
class Barrier:
    """Wait for all threads of the block, and see what they wrote to shared memory."""


@dataclass(frozen=True)
class Put:
    """Write a tile, or a part of one, to a stage of shared memory, from row 0 and column 0."""

    target: Shared
    stage: Scalar
    tile: Tile | Part


@dataclass(frozen=True)
class Get:
    """Read a tile from a stage of shared memory, from a row and a column of it; where it is `transposed`, of the array with rows
    for columns."""

    tile: Tile
    source: Shared
    stage: Scalar
    row: int
    column: int
    transposed: bool = False


@dataclass(frozen=True)
class Map:
    """Compute every element of a tile; what it reads of other tiles, the same thread must have. Where `where` is false, it is 0,
    though what its value reads must be there too. `vector` neighbours along a row share what they read of tensors: for them
    there is one `where`, and they read no tiles."""

    tile: Tile
    value: Scalar
    where: Where = None
    vector: int = 1


@dataclass(frozen=True)
class Reduce:
    """The sum, largest or smallest of each row (axis 1) or column (axis 0) of a tile, for all threads that had a part of it;
    or of each thread's part alone, if the tile that takes them is laid out so. `scratch` is shared memory for what warps tell
    each other, if several hold parts."""

    tile: Tile
    source: Tile
    axis: int
    kind: Literal["sum", "max", "min"]
    scratch: Shared | None


@dataclass(frozen=True)
class Multiply:
    """total[m, n] += sum over k of a[m, k] * b[n, k], in the order of k as far as the instruction has one."""

    total: Tile
    a: Tile
    b: Tile
    instruction: MatrixInstruction


@dataclass(frozen=True)
class MultiplyShared:
    """Begin total[m, n] += sum over the first `depth` k of a[m, k] * b[n, k], where b is multiplied as it lies in a stage of
    shared memory, and so is a if it is an array. Of an a in registers, b lies with rows for columns: b[k, n]. Where it is
    `fresh`, what the total was is forgotten.

    It belongs to the group that the next `Commit` of products ends; until a `Wait` for that group the total is nobody's, a in
    registers stays as it is, and the stages are read."""

    total: Tile
    a: Shared | Tile
    a_stage: Scalar
    b: Shared
    b_stage: Scalar
    depth: int
    instruction: MatrixInstruction
    fresh: bool = False


@dataclass(frozen=True)
class Loop:
    """Run a body for each value of an index from 0; all threads run it equally often. One that is `unrolled` runs a fixed number
    of times, and is written out by the compiler."""

    index: Scalar
    body: tuple[Statement, ...]
    unrolled: bool = False

    @property
    def count(self) -> Dim:
        """How often it runs."""
        return self.index.data[1]  # type: ignore[index, no-any-return]


@dataclass(frozen=True)
class If:
    """Run a body if a condition holds, which is the same for all threads. Or run it in each warp that holds an element of a tile
    for which it does: such a body changes tiles alone."""

    condition: Scalar
    body: tuple[Statement, ...]
    tile: Tile | None = None


@dataclass(frozen=True)
class Last:
    """Run a body in the last of `count` blocks that come here for one counter, that at an offset of `counters`; it sees what the
    others had written to tensors before they came. The counter is 0 before the first comes, and again when the last has come.
    `scratch` is shared memory by which one thread tells the others."""

    counters: Global
    offset: Scalar
    count: int
    scratch: Shared
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Discard:
    """Forget `count` elements of a tensor, from an offset on, whole lines of caches: nobody reads them before they are written
    again. So what caches hold of them need not go to memory, where a device has a word for that."""

    target: Global
    offset: Scalar
    count: int


Statement: TypeAlias = Union[
    Load, Store, Copy, Commit, Wait, Barrier, Put, Get, Map, Reduce, Multiply, MultiplyShared, Loop, If, Last, Discard
]  # fmt: skip


@dataclass(frozen=True)
class TileKernel:
    """A kernel: its tensors, the shared arrays and tiles of a block, the blocks along x, y and z, and what each does."""

    name: str
    threads: int
    grid: tuple[Dim, Dim, Dim]
    tensors: tuple[Global, ...]
    shared: tuple[Shared, ...]
    tiles: tuple[Tile, ...]
    body: tuple[Statement, ...]
    blocks: int = 1
    """Blocks that a multiprocessor should be able to hold at once."""
    across: bool = False
    """Blocks along y run one behind the other, and those along x when all of these have begun; there is a number of them."""

    @property
    def launched(self) -> tuple[Dim, Dim, Dim]:
        """Blocks as a device numbers them, the first fastest; along the first there may be any number, of others 65,535."""
        x, y, z = self.grid
        return (x * y, 1, z) if self.across else self.grid

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return max((each.offset + each.nbytes for each in self.shared), default=0)


BLOCKS = tuple(variable(f"block_{axis}", 2**31 - 1) for axis in "xyz")
"""The block's number along each axis of the grid."""


@dataclass(eq=False)
class Builder:
    """Writes a kernel, statement by statement."""

    name: str
    threads: int
    tensors: list[Global] = field(default_factory=list)
    shared: list[Shared] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    bodies: list[list[Statement]] = field(default_factory=lambda: [[]])

    def finished(self, *grid: Dim, blocks: int = 1, across: bool = False) -> TileKernel:
        """The kernel, for so many blocks along x, y and z."""
        x, y, z = (*grid, 1, 1)[:3]
        (body,) = self.bodies
        tensors, shared, tiles = tuple(self.tensors), tuple(self.shared), tuple(self.tiles)
        return TileKernel(self.name, self.threads, (x, y, z), tensors, shared, tiles, tuple(body), blocks, across)

    # What there is

    def tensor(self, name: str, dtype: np.dtype, size: Dim, written: bool = False) -> Global:
        """A tensor that the kernel reads, or writes."""
        self.tensors.append(Global(name, dtype, size, len(self.tensors), written))
        return self.tensors[-1]

    def array(
        self, name: str, dtype: np.dtype, shape: tuple[int, int], stages: int = 1, swizzle: Swizzle = Swizzle(),
        instead_of: Sequence[Shared] = (), padding: int = 0, in_panels: bool = False,
    ) -> Shared:  # fmt: skip
        """An array in shared memory, behind those that there are or from where others begin, which are not used any more."""
        ends = [each.offset + each.nbytes for each in self.shared]
        offset = min(each.offset for each in instead_of) if instead_of else max(ends, default=0)
        align = 8 * LINE if in_panels else LINE
        self.shared.append(Shared(name, dtype, shape, stages, swizzle, -(-offset // align) * align, padding, in_panels))
        return self.shared[-1]

    def tile(
        self, name: str, layout: Layout, dtype: np.dtype = F32, role: Literal["values", "a", "b", "total"] = "values"
    ) -> Tile:
        """Registers."""
        self.tiles.append(Tile(name, dtype, layout, role))
        return self.tiles[-1]

    # What happens

    def load(self, tile: Tile, source: Global, offset: Place, where: Place | None = None, vector: int = 1) -> Tile:
        """See `Load`."""
        self._add(Load(tile, source, _at(offset, tile.shape), where and _at(where, tile.shape), vector))
        return tile

    def store(self, target: Global, offset: Place, tile: Tile, where: Place | None = None, vector: int = 1) -> None:
        """See `Store`."""
        self._add(Store(target, _at(offset, tile.shape), where and _at(where, tile.shape), vector, tile))

    def copy(
        self, target: Shared, stage: Operand, source: Global, offset: Place, where: Place | None = None, vector: int = 1
    ) -> None:
        """See `Copy`."""
        place, valid = _at(offset, target.shape), where and _at(where, target.shape)
        self._add(Copy(target, index(stage), source, place, valid, vector))

    def commit(self, what: Literal["copies", "products"] = "copies") -> None:
        """See `Commit`."""
        self._add(Commit(what))

    def wait(self, pending: int, what: Literal["copies", "products"] = "copies", totals: Sequence[Tile] = ()) -> None:
        """See `Wait`."""
        self._add(Wait(pending, what, tuple(totals)))

    def discard(self, target: Global, offset: Scalar, count: int) -> None:
        """See `Discard`."""
        self._add(Discard(target, offset, count))

    def barrier(self) -> None:
        """See `Barrier`."""
        self._add(Barrier())

    def put(self, target: Shared, tile: Tile | Part, stage: Operand = 0) -> None:
        """See `Put`."""
        self._add(Put(target, index(stage), tile))

    def get(
        self, tile: Tile, source: Shared, stage: Operand = 0, row: int = 0, column: int = 0, transposed: bool = False
    ) -> Tile:
        """See `Get`."""
        self._add(Get(tile, source, index(stage), row, column, transposed))
        return tile

    def map(self, tile: Tile, value: Scalar | Place | float, where: Place | None = None, vector: int = 1) -> Tile:
        """See `Map`; a number fills the tile."""
        if not isinstance(value, Scalar):
            value = _at(value, tile.shape) if callable(value) else constant(value, tile.dtype)
        self._add(Map(tile, value, where and _at(where, tile.shape), vector))
        return tile

    def reduce(
        self, tile: Tile, source: Tile, axis: int, kind: Literal["sum", "max", "min"], scratch: Shared | None = None
    ) -> Tile:
        """See `Reduce`."""
        self._add(Reduce(tile, source, axis, kind, scratch))
        return tile

    def multiply(self, total: Tile, a: Tile, b: Tile, instruction: MatrixInstruction) -> None:
        """See `Multiply`."""
        self._add(Multiply(total, a, b, instruction))

    def multiply_shared(
        self, total: Tile, a: Shared | Tile, a_stage: Operand, b: Shared, b_stage: Operand, depth: int,
        instruction: MatrixInstruction, fresh: bool = False,
    ) -> None:  # fmt: skip
        """See `MultiplyShared`."""
        self._add(MultiplyShared(total, a, index(a_stage), b, index(b_stage), depth, instruction, fresh))

    @contextmanager
    def loop(self, name: str, count: Dim, unrolled: bool = False) -> Iterator[Scalar]:
        """The index of a loop, whose body is what is added meanwhile."""
        step = variable(name, count)
        self.bodies.append([])
        yield step
        self._add(Loop(step, tuple(self.bodies.pop(-1)), unrolled))

    @contextmanager
    def when(self, condition: Scalar, tile: Tile | None = None) -> Iterator[None]:
        """What is added meanwhile happens if a condition holds; see `If`."""
        self.bodies.append([])
        yield
        self._add(If(condition, tuple(self.bodies.pop(-1)), tile))

    @contextmanager
    def last(self, counters: Global, offset: Scalar, count: int, scratch: Shared) -> Iterator[None]:
        """What is added meanwhile happens in the last of several blocks; see `Last`."""
        self.bodies.append([])
        yield
        self._add(Last(counters, offset, count, scratch, tuple(self.bodies.pop(-1))))

    def _add(self, statement: Statement) -> None:
        self.bodies[-1].append(statement)


def index(value: Operand) -> Scalar:
    """A size, a number or an index as a Scalar."""
    if isinstance(value, Scalar):
        return value
    return constant(value, I64) if isinstance(value, int) else make("size", I64, (), value)


def read(tensor: Global, offset: Scalar) -> Scalar:
    """An element of a tensor, as a value: for what does not lie in rows."""
    return make("element", tensor.dtype, (offset,), tensor.number)


def place(shape: tuple[int, int]) -> tuple[Scalar, Scalar]:
    """The row and the column within a tile, as indices; 0 along an axis of size 1."""
    row, column = (
        variable(axis, size) if size > 1 else constant(0, I64) for axis, size in zip(AXES, shape, strict=True)
    )
    return row, column


def neighbours(it: Map) -> tuple[Scalar, list[Scalar]]:
    """The values of a `Map` for each of its `vector` neighbours, and last its condition if it has one, as functions of the row
    and of the number of the neighbours' group in it, which comes first."""
    row, column = place(it.tile.shape)
    group = variable("group", it.tile.shape[1] // it.vector) if it.tile.shape[1] > it.vector else constant(0, I64)
    found = []
    for which, value in [(number, it.value) for number in range(it.vector)] + [(0, it.where)] * (it.where is not None):
        assert value is not None
        order = (*sorted(value.free - {row, column}, key=name), row, group)
        found.append(Rewrite({column: group * it.vector + which}, order, ())(value))
    return group, found


def _at(value: Place, shape: tuple[int, int]) -> Scalar:
    return value(*place(shape))


def walk(body: Sequence[Statement]) -> Iterator[Statement]:
    """Every statement, those within others after them."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop | If | Last):
            yield from walk(statement.body)
