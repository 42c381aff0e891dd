"""Writes a tile kernel as SPIR-V for Vulkan 1.3, without any tool.

Tensors are addresses (physical storage buffers) and sizes numbers among the push constants, in the order of parameters. Shared
memory is one array of which 1, 2, 4, 8 or 16 bytes are seen at a time (VK_KHR_workgroup_memory_explicit_layout). Registers are
variables of the function, one each, which every compiler keeps in registers. Nothing copies behind the program's back: copies are
read where they begin, and written to shared memory as late as the language allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from graphc.ir.types import BF16, F16, I64
from graphc.kernels.gpu.render.spirv_memory import LEAST_PUSHED
from graphc.kernels.gpu.render.spirv_module import Block, Module, renamed, words
from graphc.kernels.gpu.render.spirv_numbers import kind_in_registers
from graphc.kernels.gpu.render.spirv_tiles import register_count
from graphc.kernels.gpu.render.spirv_together import SUBGROUP, Together
from graphc.kernels.gpu.render.spirv_values import kind_of
from graphc.kernels.gpu.render.values import Parameter, Parameters
from graphc.kernels.gpu.tile import (
    BLOCKS,
    CHUNK,
    Barrier,
    Commit,
    Copy,
    Discard,
    Get,
    Global,
    If,
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
    index,
    neighbours,
)
from graphc.kernels.scalar import Scalar, constant
from graphc.shapes import lower_bound

WORKGROUP = 2
ORDERED = 0x8 | 0x100 | 0x2000 | 0x4000
"""What a barrier does to shared memory: acquire and release, make available and visible."""
FMA = 50
ROW_MAJOR, COLUMN_MAJOR = 0, 1


@dataclass(frozen=True)
class Binary:
    """A kernel's SPIR-V, its parameters, and the messages of faults: see `Rendered` of the text's renderer."""

    kernel: TileKernel
    code: bytes
    parameters: tuple[Parameter, ...]
    faults: tuple[str, ...]
    capabilities: frozenset[str]

    def named(self, name: str) -> Binary:
        """The same kernel under another name."""
        code = renamed(self.code, self.kernel.name, name)
        return replace(self, kernel=replace(self.kernel, name=name), code=code)


def render(
    kernel: TileKernel, lanes: int, fused: bool = True, pushed: int = LEAST_PUSHED, explicit: bool = True
) -> Binary:
    """The SPIR-V of a kernel for subgroups of so many lanes. Products and sums are `fused` on GPUs, with one rounding, which
    functions rely on; where they are not, as on Mesa's software device, float64 stands in. Arguments of more bytes than are
    `pushed` lie in memory, whose address is pushed. Shared memory is seen in several ways where its layout is `explicit`. Raises
    KernelFault for what Vulkan cannot do."""
    writer = _Writer(kernel, lanes)
    writer.fused, writer.pushed, writer.is_seen = fused, pushed, explicit
    return writer.written()


class _Writer(Together):
    def __init__(self, kernel: TileKernel, lanes: int) -> None:
        module = Module()
        super().__init__(kernel, module, Block(module), Parameters(), lanes)
        self.root = self.block
        self.pending: list[Callable[[], None]] = []

    def written(self) -> Binary:
        """The whole kernel."""
        kernel, module = self.kernel, self.module
        for each in (
            "VulkanMemoryModel",
            "PhysicalStorageBufferAddresses",
            "GroupNonUniform",
            "SignedZeroInfNanPreserve",
        ):
            module.need(each)
        if kernel.threads % self.lanes:
            raise self.fault(f"{kernel.threads} threads are no whole subgroups of {self.lanes}")
        for tile in kernel.tiles:
            if tile.layout.lanes != self.lanes:
                raise self.fault(
                    f"{tile.name} is laid out for {tile.layout.lanes} lanes, and subgroups have {self.lanes}"
                )
        begin = self.places()
        self.statements(kernel.body)
        self.settle()
        names = self.parameters.names
        sizes = [Parameter(kind, name, dim) for (kind, dim), name in names.items()]
        begin += self.start(kernel.tensors, [(each.kind, each.name) for each in sizes])
        self.root.words[:0] = begin
        processed = f"lanes {self.lanes} pushed {self.pushed}"
        code = module.finished(kernel.name, kernel.threads, processed, self.declared, self.root)
        tensors = [Parameter("tensor", each.name, each.number) for each in kernel.tensors]
        fault = [Parameter("fault", "fault", 0)] * bool(self.faults)
        return Binary(kernel, code, (*tensors, *sizes, *fault), tuple(self.faults), frozenset(module.capabilities))

    def places(self) -> list[int]:
        """The instructions that say which lane, warp and block this is."""
        module, word, found = self.module, self.type("i32"), []
        for each, name in ((self.lane, "SubgroupLocalInvocationId"), (self.warp, "SubgroupId")):
            self.variables[each] = module.fresh()
            found += words("Load", word, self.variables[each], module.built_in(name))
        vector, block = module.vector(word, 3), module.fresh()
        found += words("Load", vector, block, module.built_in("WorkgroupId", 3))
        for axis, each in enumerate(BLOCKS):
            self.variables[each] = module.fresh()
            found += words("CompositeExtract", word, self.variables[each], block, axis)
        count = self.kernel.grid[1]
        if self.kernel.across and isinstance(count, int):
            both = self.variables[BLOCKS[0]]
            for each, how in zip(BLOCKS, ("UDiv", "UMod"), strict=False):
                self.variables[each] = module.fresh()
                found += words(how, word, self.variables[each], both, module.number(count))
        return found

    def statements(self, body: Sequence[Statement]) -> None:
        """Statements in the block at hand."""
        for each in body:
            self.statement += 1
            self.leaves_loops = isinstance(each, Copy | Get | Put)
            getattr(self, f"do_{type(each).__name__.lower()}")(each)
            self.bound = {key: value for key, value in self.bound.items() if key.data[0] not in ("row", "column")}  # type: ignore[index]

    # Memory

    def read_at(self, source: Global, offset: Scalar, where: Scalar | None, width: int) -> list[int]:
        """Neighbours of a tensor, as words, or zeros where the condition does not hold."""
        piece, valid = self.piece_at(source, offset, where, width)
        nbytes = width * source.dtype.itemsize
        return self.words_of(self.piece_or_zero(piece, valid, nbytes), nbytes)

    def piece_at(self, source: Global, offset: Scalar, where: Scalar | None, width: int) -> tuple[int, int | None]:
        """Neighbours of a tensor as a piece, and the condition under which it counts, else it is zero; None if it always does."""
        nbytes = width * source.dtype.itemsize
        place = self.shifted(self.value(offset, "i32"), width)
        if where is None:
            return self.read_piece(source, place, nbytes), None
        valid, zero = self.value(where), self.module.number(0)
        if (lower_bound(source.size) or 0) >= width and where.total:
            return self.read_piece(source, self.choice("i32", valid, place, zero), nbytes), valid
        outer = self.block
        self.block = inner = Block(self.module, outer)
        found = self.read_piece(source, place, nbytes)
        self.block, before = outer, outer.label
        outer.choose(valid, inner)
        kind = self.word_type(nbytes)
        return self.block.make("Phi", kind, self.module.null(kind), before, found, inner.label), None

    def write_at(self, target: Global, offset: Scalar, where: Scalar | None, values: Sequence[int]) -> None:
        """Write numbers to a tensor where a condition holds."""
        outer, nbytes = self.block, len(values) * target.dtype.itemsize
        valid = None if where is None else self.value(where)
        if valid is not None:
            self.block = Block(self.module, outer)
        place = self.shifted(self.value(offset, "i32"), len(values))
        self.write_words(target, place, nbytes, self.packed(values, target.dtype))
        if valid is not None:
            inner, self.block = self.block, outer
            outer.choose(valid, inner)

    def shifted(self, offset: int, width: int) -> int:
        """An offset counted in groups of neighbours."""
        return self.i32("ShiftRightArithmetic", offset, width.bit_length() - 1) if width > 1 else offset

    def settle(self) -> None:
        """What is under way gets where it belongs, before the block ends or others begin."""
        self.arrived()
        self.settle_registers()

    def arrived(self) -> None:
        """Copies that have begun are written to shared memory."""
        for store in self.pending:
            store()
        self.pending.clear()

    def do_copy(self, it: Copy) -> None:
        rows, columns = it.target.shape
        width = min(it.vector, CHUNK // it.target.dtype.itemsize)
        total, nbytes, across = rows * columns // width, width * it.target.dtype.itemsize, columns // width
        for first in range(0, total, self.kernel.threads):
            chunk = self.warp * self.lanes + self.lane + first
            row, column = chunk // across, chunk % across * width
            self.bind(it.target.shape, row, column)
            inside = None if first + self.kernel.threads <= total else self.value(chunk < index(total))
            where = _both(it.where, None if inside is None else chunk < index(total))
            found, valid = self.piece_at(it.source, it.offset, where, width)
            to = self.value(self.shared_index(it.target, it.stage, row, column, nbytes))
            self.pending.append(partial(self.arrive, to, found, valid, nbytes, inside))

    def do_commit(self, it: Commit) -> None:
        pass

    def do_wait(self, it: Wait) -> None:
        self.arrived()

    def do_barrier(self, it: Barrier) -> None:
        self.arrived()
        scope = self.module.number(WORKGROUP)
        self.block.do("ControlBarrier", scope, scope, self.module.number(ORDERED))

    def do_discard(self, it: Discard) -> None:
        """Vulkan has no word for it."""

    def do_load(self, it: Load) -> None:
        width = min(it.vector, it.tile.layout.vector(), CHUNK // it.source.dtype.itemsize)
        for register, _, _ in self.groups(it.tile, width):
            found = self.read_at(it.source, it.offset, it.where, width)
            for place, value in enumerate(self.unpacked(found, it.source.dtype)[:width]):
                self.hold(it.tile, register + place, self.converted(value, it.source.dtype, it.tile.dtype))

    def do_store(self, it: Store) -> None:
        width = min(it.vector, it.tile.layout.vector(), CHUNK // it.target.dtype.itemsize)
        for register, _, _ in self.groups(it.tile, width):
            values = [self.held(it.tile, register + place) for place in range(width)]
            values = [self.converted(each, it.tile.dtype, it.target.dtype) for each in values]
            self.write_at(it.target, it.offset, it.where, values)

    def do_put(self, it: Put) -> None:
        tile, first = it.tile, 0
        if isinstance(tile, Part):
            number = self.bound.get(tile.index, tile.index)
            assert number.kind == "constant"
            first, tile = int(number.value) * register_count(tile.layout), tile.tile
        if tile.layout.atom.opaque:
            self.put_matrices(it, tile, first)
            return
        width = min(it.tile.layout.vector(), CHUNK // it.target.dtype.itemsize)
        for register, row, column in self.groups(it.tile, width):
            values = [self.held(tile, first + register + place) for place in range(width)]
            values = [self.converted(each, tile.dtype, it.target.dtype) for each in values]
            nbytes = width * it.target.dtype.itemsize
            to = self.value(self.shared_index(it.target, it.stage, row, column, nbytes))
            self.write_words(None, to, nbytes, self.packed(values, it.target.dtype))

    def do_get(self, it: Get) -> None:
        if it.tile.layout.atom.opaque:
            self.get_matrices(it)
            return
        dtype = it.source.dtype
        width = 1 if it.transposed else min(it.tile.layout.vector(), CHUNK // dtype.itemsize)
        for register, row, column in self.groups(it.tile, width):
            there = (column + it.column, row + it.row) if it.transposed else (row + it.row, column + it.column)
            nbytes = width * dtype.itemsize
            found = self.read_words(None, self.value(self.shared_index(it.source, it.stage, *there, nbytes)), nbytes)
            for place, value in enumerate(self.unpacked(found, dtype)[:width]):
                self.hold(it.tile, register + place, self.converted(value, dtype, it.tile.dtype))

    # Arithmetic

    def do_map(self, it: Map) -> None:
        tile = it.tile
        if tile.layout.atom.opaque:
            self.map_matrices(tile, it.value)
            return
        found = []
        group, values = neighbours(it)
        for register, _, column in self.groups(tile, it.vector):
            self.at_register(tile, register)
            if group.kind == "variable" and it.vector > 1:
                self.bound[group] = column // it.vector
            for node in [it.value] if it.vector == 1 else values[: it.vector]:
                kind, narrow = kind_of(node), tile.dtype in (F16, BF16)
                value = self.value(node)
                same = node.dtype == tile.dtype and kind == kind_in_registers(tile.dtype) and not narrow
                value = value if same else self.cast(value, kind, node.dtype, tile.dtype)
                if it.where is not None:
                    kind = kind_in_registers(tile.dtype)
                    value = self.choice(kind, self.value(it.where), value, self.constant(0, kind))
                found.append(value)
        self.bound.pop(group, None)
        for register, value in enumerate(found):
            self.hold(tile, register, value)

    def do_multiplyshared(self, it: MultiplyShared) -> None:
        raise self.fault(f"Vulkan has no instruction {it.instruction.name}")

    def do_multiply(self, it: Multiply) -> None:
        if it.instruction.total.opaque:
            self.multiply_matrices(it)
        elif it.instruction.function:
            raise self.fault(f"Vulkan has no instruction {it.instruction.name}")
        else:
            self.multiply_numbers(it)

    # Control

    def do_loop(self, it: Loop) -> None:
        if it.unrolled:
            assert isinstance(it.count, int)
            for number in range(it.count):
                self.bound[it.index] = constant(number, I64)
                self.statements(it.body)
            self.bound.pop(it.index, None)
            return
        self.settle()
        count, outer = self.dim(it.count), self.block
        self.block = body = Block(self.module, outer, frozenset((it.index,)))
        self.variables[it.index] = self.module.fresh()
        self.statements(it.body)
        self.settle()
        self.block = outer
        outer.repeat(self.variables[it.index], count, body)

    def do_if(self, it: If) -> None:
        condition = self.value(it.condition) if it.tile is None else self.in_some_lane(it.condition, it.tile)
        outer = self.block
        self.settle()
        self.block = inner = Block(self.module, outer)
        self.statements(it.body)
        self.settle()
        self.block = outer
        outer.choose(condition, inner)

    def in_some_lane(self, condition: Scalar, tile: Tile) -> int:
        """True in the warps that hold an element for which a condition holds."""
        held = []
        for register, _, _ in self.groups(tile, 1):
            self.at_register(tile, register)
            held.append(self.value(condition))
        found = reduce(partial(self.make, "bool", "LogicalOr"), held)
        self.module.need("GroupNonUniformVote")
        return self.make("bool", "GroupNonUniformAny", self.module.number(SUBGROUP), found)

    def at_register(self, tile: Tile, register: int) -> None:
        """What values read of other tiles is what belongs to a register of this one."""
        self.statement += 1
        self.register = lambda source: self.held(source, self.register_of(source, tile)[register])


def _both(first: Scalar | None, second: Scalar | None) -> Scalar | None:
    """A condition that holds where both do."""
    return second if first is None else first if second is None else first.and_(second)
