"""Copies: of tensors in another order, joined, repeated, with zeros around them, and in another type."""

from __future__ import annotations

from graphc.targets.ggml.program.composites.composite import Args, Expansion, composite, raises, tail
from graphc.targets.ggml.program.rules import require
from graphc.targets.ggml.program.tensor import Arg, Constant, Tensor


@composite("ggml_cont")
def copy(call: Expansion, x: Tensor) -> Tensor:
    """x, contiguous."""
    return call("ggml_cont", x)


@composite()
def cast(call: Expansion, x: Tensor, type: Constant) -> Tensor:
    """x in another type: float32, float16 and bfloat16."""
    return call("ggml_cast", x, type)


@raises(cast, "ggml_cast")
def _cast(x: Tensor, type: Constant) -> Args | None:
    return (x, type) if x.type in ("F32", "F16", "BF16") else None


@composite()
def concat(call: Expansion, axis: int, *parts: Tensor) -> Tensor:
    """All parts, joined along an axis (of ggml's)."""
    require(len(parts) > 1, "joins two tensors at least")
    joined = parts[0]
    for each in parts[1:]:
        joined = call("ggml_concat", joined, each, axis)
    return joined


@composite()
def repeat(call: Expansion, x: Tensor, ne0: int, ne1: int, ne2: int, ne3: int) -> Tensor:
    """x so many times along each axis that it has these sizes."""
    return call("ggml_repeat_4d", x, ne0, ne1, ne2, ne3)


@raises(repeat, "ggml_repeat_4d")
def _repeat(x: Tensor, *sizes: Arg) -> Args | None:
    return (x, *sizes) if x.type == "F32" else None


@composite("ggml_pad_ext")
def pad(
    call: Expansion, x: Tensor, before0: int, behind0: int, before1: int, behind1: int,
    before2: int, behind2: int, before3: int, behind3: int,
) -> Tensor:  # fmt: skip
    """x with so many zeros before and behind it along each axis."""
    return call("ggml_pad_ext", x, before0, behind0, before1, behind1, before2, behind2, before3, behind3)


@raises(concat, "ggml_concat")
def _concat(a: Tensor, b: Tensor, axis: int) -> Args:
    return axis, a, b


@tail(concat, "graphc_concat")
def _longer(args: Args, result: Tensor, behind: Args) -> Args | None:
    axis, *parts = args
    if behind[0] != axis:
        return None
    place = next(place for place, arg in enumerate(behind) if isinstance(arg, Tensor) and arg.call == result.call)
    return (*behind[:place], *parts, *behind[place + 1 :])
