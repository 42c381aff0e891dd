"""How products are written: by instructions of a warp, with operands in registers, by four warps together, or one by one."""

from __future__ import annotations

from graphc.ir.types import I64
from graphc.kernels.c.language import PRODUCT
from graphc.kernels.gpu.render.together import Together
from graphc.kernels.gpu.render.values import NARROW, bits
from graphc.kernels.gpu.render.writer import plus, times
from graphc.kernels.gpu.tile import CHUNK, LINE, Get, Multiply, MultiplyShared, Shared, Tile
from graphc.kernels.scalar import Scalar, constant


class Products(Together):
    """The part of a writer that multiplies."""

    def matrices(self, it: Get) -> None:
        """Read an operand of 16 bits by ldmatrix: 8 x 8 elements make a word of each lane, up to four of them at once."""
        words, first = it.tile.layout.registers // 2, 0
        for together in (4, 2, 1):
            end = words - (words - first) % together
            if first < end:
                self.matrices_at(it, first, end, together)
            first = end

    def matrices_at(self, it: Get, first: int, end: int, together: int) -> None:
        """Read some words. Each lane gives the address of a row; which of the matrices read together is its own, the bits above
        the lowest three say. Lanes and words add to it apart from each other, so that what lanes add is computed once."""
        layout, which = it.tile.layout, together.bit_length() - 1
        atom, per_atom = layout.atom, layout.atom.count // 2
        own = self.thread_rows(layout)
        with self.inside(f"UNROLL for (int w = {first}; w < {end}; w += {together})"):
            if together > 1:
                self.say(f"const int matrix = {'lane >> 3' if together == 4 else '(lane >> 3) % 2'};")
            places = [("matrix" if bit < which else "w", bit, at) for bit, at in enumerate(atom.registers[1:])]
            down, along = (bits([(name, bit, at[axis]) for name, bit, at in places]) for axis in range(2))
            again = [
                times(f"{name} / {per_atom}" if per_atom > 1 else name, atom.shape[0])
                for name in (["matrix"] if per_atom < together else []) + (["w"] if end > per_atom else [])
            ]
            if it.transposed:  # rows of memory are columns of the operand, and so is what the lane gives the address of
                row, column = plus(along, "lane % 8", str(it.column)), plus(own, down, *again, str(it.row))
            else:
                row, column = plus(own, down, *again, "lane % 8", str(it.row)), plus(along, str(it.column))
            self.say(f"const int row = {row}, column = {column};")
            function = f"load_matrix{'_transposed' if it.transposed else ''}_x{together}"
            self.say(f"{function}({it.tile.name} + w, {self.shared_place(it.source, it.stage, 'row', 'column')});")

    def _multiply(self, it: Multiply) -> None:
        total, a, b = it.total, it.a, it.b
        rows, columns = total.layout.repeat
        depth = it.instruction.k
        down, across = a.layout.atom.count, b.layout.atom.count
        if it.instruction.function:
            each = total.layout.atom.count
            pack = 4 // a.dtype.itemsize
            self.say(
                f"UNROLL for (int i = 0; i < {rows}; i++)",
                f"    UNROLL for (int j = 0; j < {columns}; j++)",
                f"        {it.instruction.function}({total.name} + (i * {columns} + j) * {each}, "
                f"{a.name} + i * {down // pack}, {b.name} + j * {across // pack});",
            )
            return
        down, across = down // depth, across // depth
        place = f"(i / {down} * {columns} + j / {across}) * {down * across} + i % {down} * {across} + j % {across}"
        product = f"{a.name}[i * {depth} + k], {b.name}[j * {depth} + k]"
        self.say(
            f"UNROLL for (int i = 0; i < {rows * down}; i++)",
            f"    UNROLL for (int j = 0; j < {columns * across}; j++) {{",
            f"        float &sum = {total.name}[{place}];",
            f"        UNROLL for (int k = 0; k < {depth}; k++) sum = fmaf({product}, sum);",
            "    }",
        )

    def _multiplyshared(self, it: MultiplyShared) -> None:
        (rows, columns), one, pieces = it.total.shape, it.instruction, it.depth // it.instruction.k
        height, held = one.m * one.together, isinstance(it.a, Tile)
        first = f"warp / {one.together} * {height}" if rows > height else "0"
        with self.inside(""):
            if isinstance(it.a, Tile):
                a, b = f"{it.a.name} + k * {one.a.count // 2}", f"b + k * {one.k * LINE // CHUNK}"
                self.say(f"const uint64_t b = {self.operand(it.b, it.b_stage, '0', it.b.panel[1])};")
            else:
                self.say(f"const uint64_t a = {self.operand(it.a, it.a_stage, first)};")
                self.say(f"const uint64_t b = {self.operand(it.b, it.b_stage, '0')};")
                a, b = (_piece(name, array, one.k, pieces) for name, array in (("a", it.a), ("b", it.b)))
            function = f"wgmma_m{height}n{columns}k{one.k}_{NARROW[it.b.dtype]}{'_columns' if held else ''}"
            adds = "k > 0" if it.fresh else "true"
            self.say(
                "wgmma_begin();",
                f"UNROLL for (int k = 0; k < {pieces}; k++) {function}({it.total.name}, {a}, {b}, {adds});",
            )

    def operand(self, array: Shared, stage: Scalar, row: str, *panel: int) -> str:
        """What describes an operand from a row of a stage on, or one in `panel`s with rows for columns: that of the first stage,
        which is the same in every step, and how much further it is."""
        described = ", ".join(map(str, (self.shared_line(array, constant(0, I64), row), *panel)))
        number = self.values.value(stage, self.block).within(PRODUCT + 1)
        further = times(number, array.nbytes // array.stages // CHUNK)
        return plus(f"wgmma_{'columns' if panel else 'operand'}({described})", further)


def _piece(name: str, array: Shared, depth: int, pieces: int) -> str:
    """Where piece `k` of the depth of an operand begins, by the words of what describes it."""
    panel, between = array.panel
    step, each = depth * array.dtype.itemsize // CHUNK, panel // depth
    return (
        f"{name} + k * {step}" if pieces <= each else f"{name} + k / {each} * {between // CHUNK} + k % {each} * {step}"
    )
