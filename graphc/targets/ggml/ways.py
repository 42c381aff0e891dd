"""How each operator of a model is computed, in the words of `docs/operators.md`."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphc.ir.graph import Node, Source
from graphc.ops.control import Control
from graphc.targets.ggml.calls import VIEWS
from graphc.targets.ggml.program import KernelUse, Program
from graphc.targets.kernels.routine import routine_of

GGML, ROUTINE, KERNEL, HOST, NOTHING = "ggml calls", "routine", "kernel", "host", "no call"
ORDER = (GGML, ROUTINE, KERNEL, HOST, NOTHING)


@dataclass
class Computed:
    """An operator of the model: its nodes, and the ways in which they and the smaller operators in them are computed."""

    nodes: set[int] = field(default_factory=set)
    ways: set[str] = field(default_factory=set)

    @property
    def text(self) -> str:
        """The ways, the first of them first; "no call" only where there is no other."""
        shown = [way for way in ORDER if way in self.ways]
        return ", ".join([way for way in shown if way != NOTHING] or shown)


@dataclass
class Ways:
    """What the lowering of a graph and of those inside it showed, by operator. What rules made of several belongs to the last."""

    operators: dict[str, Computed] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)

    def saw(self, node: Node, program: Program, start: int) -> None:
        """Note what the calls from `start` on compute for a node that is lowered."""
        found = self.operators.setdefault(node.source.operator or node.op.name, Computed())
        found.nodes.add(id(node.source))
        self.sources.append(node.source)  # so that no other gets its id
        if isinstance(node.op, Control):
            found.ways.add(HOST)
            return
        calls = [call for call in program.calls[start:] if call.function not in VIEWS]
        for call in calls:
            found.ways.add(GGML if call.kernel < 0 else way_of(program.kernels[call.kernel]))
        if not calls:
            found.ways.add(NOTHING)


def way_of(use: KernelUse) -> str:
    """Whether a kernel is hand-written or generated."""
    return KERNEL if routine_of(use) is None else ROUTINE
