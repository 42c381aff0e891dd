"""What must hold of sizes for ggml to accept a program's calls, where it depends on the sizes that the model is run with.

`calls.py` checks what is known when a model is compiled, and the in-process executor checks the rest when it is run; for
C++ the rest is written out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphc.shapes import Dim, Expr
from graphc.shapes.dim import lower_bound
from graphc.targets.ggml.cpp.numbers import SIZED, may_be_empty, may_vanish
from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.program.prune import live_calls
from graphc.targets.ggml.program.tensor import TYPE_SIZES, Tensor

POSITIVE = SIZED | {
    "ggml_pool_2d", "ggml_im2col", "ggml_im2col_3d", "ggml_conv_transpose_2d_p0", "graphc_conv_2d_dw", "graphc_conv_2d",
    "graphc_conv_3d", "graphc_conv_2d_last", "graphc_expanded_conv_2d", "graphc_average_pool",
}  # fmt: skip
"""Calls that take no size of 0."""


@dataclass(frozen=True)
class Condition:
    """`size` must be at least `least`; `text` says what it is. Where a tensor of the sizes `unless_empty` has no elements, it
    need not be."""

    size: Expr
    least: int
    text: str
    unless_empty: tuple[Dim, ...] = ()


def conditions(program: Program) -> list[Condition]:
    """The conditions that do not hold for all sizes, each once, in the order of the calls."""
    found: dict[object, Condition] = {}
    for index in sorted(live_calls(program)):
        call = program.calls[index]
        for size, least, text in _of_result(call):
            low = lower_bound(size)
            if isinstance(size, Expr) and (low is None or low < least):
                known = found.get(size)
                found[size] = known if known and known.least >= least else Condition(size, least, text)
        empty = call.result.ne if may_be_empty(call) else ()
        for size, text in _of_view(call):
            low = lower_bound(size)
            if isinstance(size, Expr) and (low is None or low < 0):
                found.setdefault((size, empty) if empty else size, Condition(size, 0, text, empty))
    return list(found.values())


def _of_result(call: Call) -> Iterator[tuple[Dim, int, str]]:
    least = 1 if call.function in POSITIVE and call.kernel < 0 else 0
    for size in call.result.ne:
        yield size, 0 if may_vanish(size) else least, str(size)


def _of_view(call: Call) -> Iterator[tuple[Dim, str]]:
    source = call.args[0] if call.args else None
    if call.function.startswith("ggml_view_") and isinstance(source, Tensor):
        offset = call.args[-1]
        assert isinstance(offset, int | Expr)
        yield offset, str(offset)
        end = offset + _extent(call.result)
        shape = ", ".join(map(str, source.shape))
        yield _extent(source) - end, f"the rest of [{shape}] behind [{', '.join(map(str, call.result.shape))}]"


def _extent(tensor: Tensor) -> Dim:
    """Bytes from the first element of a tensor to the end of its last."""
    size: Dim = TYPE_SIZES[tensor.type]
    for count, stride in zip(tensor.ne, tensor.nb, strict=True):
        size = size + (count - 1) * stride
    return size
