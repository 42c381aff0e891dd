"""The ggml functions that a program may call: what each accepts, and what it returns.

One rule a function: it takes the call's arguments (without the context), raises ProgramError where ggml would end the
process, and returns the result's type, sizes and strides as ggml computes them. Sizes are in ggml's order.
Source of the rules: the asserts of `ggml.c` and `ggml-cpu` in ggml 0.15.3.
"""

from __future__ import annotations

from typing import Any

from graphc.ggml_types import QUANTIZED, WHOLE, fits
from graphc.shapes import Dim, divisible
from graphc.targets.ggml.program.image_calls import fits_workspace
from graphc.targets.ggml.program.rules import (
    CALLS,
    FLOAT_TYPES,
    RESHAPES,
    VIEWS,
    WEIGHT_TYPES,
    Layout,
    f32,
    fills,
    floats,
    packed,
    repeats,
    require,
    rule,
    same,
    sizes_at_least_1,
    unary_f32,
)
from graphc.targets.ggml.program.tensor import TYPE_SIZES, Constant, Tensor

__all__ = ["CALLS", "RESHAPES", "VIEWS", "Layout", "fits_workspace", "repeats"]


@rule("ggml_add", "ggml_sub", "ggml_mul", "ggml_div")
def _binary(a: Tensor, b: Tensor) -> Layout:
    floats(a, b)
    require(a.type == b.type or b.type == "F32", f"types {a.type} and {b.type} do not go together")
    require(repeats(b, a), f"second operand {b.ne} does not repeat into the first {a.ne}")
    require(a.nb[0] == TYPE_SIZES[a.type], "rows of the first operand must be contiguous")
    require(b.nb[0] == TYPE_SIZES[b.type] or a.ne == b.ne, "rows of a repeated operand must be contiguous")
    return same(a)


@rule(
    "ggml_abs",
    "ggml_neg",
    "ggml_exp",
    "ggml_log",
    "ggml_sqrt",
    "ggml_sqr",
    "ggml_sin",
    "ggml_cos",
    "ggml_tanh",
    "ggml_relu",
    "ggml_sigmoid",
    "ggml_elu",
    "ggml_hardswish",
    "ggml_floor",
    "ggml_ceil",
)
def _unary(a: Tensor) -> Layout:
    floats(a)
    require(a.contiguous, "must be contiguous")
    return same(a)


@rule("ggml_silu", "ggml_gelu_erf")
def _by_table(a: Tensor) -> Layout:
    require(a.type != "BF16", "does not take BF16")
    return _unary(a)


@rule("ggml_scale")
def _scale(a: Tensor, scale: float) -> Layout:
    require(isinstance(scale, float), "takes a number")
    return unary_f32(a)


@rule("ggml_fill")
def _fill(a: Tensor, value: float) -> Layout:
    return _scale(a, value)


@rule("ggml_scale_bias")
def _scale_bias(a: Tensor, scale: float, bias: float) -> Layout:
    require(isinstance(scale, float) and isinstance(bias, float), "takes two numbers")
    return unary_f32(a)


@rule("ggml_cont")
def _cont(a: Tensor) -> Layout:
    require(a.type in TYPE_SIZES, "takes a tensor")
    return same(a)


@rule("ggml_cast")
def _cast(a: Tensor, type: Constant) -> Layout:
    target = type.name.removeprefix("GGML_TYPE_")
    floats = a.type in FLOAT_TYPES and target in FLOAT_TYPES
    blocks = a.type in WHOLE and target == "F32" and a.in_order
    require(
        floats or blocks or {a.type, target} == {"F32", "I32"} or a.type == target, f"{a.type} does not become {target}"
    )
    return packed(target, a.ne)


@rule(*RESHAPES)
def _reshape(a: Tensor, *sizes: Dim) -> Layout:
    ne = sizes_at_least_1(*sizes)
    require(a.in_order, "must be contiguous")
    require(ne[0] * ne[1] * ne[2] * ne[3] == a.size, f"{a.ne} does not have as many elements as {ne}")
    require(a.type not in QUANTIZED or (isinstance(ne[0], int) and fits(a.type, ne[0])), f"rows of {ne[0]} cut blocks")
    return packed(a.type, ne)


