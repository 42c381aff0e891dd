"""The numbers among a call's arguments that callers of a shared function need not have in common: sizes and settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

from graphc.shapes import Dim, Expr, lower_bound, symbols
from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.program.program import Call
from graphc.targets.ggml.program.tensor import Arg

Value: TypeAlias = Union[Dim, float]

SIZED = frozenset(
    {f"ggml_{kind}_{rank}d" for kind in ("reshape", "view") for rank in (1, 2, 3, 4)}
    | {"ggml_repeat_4d", "graphc_repeat", "ggml_interpolate", "graphc_upscale"}
)
"""Calls whose whole numbers are sizes."""

CONVOLUTION = ("stride", "stride", "padding", "padding", "dilation", "dilation")

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "ggml_im2col": ("", "", *CONVOLUTION),
    "ggml_conv_transpose_2d_p0": ("", "", "stride"),
    "ggml_scale": ("", "scale"),
    "ggml_soft_max_ext": ("", "", "scale"),
}
"""What the settings of ggml's calls are called, by position. Those of other calls belong to what a function does."""

OF_COMPOSITES: Mapping[str, str] = {
    **{
        f"{letter}{axis}": name
        for letter, name in (("s", "stride"), ("p", "padding"), ("d", "dilation"))
        for axis in range(3)
    },
    **{name: name for name in ("epsilon", "groups", "scale")},
}
"""The same of composites, by what they call them themselves."""


class Labelled(float):
    """A number that a kernel is given, and what the kernel calls it."""

    label: str

    def __new__(cls, number: float, label: str) -> Labelled:
        """The number with its label."""
        made = super().__new__(cls, number)
        made.label = label
        return made


@dataclass(frozen=True)
class Number:
    """A number among the arguments. `position` is -1 for a size of the result that the call is told apart from them; `axis` is
    the one of the result of which it is the size, -1 if it is of none."""

    value: Value
    position: int
    name: str
    axis: int = -1

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
    result = [Number(size, -1, "size", axis) for axis, size in enumerate(call.result.ne)]
    if call.kernel >= 0 or call.launches is not None:
        given = [(i, arg) for i, arg in enumerate(call.args) if _is_number(arg)]
        return result + [Number(arg, i, arg.label if isinstance(arg, Labelled) else "size") for i, arg in given]  # type: ignore[arg-type]
    return [*_arguments(call), *(result if may_be_empty(call) else [])]


def _arguments(call: Call) -> list[Number]:
    if call.function in SIZED:
        last = 0 if call.function.startswith("ggml_view") else 4
        return [
            Number(arg, i, "size", i - 1 if i <= last else -1)  # type: ignore[arg-type]
            for i, arg in enumerate(call.args)
            if _is_number(arg)
        ]
    names: Iterable[str] = SETTINGS.get(call.function, ())
    if call.function in COMPOSITES:
        names = (OF_COMPOSITES.get(name, "") for name in COMPOSITES[call.function].parameters)
    return [
        Number(arg, i, name)  # type: ignore[arg-type]
        for i, (arg, name) in enumerate(zip(call.args, names, strict=False))
        if name and _is_number(arg)
    ]


def may_be_empty(call: Call) -> bool:
    """True if the result has no elements for some sizes that the model takes: then no call is made."""
    return any(may_vanish(size) for size in call.result.ne)


def may_vanish(size: Dim) -> bool:
    """True if 0 is one of the sizes, of what the model measures, slices or is given. One that only a small image brings
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
