"""How a contraction is shared out: a short string, such as `m128n128k32 w64x32 s3 z1`, and when it may be used."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from graphc.errors import GraphcError
from graphc.kernels.gpu.instructions import INSTRUCTIONS, MatrixInstruction
from graphc.kernels.gpu.tile import LINE

PADDING = 16
"""Bytes behind each row of shared memory that an instruction reads as it likes, so that neighbouring rows lie in other banks."""

STRIP_COLUMNS = (64, 32)
"""Of a strip where a warp has all columns: so many float32 that rows of 16 bits are whole sectors, or whole lines, of caches."""


ACROSS = " across"
"""What the string of a schedule ends with whose blocks beside each other run one behind the other."""


class ScheduleError(GraphcError):
    """A schedule that is none, or that a kernel or device cannot have."""


@dataclass(frozen=True)
class Schedule:
    """A block computes `rows` x `columns` of the result and reads `depth` of the sum at a time, through `stages` buffers; a warp
    computes `warp_rows` x `warp_columns` of it by `instruction`; the sum is cut into `parts` that different blocks compute. From
    block to block it goes down the rows, or `across` the columns, where blocks that follow each other read the same rows."""

    rows: int
    columns: int
    depth: int
    warp_rows: int
    warp_columns: int
    stages: int
    parts: int
    instruction: MatrixInstruction
    across: bool = False

    def __str__(self) -> str:
        tile = f"m{self.rows}n{self.columns}k{self.depth} w{self.warp_rows}x{self.warp_columns}"
        return f"{tile} s{self.stages} z{self.parts} {self.instruction.name}{ACROSS if self.across else ''}"

    @property
    def warps(self) -> tuple[int, int]:
        """Warps below and beside each other."""
        return self.rows // self.warp_rows, self.columns // self.warp_columns

    @property
    def repeat(self) -> tuple[int, int]:
        """Instructions below and beside each other in a warp."""
        return self.warp_rows // self.instruction.m, self.warp_columns // self.instruction.n

    @property
    def ahead(self) -> int:
        """Steps that are copied ahead. A buffer is free for the next copy when all warps are done with it: by a barrier where
        they read it into registers, one step later where products go on behind the barrier."""
        return self.stages - (2 if self.instruction.together > 1 else 1)

    @property
    def strip(self) -> tuple[int, int]:
        """Rows and columns of the sums that are brought into rows together: of one repetition of all warps, or, where a warp has
        all columns of the block, some columns of all rows."""
        if self.instruction.together == 1:
            return self.warps[0] * self.instruction.m, self.columns
        return self.rows, next(width for width in STRIP_COLUMNS if self.columns % width == 0)

    @property
    def strips(self) -> int:
        """How many strips there are."""
        return self.rows * self.columns // (self.strip[0] * self.strip[1])

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warps[0] * self.warps[1] * self.instruction.lanes

    @property
    def halved(self) -> Schedule | None:
        """The same with half of the columns: of two products whose sums meet, a block then has as many in all. None if it is no
        schedule, or if sums are cut into parts, which never meet."""
        found = replace(self, columns=self.columns // 2, warp_columns=self.warp_columns // 2)
        return found if self.parts == 1 and self.columns % 2 == 0 and found.refusal() is None else None

    def refusal(self) -> str | None:
        """Why nothing can have this schedule; None if it is sound by itself."""
        row, column, depth = self.instruction.m, self.instruction.n, self.instruction.k
        if (
            min(self.rows, self.columns, self.depth, self.warp_rows, self.warp_columns, self.parts) < 1
            or self.stages < 2
        ):
            return "its sizes are at least 1, and its stages 2"
        if self.rows % self.warp_rows or self.columns % self.warp_columns:
            return "warps do not fill the block"
        if self.warp_rows % row or self.warp_columns % column or self.depth % depth:
            return f"its sizes are no multiples of {row} x {column} x {depth}"
        if self.instruction.together > 1 and (refusal := self._refusal_together()) is not None:
            return refusal
        if self.threads > 1024:
            return f"{self.threads} threads"
        if self.columns < 32 or self.depth * self.instruction.operand.itemsize not in (32, 64, 128):
            return "rows of shared memory are 32, 64 or 128 bytes, and those of the result at least 32 elements"
        return None

    def _refusal_together(self) -> str | None:
        """The same for warps that multiply together."""
        one = self.instruction
        if (self.warp_rows, self.warp_columns) != (one.m, self.columns) or self.warps[0] % one.together:
            return f"{one.together} warps multiply together: each has {one.m} rows and all columns"
        if self.stages < 3:
            return "its stages are at least 3, for products go on while the next are copied"
        widths = [width for width in one.widths if width % STRIP_COLUMNS[-1] == 0]
        if self.columns not in widths or self.depth * one.operand.itemsize != LINE:
            return f"it has {', '.join(map(str, widths))} columns, and rows of {LINE} bytes"
        return None


_FORM = re.compile(r"m(\d+)n(\d+)k(\d+) w(\d+)x(\d+) s(\d+) z(\d+) (\w+)( across)?")


def parsed(text: str) -> Schedule:
    """The schedule that a string says. Raises ScheduleError."""
    found = _FORM.fullmatch(text)
    if found is None or found[8] not in INSTRUCTIONS:
        raise ScheduleError(f"{text!r} is no schedule: one is written as 'm128n128k32 w64x32 s3 z1 m16n8k16_half'")
    rows, columns, depth, warp_rows, warp_columns, stages, parts = map(int, found.groups()[:7])
    one = INSTRUCTIONS[found[8]]
    schedule = Schedule(rows, columns, depth, warp_rows, warp_columns, stages, parts, one, found[9] is not None)
    refusal = schedule.refusal()
    if refusal:
        raise ScheduleError(f"{text}: {refusal}")
    return schedule
