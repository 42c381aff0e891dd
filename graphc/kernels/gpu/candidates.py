"""Schedules that a contraction may have on a GPU, and how long each takes before any was measured.

Candidates are made of what the hardware works in: instructions, warps, rows of shared memory. Which of them is the fastest
depends on sizes, so the guess must cost microseconds: `guess` is `roofline.estimate` of the kernels in closed form.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from graphc.ir.types import F16, F32
from graphc.kernels.gpu.analyse import (
    COPY_REGISTERS,
    MOST_COPY_REGISTERS,
    MOST_REGISTERS,
    OTHER_REGISTERS,
    Cost,
    copied,
)
from graphc.kernels.gpu.devices import VULKAN, Gpu
from graphc.kernels.gpu.instructions import INSTRUCTIONS, UNTRIED, MatrixInstruction
from graphc.kernels.gpu.roofline import Coefficients, Terms, combined, resident_blocks, sheet_terms
from graphc.kernels.gpu.schedule import PADDING, Schedule
from graphc.kernels.gpu.tile import CHUNK
from graphc.shapes import Dim, integer, symbols

ROWS, COLUMNS = (16, 32, 64, 128, 256), (32, 64, 128, 256)
"""Of a block."""

WARPS = ((64, 64), (64, 32), (32, 32), (16, 32))
"""Rows and columns of a warp, the largest first: the larger, the fewer operands are read for each product."""

FEWEST_WARPS, MOST_WARPS = 4, 8
"""Of a block, as far as it is large enough: each of a multiprocessor's four parts has something to do."""

MOST_TOTALS = 128
"""Sums that a thread holds in registers."""

ROW_BYTES = {F16: (64, 128), F32: (128,)}
"""Of shared memory: what is copied of each row of the operands at a time. Of 64 bytes of float32, lanes would read different
words in one bank."""

STAGES = (2, 3, 4)
"""Buffers for what is copied, one of which is multiplied."""

MOST_STAGES = 2
"""Numbers of buffers that are candidates, the largest that fit."""

TOGETHER_ROWS, TOGETHER_STAGES = (64, 128, 256), (3, 4, 6)
"""Of a block whose warps multiply together: 4, 8 or 16 of them."""

PARTS = (1, 2, 4, 8, 16)
"""In which a sum is cut where there are too few blocks."""

FEWEST_STEPS = 4
"""Of each part."""


@dataclass(frozen=True)
class Sizes:
    """What the time of a contraction depends on: the type that is multiplied, rows, columns and length of a sum in all taps,
    which are several for a convolution, and how many products there are. If they are `paired`, the columns are those of two
    matrices, half each, whose sums meet. Of several `terms`, the taps are those of the first."""

    operand: np.dtype
    rows: Dim
    columns: Dim
    depth: Dim
    taps: int = 1
    batch: Dim = 1
    paired: bool = False
    terms: int = 1

    @property
    def free(self) -> bool:
        """True if some of it is known only when the program runs."""
        return bool(symbols(self.rows, self.columns, self.depth, self.batch))

    def bound(self, binding: Mapping[str, int]) -> Sizes:
        """The sizes with values of their symbols."""
        rows, columns, depth, batch = (
            integer(each, binding) for each in (self.rows, self.columns, self.depth, self.batch)
        )
        return replace(self, rows=rows, columns=columns, depth=depth, batch=batch)

    @functools.cached_property
    def numbers(self) -> tuple[int, int, int, int]:
        """Rows, columns, length of a sum and number of products, where they are known."""
        rows, columns, depth, batch = self.rows, self.columns, self.depth, self.batch
        assert isinstance(rows, int) and isinstance(columns, int) and isinstance(depth, int) and isinstance(batch, int)  # noqa: PT018
        return rows, columns, depth, batch

    @functools.cached_property
    def counts(self) -> tuple[int, int, int, int]:
        """The same, none of which is 0: what there is nothing of takes no time worth a thought."""
        rows, columns, depth, batch = (max(each, 1) for each in self.numbers)
        return rows, columns, depth, batch

    def __str__(self) -> str:
        """A line's key: `f16 m8192 n320 k2880 t9 b1`, or `… b1 paired`, or `… b1 of 2 terms`."""
        name = {F16: "f16", F32: "f32"}[self.operand]
        paired, terms = " paired" if self.paired else "", f" of {self.terms} terms" if self.terms > 1 else ""
        return f"{name} m{self.rows} n{self.columns} k{self.depth} t{self.taps} b{self.batch}{paired}{terms}"

    def take(self, schedule: Schedule) -> bool:
        """True if products of these sizes can have a schedule."""
        return not self.paired or schedule.halved is not None


