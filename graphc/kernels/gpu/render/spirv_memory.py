"""Memory in SPIR-V: tensors by their addresses, which push constants give, and a block's shared memory, which is one array that
is seen in several ways; on devices that cannot see it so, one of words. Both are read and written in pieces of 1, 2, 4, 8 or 16
bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphc.kernels.gpu.render.spirv_module import Block, Module, words
from graphc.kernels.gpu.render.spirv_values import Values
from graphc.kernels.gpu.render.values import Parameters
from graphc.kernels.gpu.tile import CHUNK, Global, Load, Shared, TileKernel, walk
from graphc.kernels.scalar import Scalar

LEAST_PUSHED = 128
"""Bytes of push constants that every device has."""
FAULT = -1
"""The number of the place where faults are told, which comes behind the tensors."""
ALIGNED, NON_PRIVATE = 2, 0x20
QUEUE_FAMILY = 5
"""The scope of all that a queue runs."""
IN_SHARED = 0x100
EVERYTHING = 0x8 | 0x40 | IN_SHARED | 0x2000 | 0x4000
"""What a barrier does: acquire and release, make available and visible, of tensors and of shared memory."""
SMALL = {1: "8BitAccess", 2: "16BitAccess"}


class Memory(Values):
    """Reads and writes memory in the block at hand."""

    def __init__(self, kernel: TileKernel, module: Module, block: Block, parameters: Parameters) -> None:
        super().__init__(kernel, module, block, parameters)
        self.pushed = LEAST_PUSHED
        self.is_seen = True
        self.exchanged = {it.source.number for it in walk(kernel.body) if isinstance(it, Load) and it.source.written}
        self.views: dict[tuple[int, int], int] = {}
        self.addresses = {each.number: module.fresh() for each in kernel.tensors} | {FAULT: module.fresh()}
        self.fault_place = Global("fault", np.dtype("int32"), 1, FAULT, written=True)
        self.seen: dict[int, int] = {}
        self.read, self.report = self.element, self.told

    def word_type(self, nbytes: int) -> int:
        """What a piece of so many bytes is to the device: an integer, or a vector of words."""
        if nbytes < 4:
            return self.module.integer(8 * nbytes)
        return self.module.vector(self.type("i32"), nbytes // 4)

    def tensor_pointer(self, tensor: Global, nbytes: int) -> tuple[int, int]:
        """The type of pointers to a tensor's pieces, and the tensor as an array of them."""
        if nbytes < 4:
            self.module.need(f"StorageBuffer{SMALL[nbytes]}")
        element = self.word_type(nbytes)
        key = tensor.number, nbytes
        if key not in self.views:
            self.views[key] = self.module.fresh()
        return self.module.pointer("PhysicalStorageBuffer", element), self.views[key]

    def shared_pointer(self, nbytes: int) -> tuple[int, int]:
        """The same for shared memory."""
        module = self.module
        module.need("WorkgroupMemoryExplicitLayoutKHR", "SPV_KHR_workgroup_memory_explicit_layout")
        if nbytes < 4:
            module.need(f"WorkgroupMemoryExplicitLayout{SMALL[nbytes]}KHR")
        element = self.word_type(nbytes)
        if element not in self.seen:
            block = module.array_block(element, nbytes, -(-self.kernel.shared_bytes // CHUNK) * CHUNK // nbytes)
            self.seen[element] = module.variable("Workgroup", block)
        return module.pointer("Workgroup", element), self.seen[element]

    def shared_words(self, index: int, nbytes: int) -> list[int]:
        """Pointers to the words of a piece of shared memory that is nothing but words."""
        module, count = self.module, nbytes // 4
        if nbytes < 4:
            raise self.fault(f"pieces of {nbytes} bytes of shared memory, which the device sees as words alone")
        if 0 not in self.seen:
            size = module.number(-(-self.kernel.shared_bytes // CHUNK) * CHUNK // 4)
            self.seen[0] = module.variable("Workgroup", module.declared("TypeArray", self.type("i32"), size))
        first = self.i32("IMul", index, count) if count > 1 else index
        places = [self.i32("IAdd", first, word) if word else first for word in range(count)]
        pointer = module.pointer("Workgroup", self.type("i32"))
        return [self.block.make("AccessChain", pointer, self.seen[0], place) for place in places]

    def piece(self, pointer: tuple[int, int], index: int) -> int:
        """A pointer to a piece."""
        return self.block.make("AccessChain", *pointer, self.module.number(0), index)

    def access(self, tensor: Global, nbytes: int) -> list[int]:
        """How a tensor's pieces are read or written: what others write in the same launch is nobody's own."""
        return [ALIGNED | (NON_PRIVATE if tensor.number in self.exchanged else 0), nbytes]

    def read_words(self, at: Global | None, index: int, nbytes: int) -> list[int]:
        """A piece of a tensor, or of shared memory, as words; a small one as the lowest bits of one."""
        if at is None and not self.is_seen:
            return [self.make("i32", "Load", each, NON_PRIVATE) for each in self.shared_words(index, nbytes)]
        return self.words_of(self.read_piece(at, index, nbytes), nbytes)

    def read_piece(self, at: Global | None, index: int, nbytes: int) -> int:
        """The same as one value."""
        pointer = self.shared_pointer(nbytes) if at is None else self.tensor_pointer(at, nbytes)
        access = [NON_PRIVATE] if at is None else self.access(at, nbytes)
        return self.block.make("Load", self.word_type(nbytes), self.piece(pointer, index), *access)

    def words_of(self, piece: int, nbytes: int) -> list[int]:
        """The words of a piece."""
        if nbytes < 4:
            return [self.make("i32", "UConvert", piece)]
        count = nbytes // 4
        return [piece] if count == 1 else [self.make("i32", "CompositeExtract", piece, place) for place in range(count)]

    def piece_or_zero(self, piece: int, valid: int | None, nbytes: int) -> int:
        """A piece where a condition holds, if there is one."""
        kind = self.word_type(nbytes)
        return piece if valid is None else self.block.make("Select", kind, valid, piece, self.module.null(kind))

    def write_words(self, at: Global | None, index: int, nbytes: int, parts: Sequence[int]) -> None:
        """Write words, or the lowest bits of one."""
        if at is None and not self.is_seen:
            for place, part in zip(self.shared_words(index, nbytes), parts, strict=True):
                self.block.do("Store", place, part, NON_PRIVATE)
            return
        kind, value = self.word_type(nbytes), parts[0]
        if nbytes != 4:
            value = self.block.make("UConvert" if nbytes < 4 else "CompositeConstruct", kind, *parts)
        self.write_piece(at, index, nbytes, value)

    def write_piece(self, at: Global | None, index: int, nbytes: int, value: int) -> None:
        """Write a piece that is one value."""
        pointer = self.shared_pointer(nbytes) if at is None else self.tensor_pointer(at, nbytes)
        access = [NON_PRIVATE] if at is None else self.access(at, nbytes)
        self.block.do("Store", self.piece(pointer, index), value, *access)

    def across_tensors(self, scope: int) -> list[int]:
        """The operands of a barrier that orders what is read and written of tensors and of shared memory: within the block, or
        between all that the queue runs."""
        numbers = [scope, EVERYTHING & ~IN_SHARED] if scope == QUEUE_FAMILY else [scope, scope, EVERYTHING]
        return [self.module.number(each) for each in numbers]

    def counted(self, counters: Global, offset: int, count: int) -> int:
        """Add 1 to a counter; others see what was before, and this thread what was before theirs. The last of so many sets it to
        0. Gives what it was."""
        module, pointer = self.module, self.piece(self.tensor_pointer(counters, 4), offset)
        scope, relaxed = module.number(QUEUE_FAMILY), module.number(0)
        self.block.do("MemoryBarrier", *self.across_tensors(QUEUE_FAMILY))
        before = self.make("i32", "AtomicIAdd", pointer, scope, relaxed, module.number(1))
        self.block.do("MemoryBarrier", *self.across_tensors(QUEUE_FAMILY))
        inner = Block(module, self.block)
        inner.do("AtomicStore", pointer, scope, relaxed, module.number(0))
        self.block.choose(self.make("bool", "IEqual", before, module.number(count - 1)), inner)
        return before

    def element(self, number: int, offset: int) -> int:
        """An element of a tensor, as values read it."""
        tensor = self.kernel.tensors[number]
        return self.unpacked(self.read_words(tensor, offset, tensor.dtype.itemsize), tensor.dtype)[0]

    def shared_index(self, shared: Shared, stage: Scalar, row: Scalar, column: Scalar, nbytes: int) -> Scalar:
        """Where the piece that begins at a row and column of a stage lies, counted in pieces."""
        item, swizzle = shared.dtype.itemsize, shared.swizzle
        if swizzle.mask or swizzle.fold:
            chunk, within = column // (CHUNK // item), column % (CHUNK // item)
            place = chunk ^ ((row >> swizzle.shift & swizzle.mask) << swizzle.up) if swizzle.mask else chunk
            place = place ^ (chunk >> swizzle.fold & 1) if swizzle.fold else place
            along = place * (CHUNK // nbytes) + within // (nbytes // item)
        else:
            along = column // (nbytes // item)
        begin = row * (shared.pitch // nbytes) + along + shared.offset // nbytes
        return begin + stage * (shared.nbytes // shared.stages // nbytes)

    def told(self, number: int) -> None:
        """Write the number of a fault where it is looked for."""
        self.write_words(self.fault_place, self.module.number(0), 4, [self.module.number(number)])

    def start(self, tensors: Sequence[Global], sizes: Sequence[tuple[str, str]]) -> list[int]:
        """The instructions that bring addresses and sizes from push constants, or from memory whose address they are: tensors
        first, then sizes as (kind, name), then where faults are told."""
        module, found = self.module, []
        word, address = (
            self.type("i32"),
            module.pointer("PhysicalStorageBuffer", module.array_block(self.type("i32"), 4)),
        )
        fields = [(address, self.addresses[each.number]) for each in tensors]
        for _, name in sizes:
            fields += [(word, number) for number in self.loaded[name]]
        fields += [(address, self.addresses[FAULT])] * bool(self.faults)
        offsets, used = [], 0
        for type, _ in fields:
            step = 8 if type == address else 4
            offsets.append(-(-used // step) * step)
            used = offsets[-1] + step
        block, where = module.structure([type for type, _ in fields], offsets), "PushConstant"
        if used <= self.pushed:
            given = module.variable(where, block)
        else:
            type, pointer, given = module.pointer("PhysicalStorageBuffer", block), module.fresh(), module.fresh()
            pushed = module.variable(where, module.structure([type], [0]))
            found += words("AccessChain", module.pointer(where, type), pointer, pushed, module.number(0))
            found += words("Load", type, given, pointer)
            where = "PhysicalStorageBuffer"
        for place, (type, number) in enumerate(fields):
            pointer, access = module.fresh(), [ALIGNED, 8 if type == address else 4] if used > self.pushed else []
            found += words("AccessChain", module.pointer(where, type), pointer, given, module.number(place))
            found += words("Load", type, number, pointer, *access)
        for seen in self.seen.values() if len(self.seen) > 1 else ():
            module.decorate(seen, "Aliased")
        for (tensor, nbytes), view in self.views.items():
            pointer = module.pointer("PhysicalStorageBuffer", module.array_block(self.word_type(nbytes), nbytes))
            found += words("Bitcast", pointer, view, self.addresses[tensor])
        return found
