"""Checks that a tile kernel is one: what each statement needs of its tiles, arrays and values, and what threads need to see what
others wrote. The interpreter, for which a block is one thread, cannot tell the latter; the emulator does it by running; here it
is decided by what statements say, for some sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphc.errors import GraphcError
from graphc.ir.types import I64
from graphc.kernels.gpu.evaluate import Evaluation
from graphc.kernels.gpu.layout import Layout, register_map
from graphc.kernels.gpu.tile import (
    BLOCKS,
    LINE,
    U32,
    Barrier,
    Commit,
    Copy,
    Discard,
    Get,
    Global,
    If,
    Last,
    Load,
    Loop,
    Map,
    Multiply,
    MultiplyShared,
    Part,
    Put,
    Reduce,
    Shared,
    Statement,
    Store,
    Swizzle,
    Tile,
    TileKernel,
    Wait,
    place,
)
from graphc.kernels.gpu.tile import walk as walk_statements
from graphc.kernels.nest import name
from graphc.kernels.nest import walk as walk_value
from graphc.kernels.scalar import Scalar, constant
from graphc.shapes import integer


class TileError(GraphcError):
    """A tile kernel that is none."""


def verify(kernel: TileKernel) -> None:
    """Raise TileError unless every statement fits what it names."""
    check = _Check(kernel)
    check.names()
    check.body(kernel.body, frozenset(BLOCKS))


class _Check:
    def __init__(self, kernel: TileKernel) -> None:
        self.kernel = kernel
        self.exchanged: frozenset[Global] = frozenset()
        """Tensors that other blocks wrote, and that are read here."""

    def need(self, condition: bool, what: str) -> None:
        if not condition:
            raise TileError(f"{self.kernel.name}: {what}")

    def names(self) -> None:
        """No two things have one name, and layouts are those of the kernel's threads."""
        kernel = self.kernel
        every = [
            *(each.name for each in kernel.tensors),
            *(each.name for each in kernel.shared),
            *(each.name for each in kernel.tiles),
        ]
        self.need(len(set(every)) == len(every), f"two things are called the same: {', '.join(sorted(every))}")
        for tile in kernel.tiles:
            self.need(tile.layout.threads == kernel.threads, f"{tile.name} is not for {kernel.threads} threads")
        for shared in kernel.shared:
            self.need(
                shared.pitch % 16 == 0 and shared.offset % 16 == 0,
                f"rows of {shared.name} are no multiples of 16 bytes",
            )

    def body(self, body: Sequence[Statement], known: frozenset[Scalar]) -> None:
        """Statements where these indices have values."""
        for statement in body:
            self.values(statement, known)
            getattr(self, f"_{type(statement).__name__.lower()}", lambda it: None)(statement)
            if isinstance(statement, Loop):
                self.body(statement.body, known | {statement.index})
            if isinstance(statement, If):
                self.body(statement.body, known)
            if isinstance(statement, Last):
                here = {each.target for each in walk_statements(statement.body) if isinstance(each, Store)}
                written = frozenset(each for each in self.kernel.tensors if each.written)
                self.exchanged = written - here - {statement.counters}
                self.body(statement.body, known)
                self.exchanged = frozenset()

    def values(self, statement: Statement, known: frozenset[Scalar]) -> None:
        """Values depend on what is known there: indices, the place within the tile, and tiles of the kernel."""
        shape = _shape(statement)
        places = {each for each in place(shape) if each.kind == "variable"} if shape else set()
        for given in vars(statement).values():
            value = given.index if isinstance(given, Part) else given
            if isinstance(value, Scalar) and not isinstance(statement, Loop):
                unknown = sorted(name(each) for each in value.free - known - places)
                self.need(not unknown, f"{type(statement).__name__} depends on {', '.join(unknown)}")
                for node in walk_value(value):
                    if node.kind == "tile":
                        self.need(node.data in self.kernel.tiles, f"{node.data} is no tile of it")

    def inside(self, array: Shared, shape: tuple[int, int], row: int, column: int) -> None:
        fits = row + shape[0] <= array.shape[0] and column + shape[1] <= array.shape[1]
        self.need(fits, f"{shape[0]} x {shape[1]} elements from {row}, {column} do not lie within {array.name}")

    def vector(self, width: int, what: str) -> None:
        self.need(width >= 1 and width & (width - 1) == 0, f"{what} is read or written by {width}")

    def _load(self, it: Load) -> None:
        self.vector(it.vector, it.source.name)
        self.need(not it.source.written or it.source in self.exchanged, f"{it.source.name} is read and written")

    def _store(self, it: Store) -> None:
        self.vector(it.vector, it.target.name)
        self.need(it.target.written, f"{it.target.name} is not to be written")

    def _discard(self, it: Discard) -> None:
        self.need(it.target in self.exchanged, f"{it.target.name} is discarded where others may read it")

    def _copy(self, it: Copy) -> None:
        self.vector(it.vector, it.source.name)
        self.need(it.source.dtype == it.target.dtype, f"a copy does not convert {it.source.dtype} to {it.target.dtype}")

    def _put(self, it: Put) -> None:
        self.inside(it.target, it.tile.shape, 0, 0)

    def _get(self, it: Get) -> None:
        shape = it.tile.shape[::-1] if it.transposed else it.tile.shape
        self.inside(it.source, shape, *((it.column, it.row) if it.transposed else (it.row, it.column)))

    def _map(self, it: Map) -> None:
        self.vector(it.vector, it.tile.name)
        reads = any(node.kind == "tile" for node in walk_value(it.value))
        alone = it.vector == 1 or (not reads and it.tile.layout.vector() % it.vector == 0)
        self.need(alone, f"{it.tile.name} is computed by {it.vector}, which do not lie side by side or read tiles")
        self.held(it.tile, it.value)

    def held(self, tile: Tile, value: Scalar) -> None:
        """For the elements of a tile, a thread has what a value reads of other tiles."""
        for node in walk_value(value):
            if node.kind == "tile" and isinstance(node.data, Tile):
                held = node.data.layout == tile.layout or register_map(node.data.layout, tile.layout) is not None
                self.need(held, f"{tile.name} reads elements of {node.data.name} that other threads hold")

    def _if(self, it: If) -> None:
        if it.tile is None:
            return
        self.held(it.tile, it.condition)
        touched = [it.tile]
        for each in it.body:
            alone = isinstance(each, Map) or (isinstance(each, Reduce) and each.scratch is None)
            self.need(alone, f"{type(each).__name__} is for all warps, and some do it")
            touched += [each.tile] if isinstance(each, Map | Reduce) else []
        for tile in touched:
            apart = all(axis is not None or count == 1 for count, axis in tile.layout.warps)
            self.need(apart, f"{tile.name} is held by several warps, of which some compute")

    def _last(self, it: Last) -> None:
        every = list(walk_statements(self.kernel.body))
        self.need(sum(isinstance(each, Last) for each in every) == 1, "several are the last of blocks")
        self.need(it.counters.written and it.counters.dtype == U32, f"{it.counters.name} are no counters")
        touched = any(it.counters in (getattr(each, "source", None), getattr(each, "target", None)) for each in every)
        self.need(not touched, f"{it.counters.name} are read or written")
        self.need(it.count > 0, f"{it.counters.name} count to {it.count}")

    def _reduce(self, it: Reduce) -> None:
        whole, own = it.source.layout.without(it.axis), it.source.layout.of_threads(it.axis)
        self.need(it.tile.layout in (whole, own), f"{it.tile.name} is not {it.source.name} reduced")
        apart = it.tile.layout != own and any(axis == it.axis and count > 1 for count, axis in it.source.layout.warps)
        self.need(not apart or it.scratch is not None, f"warps share rows of {it.source.name}, and there is no scratch")

    def _multiply(self, it: Multiply) -> None:
        atoms = (it.total.layout.atom, it.a.layout.atom, it.b.layout.atom)
        wanted = (it.instruction.total, it.instruction.a, it.instruction.b)
        self.need(atoms == wanted, f"{it.total.name} is not laid out for {it.instruction.name}")
        sizes = (it.a.shape[0], it.b.shape[0]) == it.total.shape
        self.need(sizes, f"{it.a.name} and {it.b.name} do not multiply to {it.total.name}")

    def _multiplyshared(self, it: MultiplyShared) -> None:
        one, layout, arrays = it.instruction, it.total.layout, [it.b]
        (down, across), below = layout.warps, layout.repeat[0]
        laid_out = layout.atom == one.total and (across[0], below) == (1, 1) and down[0] % one.together == 0
        self.need(laid_out and one.together > 1, f"{it.total.name} is not laid out for {one.name}")
        self.need(it.total.shape[1] in one.widths, f"{one.name} has no {it.total.shape[1]} columns")
        (rows, columns), depth = it.total.shape, it.depth
        if isinstance(it.a, Tile):
            self.need(
                it.a.layout == Layout(one.a, (1, depth // one.k), layout.warps), f"{it.a.name} is not laid out so"
            )
            fits = it.b.shape[0] >= depth and it.b.shape[1] >= columns
        else:
            arrays.append(it.a)
            fits = it.a.shape[0] == rows and it.b.shape[0] == columns and min(it.a.shape[1], it.b.shape[1]) >= depth
        self.need(fits and depth % one.k == 0, f"{it.a.name} and {it.b.name} do not multiply to {it.total.name}")
        for each in arrays:
            lines = each.pitch == LINE and each.swizzle == Swizzle(0, 7) and each.padding == 0
            self.need(lines, f"rows of {each.name} are not as {one.name} reads them")
            begins = each.offset % (8 * LINE) == 0 and each.shape[0] % 8 == 0
            self.need(begins, f"{each.name} does not begin at a multiple of 8 rows of 128 bytes")


def _shape(statement: Statement) -> tuple[int, int] | None:
    """The places for which a statement's values are."""
    if isinstance(statement, Load | Store | Map) or (isinstance(statement, If) and statement.tile is not None):
        return statement.tile.shape  # type: ignore[union-attr]
    return statement.target.shape if isinstance(statement, Copy) else None


@dataclass
class _Stage:
    """What happened to a stage of an array since the last barrier that all threads have passed."""

    written: bool = False
    read: bool = False
    copied: bool = False
    """A copy is on its way, or has come for the threads alone that began it."""


@dataclass(frozen=True)
class _Products:
    """Products that are under way: what they add to and have in registers, and the stages that they read."""

    tiles: frozenset[Tile]
    read: frozenset[tuple[Shared, int]]


@dataclass
class _Order:
    """The order of a block's accesses to shared memory."""

    kernel: TileKernel
    symbols: Mapping[str, int]
    indices: dict[Scalar, np.ndarray] = field(default_factory=dict)
    stages: dict[tuple[Shared, int], _Stage] = field(default_factory=dict)
    open: list[tuple[Shared, int]] = field(default_factory=list)
    groups: list[list[tuple[Shared, int]]] = field(default_factory=list)
    arrived: list[tuple[Shared, int]] = field(default_factory=list)
    multiplying: list[list[_Products]] = field(default_factory=lambda: [[]])
    """Groups of products that are under way, the last of which has no end yet."""

    def fail(self, what: str) -> None:
        raise TileError(f"{self.kernel.name}: {what}")

    def value(self, node: Scalar) -> int:
        return int(Evaluation(self.indices, self.symbols, _no_tile, _no_element)(node))

    def overlapping(self, array: Shared, number: int) -> Iterator[tuple[Shared, int, _Stage]]:
        """The stages that lie where one does."""
        begin, end = _bytes(array, number)
        for other in self.kernel.shared:
            for each in range(other.stages):
                first, last = _bytes(other, each)
                if first < end and begin < last:
                    yield other, each, self.stages.setdefault((other, each), _Stage())

    def read(self, array: Shared, stage: Scalar) -> None:
        number = self.value(stage)
        for other, _, state in self.overlapping(array, number):
            if state.written:
                self.fail(f"{array.name} is read before a barrier after {other.name} was written")
            if state.copied:
                self.fail(f"{array.name} is read before a copy to {other.name} was waited for, and a barrier")
        self.stages[array, number].read = True

    def write(self, array: Shared, stage: Scalar, copied: bool) -> tuple[Shared, int]:
        number = self.value(stage)
        for other, _, state in self.overlapping(array, number):
            if state.read:
                self.fail(f"{array.name} is written before a barrier after {other.name} was read")
            if state.copied or (state.written and other is not array):
                self.fail(f"{array.name} is written while {other.name} is")
        state = self.stages[array, number]
        state.written, state.copied = not copied, copied
        return array, number

    def begin(self, it: MultiplyShared) -> None:
        """Products are under way, which read until they are waited for."""
        tiles, read = {it.total}, set()
        for each, stage in ((it.a, it.a_stage), (it.b, it.b_stage)):
            if isinstance(each, Tile):
                tiles.add(each)
            else:
                self.read(each, stage)
                read.add((each, self.value(stage)))
        self.multiplying[-1].append(_Products(frozenset(tiles), frozenset(read)))

    def under_way(self) -> Iterator[_Products]:
        """The products that nobody has waited for."""
        return itertools.chain.from_iterable(self.multiplying)

    def multiplied(self) -> frozenset[Tile]:
        """The tiles that these have or add to."""
        return frozenset[Tile]().union(*(each.tiles for each in self.under_way()))

    def undisturbed(self, it: Statement) -> None:
        """Nothing but products touches the totals of products that are under way."""
        multiplied = self.multiplied()
        if not multiplied or isinstance(it, MultiplyShared | Loop | If | Last):
            return
        named = [each.tile if isinstance(each, Part) else each for each in vars(it).values()]
        read = walk_value(*(each for each in named if isinstance(each, Scalar)))
        touched = [*named, *(node.data for node in read if node.kind == "tile")]
        for tile in touched:
            if isinstance(tile, Tile) and tile in multiplied:
                self.fail(f"{tile} is touched while it is multiplied, or products are added to it")

    def run(self, body: Sequence[Statement]) -> None:
        for it in body:
            self.undisturbed(it)
            match it:
                case Copy():
                    self.open.append(self.write(it.target, it.stage, True))
                case Commit("products"):
                    self.multiplying.append([])
                case Wait(pending, "products"):
                    while len(self.multiplying) - 1 > pending:
                        self.multiplying.pop(0)
                    if missing := [each for each in it.totals if each in self.multiplied()]:
                        self.fail(f"{missing[0]} is not there when at most {pending} groups of products are under way")
                case MultiplyShared():
                    self.begin(it)
                case Commit():
                    self.groups.append(self.open)
                    self.open = []
                case Wait():
                    while len(self.groups) > it.pending:
                        self.arrived += self.groups.pop(0)
                case Barrier():
                    self.barrier()
                case Put():
                    self.write(it.target, it.stage, False)
                case Get():
                    self.read(it.source, it.stage)
                case Reduce() if it.scratch is not None:
                    self.barrier()
                case If():
                    if it.tile is not None or self.value(it.condition):
                        self.run(it.body)
                case Last():
                    self.barrier()
                    self.write(it.scratch, constant(0, I64), False)
                    self.barrier()
                    self.read(it.scratch, constant(0, I64))
                    self.run(it.body)
                case Loop():
                    for step in range(integer(it.count, self.symbols)):
                        self.indices[it.index] = np.asarray(step)
                        self.run(it.body)
                    self.indices.pop(it.index, None)

    def barrier(self) -> None:
        multiplied = frozenset[tuple[Shared, int]]().union(*(each.read for each in self.under_way()))
        for key, state in self.stages.items():
            state.written, state.read = False, key in multiplied
            if key in self.arrived:
                state.copied = False
        self.arrived = []


def verify_order(kernel: TileKernel, symbols: Mapping[str, int]) -> None:
    """Raise TileError unless threads, for these sizes, read of shared memory what others wrote after a barrier, and what was
    copied there after it was waited for; write after a barrier what others read; and touch what products add to, and what they
    read, after those were waited for."""
    order = _Order(kernel, symbols, {axis: np.asarray(0) for axis in BLOCKS})
    order.run(kernel.body)
    if order.open or order.groups:
        raise TileError(f"{kernel.name}: a copy is never waited for")
    if order.multiplying != [[]]:
        raise TileError(f"{kernel.name}: products are never waited for")


def _bytes(array: Shared, stage: int) -> tuple[int, int]:
    size = array.nbytes // array.stages
    return array.offset + stage * size, array.offset + (stage + 1) * size


def _no_tile(tile: object) -> np.ndarray:
    raise TileError(f"{tile} decides what all threads do")


def _no_element(number: int, offset: np.ndarray, where: np.ndarray | None) -> np.ndarray:
    raise TileError(f"tensor {number} decides what all threads do")
