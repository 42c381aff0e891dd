"""Products with a matrix, and convolutions of images, with what is added to them on the way, and an activation of that."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.targets.ggml.program.composites.activations import activated
from graphc.targets.ggml.program.composites.composite import (
    ActivationOrNone,
    Args,
    Expansion,
    along_channels,
    composite,
    other_operand,
    raises,
    tail,
)
from graphc.targets.ggml.program.tensor import Constant, Tensor


@composite(multiplied=2)
def linear(call: Expansion, weight: Tensor, x: Tensor, activation: ActivationOrNone, *sums: Tensor) -> Tensor:
    """`x @ weight^T`, for x [..., M, K] and weight [..., N, K], plus each of `sums`, which broadcast to it; an activation of
    that."""
    return summed(call, call("ggml_mul_mat", weight, x), sums, activation)


@composite(multiplied=2)
def scaled_linear(
    call: Expansion, weight: Tensor, x: Tensor, scales: Tensor, shifts: Tensor | None, activation: ActivationOrNone, *sums: Tensor
) -> Tensor:  # fmt: skip
    """The same by the numbers that whole ones stand for, `(weight + shift) * scale`, with a scale and a shift for each block of a
    row: [N, blocks]. What the weight is stored in holds whole numbers as they are."""
    size, count, rows = weight.ne[0] // scales.ne[0], scales.ne[0], weight.ne[1]
    found = call("ggml_reshape_3d", call("ggml_cast", weight, Constant("GGML_TYPE_F32")), size, count, rows)
    for function, each in (("ggml_add", shifts), ("ggml_mul", scales)):
        if each is not None:
            found = call(function, found, call("ggml_reshape_3d", each, 1, count, rows))
    found = call("ggml_reshape_2d", found, weight.ne[0], rows)
    return summed(call, call("ggml_mul_mat", found, x), sums, activation)


@composite(ways=("winograd", "tiles", "direct", "columns"), multiplied=2, vectors=("bias",))
def conv_2d(
    call: Expansion, kernel: Tensor, image: Tensor, bias: Tensor | None, s0: int, s1: int, p0: int, p1: int, d0: int, d1: int,
    direct: bool, activation: ActivationOrNone, *sums: Tensor,
) -> Tensor:  # fmt: skip
    """The convolution of images [N, C, H, W] with kernels [C_out, C, KH, KW], by strides, pads and dilations of x and y, plus a
    bias [C_out], plus each of `sums`, which broadcast to it; an activation of that. It is `direct` where a matrix of columns may
    be too large."""
    function = "ggml_conv_2d_direct" if direct else "ggml_conv_2d"
    first = along_channels(call, bias)
    found = call(function, kernel, image, s0, s1, p0, p1, d0, d1)
    return summed(call, found, sums if first is None else (first, *sums), activation)


@composite(vectors=("bias",))
def conv_2d_dw(
    call: Expansion, kernel: Tensor, image: Tensor, bias: Tensor | None, s0: int, s1: int, p0: int, p1: int, d0: int, d1: int,
    activation: ActivationOrNone, *sums: Tensor,
) -> Tensor:  # fmt: skip
    """The same of each channel by itself, with kernels [C, 1, KH, KW]."""
    first = along_channels(call, bias)
    found = call("ggml_conv_2d_dw_direct", kernel, image, s0, s1, p0, p1, d0, d1)
    return summed(call, found, sums if first is None else (first, *sums), activation)


@composite(made=9, multiplied=2)
def conv_2d_last(
    call: Expansion, kernel: Tensor, image: Tensor, bias: Tensor | None, s0: int, s1: int, p0: int, p1: int, q0: int, q1: int,
    d0: int, d1: int, direct: bool, activation: ActivationOrNone,
) -> Tensor:  # fmt: skip
    """The same of images [N, C, H, W], which may be seen in such with their channels last, with pads before and behind, plus a
    vector [C_out]; the result is [N, H, W, C_out]."""
    function = "ggml_conv_2d_direct" if direct else "ggml_conv_2d"
    found = convolved(call, function, kernel, image, (s0, s1), (p0, p1), (q0, q1), (d0, d1))
    return summed(call, found, () if bias is None else (bias,), activation)


@composite(made=8)
def conv_2d_dw_last(
    call: Expansion, kernel: Tensor, image: Tensor, bias: Tensor | None, s0: int, s1: int, p0: int, p1: int, q0: int, q1: int,
    d0: int, d1: int, activation: ActivationOrNone,
) -> Tensor:  # fmt: skip
    """The same of each channel by itself, of images [N, H, W, C], with kernels [C, 1, KH, KW]."""
    image = call("ggml_cont", call("ggml_permute", image, 2, 0, 1, 3))
    found = convolved(call, "ggml_conv_2d_dw_direct", kernel, image, (s0, s1), (p0, p1), (q0, q1), (d0, d1))
    return summed(call, found, () if bias is None else (bias,), activation)


Pair = tuple[int, int]


def convolved(
    call: Expansion,
    function: str,
    kernel: Tensor,
    image: Tensor,
    strides: Pair,
    before: Pair,
    behind: Pair,
    dilations: Pair,
) -> Tensor:
    """What a convolution of ggml's gives, with its channels last."""
    if not image.contiguous:
        image = call("ggml_cont", image)
    if before != behind:
        image = call("ggml_pad_ext", image, before[0], behind[0], before[1], behind[1], 0, 0, 0, 0)
        before = 0, 0
    found = call(function, kernel, image, *strides, *before, *dilations)
    return call("ggml_cont", call("ggml_permute", found, 1, 2, 0, 3))


def summed(call: Expansion, found: Tensor, sums: Sequence[Tensor], activation: ActivationOrNone) -> Tensor:
    """A result plus tensors that broadcast to it; an activation of that."""
    for each in sums:
        found = call("ggml_add", found, each)
    return activated(call, found, activation)


@raises(linear, "ggml_mul_mat")
def _product(weight: Tensor, x: Tensor) -> Args:
    return weight, x, False


@raises(conv_2d, "ggml_conv_2d")
def _by_columns(kernel: Tensor, image: Tensor, *settings: int) -> Args:
    return kernel, image, None, *settings, False, False


@raises(conv_2d, "ggml_conv_2d_direct")
def _directly(kernel: Tensor, image: Tensor, *settings: int) -> Args:
    return kernel, image, None, *settings, True, False


@raises(conv_2d_dw, "ggml_conv_2d_dw_direct")
def _by_channels(kernel: Tensor, image: Tensor, *settings: int) -> Args:
    return kernel, image, None, *settings, False


@tail(linear, "ggml_add")
@tail(scaled_linear, "ggml_add")
def _sum(args: Args, result: Tensor, behind: Args) -> Args | None:
    other = other_operand(behind, result)
    return None if other is None else (*args, other)


@tail(conv_2d, "ggml_add")
@tail(conv_2d_dw, "ggml_add")
def _bias_or_sum(args: Args, result: Tensor, behind: Args) -> Args | None:
    other, first = other_operand(behind, result), args[2] is None and args[-1] is False
    if first and other is not None and other.ne == (1, 1, result.ne[2], 1):
        return *args[:2], other, *args[3:]
    return _sum(args, result, behind)