@rule("ggml_permute")
def _permute(a: Tensor, *axes: int) -> Layout:
    require(sorted(axes) == [0, 1, 2, 3], f"{axes} is not an order of four axes")
    ne: list[Dim] = [0] * 4
    nb: list[Dim] = [0] * 4
    for source, target in enumerate(axes):
        ne[target], nb[target] = a.ne[source], a.nb[source]
    return Layout(a.type, (ne[0], ne[1], ne[2], ne[3]), (nb[0], nb[1], nb[2], nb[3]))


@rule("ggml_view_1d")
def _view_1d(a: Tensor, ne0: Dim, offset: Dim) -> Layout:
    return _view(a, (ne0,), (), offset)


@rule("ggml_view_2d")
def _view_2d(a: Tensor, ne0: Dim, ne1: Dim, nb1: Dim, offset: Dim) -> Layout:
    return _view(a, (ne0, ne1), (nb1,), offset)


@rule("ggml_view_3d")
def _view_3d(a: Tensor, ne0: Dim, ne1: Dim, ne2: Dim, nb1: Dim, nb2: Dim, offset: Dim) -> Layout:
    return _view(a, (ne0, ne1, ne2), (nb1, nb2), offset)


@rule("ggml_view_4d")
def _view_4d(
    a: Tensor, ne0: Dim, ne1: Dim, ne2: Dim, ne3: Dim, nb1: Dim, nb2: Dim, nb3: Dim, offset: Dim
) -> Layout:  # fmt: skip
    return _view(a, (ne0, ne1, ne2, ne3), (nb1, nb2, nb3), offset)


def _view(a: Tensor, sizes: tuple[Dim, ...], strides: tuple[Dim, ...], offset: Dim) -> Layout:
    """A view keeps adjacent elements adjacent; its last element must lie in the tensor that it looks into."""
    require(a.nb[0] == TYPE_SIZES[a.type], "rows must be contiguous")
    ne = sizes_at_least_1(*sizes)
    full: list[Dim] = [TYPE_SIZES[a.type], *strides]
    while len(full) < 4:
        full.append(full[-1] * ne[len(full) - 1])
    nb = (full[0], full[1], full[2], full[3])
    for number in (offset, *nb):
        require(divisible(number, full[0]), "an offset or stride that is not a multiple of an element")  # type: ignore[arg-type]
    static = [offset, *ne, *nb, *a.ne, *a.nb]
    if all(isinstance(number, int) for number in static):
        require(offset >= 0 and min(ne) >= 0 and min(nb) > 0, "negative sizes, or strides that are not positive")
        last = offset + sum((size - 1) * stride for size, stride in zip(ne, nb, strict=True)) + full[0]
        limit = sum((size - 1) * stride for size, stride in zip(a.ne, a.nb, strict=True)) + TYPE_SIZES[a.type]
        require(last <= limit, "looks past the end of the tensor")
        _apart([(stride, size) for size, stride in zip(ne, nb, strict=True) if size > 1])
    return Layout(a.type, ne, nb)


def _apart(axes: list[tuple[Any, Any]]) -> None:
    """Raise ProgramError if elements of a view with these strides and sizes lie in the same place."""
    extent = 0
    for stride, size in sorted(axes):
        require(stride > extent, "elements overlap")
        extent += (size - 1) * stride


@rule("ggml_repeat_4d")
def _repeat(a: Tensor, ne0: Dim, ne1: Dim, ne2: Dim, ne3: Dim) -> Layout:
    ne = sizes_at_least_1(ne0, ne1, ne2, ne3)
    require(a.type in ("F32", "F16", "BF16", "I32", "I16"), f"does not repeat {a.type}")
    require(a.contiguous_rows and a.nb[0] == TYPE_SIZES[a.type], "rows must be contiguous")
    require(repeats(a, Tensor(a.type, ne, ne, 4)), f"{a.ne} does not repeat into {ne}")
    return packed(a.type, ne)


