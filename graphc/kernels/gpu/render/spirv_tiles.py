"""Tiles in SPIR-V: a thread's registers, which are variables of the function, and the places of what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from graphc.ir.types import F16, F32, I64
from graphc.kernels.gpu.layout import Layout, register_map
from graphc.kernels.gpu.render.spirv_memory import Memory
from graphc.kernels.gpu.render.spirv_module import CLASSES, Block, Module, words
from graphc.kernels.gpu.render.spirv_numbers import kind_in_registers
from graphc.kernels.gpu.render.values import Parameters
from graphc.kernels.gpu.tile import Part, Tile, TileKernel, place
from graphc.kernels.scalar import Scalar, constant, variable


class Tiles(Memory):
    """Reads and changes registers in the block at hand, for subgroups of so many lanes."""

    def __init__(self, kernel: TileKernel, module: Module, block: Block, parameters: Parameters, lanes: int) -> None:
        super().__init__(kernel, module, block, parameters)
        self.lanes = lanes
        self.lane, self.warp = variable("lane", lanes), variable("warp", max(kernel.threads // lanes, 1))
        self.declared: list[int] = []
        self.homes: dict[tuple[Tile, int], int] = {}
        self.current: dict[tuple[Tile, int], tuple[Block, int]] = {}
        self.changed: dict[tuple[Tile, int], None] = {}

    # Registers

    def type_of(self, tile: Tile) -> int:
        """The type of a tile's registers: of numbers, or of a matrix that a subgroup holds."""
        if not tile.layout.atom.opaque:
            return self.type(kind_in_registers(tile.dtype))
        rows, columns = tile.layout.atom.shape
        if tile.dtype not in (F16, F32):
            raise self.fault(f"matrices of {tile.dtype} are not among what subgroups hold here")
        element = self.module.real(8 * tile.dtype.itemsize)
        use = {"a": 0, "b": 1, "total": 2, "values": 2}[tile.role]
        return self.module.cooperative(element, *((columns, rows) if use == 1 else (rows, columns)), use)

    def home_of(self, tile: Tile, register: int) -> int:
        """The variable that keeps a register from block to block."""
        key = tile, register
        if key not in self.homes:
            self.homes[key] = self.module.fresh()
            pointer = self.module.pointer("Function", self.type_of(tile))
            self.declared += words("Variable", pointer, self.homes[key], CLASSES["Function"])
        return self.homes[key]

    def held(self, tile: Tile, register: int) -> int:
        """What a register holds. What was read in a branch is not known beside it."""
        key = tile, register
        if key not in self.current or not self.block.is_within(self.current[key][0]):
            assert key not in self.changed
            self.current[key] = self.block, self.block.make("Load", self.type_of(tile), self.home_of(tile, register))
        return self.current[key][1]

    def hold(self, tile: Tile, register: int, value: int) -> None:
        """Change a register."""
        self.current[tile, register] = self.block, value
        self.changed[tile, register] = None

    def settle_registers(self) -> None:
        """Changed registers go to their variables, before the block ends or others begin."""
        for key in self.changed:
            self.block.do("Store", self.home_of(*key), self.current[key][1])
        self.changed.clear()
        self.current.clear()

    # Places

    def thread_place(self, layout: Layout) -> tuple[Scalar, Scalar]:
        """The row and column at which this thread's part of a layout begins."""
        step, inner = list(layout.warp_shape), 1
        found = [bits(self.lane, [at[axis] for at in layout.atom.lanes]) for axis in range(2)]
        for count, axis in reversed(layout.warps):
            if axis is not None and count > 1:
                found[axis] = found[axis] + self.warp // inner % count * step[axis]
                step[axis] *= count
            inner *= count
        return found[0], found[1]

    def bind(self, shape: tuple[int, int], row: Scalar, column: Scalar) -> None:
        """Say which place is at hand."""
        for axis, value in zip(place(shape), (row, column), strict=True):
            if axis.kind == "variable":
                self.bound[axis] = value

    @contextmanager
    def at(self, tile: Tile | Part, register: int) -> Iterator[tuple[Scalar, Scalar]]:
        """The place of a register, bound."""
        row, column = self.thread_place(tile.layout)
        down, along = tile.layout.places()[0, register].tolist()
        row, column = row + down, column + along
        self.bind(tile.shape, row, column)
        yield row, column

    def groups(self, tile: Tile | Part, width: int) -> Iterator[tuple[int, Scalar, Scalar]]:
        """The registers of a tile in steps of so many neighbours, with the place of the first, which is bound."""
        for register in range(0, tile.layout.registers, width):
            with self.at(tile, register) as (row, column):
                yield register, row, column

    def register_of(self, source: Tile, target: Tile) -> tuple[int, ...]:
        """The registers of a tile that hold what belongs to those of another."""
        found = register_map(source.layout, target.layout)
        if found is None:
            raise ValueError(f"{target.name} reads {source.name}, which other threads hold")
        return found


def register_count(layout: Layout) -> int:
    """Registers of a layout, of which a matrix that a subgroup holds is one."""
    return layout.repeat[0] * layout.repeat[1] if layout.atom.opaque else layout.registers


def bits(number: Scalar, amounts: Sequence[int]) -> Scalar:
    """A sum of the bits of a number, each with what it adds."""
    total, bit = constant(0, I64), 0
    while bit < len(amounts):
        unit, count = amounts[bit], 1
        while bit + count < len(amounts) and amounts[bit + count] == unit << count:
            count += 1
        if unit:
            shifted = number >> bit if bit else number
            total = total + (shifted if bit + count == len(amounts) else shifted & ((1 << count) - 1)) * unit
        bit += count
    return total
