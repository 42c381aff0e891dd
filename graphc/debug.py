"""What GRAPHC_DEBUG shows of a compilation, on stderr.

1: a line for each stage; 2: the rules that fired and the refusals; 3: the graph after each stage; 4: the ggml calls.
From 1 on, the graph is verified after each stage.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import dataclass

from graphc.ir.graph import Graph
from graphc.ir.verify import verify
from graphc.rewrite.engine import Log
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.program.tensor import Tensor


@dataclass
class Debug:
    """How much is shown of one compilation."""

    level: int = 0

    @staticmethod
    def from_environment() -> Debug:
        """How much GRAPHC_DEBUG says to show; 0 where it is not set or no number."""
        text = os.environ.get("GRAPHC_DEBUG", "")
        return Debug(int(text) if text.isdigit() else 0)

    def observe(self, stage: str, graph: Graph) -> None:
        """Show and verify the graph after a stage. Raises AssertionError if it is not sound."""
        if self.level >= 1:
            verify(graph)
            self.show(f"{stage}: {len(graph.nodes)} nodes")
        if self.level >= 3:
            self.show(str(graph))

    def finish(self, program: Program, log: Log) -> None:
        """Show the rules and passes that were applied, the refusals, and the program."""
        if self.level >= 2:
            fired = log.fired.most_common()
            self.show("applied: " + (", ".join(f"{name} {count}" for name, count in fired) or "none"))
            for (name, reason), count in Counter((rule, reason) for rule, _, reason in log.refused).most_common():
                self.show(f"refused: {name}, {reason} ({count})")
        if self.level >= 1:
            self.show(
                f"program: {len(program.calls)} calls, {len(program.kernels)} kernels, {len(program.weights)} weights"
            )
        if self.level >= 4:
            self.show_calls(program)

    def show_calls(self, program: Program, indent: str = "") -> None:
        """Show the calls of a program, and under a call of the host those of its blocks."""
        for call in program.calls:
            args = ", ".join(_argument(arg) if isinstance(arg, Tensor) else str(arg) for arg in call.args)
            function = call.function if call.host is None else call.host.operator
            self.show(f"{indent}t{call.result.call} = {function}({args})  // {list(call.result.shape)} {call.source}")
            for block in call.host.blocks if call.host else ():
                self.show(f"{indent}  {block.name}:")
                self.show_calls(block, indent + "    ")

    def show(self, text: str) -> None:
        """Write a line."""
        sys.stderr.write(f"graphc: {text}\n")


def _argument(tensor: Tensor) -> str:
    if tensor.call >= 0:
        return f"t{tensor.call}"
    return f"input{tensor.input}" if tensor.input >= 0 else f"w{tensor.weight}"
