"""Which results are only ever multiplied: where products are of float16, these are stored so at once."""

from __future__ import annotations

from collections.abc import Iterator

from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.program.rules import VIEWS
from graphc.targets.ggml.program.tensor import Tensor

OPERANDS = {"ggml_mul_mat": 2} | {name: each.multiplied for name, each in COMPOSITES.items()}
"""How many of a call's first arguments it multiplies."""

SAME_NUMBERS = {*VIEWS, "ggml_cont", "graphc_copy"}
"""Calls whose result has the numbers of their first argument."""

GATES = {"graphc_gelu", "graphc_silu", "graphc_gate"}
"""Calls whose result is no more exact than what they read: each number of it is a product."""


def narrow(program: Program) -> set[int]:
    """The numbers of the calls whose results are read by products alone, as they are, elsewhere, or gated."""
    wide = {output.tensor.call for output in program.outputs}
    read: set[int] = set()
    for number in reversed(range(len(program.calls))):
        for producer, multiplied in _uses(program.calls[number], number in read and number not in wide):
            read.add(producer)
            if not multiplied:
                wide.add(producer)
    return read - wide


def _uses(call: Call, result_multiplied: bool) -> Iterator[tuple[int, bool]]:
    """The calls whose results a call reads, and whether it does nothing with them but multiply."""
    passes_on = call.function in SAME_NUMBERS | GATES
    for number, arg in enumerate(call.args):
        if isinstance(arg, Tensor) and arg.call >= 0:
            yield arg.call, result_multiplied if passes_on else number < OPERANDS.get(call.function, 0)