@rule("ggml_concat")
def _concat(a: Tensor, b: Tensor, axis: int) -> Layout:
    require(axis in (0, 1, 2, 3) and a.type == b.type, "takes two tensors of one type and an axis")
    require(all(i == axis or a.ne[i] == b.ne[i] for i in range(4)), f"sizes {a.ne} and {b.ne} do not line up")
    require(a.type in TYPE_SIZES, f"does not join {a.type}")
    ne = list(a.ne)
    ne[axis] = a.ne[axis] + b.ne[axis]
    return packed(a.type, (ne[0], ne[1], ne[2], ne[3]))


@rule("ggml_mul_mat")
def _mul_mat(a: Tensor, b: Tensor) -> Layout:
    f32(b)
    require(a.type in WEIGHT_TYPES, f"does not multiply {a.type}")
    require(a.ne[0] == b.ne[0], f"inner sizes {a.ne[0]} and {b.ne[0]} differ")
    require(a.ne[0] != 0, "the inner size is 0")
    require(
        all(fills(a.ne[i], b.ne[i]) for i in (2, 3)),
        f"batches {a.ne[2:]} do not repeat into {b.ne[2:]}",
    )
    require(a.nb[0] == TYPE_SIZES[a.type] and b.nb[0] == 4, "rows must be contiguous")
    transposed = isinstance(a.nb[1], int) and a.nb[1] < TYPE_SIZES[a.type]
    require(not transposed, "the first operand is transposed")
    return packed("F32", (a.ne[1], b.ne[1], b.ne[2], b.ne[3]))


@rule("ggml_get_rows")
def _get_rows(a: Tensor, b: Tensor) -> Layout:
    require(a.type in WEIGHT_TYPES, f"takes no rows of {a.type}")
    require(b.type == "I32", "row numbers must be I32")
    require(a.ne[2] == b.ne[1] and a.ne[3] == b.ne[2] and b.ne[3] == 1, "batches differ")
    require(a.nb[0] == TYPE_SIZES[a.type] and b.nb[0] == 4, "rows must be contiguous")
    return packed("F32", (a.ne[0], b.ne[0], b.ne[1], b.ne[2]))


@rule("ggml_norm", "ggml_rms_norm", "ggml_l2_norm")
def _norm(a: Tensor, epsilon: float) -> Layout:
    require(isinstance(epsilon, float) and epsilon >= 0, "epsilon must not be negative")
    f32(a)
    require(a.nb[0] == 4, "rows must be contiguous")
    return same(a)


@rule("ggml_group_norm")
def _group_norm(a: Tensor, groups: int, epsilon: float) -> Layout:
    require(isinstance(epsilon, float) and epsilon >= 0, "epsilon must not be negative")
    require(isinstance(groups, int) and groups >= 1 and divisible(a.ne[2], groups), "groups must divide the channels")
    return unary_f32(a)


@rule("ggml_soft_max")
def _soft_max(a: Tensor) -> Layout:
    return unary_f32(a)


@rule("ggml_soft_max_ext")
def _soft_max_ext(a: Tensor, mask: Tensor | None, scale: float, max_bias: float) -> Layout:
    require(isinstance(scale, float) and max_bias == 0.0, "takes a number, and no bias")
    if mask is not None:
        require(mask.type in ("F32", "F16") and mask.contiguous, "the mask must be contiguous, F32 or F16")
        require(mask.ne[0] == a.ne[0] and mask.ne[1] == a.ne[1], "the mask's rows and columns are not the scores'")
        require(
            all(fills(mask.ne[i], a.ne[i]) for i in (2, 3)),
            "the mask does not repeat over the batch",
        )
    return unary_f32(a)


@rule("ggml_sum_rows", "ggml_mean")
def _sum_rows(a: Tensor) -> Layout:
    f32(a)
    require(a.nb[0] == 4, "rows must be contiguous")
    return packed("F32", (1, *a.ne[1:]))
