"""What a tile kernel costs: counted of its statements for some sizes. `roofline.py` says how long that takes on a device.

A block in the middle of the grid is counted, and stands for all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphc.errors import GraphcError
from graphc.kernels.gpu.evaluate import Evaluation
from graphc.kernels.gpu.layout import Layout
from graphc.kernels.gpu.tile import (
    BLOCKS,
    Barrier,
    Copy,
    Get,
    Global,
    If,
    Load,
    Loop,
    Map,
    Multiply,
    Put,
    Statement,
    Store,
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

OTHER_REGISTERS = 32
"""Registers of a thread besides those of tiles: indices, addresses, what is copied."""


@dataclass
class Cost:
    """Of one block: bytes read of each tensor (by its number) and written, operations on tensor cores (those of TF32, which take
    twice as long, count double) and others, bytes that go to and from shared memory, barriers, and how often it waits for memory:
    a wait that leaves copies under way counts as a part; of the kernel, its blocks."""

    reads: Counter[int] = field(default_factory=Counter)
    written: int = 0
    products: int = 0
    operations: int = 0
    shared: int = 0
    barriers: int = 0
    waits: float = 0.0
    blocks: int = 0

    @property
    def read(self) -> int:
        """Bytes read of all tensors."""
        return sum(self.reads.values())


def cost(kernel: TileKernel, symbols: Mapping[str, int]) -> Cost:
    """What a kernel costs for these sizes. Raises GraphcError if what a block does depends on what it reads."""
    grid = [integer(count, symbols) for count in kernel.grid]
    found = Cost(blocks=math.prod(grid))
    middle = {axis: np.asarray(max(count - 1, 0) // 2) for axis, count in zip(BLOCKS, grid, strict=True)}
    _Count(kernel, symbols, found, middle).run(kernel.body)
    return found


def registers(kernel: TileKernel) -> int:
    """About how many registers a thread needs: its part of all tiles, and some for the rest. An assembler knows better."""
    held = sum(-(-tile.layout.registers * tile.dtype.itemsize // 4) for tile in kernel.tiles)
    return min(held + OTHER_REGISTERS, MOST_REGISTERS)


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
                    self.found.shared += math.prod(it.target.shape) * it.target.dtype.itemsize * self.steps
                    self.read(it.source, self.elements(it.target.shape, it.where, it.vector))
                case Load():
                    self.read(it.source, self.elements(it.tile.shape, it.where, it.vector) * holders(it.tile.layout))
                    self.found.waits += self.steps
                case Store():
                    self.found.written += self.elements(it.tile.shape, it.where, it.vector) * it.target.dtype.itemsize
                case Map():
                    self.map(it)
                case Multiply():
                    self.multiply(it)
                case Get() | Put():
                    layout = it.tile.layout  # what lanes of a warp read of one place, they read together
                    warps = layout.threads // layout.lanes
                    self.found.shared += warps * math.prod(layout.warp_shape) * it.tile.dtype.itemsize * self.steps
                case Barrier():
                    self.found.barriers += self.steps
                case Wait():
                    self.found.waits += self.steps / (it.pending + 1)
                case If():
                    if self.value(it.condition):
                        self.run(it.body)
                case Loop():
                    self.loop(it)

    def read(self, source: Global, elements: int) -> None:
        self.found.reads[source.number] += elements * source.dtype.itemsize

    def loop(self, it: Loop) -> None:
        """Count the steps of a loop together, as many as fit; one by one where a branch depends on the step."""
        together = MOST_PLACES // (_largest(it) * self.steps)
        if any(isinstance(each, If) and it.index in each.condition.free for each in walk(it.body)):
            together = 1
        axes = max(2, *map(np.ndim, self.indices.values()))
        for first, steps in _parts(integer(it.count, self.symbols), max(together, 1)):
            index = np.arange(first, first + steps).reshape(-1, *[1] * axes) if steps > 1 else np.asarray(first)
            indices = {**self.indices, it.index: index}
            _Count(self.kernel, self.symbols, self.found, indices, self.steps * steps).run(it.body)

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
            self.found.reads[node.data] += size * node.dtype.itemsize
        self.found.waits += self.steps * bool(elements)

    def multiply(self, it: Multiply) -> None:
        amount = 2 * it.a.shape[0] * it.b.shape[0] * it.a.shape[1] * self.steps
        if it.instruction.function:
            self.found.products += amount * TF32_PRODUCTS[it.instruction.parts]
        else:
            self.found.operations += amount

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
        return int(Evaluation(self.indices, self.symbols, _unknown, _unknown_element)(node))


def _largest(loop: Loop) -> int:
    """The places of the largest tile that a loop reads or writes."""
    shapes = [each.target.shape if isinstance(each, Copy) else each.tile.shape
              for each in walk(loop.body) if isinstance(each, Copy | Load | Store)]  # fmt: skip
    return max((math.prod(shape) for shape in shapes), default=1)


def _parts(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Steps in parts: the first of each part, and how many."""
    return ((first, min(most, count - first)) for first in range(0, count, most))


def holders(layout: Layout) -> int:
    """How many threads hold, and read, each element."""
    return layout.threads * layout.registers // (layout.shape[0] * layout.shape[1])


def _unknown(tile: object) -> np.ndarray:
    raise GraphcError(f"what {tile} holds decides what is read")


def _unknown_element(number: int, offset: np.ndarray, where: np.ndarray | None) -> np.ndarray:
    raise GraphcError(f"what tensor {number} holds decides what is read")
