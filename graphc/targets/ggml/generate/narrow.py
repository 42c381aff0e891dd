"""Which results are stored as float16, where products are of float16, and why: what is multiplied, what is added up or gated to
give that, and products that are normalized to give that. All else stays float32, such as sums that norms and further sums read:
they may be too large."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from math import inf

from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.program.rules import VIEWS
from graphc.targets.ggml.program.tensor import Tensor

OPERANDS = {"ggml_mul_mat": 2} | {name: each.multiplied for name, each in COMPOSITES.items()}
"""How many of a call's first arguments it multiplies: it rounds them to float16 anyway, and has lost what does not fit into that.
So others that read them read numbers no less exact than its own."""

SAME_NUMBERS = {*VIEWS, "ggml_cont", "graphc_copy"}
"""Calls whose result has the numbers of their first argument."""

MOVED = SAME_NUMBERS | {"graphc_concat", "ggml_concat", "graphc_upscale", "ggml_interpolate"}
"""Calls whose result has, in the way that kernels compute them, the numbers of their arguments, or lies between them."""

PRODUCTS = ("graphc_linear", "graphc_conv_2d")
"""Calls that add up products of their first two arguments, and the arguments behind them."""

ROUNDED = dict.fromkeys(("graphc_gelu", "graphc_silu", "graphc_gate", "graphc_add", "ggml_add"), 0) | dict.fromkeys(
    PRODUCTS, 2
)
"""Calls whose result is a product or a sum of its arguments, from one on: where it is rounded to float16, they may be too. They
are about as large, and it is no more exact."""

NORMS = {"graphc_layer_norm", "graphc_rms_norm", "graphc_l2_norm", "graphc_group_norm"}
"""Calls whose result is no more exact than what they read, but of another size: no reason against float16, and none for it."""


HEADROOM = 16.0
"""What results are divided by that norms alone read, as float16: they fit up to 1e6. A power of two costs no digits of numbers
above 1e-3, and below that an error is small beside what the norm divides by."""


def normalized(program: Program, multiplied: Container[int]) -> set[int]:
    """The numbers of products whose results one norm alone reads, for what is `multiplied`: that is rounded as much."""
    readers: dict[int, list[int]] = defaultdict(list)
    for number, call in enumerate(program.calls):
        for arg in call.args:
            if isinstance(arg, Tensor) and arg.call >= 0:
                readers[arg.call].append(number)
    outputs = {output.tensor.call for output in program.outputs}
    return {
        number
        for number, (reader, *others) in readers.items()
        if not others and reader in multiplied and number not in outputs
        and program.calls[reader].function in NORMS and program.calls[number].function in PRODUCTS
    }  # fmt: skip


def narrow(program: Program) -> set[int]:
    """The numbers of the calls whose results are multiplied, as they are or moved, or are parts of what is float16 and read for
    nothing that is more exact."""
    outputs = {output.tensor.call for output in program.outputs}
    multiplied, rounded, wide = set[int](), set[int](), set(outputs)
    for number in reversed(range(len(program.calls))):
        call = program.calls[number]
        is_narrow = number in multiplied or number in rounded - wide
        for place, arg in enumerate(call.args):
            if not isinstance(arg, Tensor) or arg.call < 0:
                continue
            if place < OPERANDS.get(call.function, 0):
                multiplied.add(arg.call)
            elif call.function in MOVED:
                for kind in (multiplied, rounded, wide):
                    kind |= {arg.call} if number in kind else set()
            elif is_narrow and place >= ROUNDED.get(call.function, inf):
                rounded.add(arg.call)
            elif not (is_narrow and call.function in NORMS):
                wide.add(arg.call)
    return (multiplied | (rounded - wide)) - outputs
