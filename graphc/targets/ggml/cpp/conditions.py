"""What must hold of sizes for ggml to accept a program's calls, where it depends on the sizes that the model is run with.

`calls.py` checks what is known when a model is compiled, and the in-process executor checks the rest when it is run; for
C++ the rest is written out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphc.shapes import Dim, Expr
from graphc.shapes.dim import lower_bound
from graphc.targets.ggml.cpp.numbers import SIZED
from graphc.targets.ggml.program import TYPE_SIZES, Call, Program, Tensor
from graphc.targets.ggml.prune import live_calls

POSITIVE = SIZED | {"ggml_pool_2d", "ggml_im2col", "ggml_conv_transpose_2d_p0"} | {
    f"ggml_conv_2d{kind}" for kind in ("", "_direct", "_dw_direct")
}  # fmt: skip
"""Calls that take no size of 0."""


@dataclass(frozen=True)
class Condition:
    """`size` must be at least `least`; `text` says what it is."""

    size: Expr
    least: int
    text: str


def conditions(program: Program) -> list[Condition]:
    """The conditions that do not hold for all sizes, each once, in the order of the calls."""
    found: dict[Dim, Condition] = {}
    for index in sorted(live_calls(program)):
        for size, least, text in _of_call(program.calls[index]):
            low = lower_bound(size)
            if isinstance(size, Expr) and (low is None or low < least):
                known = found.get(size)
                found[size] = known if known and known.least >= least else Condition(size, least, text)
    return list(found.values())


def _of_call(call: Call) -> Iterator[tuple[Dim, int, str]]:
    least = 1 if call.function in POSITIVE and call.kernel < 0 else 0
    for size in call.result.ne:
        yield size, least, str(size)
    source = call.args[0] if call.args else None
    if call.function.startswith("ggml_view_") and isinstance(source, Tensor):
        offset = call.args[-1]
        assert isinstance(offset, int | Expr)
        yield offset, 0, str(offset)
        end = offset + _extent(call.result)
        shape = ", ".join(map(str, source.shape))
        yield _extent(source) - end, 0, f"the rest of [{shape}] behind [{', '.join(map(str, call.result.shape))}]"


def _extent(tensor: Tensor) -> Dim:
    """Bytes from the first element of a tensor to the end of its last."""
    size: Dim = TYPE_SIZES[tensor.type]
    for count, stride in zip(tensor.ne, tensor.nb, strict=True):
        size = size + (count - 1) * stride
    return size
