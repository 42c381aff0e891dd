"""The ggml functions that a program may call: what each accepts, and what it returns.

One rule a function: it takes the call's arguments (without the context), raises ProgramError where ggml would end the
process, and returns the result's type, sizes and strides as ggml computes them. Sizes are in ggml's order.
Source of the rules: the asserts of `ggml.c` and `ggml-cpu` in ggml 0.15.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphc.ggml_types import QUANTIZED, fits
from graphc.shapes import Dim, Expr, divisible
from graphc.targets.ggml.program import TYPE_SIZES, Constant, ProgramError, Quad, Tensor, dense_strides


@dataclass(frozen=True, slots=True)
class Layout:
    """Type, sizes and byte strides of a result."""

    type: str
    ne: Quad
    nb: Quad


Rule = Callable[..., Layout]
CALLS: dict[str, Rule] = {}
VIEWS = {"ggml_reshape_1d", "ggml_reshape_2d", "ggml_reshape_3d", "ggml_reshape_4d", "ggml_permute", "ggml_transpose",
         "ggml_view_1d", "ggml_view_2d", "ggml_view_3d", "ggml_view_4d"}  # fmt: skip
"""Calls that compute nothing: their result reads the memory of their first argument."""

RESHAPES = ("ggml_reshape_1d", "ggml_reshape_2d", "ggml_reshape_3d", "ggml_reshape_4d")

TAKE_BLOCKS = {"ggml_mul_mat", "ggml_get_rows", *RESHAPES}
"""Calls whose first argument may be quantized."""


def rule(*functions: str) -> Callable[[Rule], Rule]:
    """Register the rule of one or more functions."""

    def register(body: Rule) -> Rule:
        for function in functions:

            def checked(*args: Any, function: str = function) -> Layout:
                for place, arg in enumerate(args):
                    if isinstance(arg, Tensor) and arg.type in QUANTIZED and (place or function not in TAKE_BLOCKS):
                        raise ProgramError(f"{function}: takes no blocks of {arg.type} there")
                try:
                    return body(*args)
                except ProgramError as error:
                    raise ProgramError(f"{function}: {error}") from None
                except (TypeError, AttributeError, ValueError, IndexError) as error:
                    raise ProgramError(f"{function}: arguments of the wrong kind") from error

            CALLS[function] = checked
        return body

    return register


def require(condition: bool, reason: str) -> None:
    """Raise ProgramError with the reason unless the condition holds."""
    if not condition:
        raise ProgramError(reason)


def packed(type: str, ne: Quad) -> Layout:
    """A contiguous result."""
    return Layout(type, ne, dense_strides(type, ne))


def fills(small: Dim, large: Dim) -> bool:
    """True if whole copies of a size are proven to fill another."""
    return small == large or (not isinstance(small, Expr) and (small == 1 or (small > 1 and divisible(large, small))))


def repeats(small: Tensor, large: Tensor) -> bool:
    """True if whole copies of `small` fill `large`, as ggml's broadcasting wants."""
    return all(map(fills, small.ne, large.ne))


def _same(layout: Tensor) -> Layout:
    return packed(layout.type, layout.ne)


FLOAT_TYPES = ("F32", "F16", "BF16")
WEIGHT_TYPES = (*FLOAT_TYPES, *QUANTIZED)


def _float(*tensors: Tensor) -> None:
    for tensor in tensors:
        require(tensor.type in FLOAT_TYPES, f"takes floating-point tensors, not {tensor.type}")


def _f32(*tensors: Tensor) -> None:
    for tensor in tensors:
        require(tensor.type == "F32", f"takes F32 tensors, not {tensor.type}")


@rule("ggml_add", "ggml_sub", "ggml_mul", "ggml_div")
def _binary(a: Tensor, b: Tensor) -> Layout:
    _float(a, b)
    require(a.type == b.type or b.type == "F32", f"types {a.type} and {b.type} do not go together")
    require(repeats(b, a), f"second operand {b.ne} does not repeat into the first {a.ne}")
    require(a.nb[0] == TYPE_SIZES[a.type], "rows of the first operand must be contiguous")
    require(b.nb[0] == TYPE_SIZES[b.type] or a.ne == b.ne, "rows of a repeated operand must be contiguous")
    return _same(a)


