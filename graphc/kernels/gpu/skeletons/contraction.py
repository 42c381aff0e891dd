"""Sums of products: matrix products, batched ones, and convolutions of images that have channels last.

The two operands are rows of `channels` neighbours, for each of `taps` (the places of a convolution's kernel; 1 for a product). A
block copies the rows that it needs, a piece of the channels at a time, through a ring of buffers in shared memory, while tensor
cores multiply what has arrived. What is done on the way out (`tail`) is any Scalar of the sum, of tensors beside it and of the
place; it is computed where rows lie side by side again, so that all of memory is read and written 16 bytes at a time.

Several contractions that read the same rows of the first operand may be one kernel. Each block has columns of one of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphc.ir.types import F32, I64
from graphc.kernels.gpu.layout import Layout, spread
from graphc.kernels.gpu.schedule import PADDING, Schedule, ScheduleError
from graphc.kernels.gpu.skeletons.operands import Computed, Products, RowPlace, Rows, tensors_of
from graphc.kernels.gpu.skeletons.pointwise import largest_width
from graphc.kernels.gpu.skeletons.results import Columns, Out, second_operands, tensors_beside
from graphc.kernels.gpu.tile import BLOCKS, U32, Builder, Global, Part, Place, Shared, Swizzle, Tile, TileKernel, index
from graphc.kernels.scalar import Scalar, constant
from graphc.shapes import Dim, divisible


@dataclass(frozen=True)
class Beside:
    """A tensor that the tail reads, at an offset for each batch, row and column, or for each column alone. `neighbours` is how
    many columns may lie side by side, from multiples of so many: a power of two, 1 if they do not."""

    name: str
    dtype: np.dtype
    size: Dim
    offset: RowPlace
    by_column: bool = False
    neighbours: int = 16


def unchanged(total: Scalar) -> Scalar:
    """The tail of sums that are written as they are."""
    return total


@dataclass(frozen=True)
class Contraction:
    """result[batch, m, n] = tail(sum over taps and channels of a[batch, m] * b[batch, n], what is beside it).

    Numbers of an operand that is `Computed` are rounded to the type of the instruction's; there is at least one channel then.

    `tail` gets the sum and an element of each of `beside`, in float32. Columns are neighbours in it, and in what is beside. With
    a `pair`, a second matrix b, it gets the sum of products with that behind the first: a gate, and what it lets through. `more`
    are products of other operands, in memory, that the sum goes on with; nothing else shares its kernel then.
    """

    name: str
    rows: Dim
    columns: Dim
    channels: Dim
    a: Rows | Computed
    b: Rows | Computed
    result_dtype: np.dtype
    result_size: Dim
    result_offset: RowPlace
    taps: int = 1
    batch: Dim = 1
    beside: tuple[Beside, ...] = ()
    tail: Callable[..., Scalar] = unchanged
    pair: Rows | Computed | None = None
    more: tuple[Products, ...] = ()

    @property
    def terms(self) -> tuple[Products, ...]:
        """All that the sum is of, in order."""
        return Products(self.a, self.b, self.channels, self.taps), *self.more


def contraction(what: Contraction, schedule: Schedule, others: Sequence[Contraction] = ()) -> TileKernel:
    """The kernel of a contraction, and of `others` with the same first operand and result, and the same sizes but columns. Its
    tensors are a, every b, the second matrix of a pair, both operands of each further term, those beside, whose names differ, and
    the result. Where the sums are cut into parts, there are two before the result: what blocks write their sums to, for the last
    of those that share a tile to add them in order, and counters, which are 0 before and behind. One with a pair is alone."""
    if what.pair is not None:
        halved = schedule.halved
        if halved is None:
            raise ScheduleError(f"{schedule}: two products whose sums meet cannot share its columns")
        schedule = halved
    return _Contraction((what, *others), schedule).kernel()


class _Contraction:
    def __init__(self, every: Sequence[Contraction], schedule: Schedule) -> None:
        self.every, self.schedule = every, schedule
        self.what = what = every[0]
        self.k = k = Builder(what.name, schedule.threads)
        self.a, *_ = tensors_of(k, "a", what.a)
        self.b = second_operands(k, every)
        self.pair = [] if what.pair is None else tensors_of(k, "pair", what.pair)[:1]
        self.more = [
            (tensors_of(k, f"more_a{number}", each.a)[0], tensors_of(k, f"more_b{number}", each.b)[0])
            for number, each in enumerate(what.more)
        ]
        self.beside = tensors_beside(k, every)
        self.first_row, self.columns = BLOCKS[0] * schedule.rows, Columns(k, every, schedule.columns)
        self.down = -(-what.rows // schedule.rows)
        if schedule.parts > 1:
            size = schedule.parts * self.tiles * schedule.rows * schedule.columns
            self.parts = k.tensor("parts", F32, size, written=True)
            self.counters = k.tensor("counters", U32, self.tiles, written=True)
        self.result = k.tensor("result", what.result_dtype, what.result_size, written=True)
        self.batch = BLOCKS[2] % what.batch if what.batch != 1 else constant(0, I64)
        self.part = BLOCKS[2] // what.batch if schedule.parts > 1 else constant(0, I64)
        instruction, depth = schedule.instruction, schedule.depth
        item = instruction.operand.itemsize
        swizzle = row_swizzle(depth * item) if instruction.function else Swizzle(2, depth * item // 16 - 1)
        order = {"padding": PADDING} if instruction.total.opaque else {"swizzle": swizzle}
        dtype, stages = instruction.operand, schedule.stages
        self.a_buffer = k.array("a_buffer", dtype, (schedule.rows, depth), stages, **order)
        names = ("b", "pair")[: 1 + len(self.pair)]
        self.b_buffers = [
            k.array(f"{name}_buffer", dtype, (schedule.columns, depth), stages, **order) for name in names
        ]
        if instruction.together == 1:
            self.a_rows = k.tile("a_rows", instruction.a_layout(schedule.warps, schedule.repeat[0]), dtype, "a")
            b_layout = instruction.b_layout(schedule.warps, schedule.repeat[1])
            self.b_rows = [k.tile(f"{name}_rows", b_layout, dtype, "b") for name in names]
        self.computed = {
            buffer: k.tile(f"{buffer.name}_next", self.computed_layout(buffer))
            for buffer, operand in zip((self.a_buffer, *self.b_buffers), (what.a, what.b, what.pair), strict=False)
            if isinstance(operand, Computed)
        }

    def computed_layout(self, buffer: Shared) -> Layout:
        """Who computes which elements of a stage: neighbours that are 16 bytes of shared memory, or fewer if threads are many."""
        lanes, threads, width = self.schedule.instruction.lanes, self.schedule.threads, 16 // buffer.dtype.itemsize
        while width * threads > buffer.shape[0] * buffer.shape[1]:
            width //= 2
        if width == 0:
            raise ScheduleError(f"{self.schedule}: it has more threads than elements that are computed for a step")
        return spread(buffer.shape, width, threads // lanes, lanes)

    @property
    def tiles(self) -> Dim:
        """How many tiles the result has."""
        return self.down * self.columns.count * self.what.batch

    @property
    def steps(self) -> Dim:
        """How many pieces of the sum there are."""
        return sum((self.steps_of(each) for each in self.what.terms), start=0)

    def steps_of(self, term: Products) -> Dim:
        """How many of them are a term's."""
        return -(-(term.channels * term.taps) // self.schedule.depth)

    @property
    def own_steps(self) -> Dim:
        """How many of them a block adds."""
        return -(-self.steps // self.schedule.parts)

    def kernel(self) -> TileKernel:
        """The kernel."""
        what, schedule, k = self.what, self.schedule, self.k
        layout = schedule.instruction.total_layout(schedule.warps, schedule.repeat)
        names = ("total", "pair_total")[: len(self.b_buffers)]
        totals = [k.map(k.tile(name, layout, role="total"), 0.0) for name in names]
        with k.loop("first_step", schedule.ahead, unrolled=True) as first:
            self.copies(first)
            k.commit()
            self.puts(first)
        with k.loop("step", self.own_steps) as step:
            k.wait(schedule.ahead - 1)
            k.barrier()
            self.copies(step + schedule.ahead)
            k.commit()
            self.products(totals, step % schedule.stages)
            self.puts(step + schedule.ahead)
        k.wait(0)
        if schedule.instruction.together > 1:
            k.wait(0, "products", totals)
        k.barrier()
        self.results(totals)
        across = schedule.across and isinstance(self.columns.count, int)
        return k.finished(self.down, self.columns.count, what.batch * schedule.parts, across=across)

    def copies(self, own_step: Scalar) -> None:
        """Begin to copy a piece of both operands, if there is one, or to compute it."""
        first, *more = self.what.terms
        step = self.part * self.own_steps + own_step
        if not more:
            self.copies_of(first, self.a, self.b, own_step, step)
            return
        begin: Dim = 0
        for term, (a, b) in zip(self.what.terms, [(self.a, self.b[0]), *self.more], strict=True):
            end = begin + self.steps_of(term)
            here = step < index(end) if begin == 0 else step >= index(begin)
            if begin != 0 and term is not more[-1]:
                here = here.and_(step < index(end))
            with self.k.when(here):
                self.copies_of(term, a, [b], own_step, step - index(begin))
            begin = end

    def copies_of(self, term: Products, a: Global, every_b: Sequence[Global], own_step: Scalar, step: Scalar) -> None:
        """The same for a term, by its own number of the piece, which may lie beyond the last."""
        what, depth, steps = self.what, self.schedule.depth, self.steps_of(term)
        stage = own_step % self.schedule.stages
        whole = isinstance(term.channels, int) and term.channels % depth == 0

        def within(step: Scalar, column: Scalar) -> tuple[Scalar, Scalar]:
            pieces = term.channels // depth
            return step // pieces, step % pieces * depth + column

        def apart(place: Scalar) -> tuple[Scalar, Scalar]:
            return (place // term.channels, place % term.channels) if term.taps > 1 else (constant(0, I64), place)

        def channel(column: Scalar) -> tuple[Scalar, Scalar]:
            return within(step, column) if whole else apart(step * depth + column)

        def copy(target: Shared, source: Global, rows: Rows, first: Scalar, count: Dim) -> None:
            def offset(row: Scalar, column: Scalar) -> Scalar:
                tap, inner = channel(column)
                return rows.offset(self.batch, first + row, tap) + inner

            def where(row: Scalar, column: Scalar) -> Scalar:
                tap, _ = channel(column)
                found = step < steps if whole else step * depth + column < index(term.channels * term.taps)
                if self.schedule.parts > 1:  # what comes next is another block's
                    found = found.and_(own_step < index(self.own_steps))
                found = found.and_(first + row < index(count))
                return found.and_(rows.where(self.batch, first + row, tap)) if rows.where else found

            most = 16 // target.dtype.itemsize
            width = min(largest_width(term.channels, most), rows.aligned)
            wide = self.wide(term.channels, rows, most) if width < most else None
            if wide is None:
                self.k.copy(target, stage, source, offset, where, width)
                return
            for here, size in ((wide, most), (wide.not_(), width)):
                with self.k.when(here):
                    self.k.copy(target, stage, source, offset, where, size)

        def compute(target: Shared, operand: Computed, first: Scalar, count: Dim) -> None:
            tile, unit = self.computed[target], operand.together
            filled = divisible(count, target.shape[0])

            def value(row: Scalar, column: Scalar) -> Scalar:
                """Of a place that there is, whatever the row and the step."""
                if whole:
                    place = within(step.minimum(index(steps - 1)), column)
                else:
                    last = term.channels * term.taps // unit - 1
                    units = (step * (depth // unit) + column // unit).minimum(index(last))
                    place = apart(units * unit + column % unit)
                line = first + row if filled else (first + row).minimum(index(count - 1))
                return operand.value(self.batch, line, *place)

            def where(row: Scalar, column: Scalar) -> Scalar:
                found = step < steps if whole else step * depth + column < index(term.channels * term.taps)
                return found if filled else found.and_(first + row < index(count))

            self.k.map(tile, value, where, min(unit, tile.layout.vector()))

        def bring(target: Shared, source: Global, operand: Rows | Computed, first: Scalar, count: Dim) -> None:
            if isinstance(operand, Computed):
                compute(target, operand, first, count)
            else:
                copy(target, source, operand, first, count)

        bring(self.a_buffer, a, term.a, self.first_row, what.rows)
        for source, (each, first_column) in zip(every_b, self.columns.of(BLOCKS[1]), strict=True):
            bring(self.b_buffers[0], source, each.b if what.more == () else term.b, first_column, each.columns)
            if what.pair is not None:
                bring(self.b_buffers[1], self.pair[0], what.pair, first_column, what.columns)

    def wide(self, channels: Dim, rows: Rows, width: int) -> Scalar | None:
        """Whether rows of channels can be copied so many at once, where that may turn out when sizes are known; None if never."""
        free = [each for each in dict.fromkeys((channels, *rows.steps)) if not divisible(each, width)]
        if any(isinstance(each, int) for each in free) or (not rows.steps and rows.aligned < width):
            return None
        return functools.reduce(Scalar.and_, ((index(each) % width).eq(0) for each in free))

    def puts(self, own_step: Scalar) -> None:
        """Write what was computed to where it would have been copied."""
        for buffer, tile in self.computed.items():
            self.k.put(buffer, tile, own_step % self.schedule.stages)

    def products(self, totals: Sequence[Tile], stage: Scalar) -> None:
        """Multiply what has arrived; or begin to, and wait for what the step before began."""
        k, schedule, instruction = self.k, self.schedule, self.schedule.instruction
        if instruction.together > 1:
            for total, buffer in zip(totals, self.b_buffers, strict=True):
                k.multiply_shared(total, self.a_buffer, stage, buffer, stage, schedule.depth, instruction)
            k.commit("products")
            k.wait(1, "products")
            return
        for piece in range(schedule.depth // instruction.k):
            k.get(self.a_rows, self.a_buffer, stage, column=piece * instruction.k)
            for total, rows, buffer in zip(totals, self.b_rows, self.b_buffers, strict=True):
                k.get(rows, buffer, stage, column=piece * instruction.k)
                k.multiply(total, self.a_rows, rows, instruction)

    def results(self, totals: Sequence[Tile]) -> None:
        """Bring the sums into rows, through shared memory, a strip of all warps at a time; do the tail, and write. Parts of sums
        are written as they are: the last block of those that share a tile adds them."""
        what, schedule, k = self.what, self.schedule, self.k
        strip, times, parts = schedule.strip, schedule.strips, schedule.parts
        part_of = (1, strip[1] // schedule.instruction.n) if strip[1] < schedule.columns else (0, 1)
        opaque, lanes = schedule.instruction.total.opaque, schedule.instruction.lanes
        order = {"padding": PADDING} if opaque else {"swizzle": strip_swizzle(strip[1])}
        buffer = k.array("strip", F32, strip, 1, instead_of=[self.a_buffer], **order)
        width = 16 // what.result_dtype.itemsize
        layout = spread(strip, width, schedule.threads // lanes, lanes)
        found = [k.tile(name, layout) for name in ("sums", "pair_sums")[: len(totals)]]
        tile = (self.batch * index(self.columns.count) + BLOCKS[1]) * index(self.down) + BLOCKS[0]

        size = strip[0] * strip[1]

        def begin(part: Scalar) -> Scalar:
            """Where a part of the tile's sums begins."""
            return (part * index(self.tiles) + tile) * (times * size)

        def place(part: Scalar, number: Scalar) -> Place:
            """Where a strip of a part lies: what lanes write together, side by side."""
            first = begin(part) + number * size

            def offset(row: Scalar, column: Scalar) -> Scalar:
                before = column % width // FLOATS * (size * FLOATS // width)
                return first + before + (row * strip[1] + column) // width * FLOATS + column % FLOATS

            return offset

        with k.loop("strip_number", times, unrolled=True) as number:
            for total, sums in zip(totals, found, strict=True):
                if total is not totals[0]:
                    k.barrier()
                k.put(buffer, Part(total, number, *part_of))
                k.barrier()
                k.get(sums, buffer)
            if parts > 1:
                k.store(self.parts, place(self.part, number), found[0], vector=FLOATS)
            else:
                self.write(found, number)
            k.barrier()
        if parts == 1:
            return
        told = k.array("told", U32, (1, FLOATS), instead_of=[buffer])
        sums, one = k.tile("sum", layout), k.tile("one", layout)
        with k.last(self.counters, tile, parts, told):
            with k.loop("strip_of_parts", times) as number:
                k.map(sums, 0.0)
                with k.loop("part", parts, unrolled=True) as part:
                    k.load(one, self.parts, place(part, number), vector=FLOATS)
                    k.map(sums, sums.value + one.value)
                self.write([sums], number)
            k.barrier()
            with k.loop("part_discarded", parts) as part:
                k.discard(self.parts, begin(part), times * size)

    def write(self, sums: Sequence[Tile], number: Scalar) -> None:
        """Do the tail for a strip of sums, and write it."""
        height, times = self.schedule.instruction.m, self.schedule.repeat[0]
        width = self.schedule.strip[1]

        def row_of(row: Scalar) -> Scalar:
            if width < self.schedule.columns:
                return self.first_row + row
            return self.first_row + row // height * (height * times) + number * height + row % height

        for beside, (each, first) in zip(self.beside, self.columns.of(BLOCKS[1]), strict=True):
            first_column = first + number * width if width < self.schedule.columns else first
            Out(self.k, each, self.batch, row_of, first_column).write(sums, beside, self.result)


FLOATS = 4
"""Numbers of float32 that are read or written at once: 16 bytes."""


def row_swizzle(pitch: int) -> Swizzle:
    """Where chunks of rows of 32, 64 or 128 bytes lie, so that eight rows at one column lie in all banks."""
    return {32: Swizzle(2, 1), 64: Swizzle(1, 3), 128: Swizzle(0, 7)}[pitch]


def strip_swizzle(columns: int) -> Swizzle:
    """Where chunks of rows of sums lie, so that what a warp has by mma.sync, and what it reads in rows, lies in all banks."""
    return Swizzle(0, 3, 1, 3 if columns >= 64 else 1)
