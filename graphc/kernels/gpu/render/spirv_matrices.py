"""Products of tiles in SPIR-V: number by number, or of matrices that subgroups hold (VK_KHR_cooperative_matrix)."""

from __future__ import annotations

from graphc.kernels.gpu.render.spirv_memory import NON_PRIVATE
from graphc.kernels.gpu.render.spirv_module import Block
from graphc.kernels.gpu.render.spirv_numbers import kind_in_registers
from graphc.kernels.gpu.render.spirv_tiles import Tiles, register_count
from graphc.kernels.gpu.tile import CHUNK, Get, Multiply, Put, Shared, Tile
from graphc.kernels.nest import walk
from graphc.kernels.scalar import Scalar

FMA = 50
ROW_MAJOR, COLUMN_MAJOR = 0, 1


class Matrices(Tiles):
    """Multiplies tiles, and moves those whose places nobody knows: matrices, each of which counts as one register."""

    def multiply_numbers(self, it: Multiply) -> None:
        """Each product by itself, added with one rounding."""
        total, a, b, depth = it.total, it.a, it.b, it.instruction.k
        rows, columns = total.layout.repeat
        down, across = a.layout.atom.count // depth, b.layout.atom.count // depth
        for i in range(rows * down):
            for j in range(columns * across):
                at = (i // down * columns + j // across) * down * across + i % down * across + j % across
                found = self.held(total, at)
                for k in range(depth):
                    pair = self.held(a, i * depth + k), self.held(b, j * depth + k)
                    found = self.make("f32", "ExtInst", self.module.functions_of_glsl, FMA, *pair, found)
                self.hold(total, at, found)

    def multiply_matrices(self, it: Multiply) -> None:
        """Each pair of matrices."""
        rows, columns = it.total.layout.repeat
        for i in range(rows):
            for j in range(columns):
                at = i * columns + j
                operands = self.held(it.a, i), self.held(it.b, j), self.held(it.total, at)
                self.hold(
                    it.total, at, self.block.make("CooperativeMatrixMulAddKHR", self.type_of(it.total), *operands)
                )

    def matrix_place(self, shared: Shared, stage: Scalar, row: Scalar, column: Scalar) -> tuple[int, int]:
        """A pointer to where a matrix begins in shared memory, and the pieces of 16 bytes from a row to the next. All else reads
        and writes such pieces too: then drivers see that rows begin where vectors may, and that shared memory is one array."""
        if shared.swizzle.mask or shared.swizzle.fold:
            raise self.fault(f"matrices that subgroups hold cannot be in {shared.name}, whose rows are not in order")
        begin = self.value(self.shared_index(shared, stage, row, column, CHUNK))
        return self.piece(self.shared_pointer(CHUNK), begin), shared.pitch // CHUNK

    def get_matrices(self, it: Get) -> None:
        """Read matrices. What belongs to the second operand has a row in memory for each of its columns."""
        layout, (row, column) = it.tile.layout, self.thread_place(it.tile.layout)
        if it.tile.dtype != it.source.dtype:
            raise self.fault(
                f"matrices that subgroups hold are {it.tile.dtype}, and {it.source.name} is {it.source.dtype}"
            )
        order = COLUMN_MAJOR if (it.tile.role == "b") != it.transposed else ROW_MAJOR
        for register in range(register_count(layout)):
            i, j = divmod(register, layout.repeat[1])
            there = row + (i * layout.atom.shape[0] + it.row), column + (j * layout.atom.shape[1] + it.column)
            pointer, pitch = self.matrix_place(it.source, it.stage, *(reversed(there) if it.transposed else there))
            how, stride = self.module.number(order), self.module.number(pitch)
            value = self.block.make(
                "CooperativeMatrixLoadKHR", self.type_of(it.tile), pointer, how, stride, NON_PRIVATE
            )
            self.hold(it.tile, register, value)

    def put_matrices(self, it: Put, tile: Tile, first: int) -> None:
        """Write matrices, from a register on."""
        layout, (row, column) = it.tile.layout, self.thread_place(it.tile.layout)
        if tile.dtype != it.target.dtype:
            raise self.fault(
                f"matrices that subgroups hold are {tile.dtype}, and {it.target.name} is {it.target.dtype}"
            )
        for register in range(register_count(layout)):
            i, j = divmod(register, layout.repeat[1])
            there = row + i * layout.atom.shape[0], column + j * layout.atom.shape[1]
            pointer, pitch = self.matrix_place(it.target, it.stage, *there)
            how, stride = self.module.number(ROW_MAJOR), self.module.number(pitch)
            self.block.do(
                "CooperativeMatrixStoreKHR", pointer, self.held(tile, first + register), how, stride, NON_PRIVATE
            )

    def map_matrices(self, tile: Tile, value: Scalar) -> None:
        """Fill matrices, or compute each element of what others of their kind have at its place, wherever that is."""
        count, kind = register_count(tile.layout), kind_in_registers(tile.dtype)
        if value.kind == "constant":
            filled = self.module.splat(self.type_of(tile), self.constant(value.value, kind))
            for register in range(count):
                self.hold(tile, register, filled)
            return
        sources = {each.data for each in walk(value) if each.kind == "tile"}
        if any(isinstance(each, Tile) and each.layout != tile.layout for each in sources) or value.free & set(
            self.bound
        ):
            raise self.fault(f"{tile.name} is held by a subgroup as it likes: its elements have no places")
        self.settle_registers()
        length = self.block.make("CooperativeMatrixLengthKHR", self.type("i32"), self.type_of(tile))
        for register in range(count):
            self.map_matrix(tile, value, register, length)

    def map_matrix(self, tile: Tile, value: Scalar, register: int, length: int) -> None:
        """One matrix, element by element."""
        element, index, outer = self.type(kind_in_registers(tile.dtype)), self.module.fresh(), self.block
        pointer = self.module.pointer("Function", element)
        self.block = body = Block(self.module, outer)

        def there(source: Tile) -> int:
            return self.block.make("AccessChain", pointer, self.home_of(source, register), index)

        self.statement += 1
        self.register = lambda source: self.block.make("Load", element, there(source))
        found = self.value(value)
        self.block.do("Store", there(tile), found)
        self.block = outer
        outer.repeat(index, length, body)