@rule(
    "ggml_abs", "ggml_neg", "ggml_exp", "ggml_log", "ggml_sqrt", "ggml_sqr", "ggml_sin", "ggml_cos", "ggml_tanh", "ggml_relu",
    "ggml_sigmoid", "ggml_silu", "ggml_gelu", "ggml_gelu_erf", "ggml_gelu_quick", "ggml_elu", "ggml_hardswish",
    "ggml_hardsigmoid", "ggml_step", "ggml_sgn", "ggml_floor", "ggml_ceil", "ggml_round", "ggml_trunc", "ggml_softplus",
    "ggml_expm1",
)  # fmt: skip
def _unary(a: Tensor) -> Layout:
    _float(a)
    require(a.contiguous, "must be contiguous")
    return _same(a)


@rule("ggml_leaky_relu")
def _leaky_relu(a: Tensor, slope: float, inplace: bool) -> Layout:
    require(isinstance(slope, float) and inplace is False, "takes a slope and false")
    _f32(a)
    require(a.contiguous, "must be contiguous")
    return _same(a)


@rule("ggml_scale")
def _scale(a: Tensor, scale: float) -> Layout:
    require(isinstance(scale, float), "takes a number")
    return _unary_f32(a)


@rule("ggml_fill")
def _fill(a: Tensor, value: float) -> Layout:
    return _scale(a, value)


@rule("ggml_scale_bias", "ggml_clamp")
def _scale_bias(a: Tensor, scale: float, bias: float) -> Layout:
    require(isinstance(scale, float) and isinstance(bias, float), "takes two numbers")
    return _unary_f32(a)


def _unary_f32(a: Tensor) -> Layout:
    _f32(a)
    require(a.contiguous, "must be contiguous")
    return _same(a)


@rule("ggml_cont")
def _cont(a: Tensor) -> Layout:
    require(a.type in TYPE_SIZES, "takes a tensor")
    return _same(a)


@rule("ggml_cast")
def _cast(a: Tensor, type: Constant) -> Layout:
    target = type.name.removeprefix("GGML_TYPE_")
    floats = a.type in FLOAT_TYPES and target in FLOAT_TYPES
    require(floats or {a.type, target} == {"F32", "I32"} or a.type == target, f"{a.type} does not become {target}")
    return packed(target, a.ne)


def _sizes(a: Tensor, *sizes: Dim) -> Quad:
    ne = (*sizes, 1, 1, 1)[:4]
    require(all(not isinstance(size, int) or size >= 1 for size in sizes), "sizes must be at least 1")
    return ne[0], ne[1], ne[2], ne[3]


@rule(*RESHAPES)
def _reshape(a: Tensor, *sizes: Dim) -> Layout:
    ne = _sizes(a, *sizes)
    require(a.in_order, "must be contiguous")
    require(ne[0] * ne[1] * ne[2] * ne[3] == a.size, f"{a.ne} has not the elements of {ne}")
    require(a.type not in QUANTIZED or (isinstance(ne[0], int) and fits(a.type, ne[0])), f"rows of {ne[0]} cut blocks")
    return packed(a.type, ne)


@rule("ggml_permute")
def _permute(a: Tensor, *axes: int) -> Layout:
    require(sorted(axes) == [0, 1, 2, 3], f"{axes} is no order of four axes")
    ne: list[Dim] = [0] * 4
    nb: list[Dim] = [0] * 4
    for source, target in enumerate(axes):
        ne[target], nb[target] = a.ne[source], a.nb[source]
    return Layout(a.type, (ne[0], ne[1], ne[2], ne[3]), (nb[0], nb[1], nb[2], nb[3]))


@rule("ggml_transpose")
def _transpose(a: Tensor) -> Layout:
    return _permute(a, 1, 0, 2, 3)


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
    ne = _sizes(a, *sizes)
    full: list[Dim] = [TYPE_SIZES[a.type], *strides]
    while len(full) < 4:
        full.append(full[-1] * ne[len(full) - 1])
    nb = (full[0], full[1], full[2], full[3])
    static = [offset, *ne, *nb, *a.ne, *a.nb]
    if all(isinstance(number, int) for number in static):
        require(all(number >= 0 for number in static), "negative sizes or strides")
        last = offset + sum((size - 1) * stride for size, stride in zip(ne, nb, strict=True)) + full[0]
        limit = sum((size - 1) * stride for size, stride in zip(a.ne, a.nb, strict=True)) + TYPE_SIZES[a.type]
        require(last <= limit, "looks past the end of the tensor")
    return Layout(a.type, ne, nb)


