"""What threads of a block do together, and blocks with each other, in SPIR-V."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from graphc.ir.types import I64
from graphc.kernels.gpu.evaluate import identity
from graphc.kernels.gpu.layout import register_map
from graphc.kernels.gpu.render.spirv_matrices import Matrices
from graphc.kernels.gpu.render.spirv_module import Block
from graphc.kernels.gpu.render.spirv_numbers import kind_in_registers
from graphc.kernels.gpu.tile import Barrier, Last, Reduce, Statement
from graphc.kernels.scalar import constant

WORKGROUP, SUBGROUP = 2, 3


class Together(Matrices, ABC):
    """Writes reductions, and what the last of several blocks does."""

    @abstractmethod
    def statements(self, body: Sequence[Statement]) -> None:
        """Statements in the block at hand."""

    @abstractmethod
    def do_barrier(self, it: Barrier) -> None:
        """A barrier."""

    @abstractmethod
    def settle(self) -> None:
        """What is under way gets where it belongs, before the block ends or others begin."""

    def converted(self, value: int, source: np.dtype, target: np.dtype) -> int:
        """A number that a type holds in another type."""
        return value if source == target else self.cast(value, kind_in_registers(source), source, target)

    def arrive(self, to: int, found: int, valid: int | None, nbytes: int, inside: int | None) -> None:
        """Write what was read to shared memory. Nothing looks at it before, so nothing waits for it before."""
        with self.guarded(inside):
            piece = self.piece_or_zero(found, valid, nbytes)
            if self.is_seen:
                self.write_piece(None, to, nbytes, piece)
            else:
                self.write_words(None, to, nbytes, self.words_of(piece, nbytes))

    @contextmanager
    def guarded(self, inside: int | None) -> Iterator[None]:
        """Write where a condition holds, if there is one."""
        outer = self.block
        if inside is not None:
            self.block = Block(self.module, outer)
        yield
        if inside is not None:
            inner, self.block = self.block, outer
            outer.choose(inside, inner)

    def do_reduce(self, it: Reduce) -> None:
        """A reduction: within lanes, between them, and between warps."""
        source, target, dtype, kind = it.source, it.tile, it.tile.dtype, kind_in_registers(it.tile.dtype)
        name = {"sum": "+"}.get(it.kind, it.kind)
        places = register_map(target.layout.without(it.axis), source.layout)
        assert places is not None
        totals = [self.constant(identity(it.kind, dtype), kind)] * target.layout.registers
        for register, at in enumerate(places):
            value = self.converted(self.held(source, register), source.dtype, dtype)
            totals[at] = self.operator(name, dtype, kind, [totals[at], value])
        self.module.need("GroupNonUniformShuffle")
        for bit, (along, to) in enumerate(zip(source.layout.atom.lanes, target.layout.atom.lanes, strict=True)):
            if along[it.axis] and not to[it.axis]:
                subgroup, mask = self.module.number(SUBGROUP), self.module.number(1 << bit)
                others = [self.make(kind, "GroupNonUniformShuffleXor", subgroup, each, mask) for each in totals]
                totals = [self.operator(name, dtype, kind, pair) for pair in zip(totals, others, strict=True)]
        for register, value in enumerate(totals):
            self.hold(target, register, value)
        for number, (count, axis) in enumerate(source.layout.warps):
            if axis == it.axis and target.layout.warps[number] != (count, axis) and count > 1:
                self.across_warps(it, name, number, count)

    def across_warps(self, it: Reduce, name: str, number: int, count: int) -> None:
        """Combine what several warps have, through shared memory."""
        target, scratch, zero = it.tile, it.scratch, constant(0, I64)
        assert scratch is not None
        dtype, kind = target.dtype, kind_in_registers(target.dtype)
        inner = int(np.prod([each for each, _ in it.source.layout.warps[number + 1 :]], dtype=int))
        alone = sum(1 << bit for bit, at in enumerate(it.source.layout.atom.lanes) if at[it.axis])
        digit, first = self.warp // inner % count, self.value((self.lane & alone).eq(0))
        nbytes = scratch.dtype.itemsize
        self.do_barrier(Barrier())
        for register, row, column in self.groups(target, 1):
            along = row if it.axis == 1 else column
            to = self.value(self.shared_index(scratch, zero, digit, along, nbytes))
            with self.guarded(first):
                self.write_words(None, to, nbytes, self.packed([self.held(target, register)], dtype))
        self.do_barrier(Barrier())
        for register, row, column in self.groups(target, 1):
            along, values = row if it.axis == 1 else column, []
            for warp in range(count):
                there = self.value(self.shared_index(scratch, zero, constant(warp, I64), along, nbytes))
                values += self.unpacked(self.read_words(None, there, nbytes), dtype)
            self.hold(target, register, functools.reduce(lambda a, b: self.operator(name, dtype, kind, [a, b]), values))

    def do_last(self, it: Last) -> None:
        """One thread comes for all, and tells them."""
        self.settle()
        self.block.do("ControlBarrier", *self.across_tensors(WORKGROUP))
        told = self.value(self.shared_index(it.scratch, constant(0, I64), constant(0, I64), constant(0, I64), 4))
        first, counter = self.value((self.warp.eq(0)).and_(self.lane.eq(0))), self.value(it.offset, "i32")
        outer = self.block
        self.block = inner = Block(self.module, outer)
        self.write_words(None, told, 4, [self.counted(it.counters, counter, it.count)])
        self.block = outer
        outer.choose(first, inner)
        self.block.do("ControlBarrier", *self.across_tensors(WORKGROUP))
        (before,) = self.read_words(None, told, 4)
        is_last = self.make("bool", "IEqual", before, self.module.number(it.count - 1))
        self.block = inner = Block(self.module, outer)
        self.statements(it.body)
        self.settle()
        self.block = outer
        outer.choose(is_last, inner)
