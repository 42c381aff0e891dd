"""What threads of a block do together, and blocks with each other, as text of the dialect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from graphc.ir.types import I64
from graphc.kernels.c.language import Helper
from graphc.kernels.gpu.evaluate import identity
from graphc.kernels.gpu.layout import register_map
from graphc.kernels.gpu.render.writer import Writer
from graphc.kernels.gpu.tile import Last, Reduce, Statement
from graphc.kernels.scalar import constant


class Together(Writer, ABC):
    """Writes reductions, and what the last of several blocks does."""

    @abstractmethod
    def statements(self, body: Sequence[Statement]) -> None:
        """Statements in the block at hand."""

    def _last(self, it: Last) -> None:
        """One thread comes for all. Its first fence has other blocks see what all wrote before the barrier; its second, and the
        barrier behind it, have all see what the blocks wrote that came before."""
        counter, told = self.address(it.counters, it.offset), self.shared_place(it.scratch, constant(0, I64), "0", "0")
        self.say("barrier();")
        with self.inside("if (thread == 0)"):
            self.say(
                "device_fence();",
                f"const unsigned before = atomic_add_global({counter}, 1u);",
                "device_fence();",
                f"if (before == {it.count - 1}) store_global({counter}, 0u);",
                f"store_shared<unsigned>({told}, before);",
            )
        self.say("barrier();")
        with self.inside(f"if (load_shared<unsigned>({told}) == {it.count - 1})", barrier=True):
            self.statements(it.body)

    def _reduce(self, it: Reduce) -> None:
        source, target, axis = it.source, it.tile, it.axis
        combine = (
            "{0} + {1}" if it.kind == "sum" else f"{self.values.helper(Helper(it.kind, it.tile.dtype))}({{0}}, {{1}})"
        )
        count, name = target.layout.registers, target.name
        start = identity(it.kind, target.dtype)
        first = {float("inf"): "INFINITY", float("-inf"): "-INFINITY"}.get(start, f"{start}")
        self.say(f"UNROLL for (int e = 0; e < {count}; e++) {name}[e] = {first};")
        places = register_map(target.layout.without(axis), source.layout)
        assert places is not None
        table = f"{name}_of_{source.name}"
        with self.inside(""):
            self.say(f"const int {table}[] = {{{', '.join(map(str, places))}}};")
            there = f"{name}[{table}[e]]"
            line = f"{there} = {combine.format(there, f'{source.name}[e]')};"
            self.say(f"UNROLL for (int e = 0; e < {source.layout.registers}; e++) {line}")
        for bit, (at, to) in enumerate(zip(source.layout.atom.lanes, target.layout.atom.lanes, strict=True)):
            if at[axis] and not to[axis]:
                other = f"shuffle_xor({name}[e], {1 << bit})"
                self.say(f"UNROLL for (int e = 0; e < {count}; e++) {name}[e] = {combine.format(f'{name}[e]', other)};")
        for number, (count, along) in enumerate(source.layout.warps):
            if along == axis and target.layout.warps[number] != (count, along) and count > 1:
                self.across_warps(it, combine, number, count)

    def across_warps(self, it: Reduce, combine: str, number: int, count: int) -> None:
        """Combine what several warps have, through shared memory."""
        assert it.scratch is not None
        target, name, scratch = it.tile, it.tile.name, it.scratch
        inner = int(np.prod([each for each, _ in it.source.layout.warps[number + 1 :]], dtype=int))
        digit = f"warp / {inner} % {count}" if inner > 1 else f"warp % {count}"
        alone = sum(1 << bit for bit, at in enumerate(it.source.layout.atom.lanes) if at[it.axis])
        stage = constant(0, I64)
        self.say("barrier();")
        with self.groups(target, 1):
            along = "row" if it.axis == 1 else "column"
            along = along if target.shape[1 - it.axis] > 1 else "0"
            address = self.shared_place(scratch, stage, digit, along)
            self.say(f"if ((lane & {alone}) == 0) store_shared<float>({address}, {name}[e]);")
        self.say("barrier();")
        with self.groups(target, 1):
            self.say(f"{name}[e] = load_shared<float>({self.shared_place(scratch, stage, '0', along)});")
            other = f"load_shared<float>({self.shared_place(scratch, stage, 'w', along)})"
            self.say(f"for (int w = 1; w < {count}; w++) {name}[e] = {combine.format(f'{name}[e]', other)};")
