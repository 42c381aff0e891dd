"""How each operator of a model is computed, in the words of `docs/operators.md`."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphc.ir.graph import Node, Source
from graphc.kernels.c.routine import routine_of
from graphc.kernels.use import KernelUse
from graphc.ops.control import Control
from graphc.targets.ggml.program.calls import VIEWS
from graphc.targets.ggml.program.program import Program

GGML, ROUTINE, KERNEL, HOST, NOTHING = "ggml calls", "routine", "kernel", "host", "no call"
ORDER = (GGML, ROUTINE, KERNEL, HOST, NOTHING)


@dataclass
class Computed:
    """An operator of the model: its nodes, and how they and the smaller operators in them are computed."""

    nodes: set[int] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)

    @property
    def text(self) -> str:
        """The methods, the first of them first; "no call" only where there is no other."""
        shown = [method for method in ORDER if method in self.methods]
        return ", ".join([method for method in shown if method != NOTHING] or shown)


@dataclass
class Methods:
    """What the lowering of a graph and of those inside it showed, by operator. What rules made of several belongs to the last."""

    operators: dict[str, Computed] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)

    def saw(self, node: Node, program: Program, start: int) -> None:
        """Note what the calls from `start` on compute for a node that is lowered."""
        found = self.operators.setdefault(node.source.operator or node.op.name, Computed())
        found.nodes.add(id(node.source))
        self.sources.append(node.source)  # so that no other gets its id
        if isinstance(node.op, Control):
            found.methods.add(HOST)
            return
        calls = [call for call in program.calls[start:] if call.function not in VIEWS]
        for call in calls:
            found.methods.add(GGML if call.kernel < 0 else method_of(program.kernels[call.kernel]))
        if not calls:
            found.methods.add(NOTHING)


def method_of(use: KernelUse) -> str:
    """How a kernel came to be: hand-written, or generated."""
    return KERNEL if routine_of(use) is None else ROUTINE
