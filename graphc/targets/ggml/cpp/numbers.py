"""The numbers among a call's arguments that callers of a shared function need not have in common: sizes and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

from graphc.shapes import Dim, Expr, lower_bound, symbols
from graphc.targets.ggml.program import Arg, Call

Value: TypeAlias = Union[Dim, float]

SIZED = frozenset(
    {f"ggml_{kind}_{rank}d" for kind in ("reshape", "view") for rank in (1, 2, 3, 4)}
    | {"ggml_repeat_4d", "ggml_interpolate"}
)
"""Calls whose whole numbers are sizes."""

CONVOLUTION = ("stride", "stride", "padding", "padding", "dilation", "dilation")

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "ggml_conv_2d": ("", "", *CONVOLUTION),
    "ggml_conv_2d_direct": ("", "", *CONVOLUTION),
    "ggml_conv_2d_dw_direct": ("", "", *CONVOLUTION),
    "ggml_im2col": ("", "", *CONVOLUTION),
    "ggml_conv_transpose_2d_p0": ("", "", "stride"),
    "ggml_norm": ("", "epsilon"),
    "ggml_rms_norm": ("", "epsilon"),
    "ggml_l2_norm": ("", "epsilon"),
    "ggml_group_norm": ("", "groups", "epsilon"),
    "ggml_scale": ("", "scale"),
    "ggml_soft_max_ext": ("", "", "scale"),
}
"""What the settings of calls are called, by position. Those of other calls belong to what a function does."""


@dataclass(frozen=True)
class Number:
    """A number among the arguments. `position` is -1 for a size of the result that the call is told apart from them."""

    value: Value
    position: int
    name: str

    @property
    def is_size(self) -> bool:
        """True if the number counts elements or bytes."""
        return self.name == "size"

    @property
    def type(self) -> str:
        """The C++ type of a parameter that stands for the number."""
        return "float" if isinstance(self.value, float) else "int64_t" if self.is_size else "int"


def numbers(call: Call) -> list[Number]:
    """The numbers of a call, in order."""
    result = [Number(size, -1, "size") for size in call.result.ne]
    if call.kernel >= 0:
        return result
    return [*_arguments(call), *(result if may_be_empty(call) else [])]


def _arguments(call: Call) -> list[Number]:
    if call.function in SIZED:
        return [Number(arg, i, "size") for i, arg in enumerate(call.args) if _is_number(arg)]  # type: ignore[arg-type]
    names = SETTINGS.get(call.function, ())
    return [
        Number(arg, i, name)  # type: ignore[arg-type]
        for i, (arg, name) in enumerate(zip(call.args, names, strict=False))
        if name and _is_number(arg)
    ]


def may_be_empty(call: Call) -> bool:
    """Whether the result has no elements for some sizes that the model takes: then no call is made."""
    return any(may_vanish(size) for size in call.result.ne)


def may_vanish(size: Dim) -> bool:
    """Whether 0 is one of the sizes, of what the model measures, slices or is given. One that only a small image brings
    down to 0 is none: such an image is refused."""
    if not isinstance(size, Expr):
        return size == 0
    sliced = any(atom.kind == "max" for monomial, _ in size.terms for atom in monomial)
    return (lower_bound(size) or 0) <= 0 and (sliced or any(atom.low <= 0 for atom in symbols(size).values()))


def same(values: Sequence[Value]) -> bool:
    """True if all numbers are the same, bit by bit."""
    return all(type(value) is type(values[0]) and repr(value) == repr(values[0]) for value in values)


def _is_number(arg: Arg) -> bool:
    return isinstance(arg, int | float | Expr) and not isinstance(arg, bool)
