"""Which results are multiplied: where products are of float16, these are stored so at once, whoever else reads them. The product
rounds them to float16 anyway, and what does not fit into that, it has lost; so others read numbers no less exact than its own."""

from __future__ import annotations

from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.program.rules import VIEWS
from graphc.targets.ggml.program.tensor import Tensor

OPERANDS = {"ggml_mul_mat": 2} | {name: each.multiplied for name, each in COMPOSITES.items()}
"""How many of a call's first arguments it multiplies."""

SAME_NUMBERS = {*VIEWS, "ggml_cont", "graphc_copy"}
"""Calls whose result has the numbers of their first argument."""

MOVED = SAME_NUMBERS | {"graphc_concat", "ggml_concat", "ggml_interpolate"}
"""Calls whose result has, in the way that kernels compute them, the numbers of their arguments."""

GATES = {"graphc_gelu", "graphc_silu", "graphc_gate"}
"""Calls whose result is no more exact than what they read: each number of it is a product."""


def narrow(program: Program) -> set[int]:
    """The numbers of the calls whose results are multiplied as they are, elsewhere, or, where nothing else reads them, gated."""
    outputs = {output.tensor.call for output in program.outputs}
    found: set[int] = set()
    gated: set[int] = set()
    wide = set(outputs)
    for number in reversed(range(len(program.calls))):
        call = program.calls[number]
        if number in gated - wide:
            found.add(number)
        for place, arg in enumerate(call.args):
            if not isinstance(arg, Tensor) or arg.call < 0:
                continue
            if place < OPERANDS.get(call.function, 0) or (call.function in MOVED and number in found):
                found.add(arg.call)
            elif call.function in GATES and number in found:
                gated.add(arg.call)
            else:
                wide.add(arg.call)
    return found - outputs