@rule("ggml_repeat_4d")
def _repeat(a: Tensor, ne0: Dim, ne1: Dim, ne2: Dim, ne3: Dim) -> Layout:
    ne = _sizes(a, ne0, ne1, ne2, ne3)
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
    _f32(b)
    require(a.type in WEIGHT_TYPES, f"does not multiply {a.type}")
    require(a.ne[0] == b.ne[0], f"inner sizes {a.ne[0]} and {b.ne[0]} differ")
    require(a.ne[0] != 0, "the inner size is 0")
    require(
        all(fills(a.ne[i], b.ne[i]) for i in (2, 3)),
        f"batches {a.ne[2:]} do not repeat into {b.ne[2:]}",
    )
    require(a.nb[0] == TYPE_SIZES[a.type] and b.nb[0] == 4, "rows must be contiguous")
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
    _f32(a)
    require(a.nb[0] == 4, "rows must be contiguous")
    return _same(a)


@rule("ggml_group_norm")
def _group_norm(a: Tensor, groups: int, epsilon: float) -> Layout:
    require(isinstance(epsilon, float) and epsilon >= 0, "epsilon must not be negative")
    require(isinstance(groups, int) and groups >= 1 and divisible(a.ne[2], groups), "groups must divide the channels")
    return _unary_f32(a)


@rule("ggml_soft_max")
def _soft_max(a: Tensor) -> Layout:
    return _unary_f32(a)


@rule("ggml_soft_max_ext")
def _soft_max_ext(a: Tensor, mask: Tensor | None, scale: float, max_bias: float) -> Layout:
    require(isinstance(scale, float) and isinstance(max_bias, float), "takes two numbers")
    if mask is not None:
        require(mask.type in ("F32", "F16") and mask.contiguous, "the mask must be contiguous, F32 or F16")
        require(mask.ne[0] == a.ne[0] and mask.ne[1] == a.ne[1], "the mask's rows and columns are not the scores'")
        require(
            all(fills(mask.ne[i], a.ne[i]) for i in (2, 3)),
            "the mask does not repeat over the batch",
        )
    return _unary_f32(a)


@rule("ggml_sum_rows", "ggml_mean")
def _sum_rows(a: Tensor) -> Layout:
    _f32(a)
    require(a.nb[0] == 4, "rows must be contiguous")
    return packed("F32", (1, *a.ne[1:]))