def instructions_for(operand: np.dtype, gpu: Gpu) -> list[MatrixInstruction]:
    """What multiplies numbers of a type on a GPU."""
    if gpu.instructions:
        found = [INSTRUCTIONS[name] for name in gpu.instructions]
        return [each for each in found if each.operand == operand]
    if operand == F32:
        names = ["fma_4x4"]
    elif gpu.architecture == "sm_75":
        names = ["m16n8k8_half"]
    else:
        names = ["m16n8k16_half", *(["wgmma_half"] if gpu.architecture == "sm_90" else [])]
    return [INSTRUCTIONS[name] for name in names]


def candidates(operand: np.dtype, gpu: Gpu) -> Iterator[Schedule]:
    """All schedules of contractions that a GPU can have, with sums in one part. Where warps multiply together, which was faster
    for all that was measured, others have but fewer rows than these."""
    instructions = [each for each in instructions_for(operand, gpu) if each.name not in UNTRIED]
    most = TOGETHER_ROWS[0] if any(each.together > 1 for each in instructions) else math.inf
    for instruction in instructions:
        together = instruction.together > 1
        for rows, columns in itertools.product(
            TOGETHER_ROWS if together else (rows for rows in ROWS if rows < most),
            instruction.widths if together else COLUMNS,
        ):
            for warp, nbytes in itertools.product(warps_of(rows, columns, instruction), ROW_BYTES[operand]):
                made = [
                    Schedule(rows, columns, nbytes // operand.itemsize, *warp, stages, 1, instruction)
                    for stages in stages_of(instruction, gpu)
                ]
                yield from [each for each in made if each.refusal() is None and fits(each, gpu)][-MOST_STAGES:]


def stages_of(instruction: MatrixInstruction, gpu: Gpu) -> tuple[int, ...]:
    """Numbers of buffers that a product may have. Vulkan copies nothing behind a program's back: what is read in a step is there
    at its end, so more buffers than two bring nothing."""
    if gpu.architecture.startswith(VULKAN):
        return STAGES[:1]
    return TOGETHER_STAGES if instruction.together > 1 else STAGES


def warps_of(rows: int, columns: int, instruction: MatrixInstruction) -> list[tuple[int, int]]:
    """The parts of a block that a warp may have: those of which there are enough and not too many; of a small block, that of
    which there are most. Of those that multiply together, each has 16 rows."""
    if instruction.together > 1:
        return [(instruction.m, columns)] if columns <= MOST_TOTALS * instruction.lanes // instruction.m else []
    counts = {
        (height, width): rows // height * (columns // width)
        for height, width in WARPS
        if rows % height == columns % width == height % instruction.m == width % instruction.n == 0
        and height * width <= MOST_TOTALS * instruction.lanes
    }
    found = [warp for warp, count in counts.items() if FEWEST_WARPS <= count <= MOST_WARPS]
    few = [warp for warp, count in counts.items() if count < FEWEST_WARPS]
    return found or few[-1:]


def fits(schedule: Schedule, gpu: Gpu) -> bool:
    """True if a multiprocessor can hold a block."""
    counted, registers = _counted_registers(schedule), registers_of(schedule)
    return (
        counted <= gpu.thread_registers
        and registers * schedule.threads <= gpu.registers
        and schedule.threads <= gpu.block_threads
        and shared_of(schedule) <= gpu.block_shared
    )


def shared_of(schedule: Schedule) -> int:
    """Bytes of shared memory: buffers of the operands, and where they were, rows of sums."""
    padding = PADDING if schedule.instruction.total.opaque else 0
    row = schedule.depth * schedule.instruction.operand.itemsize + padding
    buffers = schedule.stages * (schedule.rows + schedule.columns) * row
    return max(buffers, schedule.strip[0] * (schedule.strip[1] * 4 + padding))


def registers_of(schedule: Schedule) -> int:
    """About how many registers a thread needs."""
    return min(_counted_registers(schedule), MOST_REGISTERS)


def _counted_registers(schedule: Schedule) -> int:
    one, item = schedule.instruction, schedule.instruction.operand.itemsize
    totals = schedule.warp_rows * schedule.warp_columns // one.lanes
    operands = (schedule.repeat[0] * one.a.count + schedule.repeat[1] * one.b.count) * item // 4
    operands = operands if one.together == 1 else 0
    copied = (schedule.rows + schedule.columns) * schedule.depth * item // CHUNK // schedule.threads
    copies = min(COPY_REGISTERS * copied, MOST_COPY_REGISTERS)
    return totals + operands + copies + OTHER_REGISTERS


def in_parts(schedule: Schedule, sizes: Sizes, gpu: Gpu) -> Iterator[Schedule]:
    """A schedule, and where it gives a GPU too few blocks, the same with sums in parts, which its second cache can hold; not with
    the largest warps, which would need more parts than smaller ones, each as large as the result."""
    largest = (schedule.warp_rows, schedule.warp_columns) == WARPS[0]
    steps = -(-max(sizes.numbers[2], 1) // schedule.depth)
    for parts in PARTS if not largest else PARTS[:1]:
        found = replace(schedule, parts=parts)
        few = blocks_of(found, sizes) <= 4 * gpu.multiprocessors and steps >= FEWEST_STEPS * parts
        if (parts == 1 or (few and parts_bytes(found, sizes) <= gpu.cache)) and sizes.take(found):
            yield from in_orders(found, sizes, gpu)


def in_orders(schedule: Schedule, sizes: Sizes, gpu: Gpu) -> Iterator[Schedule]:
    """A schedule, and where the second cache can hold the second operand but not everything, the same whose blocks go across:
    they read the first operand once."""
    yield schedule
    rows, columns, depth, batch = sizes.counts
    first, second = (size * sizes.operand.itemsize for size in (rows * depth // sizes.taps, columns * depth))
    several = schedule.parts == batch == 1 and columns > schedule.columns
    if several and second <= gpu.cache < first + second + 4 * rows * columns:
        yield replace(schedule, across=True)


def blocks_of(schedule: Schedule, sizes: Sizes) -> int:
    """How many blocks there are for known sizes."""
    rows, columns, _, batch = sizes.counts
    return -(-rows // schedule.rows) * -(-columns // schedule.columns) * batch * schedule.parts


def parts_bytes(schedule: Schedule, sizes: Sizes) -> int:
    """What sums in parts take, which blocks write and the last of them read."""
    return 4 * blocks_of(schedule, sizes) * schedule.rows * schedule.columns if schedule.parts > 1 else 0


def guess(sizes: Sizes, schedule: Schedule, gpu: Gpu, coefficients: Coefficients) -> float:
    """Seconds of a contraction of known sizes."""
    return combined(terms_of(sizes, schedule, gpu), coefficients)[0]


def terms_of(sizes: Sizes, schedule: Schedule, gpu: Gpu, tail: int = 1) -> Terms:
    """What a contraction of known sizes takes by the data sheet, term by term; `tail` are the operations for each result that are
    done on its way out."""
    rows, columns, depth, batch = sizes.counts
    item, parts, one = sizes.operand.itemsize, schedule.parts, schedule.instruction
    blocks = blocks_of(schedule, sizes)
    steps = -(-depth // (schedule.depth * parts))
    length = steps * schedule.depth
    tile = schedule.rows * schedule.columns
    products = 2 * tile * length
    down, across = schedule.warps
    fragments = (schedule.rows * across + schedule.columns * down // one.together) * length * item
    channels = depth // sizes.taps if sizes.terms == 1 else depth
    of_step = (schedule.rows + schedule.columns) * schedule.depth * item
    copy_bytes, copy_operations = copied(of_step, min(CHUNK, item * (channels & -channels)))
    own = min(schedule.rows, rows), min(schedule.columns, columns)
    first = Cost(
        reads=Counter({number: size * min(length, depth) * item for number, size in enumerate(own)}),
        writes=Counter({2: 4 * own[0] * own[1] if parts == 1 else 4 * tile}),
        products=products if one.function and one.together == 1 else 0,
        group_products=products if one.together > 1 else 0,
        operations=(tail if parts == 1 else 1) * tile
        + (0 if one.function else products)
        + copy_operations * (steps + schedule.ahead),
        shared=fragments + copy_bytes * steps + 8 * tile,
        waits=1 + steps / schedule.ahead,
        blocks=blocks,
        grid=(-(-rows // schedule.rows), -(-columns // schedule.columns), batch * parts),
        order=(1, 0, 2) if schedule.across else (0, 1, 2),
        apart=APART,
    )
    tensors = [batch * rows * depth // sizes.taps * item, batch * columns * depth * item]
    if parts > 1:
        first.waits += 1
        first.last = Cost(
            reads=Counter({2: 4 * parts * tile}), writes=Counter({3: 4 * own[0] * own[1]}), operations=(parts + tail) * tile,
            waits=schedule.strips, blocks=blocks // parts, discarded={2},
        )  # fmt: skip
        tensors.append(parts_bytes(schedule, sizes))
    tensors.append(4 * batch * rows * columns)
    held = resident_blocks(schedule.threads, shared_of(schedule), registers_of(schedule), gpu)
    return sheet_terms(first, tensors, schedule.threads, held, gpu)


APART: dict[int, set[int]] = {0: {0, 2}, 1: {1, 2}, 2: {0, 1, 2}}
"""Along which axes of the grid blocks read different elements of the operands, and of parts of sums."""
