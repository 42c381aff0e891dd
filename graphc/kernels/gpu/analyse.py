"""What a tile kernel costs: counted of its statements for some sizes, and how long that takes on a device at least.

A block in the middle of the grid is counted, and stands for all. `estimate` is a roofline: the longest of what products, memory
and the blocks that run at once allow. It orders schedules before anything was measured, and says what limits a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphc.errors import GraphcError
from graphc.ir.types import F16
from graphc.kernels.gpu.devices import Gpu
from graphc.kernels.gpu.evaluate import Evaluation
from graphc.kernels.gpu.layout import Layout
from graphc.kernels.gpu.tile import (
    BLOCKS,
    Barrier,
    Copy,
    If,
    Load,
    Loop,
    Map,
    Multiply,
    Statement,
    Store,
    TileKernel,
    place,
)
from graphc.kernels.nest import walk
from graphc.kernels.scalar import Scalar
from graphc.shapes import integer

LAUNCH_SECONDS = 3e-6
"""What a launch takes at least, in a recorded graph."""


@dataclass
class Cost:
    """Of one block: bytes read and written in the device's memory, operations on tensor cores and others, and barriers; of the
    kernel, its blocks."""

    read: int = 0
    written: int = 0
    products: int = 0
    operations: int = 0
    barriers: int = 0
    blocks: int = 0


@dataclass(frozen=True)
class Estimate:
    """Seconds, at least; what limits them; and blocks that a multiprocessor holds at once."""

    seconds: float
    limit: str
    resident: int


def cost(kernel: TileKernel, symbols: Mapping[str, int]) -> Cost:
    """What a kernel costs for these sizes. Raises GraphcError if what a block does depends on what it reads."""
    grid = [integer(count, symbols) for count in kernel.grid]
    found = Cost(blocks=math.prod(grid))
    middle = {axis: np.asarray(max(count - 1, 0) // 2) for axis, count in zip(BLOCKS, grid, strict=True)}
    _Count(kernel, symbols, found, middle).run(kernel.body)
    return found


def estimate(kernel: TileKernel, symbols: Mapping[str, int], gpu: Gpu, registers: int = 128) -> Estimate:
    """How long a kernel takes on a GPU at least; `registers` are those of a thread."""
    counted = cost(kernel, symbols)
    fitting = [gpu.threads // kernel.threads, gpu.registers // (registers * kernel.threads)]
    if kernel.shared_bytes:
        fitting.append(gpu.shared // (kernel.shared_bytes + 1024) if kernel.shared_bytes <= gpu.block_shared else 0)
    resident = min(fitting)
    if resident == 0:
        return Estimate(math.inf, "its blocks do not fit", 0)
    waves = math.ceil(counted.blocks / gpu.multiprocessors) * gpu.multiprocessors / max(counted.blocks, 1)
    work = counted.products / gpu.half + counted.operations / gpu.single
    limits = {
        "products": counted.blocks * work * waves,
        "memory": counted.blocks * (counted.read + counted.written) / gpu.bandwidth,
    }
    limit = max(limits, key=lambda name: limits[name])
    return Estimate(max(limits[limit], LAUNCH_SECONDS), limit if limits[limit] > LAUNCH_SECONDS else "launch", resident)


@dataclass
class _Count:
    kernel: TileKernel
    symbols: Mapping[str, int]
    found: Cost
    indices: dict[Scalar, np.ndarray] = field(default_factory=dict)

    def run(self, body: Sequence[Statement]) -> None:
        for it in body:
            match it:
                case Copy():
                    self.found.read += self.elements(it.target.shape, it.where) * it.source.dtype.itemsize
                case Load():
                    read = self.elements(it.tile.shape, it.where) * it.source.dtype.itemsize
                    self.found.read += read * holders(it.tile.layout)
                case Store():
                    self.found.written += self.elements(it.tile.shape, it.where) * it.target.dtype.itemsize
                case Map():
                    self.map(it)
                case Multiply():
                    self.multiply(it)
                case Barrier():
                    self.found.barriers += 1
                case If():
                    if self.value(it.condition):
                        self.run(it.body)
                case Loop():
                    for step in range(integer(it.count, self.symbols)):
                        self.indices[it.index] = np.asarray(step)
                        self.run(it.body)
                    self.indices.pop(it.index, None)

    def map(self, it: Map) -> None:
        """Operations, and elements that are read one by one."""
        size = it.tile.shape[0] * it.tile.shape[1] * holders(it.tile.layout)
        nodes = walk(it.value)
        self.found.operations += size * sum(
            node.kind in ("operate", "apply") and node.dtype.kind == "f" for node in nodes
        )
        self.found.read += size * sum(node.dtype.itemsize for node in nodes if node.kind == "element")

    def multiply(self, it: Multiply) -> None:
        amount = 2 * it.a.shape[0] * it.b.shape[0] * it.a.shape[1]
        if it.instruction.operand == F16:
            self.found.products += amount
        else:
            self.found.operations += amount

    def elements(self, shape: tuple[int, int], where: Scalar | None) -> int:
        """How many elements of a tile are read or written."""
        if where is None:
            return shape[0] * shape[1]
        row, column = place(shape)
        places = {row: np.arange(shape[0])[:, None], column: np.arange(shape[1])[None, :]}
        found = Evaluation(self.indices | places, self.symbols, _unknown, _unknown_element)(where)
        return int(np.broadcast_to(found, shape).sum())

    def value(self, node: Scalar) -> int:
        return int(Evaluation(self.indices, self.symbols, _unknown, _unknown_element)(node))


def holders(layout: Layout) -> int:
    """How many threads hold, and read, each element."""
    return layout.threads * layout.registers // (layout.shape[0] * layout.shape[1])


def _unknown(tile: object) -> np.ndarray:
    raise GraphcError(f"what {tile} holds decides what is read")


def _unknown_element(number: int, offset: np.ndarray, where: np.ndarray | None) -> np.ndarray:
    raise GraphcError(f"what tensor {number} holds decides what is read")