def conv_size(size: Dim, kernel: Dim, stride: int, pad: int, dilation: int) -> Dim:
    """Output size of a convolution along one axis."""
    return (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1


def _conv_sizes(a: Tensor, b: Tensor, settings: tuple[int, ...]) -> tuple[Dim, Dim]:
    require(len(settings) == 6 and all(isinstance(n, int) for n in settings), "takes strides, pads and dilations")
    s0, s1, p0, p1, d0, d1 = settings
    require(min(s0, s1, d0, d1) >= 1 and min(p0, p1) >= 0, "strides and dilations are at least 1, pads at least 0")
    width, height = conv_size(b.ne[0], a.ne[0], s0, p0, d0), conv_size(b.ne[1], a.ne[1], s1, p1, d1)
    require(all(not isinstance(n, int) or n >= 1 for n in (width, height)), "the kernel is larger than the image")
    return width, height


@rule("ggml_conv_2d", "ggml_conv_2d_direct")
def _conv_2d(a: Tensor, b: Tensor, *settings: int) -> Layout:
    require(a.type in ("F32", "F16"), "the kernel must be F32 or F16")
    _f32(b)
    require(a.contiguous and b.contiguous, "must be contiguous")
    require(a.ne[2] == b.ne[2], f"{b.ne[2]} channels for a kernel of {a.ne[2]}")
    width, height = _conv_sizes(a, b, settings)
    return packed("F32", (width, height, a.ne[3], b.ne[3]))


@rule("ggml_conv_2d_dw_direct")
def _conv_2d_depthwise(a: Tensor, b: Tensor, *settings: int) -> Layout:
    _f32(a, b)
    require(a.contiguous and b.contiguous, "must be contiguous")
    require(a.ne[2] == 1 and a.ne[3] == b.ne[2], "one kernel a channel")
    width, height = _conv_sizes(a, b, settings)
    return packed("F32", (width, height, b.ne[2], b.ne[3]))


@rule("ggml_conv_3d_direct")
def _conv_3d(a: Tensor, b: Tensor, *settings: Dim) -> Layout:
    require(a.type in ("F32", "F16"), "the kernel must be F32 or F16")
    _f32(b)
    require(a.contiguous and b.contiguous, "must be contiguous")
    require(len(settings) == 12, "takes strides, pads, dilations, channels, images and output channels")
    strides, pads, dilations, (channels, batch, out) = settings[:3], settings[3:6], settings[6:9], settings[9:]
    require(all(isinstance(n, int) for n in settings[:9]), "strides, pads and dilations are numbers")
    require(min(*strides, *dilations) >= 1 and min(pads) >= 0, "strides and dilations are at least 1, pads at least 0")
    require(a.ne[3] == channels * out and b.ne[3] == channels * batch, "channels differ")
    sizes = [conv_size(b.ne[i], a.ne[i], strides[i], pads[i], dilations[i]) for i in range(3)]  # type: ignore[arg-type]
    require(all(not isinstance(n, int) or n >= 1 for n in sizes), "the kernel is larger than the image")
    return packed("F32", (sizes[0], sizes[1], sizes[2], out * batch))


@rule("ggml_im2col")
def _im2col(
    a: Tensor, b: Tensor, s0: int, s1: int, p0: int, p1: int, d0: int, d1: int, is_2d: bool, type: Constant
) -> Layout:
    require(is_2d is True, "only the form for images")
    _f32(b)
    require(b.contiguous, "must be contiguous")
    require(a.ne[2] == b.ne[2], f"{b.ne[2]} channels for a kernel of {a.ne[2]}")
    target = type.name.removeprefix("GGML_TYPE_")
    require(target in ("F32", "F16"), "the columns must be F32 or F16")
    width, height = _conv_sizes(a, b, (s0, s1, p0, p1, d0, d1))
    return packed(target, (a.ne[2] * a.ne[1] * a.ne[0], width, height, b.ne[3]))


@rule("ggml_conv_transpose_2d_p0")
def _conv_transpose(a: Tensor, b: Tensor, stride: int) -> Layout:
    require(a.type in ("F32", "F16"), "the kernel must be F32 or F16")
    _f32(b)
    require(a.contiguous and b.contiguous, "must be contiguous")
    require(isinstance(stride, int) and stride >= 1, "the stride is at least 1")
    require(a.ne[3] == b.ne[2] and b.ne[3] == 1, "channels differ, or more than one image")
    width, height = (b.ne[0] - 1) * stride + a.ne[0], (b.ne[1] - 1) * stride + a.ne[1]
    return packed("F32", (width, height, a.ne[2], b.ne[3]))


@rule("ggml_pool_2d")
def _pool_2d(a: Tensor, kind: Constant, k0: int, k1: int, s0: int, s1: int, p0: float, p1: float) -> Layout:
    require(kind.name in ("GGML_OP_POOL_MAX", "GGML_OP_POOL_AVG"), "the kind is max or avg")
    require(min(k0, k1, s0, s1) >= 1 and min(p0, p1) >= 0, "window, stride or pad out of range")
    _unary_f32(a)
    width, height = (a.ne[0] + 2 * int(p0) - k0) // s0 + 1, (a.ne[1] + 2 * int(p1) - k1) // s1 + 1
    require(all(not isinstance(n, int) or n >= 1 for n in (width, height)), "the window is larger than the image")
    return packed("F32", (width, height, a.ne[2], a.ne[3]))


@rule("ggml_interpolate")
def _interpolate(a: Tensor, ne0: Dim, ne1: Dim, ne2: Dim, ne3: Dim, mode: Constant) -> Layout:
    modes = ("GGML_SCALE_MODE_NEAREST", "GGML_SCALE_MODE_BILINEAR")
    require(mode.name in modes, "the mode is nearest or bilinear")
    _f32(a)
    require(a.nb[0] == 4, "rows must be contiguous")
    return packed("F32", _sizes(a, ne0, ne1, ne2, ne3))


@rule("ggml_pad_ext")
def _pad(a: Tensor, *pads: int) -> Layout:
    require(len(pads) == 8 and all(isinstance(pad, int) and pad >= 0 for pad in pads), "takes eight pads")
    _f32(a)
    require(a.nb[0] == 4, "rows must be contiguous")
    ne = [size + pads[2 * i] + pads[2 * i + 1] for i, size in enumerate(a.ne)]
    return packed("F32", (ne[0], ne[1], ne[2], ne[3]))


@rule("ggml_argmax")
def _argmax(a: Tensor) -> Layout:
    _f32(a)
    require(a.contiguous and a.ne[2] == 1 and a.ne[3] == 1, "takes a contiguous matrix")
    return packed("I32", (a.ne[1], 1, 1, 1))


@rule("ggml_geglu_erf_split", "ggml_swiglu_split", "ggml_reglu_split")
def _glu_split(a: Tensor, b: Tensor) -> Layout:
    _f32(a, b)
    require(a.contiguous and b.contiguous and a.ne == b.ne, "takes two contiguous tensors of one shape")
    return _same(a)
