"""What the rules of calls are made of: the table of them, and what several of them ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.ggml_types import QUANTIZED
from graphc.records import dataclass
from graphc.shapes import Dim, lower_bound
from graphc.targets.ggml.program.tensor import ProgramError, Quad, Tensor, dense_strides


@dataclass(frozen=True, slots=True)
class Layout:
    """Type, sizes and byte strides of a result."""

    type: str
    ne: Quad
    nb: Quad


Rule = Callable[..., Layout]
CALLS: dict[str, Rule] = {}
VIEWS = {"ggml_reshape_1d", "ggml_reshape_2d", "ggml_reshape_3d", "ggml_reshape_4d", "ggml_permute",
         "ggml_view_1d", "ggml_view_2d", "ggml_view_3d", "ggml_view_4d"}  # fmt: skip
"""Calls that compute nothing: their result reads the memory of their first argument."""

RESHAPES = ("ggml_reshape_1d", "ggml_reshape_2d", "ggml_reshape_3d", "ggml_reshape_4d")

TAKE_BLOCKS = {
    "ggml_mul_mat", "graphc_linear", "graphc_gated_linear", "graphc_scaled_linear", "ggml_get_rows", "ggml_cast", *RESHAPES,
}  # fmt: skip
"""Calls whose first argument may be quantized."""

TAKE_NOTHING = {"ggml_concat", "ggml_pad_ext", "graphc_concat", "graphc_pad"}
"""Calls that look for each element of their result whether there is one."""


def rule(*functions: str) -> Callable[[Rule], Rule]:
    """Register the rule of one or more functions."""

    def register(body: Rule) -> Rule:
        for function in functions:

            def checked(*args: Any, function: str = function) -> Layout:
                for place, arg in enumerate(args):
                    if isinstance(arg, Tensor) and arg.type in QUANTIZED and (place or function not in TAKE_BLOCKS):
                        raise ProgramError(f"{function}: takes no blocks of {arg.type} there")
                try:
                    layout = body(*args)
                    _countable(function, [each for each in args if isinstance(each, Tensor)], layout)
                    return layout
                except ProgramError as error:
                    raise ProgramError(f"{function}: {error}") from None
                except (TypeError, AttributeError, ValueError, IndexError) as error:
                    raise ProgramError(f"{function}: arguments of the wrong kind") from error

            CALLS[function] = checked
        return body

    return register


def _countable(function: str, tensors: Sequence[Tensor], layout: Layout) -> None:
    """ggml's functions take it for granted that there are elements where there is a result, and count a row's in 32 bits."""
    nothing = function not in TAKE_NOTHING and any(0 in tensor.ne for tensor in tensors)
    require(0 in layout.ne or not nothing, "reads a tensor without elements")
    rows = [size for size in (layout.ne[0], *(tensor.ne[0] for tensor in tensors)) if isinstance(size, int)]
    require(function in VIEWS or max(rows, default=0) < 2**31, "a row has more elements than ggml counts")


def settings_within(limit: int, *settings: Any) -> None:
    """Raise ProgramError unless all are integers, from 0 to a limit."""
    fits = all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= limit for each in settings)
    require(fits, f"settings are numbers from 0 to {limit}")


def require(condition: bool, reason: str) -> None:
    """Raise ProgramError with the reason unless the condition holds."""
    if not condition:
        raise ProgramError(reason)


def packed(type: str, ne: Quad) -> Layout:
    """A contiguous result."""
    return Layout(type, ne, dense_strides(type, ne))


def fills(small: Dim, large: Dim) -> bool:
    """True if whole copies of a size are proven to fill another."""
    return small == large or ((lower_bound(small) or 0) >= 1 and large % small == 0)


def repeats(small: Tensor, large: Tensor) -> bool:
    """True if whole copies of `small` fill `large`, as ggml's broadcasting wants."""
    return all(map(fills, small.ne, large.ne))


def same(layout: Tensor) -> Layout:
    """A contiguous result of a tensor's type and sizes."""
    return packed(layout.type, layout.ne)


FLOAT_TYPES = ("F32", "F16", "BF16")
WEIGHT_TYPES = (*FLOAT_TYPES, *QUANTIZED)


def floats(*tensors: Tensor) -> None:
    """Raise ProgramError unless they are floating-point."""
    for tensor in tensors:
        require(tensor.type in FLOAT_TYPES, f"takes floating-point tensors, not {tensor.type}")


def f32(*tensors: Tensor) -> None:
    """Raise ProgramError unless they are F32."""
    for tensor in tensors:
        require(tensor.type == "F32", f"takes F32 tensors, not {tensor.type}")


def unary_f32(a: Tensor) -> Layout:
    """The layout of a function of one contiguous F32 tensor."""
    f32(a)
    require(a.contiguous, "must be contiguous")
    return same(a)


def sizes_at_least_1(*sizes: Dim) -> Quad:
    """Up to four sizes as four. Raises ProgramError for one below 1."""
    ne = (*sizes, 1, 1, 1)[:4]
    require(all(not isinstance(size, int) or size >= 1 for size in sizes), "sizes must be at least 1")
    return ne[0], ne[1], ne[2], ne[3]
