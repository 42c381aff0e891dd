"""Attention by any instruction, for heads of any width: as `attention.py` does it, with scores that go through shared memory.

Nobody needs to know who holds what of a product: it is written to shared memory, and read again in rows, where scores are
compared and raised to powers. Wide heads are multiplied a piece of their width at a time, and a part of the values of a tile of
keys arrives with each piece. What a row's sums are multiplied by when its largest score rose goes through shared memory as well,
once for each column of a tile.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphc.ir.types import F32, I64
from graphc.kernels.gpu.instructions import MatrixInstruction
from graphc.kernels.gpu.layout import spread
from graphc.kernels.gpu.schedule import PADDING, STRIP_COLUMNS
from graphc.kernels.gpu.skeletons.attention import WHOLE, Attention, Scores
from graphc.kernels.gpu.skeletons.contraction import strip_swizzle
from graphc.kernels.gpu.skeletons.operands import matrix
from graphc.kernels.gpu.skeletons.pointwise import largest_width
from graphc.kernels.gpu.tile import BLOCKS, CHUNK, Shared, Tile, TileKernel, index
from graphc.kernels.scalar import Scalar, constant

ZERO = constant(0, I64)


@dataclass(frozen=True)
class AnyTiling:
    """A block of about `threads` threads has `rows` queries, and all columns of values, or one of `shares`; `keys` of a tile; how
    much of the width of heads is multiplied at a time, the `depth`, and how many `stages` there are for what is copied, as far as
    there are as many pieces. Queries that are `held` stay in shared memory, others are read again with each tile of keys."""

    rows: int
    keys: int
    depth: int
    threads: int
    stages: int = 2
    held: bool = True
    shares: int = 1

    def warps(self, instruction: MatrixInstruction) -> tuple[int, int]:
        """Warps below and beside each other, each with a part of a tile of scores."""
        count = self.threads // instruction.lanes
        across = max(min(ACROSS, count, self.keys // instruction.n), 1)
        return max(min(count // across, self.rows // instruction.m), 1), across

    def suits(self, instruction: MatrixInstruction) -> bool:
        """True if tiles are whole ones of the instruction's, and a warp can read whole rows of scores."""
        one, (down, across) = instruction, self.warps(instruction)
        in_row = min(self.keys * one.operand.itemsize // CHUNK, one.lanes)
        return (
            self.rows % (down * one.m) == self.rows % (one.lanes // in_row * down * across) == 0
            and self.keys % (across * one.n) == self.keys % one.k == self.depth % one.k == 0
        )


ACROSS = 4
"""Warps beside each other: the fewer, the less is read of queries and powers; the more, the less of keys and values."""

TILINGS = {
    160: (
        AnyTiling(32, 32, 32, 64, 4),
        AnyTiling(32, 32, 16, 64),
        AnyTiling(32, 32, 16, 64, held=False),
        AnyTiling(32, 16, 16, 64, held=False),
    ),
    512: (
        AnyTiling(32, 32, 64, 128, 4),
        AnyTiling(64, 32, 32, 256, held=False),
        AnyTiling(128, 32, 16, 256, held=False, shares=2),
        AnyTiling(64, 32, 32, 128, held=False, shares=2),
        AnyTiling(64, 16, 32, 128, held=False, shares=2),
    ),
}
"""By the most that a head has, the best first."""

MOST_TOTALS, FEW_LANES = 128, 32
"""Sums that a thread holds in registers, where warps have so many lanes: others have more registers, or are software's."""


def tiling_for(width: int, results: int, instruction: MatrixInstruction, shared: int, threads: int) -> AnyTiling | None:
    """The best tiling for heads of these sizes on a device whose blocks have so much shared memory, and so many threads at most;
    None if there is none."""
    rows, wide = matrix(instruction.operand, 1, 1), max(width, results)
    what = Attention("attention", 1, 1, 1, width, results, 1.0, rows, rows, rows, 1, F32, rows.offset)
    for each in next((tilings for most, tilings in TILINGS.items() if wide <= most), ()):
        if each.suits(instruction) and _Anywhere(what, each, instruction).fits(shared, threads):
            return each
    return None


def attention_anywhere(what: Attention, tiling: AnyTiling, instruction: MatrixInstruction) -> TileKernel:
    """The kernel; its tensors are q, k, v, those of the mask, and the result. It multiplies what the instruction does."""
    return _Anywhere(what, tiling, instruction).kernel()


class _Anywhere(Scores):
    def __init__(self, what: Attention, tiling: AnyTiling, instruction: MatrixInstruction) -> None:
        self.tiling, self.instruction = tiling, instruction
        rows, keys, depth = tiling.rows, tiling.keys, tiling.depth
        lanes, operand = instruction.lanes, instruction.operand
        down, across = warps = tiling.warps(instruction)
        super().__init__(what, down * across * lanes, rows, keys)
        k = self.k
        self.pieces = -(-what.width // depth)
        self.stages = min(tiling.stages, self.pieces + 1)
        self.ahead = self.stages - 1
        self.parts = self.pieces - self.ahead + 1
        """Of the values of a tile: one arrives with each piece that is copied early enough."""
        self.part_keys = -(-keys // self.parts)
        self.tiles_of_columns = -(-what.results // (keys * tiling.shares))
        self.first_column = BLOCKS[1] * (self.tiles_of_columns * keys) if tiling.shares > 1 else WHOLE
        self.columns = self.tiles_of_columns * keys
        self.q_buffer = self.rows_of("q_buffer", rows, depth, self.pieces if tiling.held else self.stages)
        self.k_buffer = self.rows_of("k_buffer", keys, depth, self.stages)
        self.v_parts = self.rows_of("v_parts", self.part_keys, self.columns, self.parts)
        whole = self.part_keys * self.parts, self.columns
        self.v_buffer = k.array("v_buffer", operand, whole, 1, instead_of=[self.v_parts], padding=CHUNK)
        self.powers = self.rows_of("powers", rows, keys, 1)
        swizzled = keys >= STRIP_COLUMNS[-1] and not instruction.total.opaque
        order = {"swizzle": strip_swizzle(keys)} if swizzled else {"padding": PADDING}
        self.strip = k.array("strip", F32, (rows, keys), 1, **order)
        repeat = rows // (down * instruction.m), keys // (across * instruction.n)
        square = instruction.total_layout(warps, repeat)
        self.products, self.rises = (k.tile(name, square, role="total") for name in ("products", "rises"))
        self.totals = [k.tile(f"total_{number}", square, role="total") for number in range(self.tiles_of_columns)]
        self.a_rows = k.tile("a_rows", instruction.a_layout(warps, repeat[0]), operand, "a")
        self.b_rows = k.tile("b_rows", instruction.b_layout(warps, repeat[1]), operand, "b")
        in_rows = spread((rows, keys), CHUNK // operand.itemsize, down * across, lanes)
        self.scores = [k.tile("scores", in_rows)]
        self.of_rows(in_rows)

    def fits(self, shared: int, threads: int) -> bool:
        """True for a block that a device may have, with no more sums than its threads have registers for."""
        needed, lanes = max(each.offset + each.nbytes for each in self.k.shared), self.instruction.lanes
        held = self.columns * self.rows // self.k.threads
        return needed <= shared and self.k.threads <= threads and (lanes < FEW_LANES or held <= MOST_TOTALS)

    def rows_of(self, name: str, rows: int, width: int, stages: int) -> Shared:
        """Shared memory for rows of operands, between which a chunk lies, so that neighbours lie in different banks."""
        return self.k.array(name, self.instruction.operand, (rows, width), stages, padding=CHUNK)

    def kernel(self) -> TileKernel:
        """The kernel. While a piece is multiplied the next is copied, the first of the next tile behind the last of a tile."""
        what, tiling, k = self.what, self.tiling, self.k
        if tiling.held:
            for each in range(self.pieces):
                self.copy_queries(constant(each, I64), constant(each, I64))
        for each in range(self.ahead):
            self.copy_piece(constant(each, I64))
            k.commit()
        for total in self.totals:
            k.map(total, 0.0)
        self.begin()
        with k.loop("step", -(-what.keys // tiling.keys)) as step:
            k.map(self.products, 0.0)
            with k.loop("piece", self.pieces) as piece:
                number = step * self.pieces + piece
                k.wait(self.ahead - 1)
                k.barrier()
                self.copy_piece(number + self.ahead)
                if self.parts == self.pieces:
                    self.copy_values(step, piece)
                else:
                    with k.when(piece < index(self.parts)):
                        self.copy_values(step, piece)
                k.commit()
                self.multiply(piece if tiling.held else number % self.stages, number % self.stages)
            self.raise_scores(step)
            self.add()
        k.wait(0)
        self.write()
        return k.finished(-(-what.rows // tiling.rows), tiling.shares, what.batch)

    def copy_queries(self, stage: Scalar, piece: Scalar) -> None:
        """Begin to copy a piece of the queries."""
        what, begin = self.what, piece * self.tiling.depth
        self.copy(self.q_buffer, stage, self.sources[0], what.q, self.first, what.rows, what.width, begin)

    def copy_piece(self, number: Scalar) -> None:
        """Begin to copy a piece of a tile of keys, and of the queries that go with it."""
        what, stage, piece = self.what, number % self.stages, number % self.pieces
        if not self.tiling.held:
            self.copy_queries(stage, piece)
        first, begin = number // self.pieces * self.keys, piece * self.tiling.depth
        self.copy(self.k_buffer, stage, self.sources[1], what.k, first, what.keys, what.width, begin)

    def copy_values(self, step: Scalar, part: Scalar) -> None:
        """Begin to copy the values of some keys of a tile."""
        what = self.what
        first = step * self.keys + part * self.part_keys
        self.copy(self.v_parts, part, self.sources[2], what.v, first, what.keys, what.results, self.first_column)

    def multiply(self, stage: Scalar, keys_stage: Scalar) -> None:
        """Add the products of a piece to the scores of a tile."""
        k, one = self.k, self.instruction
        for place in range(0, self.tiling.depth, one.k):
            k.get(self.a_rows, self.q_buffer, stage, column=place)
            k.get(self.b_rows, self.k_buffer, keys_stage, column=place)
            k.multiply(self.products, self.a_rows, self.b_rows, one)

    def raise_scores(self, step: Scalar) -> None:
        """Make powers of scores, add them up, and bring them and what sums are multiplied by to where all find them."""
        k, (scores,) = self.k, self.scores
        k.put(self.strip, self.products)
        k.barrier()
        k.get(scores, self.strip)
        self.bound(step)
        self.compare()
        k.map(scores, self.power(scores))
        self.add_powers(scores)
        k.put(self.powers, scores)
        k.map(scores, self.rise.value)
        k.barrier()
        k.put(self.strip, scores)
        k.wait(self.ahead - 1)
        k.barrier()

    def add(self) -> None:
        """Add the values of a tile of keys, by their powers."""
        k, one = self.k, self.instruction
        self.scale()
        for place in range(0, self.keys, one.k):
            k.get(self.a_rows, self.powers, column=place)
            for number, total in enumerate(self.totals):
                k.get(self.b_rows, self.v_buffer, row=number * self.keys, column=place, transposed=True)
                k.multiply(total, self.a_rows, self.b_rows, one)

    def scale(self) -> None:
        """Multiply what was added up by what there is for each row."""
        self.k.get(self.rises, self.strip)
        for total in self.totals:
            self.k.map(total, total.value * self.rises.value)

    def write(self) -> None:
        """Divide what was added up by the sums of powers, and write it, a tile of columns at a time."""
        what, k, (scores,) = self.what, self.k, self.scores
        k.reduce(self.part, self.sum, 1, "sum")
        k.map(scores, 1.0 / self.part.value)
        k.barrier()
        k.put(self.strip, scores)
        k.barrier()
        self.scale()
        width = largest_width(what.results, CHUNK // what.result_dtype.itemsize)
        for number, total in enumerate(self.totals):
            k.barrier()
            k.put(self.strip, total)
            k.barrier()
            k.get(scores, self.strip)
            self.store(scores, self.first_column + number * self.keys, width)

    def store(self, tile: Tile, first: Scalar, width: int) -> None:
        """Write results from a column on, so many neighbours at once."""
        what = self.what

        def offset(row: Scalar, column: Scalar) -> Scalar:
            return what.result_offset(self.batch, self.first + row, first + column)

        def where(row: Scalar, column: Scalar) -> Scalar:
            return (self.first + row < index(what.rows)).and_(first + column < index(what.results))

        self.k.store(self.result, offset, tile, where, width)
