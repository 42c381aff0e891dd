"""What a tile kernel costs: counted of its statements for some sizes. `roofline.py` says how long that takes on a device.

A block in the middle of the grid is counted, and stands for all; where blocks take other branches by where they are, as those of
several products in one kernel do, one of each kind is, and the mean of them stands for all.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphc.errors import GraphcError
from graphc.kernels.gpu.evaluate import Evaluation
from graphc.kernels.gpu.layout import Layout
from graphc.kernels.gpu.tile import (
    BLOCKS,
    CHUNK,
    Barrier,
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
    Statement,
    Store,
    Tile,
    TileKernel,
    Wait,
    neighbours,
    place,
    walk,
)
from graphc.kernels.nest import walk as nodes_of
from graphc.kernels.scalar import Scalar
from graphc.shapes import integer

MOST_PLACES = 1 << 21
"""Places of a tile, in all steps of a loop, that are looked at together."""

MOST_REGISTERS = 255
"""Registers of a thread; what it has more lies in memory."""

TF32_PRODUCTS = (1, 2, 6)
"""How long an instruction takes by the parts of its operands, as a multiple of what as many products of float16 take: one product
of TF32 takes twice as long."""

BLOCK_REGISTERS = 1 << 16
"""Of a block: an assembler knows how many threads it has, and gives none so many that it cannot be launched."""

COPY_REGISTERS = 5
"""Of a thread for each copy of a loop's step: where it reads, whether it may, where it writes."""

MOST_COPY_REGISTERS = 60
"""Of a thread for all of them; where there are more copies, it counts again."""

OTHER_REGISTERS = 36
"""Of a thread besides those of tiles and copies: indices, addresses."""

COPY_OPERATIONS = 20
"""That finding the place of a copy, and whether there is something, takes as long as; where copies move 16 bytes they are few."""

WORD = 4
"""Bytes of shared memory that a lane has its turn for, if it wants fewer. Fewer are copied in two steps, through registers."""


@dataclass
class Cost:
    """Of one block: bytes read of each tensor (by its number), and written, operations on tensor cores (those of TF32, which take
    twice as long, count double), there by several warps together, and others, bytes that go to and from shared memory, barriers,
    and how often it waits for memory: a wait that leaves copies under way counts as a part; of the kernel, its blocks, and those
    along each axis of its grid; the `order` of axes, the one along which blocks follow each other first; along which of them
    blocks read different elements of each tensor; the tensors that are `discarded`; what the `last` of several blocks does then,
    of which there are fewer; and the bytes of all that are read and written by 16 at a time."""

    reads: Counter[int] = field(default_factory=Counter)
    writes: Counter[int] = field(default_factory=Counter)
    wide: int = 0
    products: int = 0
    group_products: int = 0
    operations: int = 0
    shared: int = 0
    barriers: int = 0
    waits: float = 0.0
    blocks: int = 0
    grid: tuple[int, ...] = (1, 1, 1)
    order: tuple[int, ...] = (0, 1, 2)
    apart: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    discarded: set[int] = field(default_factory=set)
    last: Cost | None = None

    @property
    def read(self) -> int:
        """Bytes read of all tensors."""
        return sum(self.reads.values())

    @property
    def written(self) -> int:
        """Bytes written to all tensors."""
        return sum(self.writes.values())

    @property
    def arithmetic(self) -> int:
        """Operations of all kinds."""
        return self.products + self.group_products + self.operations

    @property
    def phases(self) -> tuple[Cost, ...]:
        """What all blocks do, and what is done then."""
        return (self,) if self.last is None else (self, self.last)


