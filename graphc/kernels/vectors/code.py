"""The instructions of a kernel for the interpreter (`project/graphc/own/vectors.c`), and how they lie in memory.

A register is an array of so many lanes: one (`ONE`), one for each row of a block (`ROWS`), or one for each element (`ELEMENTS`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias, Union

import numpy as np

from graphc.shapes import Dim

BLOCK = 512
"""Elements for which an instruction is done at once: few enough that registers stay in the cache nearest to the processor."""

ONE, ROWS, ELEMENTS = range(3)

CONTROLS = {
    name: -1 - number
    for number, name in enumerate(
        ("load", "gather", "expand", "aim", "store", "skip", "loop", "next", "fault", "reduce")
    )
}
"""What an instruction does that is not one of the interpreter's operators."""

ALIGNED = 64
"""Bytes: registers begin at multiples of a line of the cache."""


@dataclass(frozen=True)
class Register:
    """Numbers of a type (`f32`, `u8`, …) in so many lanes. Two may be the same memory, read as other types of the same size."""

    number: int
    type: str
    lanes: int

    @property
    def size(self) -> int:
        """Bytes of a lane."""
        return int(self.type[1:]) // 8

    def read_as(self, type: str) -> Register:
        """The same bits as another type of the same size."""
        return replace(self, type=type)


Argument: TypeAlias = Union[Register, int, None]


@dataclass
class Instruction:
    """`name` is a control or an operator with its type (`add_f32`); at most five arguments, those that are no register as the
    control wants them."""

    name: str
    lanes: int
    to: Register | None
    args: list[Argument]

    def reads(self) -> list[Register]:
        """The registers that it needs; a total is also read."""
        found = [each for each in self.args if isinstance(each, Register)]
        return [*found, self.to] if self.to is not None and self.name.startswith(("fold_", "total_")) else found


@dataclass
class Frame:
    """Loops around instructions: `once` are done before, `body` for each block of elements. `axes` are their sizes, with the
    registers that hold their indices, if these are needed. `imports` bring a lane of a register to one of a single lane."""

    axes: list[tuple[int, Register | None]] = field(default_factory=list)
    imports: list[tuple[Register, Register]] = field(default_factory=list)
    once: int = 0
    body: int = 0
    end: int = 0


@dataclass
class Code:
    """A kernel's instructions. `numbers` are what its constants and sizes are: the bits of a constant, or a size; `constants` say
    which registers they fill. `repeated` are stretches of instructions, from and up to, that are done again and again."""

    instructions: list[Instruction]
    frames: list[Frame]
    registers: list[Register]
    constants: list[tuple[Register, int]]
    numbers: list[bytes | Dim]
    repeated: list[tuple[int, int]]
    faults: tuple[str, ...] = ()

    def packed(self, operator: Callable[[str], int]) -> np.ndarray:
        """The words that the interpreter reads; `operator` gives an operator's number."""
        places, total = self._places()
        imports = [each for frame in self.frames for each in frame.imports]
        axes = [each for frame in self.frames for each in frame.axes]
        words: list[int] = [
            BLOCK, total, len(self.registers), len(self.constants), len(imports), len(axes), len(self.frames),
            len(self.instructions),
        ]  # fmt: skip
        for register, place in zip(self.registers, places, strict=True):
            words += [place, register.size]
        for register, number in self.constants:
            words += [register.number, number, register.lanes]
        for source, target in imports:
            words += [source.number, target.number]
        for extent, index in axes:
            words += [extent, -1 if index is None else index.number]
        first_axis = first_import = 0
        for frame in self.frames:
            words += [first_axis, len(frame.axes), first_import, len(frame.imports), frame.once, frame.body, frame.end]
            first_axis, first_import = first_axis + len(frame.axes), first_import + len(frame.imports)
        for each in self.instructions:
            number = CONTROLS[each.name] if each.name in CONTROLS else operator(each.name)
            args = [_word(arg, number) for arg in [*each.args, *[None] * (5 - len(each.args))]]
            words += [number, each.lanes, 0 if each.to is None else each.to.number, *args]
        return np.array(words, np.int32)

    def _places(self) -> tuple[list[int], int]:
        """Where each register is in memory, and how many bytes there are: those that are never needed at once share a place."""
        first, last = self._lives()
        events = sorted((first[each.number], each.number) for each in self.registers)
        places = [0] * len(self.registers)
        free: dict[int, list[int]] = {}
        living: list[tuple[int, int, int]] = []
        total = 0
        for begin, number in events:
            while living and living[0][0] < begin:
                _, size, place = living.pop(0)
                free.setdefault(size, []).append(place)
            register = self.registers[number]
            size = _aligned(register.size * (1 if register.lanes == ONE else BLOCK))
            if free.get(size):
                places[number] = free[size].pop()
            else:
                places[number], total = total, total + size
            insort(living, (last[number], size, places[number]))
        return places, total + ALIGNED

    def _lives(self) -> tuple[list[int], list[int]]:
        """The first and the last instruction for which each register holds what is needed."""
        end = len(self.instructions)
        first, last = [end] * len(self.registers), [-1] * len(self.registers)

        def seen(register: Register | None, at: int) -> None:
            if register is not None:
                first[register.number] = min(first[register.number], at)
                last[register.number] = max(last[register.number], at)

        for at, each in enumerate(self.instructions):
            for register in (each.to, *each.reads()):
                seen(register, at)
        for frame in self.frames:
            for source, target in frame.imports:
                seen(source, frame.once - 1)
                seen(target, frame.once - 1)
            for _, index in frame.axes:
                seen(index, frame.body - 1)  # it is written before
        for register, _ in self.constants:
            first[register.number], last[register.number] = -1, end
        for begin, stop in sorted(self.repeated, key=lambda each: each[1] - each[0]):
            for number in range(len(self.registers)):
                if first[number] < begin <= last[number] < stop:
                    last[number] = stop
        return first, last


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _word(arg: Argument, operator: int) -> int:
    """An argument as the interpreter reads it: register 0 for what an operator does not read, -1 for what a control has not."""
    if isinstance(arg, Register):
        return arg.number
    return arg if arg is not None else 0 if operator >= 0 else -1


def wrapped(number: int) -> int:
    """A number as int64 has it."""
    return (number + 2**63) % 2**64 - 2**63