def cost(kernel: TileKernel, symbols: Mapping[str, int]) -> Cost:
    """What a kernel costs for these sizes. Raises GraphcError if what a block does depends on what it reads."""
    grid = tuple(integer(count, symbols) for count in kernel.grid)
    found = []
    for parts in itertools.product(*_alike(kernel, symbols, grid)):
        one = Cost(blocks=math.prod(end - begin for begin, end in parts), grid=grid)
        one.order = (1, 0, 2) if kernel.across else one.order
        middle = {
            axis: np.asarray(begin + max(end - begin - 1, 0) // 2)
            for axis, (begin, end) in zip(BLOCKS, parts, strict=True)
        }
        _Count(kernel, symbols, one, middle).run(kernel.body)
        found.append(one)
    return found[0] if len(found) == 1 else _mean(found)


def _alike(kernel: TileKernel, symbols: Mapping[str, int], grid: Sequence[int]) -> list[list[tuple[int, int]]]:
    """For each axis of the grid, stretches of blocks that take the same branches, where their place along it alone decides."""
    changes: list[set[int]] = [set() for _ in grid]
    for it in walk(kernel.body):
        for axis, block in enumerate(BLOCKS):
            if isinstance(it, If) and set(it.condition.free) == {block}:
                taken = Evaluation({block: np.arange(grid[axis])}, symbols, _unknown, _unknown_element)(it.condition)
                changes[axis] |= {int(number) + 1 for number in np.flatnonzero(taken[1:] != taken[:-1])}
    return [
        list(itertools.pairwise(sorted({0, count} | changed))) or [(0, 0)]
        for count, changed in zip(grid, changes, strict=True)
    ]


def _mean(costs: Sequence[Cost]) -> Cost:
    """What stands for all blocks, of which some cost the one and some the other."""
    blocks = sum(each.blocks for each in costs)

    def mean(amounts: Iterable[float]) -> float:
        return sum(amount * each.blocks for amount, each in zip(amounts, costs, strict=True)) / blocks

    def counted(counters: Sequence[Counter[int]]) -> Counter[int]:
        return Counter({key: round(mean(each[key] for each in counters)) for key in set().union(*counters)})

    found = Cost(counted([each.reads for each in costs]), counted([each.writes for each in costs]), blocks=blocks)
    for name in ("products", "group_products", "operations", "shared", "barriers", "wide"):
        setattr(found, name, round(mean(getattr(each, name) for each in costs)))
    found.waits, found.grid, found.order = mean(each.waits for each in costs), costs[0].grid, costs[0].order
    for each in costs:
        found.discarded |= each.discarded
        for tensor, axes in each.apart.items():
            found.apart[tensor] |= axes
    then = [each.last for each in costs if each.last is not None]
    found.last = _mean(then) if then else None
    return found


def registers(kernel: TileKernel) -> int:
    """About how many registers a thread needs: its part of the tiles that are there at once, the copies of a loop's step, and
    some for the rest; what the last of several blocks does needs nothing of what was before. An assembler knows better."""
    bodies = [kernel.body, *(it.body for it in walk(kernel.body) if isinstance(it, Last))]
    held = max(_held(body, kernel.threads) for body in bodies) + OTHER_REGISTERS
    return min(held, MOST_REGISTERS, BLOCK_REGISTERS // kernel.threads)


def _held(body: Sequence[Statement], threads: int) -> int:
    """The most registers that some statement of a body needs: a tile is there from the first that names it to the last."""
    named = [_tiles([it]) for it in body]
    ends = {tile: number for number, tiles in enumerate(named) for tile in tiles}
    there, most = set[Tile](), 0
    for number, (it, tiles) in enumerate(zip(body, named, strict=True)):
        there |= tiles
        copies = [each for each in walk(it.body) if isinstance(each, Copy)] if isinstance(it, Loop) else []
        own = COPY_REGISTERS * sum(math.prod(each.target.shape) // each.vector for each in copies) // threads
        held = sum(-(-tile.layout.registers * tile.dtype.itemsize // 4) for tile in there)
        most = max(most, min(own, MOST_COPY_REGISTERS) + held)
        there -= {tile for tile in tiles if ends[tile] == number}
    return most


def _tiles(body: Sequence[Statement]) -> set[Tile]:
    """The tiles of statements, without those that the last of several blocks alone carries out."""
    found = set()
    for it in body:
        found |= _tiles(it.body) if isinstance(it, Loop | If) else set()
        parts = [each.tile if isinstance(each, Part) else each for each in vars(it).values()]
        found |= {each for each in parts if isinstance(each, Tile)}
    return found


@dataclass
class _Count:
    """`steps` is how many steps of loops are counted at once: their indices are arrays with an axis for each such loop."""

    kernel: TileKernel
    symbols: Mapping[str, int]
    found: Cost
    indices: dict[Scalar, np.ndarray]
    steps: int = 1

    def run(self, body: Sequence[Statement]) -> None:
        for it in body:
            match it:
                case Copy():
                    self.copy(it)
                case Load():
                    count = self.elements(it.tile.shape, it.where, it.vector) * holders(it.tile.layout)
                    self.read(it.source, it.offset, count, min(it.vector, it.tile.layout.vector()))
                    self.found.waits += self.steps
                case Store():
                    nbytes = self.elements(it.tile.shape, it.where, it.vector) * it.target.dtype.itemsize
                    self.found.writes[it.target.number] += nbytes
                    self.found.wide += is_wide(it.target, min(it.vector, it.tile.layout.vector())) * nbytes
                case Discard():
                    self.found.discarded.add(it.target.number)
                case Map():
                    self.map(it)
                case Multiply():
                    self.multiply(it)
                case MultiplyShared():
                    self.multiply_shared(it)
                case Get() | Put():
                    layout = it.tile.layout  # what lanes of a warp read of one place, they read together
                    warps = layout.threads // layout.lanes
                    self.found.shared += warps * math.prod(layout.warp_shape) * it.tile.dtype.itemsize * self.steps
                case Barrier():
                    self.found.barriers += self.steps
                case Wait(pending, "copies"):
                    self.found.waits += self.steps / (pending + 1)
                case If():
                    if it.tile is not None or self.value(it.condition):
                        self.run(it.body)
                case Last():
                    self.last(it)
                case Loop():
                    self.loop(it)

    def last(self, it: Last) -> None:
        """Count what the last of several blocks does; it sets the counter back, and all wait for it."""
        self.found.barriers += 2
        self.found.waits += 1
        self.found.last = last = Cost(blocks=self.found.blocks // it.count)
        last.writes[it.counters.number] += it.counters.dtype.itemsize
        _Count(self.kernel, self.symbols, last, self.indices).run(it.body)

    def copy(self, it: Copy) -> None:
        """Count a copy to shared memory."""
        item, size = it.target.dtype.itemsize, math.prod(it.target.shape) * self.steps
        width = min(it.vector, CHUNK // item)
        shared, operations = copied(size * item, width * item)
        self.found.shared += shared
        self.found.operations += operations
        self.read(it.source, it.offset, self.elements(it.target.shape, it.where, it.vector), width)

    def read(self, source: Global, offset: Scalar, elements: int, width: int = 1) -> None:
        nbytes = elements * source.dtype.itemsize
        self.found.reads[source.number] += nbytes
        self.found.wide += is_wide(source, width) * nbytes
        self.found.apart[source.number] |= {axis for axis, block in enumerate(BLOCKS) if block in offset.free}

    def loop(self, it: Loop) -> None:
        """Count the steps of a loop together, as many as fit and take the same branches. What is read in the
        steps of one that is written out, with no barrier between, is waited for once."""
        together = MOST_PLACES // (_largest(it) * self.steps)
        axes, before = max(2, *map(np.ndim, self.indices.values())), self.found.waits
        for first, steps in self.parts(it, max(together, 1)):
            index = np.arange(first, first + steps).reshape(-1, *[1] * axes) if steps > 1 else np.asarray(first)
            indices = {**self.indices, it.index: index}
            _Count(self.kernel, self.symbols, self.found, indices, self.steps * steps).run(it.body)
        if it.unrolled and not any(isinstance(each, Barrier) for each in walk(it.body)):
            self.found.waits = before + (self.found.waits - before) / integer(it.count, self.symbols)

    def parts(self, it: Loop, most: int) -> Iterator[tuple[int, int]]:
        """Steps in parts that take the same branches: the first of each part, and how many."""
        count, changes = integer(it.count, self.symbols), set[int]()
        for each in walk(it.body):
            if isinstance(each, If) and each.tile is None and it.index in each.condition.free:
                steps = {key: value.flat[:1] for key, value in self.indices.items()} | {it.index: np.arange(count)}
                taken = Evaluation(steps, self.symbols, _unknown, _unknown_element)(each.condition)
                changes |= {int(step) + 1 for step in np.flatnonzero(taken[1:] != taken[:-1])}
        for begin, end in itertools.pairwise(sorted({0, count} | changes)):
            yield from ((first, min(most, end - first)) for first in range(begin, end, most))

    def map(self, it: Map) -> None:
        """Operations, and elements that are read one by one."""
        size = it.tile.shape[0] * it.tile.shape[1] * holders(it.tile.layout) * self.steps // it.vector
        nodes = nodes_of(*([it.value] if it.vector == 1 else neighbours(it)[1]))
        self.found.operations += size * sum(
            node.kind in ("operate", "apply") and node.dtype.kind == "f" for node in nodes
        )
        elements = [node for node in nodes if node.kind == "element"]
        for node in elements:
            assert isinstance(node.data, int)
            self.read(self.kernel.tensors[node.data], node.args[0], size)
        self.found.waits += self.steps * bool(elements)

    def multiply(self, it: Multiply) -> None:
        amount = 2 * it.a.shape[0] * it.b.shape[0] * it.a.shape[1] * self.steps
        if it.instruction.function:
            self.found.products += amount * TF32_PRODUCTS[it.instruction.parts]
        else:
            self.found.operations += amount

    def multiply_shared(self, it: MultiplyShared) -> None:
        """Each group of warps reads its rows of the one operand, unless they are in registers, and all of the other."""
        rows, columns = it.total.shape
        self.found.group_products += 2 * rows * columns * it.depth * self.steps
        groups = rows // (it.instruction.m * it.instruction.together)
        own = 0 if isinstance(it.a, Tile) else rows
        self.found.shared += (own + groups * columns) * it.depth * it.b.dtype.itemsize * self.steps

    def elements(self, shape: tuple[int, int], where: Scalar | None, vector: int) -> int:
        """How many elements of a tile are read or written in all steps. Of a vector, the first is looked at."""
        if where is None:
            return shape[0] * shape[1] * self.steps
        row, column = place(shape)
        width = vector if shape[1] % vector == 0 else 1
        places = {row: np.arange(shape[0])[:, None], column: np.arange(0, shape[1], width)[None, :]}
        found = Evaluation(self.indices | places, self.symbols, _unknown, _unknown_element)(where)
        within = np.broadcast_shapes(np.shape(found), (shape[0], shape[1] // width))
        there = int(np.count_nonzero(np.broadcast_to(found, within)))
        return there * width * (self.steps * shape[0] * shape[1] // width // math.prod(within))

    def value(self, node: Scalar) -> int:
        """What a value is, in all steps that are counted together."""
        return int(Evaluation(self.indices, self.symbols, _unknown, _unknown_element)(node).flat[0])


def _largest(loop: Loop) -> int:
    """The places of the largest tile that a loop reads or writes."""
    shapes = [each.target.shape if isinstance(each, Copy) else each.tile.shape
              for each in walk(loop.body) if isinstance(each, Copy | Load | Store)]  # fmt: skip
    return max((math.prod(shape) for shape in shapes), default=1)


def copied(nbytes: int, once: int) -> tuple[int, int]:
    """What copying bytes to shared memory takes, so many at once: bytes of its time, and operations that copies of 16 do not."""
    count = nbytes // once
    return count * (once if once >= WORD else 2 * WORD), COPY_OPERATIONS * (count - nbytes // CHUNK)


def is_wide(tensor: Global, width: int) -> bool:
    """True if so many elements at once are 16 bytes or more."""
    return width * tensor.dtype.itemsize >= CHUNK


def holders(layout: Layout) -> int:
    """How many threads hold, and read, each element."""
    return layout.threads * layout.registers // (layout.shape[0] * layout.shape[1])


def _unknown(tile: object) -> np.ndarray:
    raise GraphcError(f"what {tile} holds decides what is read")


def _unknown_element(number: int, offset: np.ndarray, where: np.ndarray | None) -> np.ndarray:
    raise GraphcError(f"what tensor {number} holds decides what is read")
