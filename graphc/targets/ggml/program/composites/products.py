"""Products with a matrix, and convolutions of images, with what is added to them on the way, and an activation of that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast as typed

from graphc.shapes import Dim
from graphc.targets.ggml.program.composites.activations import activated
from graphc.targets.ggml.program.composites.composite import (
    ActivationOrNone,
    Args,
    Expansion,
    along_channels,
    composite,
    raises,
)
from graphc.targets.ggml.program.composites.images import FIRST, from_planes
from graphc.targets.ggml.program.rules import require
from graphc.targets.ggml.program.tensor import Arg, Constant, Tensor

SUMS = {"sums": "ggml_add"}

BIAS_AND_SUMS = {"bias": "ggml_add", **SUMS}


@composite("ggml_mul_mat", behind=SUMS, multiplied=2)
def linear(call: Expansion, weight: Tensor, x: Tensor, activation: ActivationOrNone, *sums: Tensor) -> Tensor:
    """`x @ weight^T`, for x [..., M, K] and weight [..., N, K], plus each of `sums`, which broadcast to it; an activation of
    that."""
    return summed(call, call("ggml_mul_mat", weight, x), sums, activation)


@composite(behind=SUMS, multiplied=2)
def gated_linear(
    call: Expansion, weight: Tensor, x: Tensor, gate: Tensor, activation: ActivationOrNone, *sums: Tensor
) -> Tensor:  # fmt: skip
    """The same of rows that are multiplied with a gate before, which broadcasts to them."""
    return summed(call, call("ggml_mul_mat", weight, call("ggml_mul", x, gate)), sums, activation)


@composite(behind=SUMS, multiplied=2)
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


@composite(
    "ggml_conv_2d", "ggml_conv_2d_direct", behind=BIAS_AND_SUMS, ways=("winograd", "tiles", "direct", "columns"),
    multiplied=2, vectors=("bias",),
)  # fmt: skip
def conv_2d(
    call: Expansion, kernel: Tensor, image: Tensor, bias: Tensor | None, s0: int, s1: int, p0: int, p1: int, d0: int, d1: int,
    direct: bool, activation: ActivationOrNone, *sums: Tensor,
) -> Tensor:  # fmt: skip
    """The convolution of images [N, C, H, W] with kernels [C_out, C, KH, KW], by strides, pads and dilations of x and y, plus a
    bias [C_out], plus each of `sums`, which broadcast to it; an activation of that. It is `direct` where a matrix of columns may
    be too large. Kernels of fewer channels are those of groups: each meets its own channels of the image."""
    bias = along_channels(call, bias)
    found = _convolution(call, kernel, image, (s0, s1, p0, p1, d0, d1), direct)
    return summed(call, found, (bias, *sums), activation)


@composite(behind=SUMS, ways=("winograd", "tiles"), multiplied=2)
def conv_3d(
    call: Expansion, kernel: Tensor, volumes: Tensor, bias: Tensor | None, s0: int, s1: int, s2: int, p0: int, p1: int, p2: int,
    d0: int, d1: int, d2: int, channels: int, groups: int, activation: ActivationOrNone, *sums: Tensor,
) -> Tensor:  # fmt: skip
    """The convolution of volumes [N * C, D, H, W] with kernels [C_out * C / groups, KD, KH, KW], by strides, pads and dilations
    of x, y and z, plus a bias [C_out], plus each of `sums`, which broadcast to it; an activation of that."""
    require(channels > 0 < groups and channels % groups == 0, f"{channels} channels in {groups} groups")
    inner, settings = channels // groups, (s0, s1, s2, p0, p1, p2, d0, d1, d2)
    results, images = kernel.ne[3] // inner, volumes.ne[3] // channels
    if groups == 1:
        found = call("ggml_conv_3d_direct", kernel, volumes, *settings, channels, images, results)
    else:
        columns = call("ggml_im2col_3d", kernel, volumes, inner, *settings, Constant("GGML_TYPE_F32"))
        _, across, down, planes = columns.ne
        deep = planes // (groups * images)
        of_groups = _products_of_groups(call, columns, kernel, across * down * deep, groups, images)
        found = call("ggml_reshape_4d", of_groups, across, down, deep, results * images)
    if bias is not None:
        width, height, deep, _ = found.ne
        apart = call("ggml_reshape_4d", found, width, height * deep, results, images)
        biased = call("ggml_add", apart, typed("Tensor", along_channels(call, bias)))
        found = call("ggml_reshape_4d", biased, *found.ne)
    return summed(call, found, sums, activation)


@raises(conv_3d, "ggml_conv_3d_direct")
def _conv_3d(kernel: Tensor, volumes: Tensor, *settings: Arg) -> Args:
    *strides, channels, _, _ = settings
    return kernel, volumes, None, *strides, channels, 1, False


@composite("ggml_conv_2d_dw_direct", behind=BIAS_AND_SUMS, vectors=("bias",))
def conv_2d_dw(
    call: Expansion, kernel: Tensor, image: Tensor, bias: Tensor | None, s0: int, s1: int, p0: int, p1: int, d0: int, d1: int,
    activation: ActivationOrNone, *sums: Tensor,
) -> Tensor:  # fmt: skip
    """The same of each channel by itself, with kernels [C, 1, KH, KW]."""
    bias = along_channels(call, bias)
    found = call("ggml_conv_2d_dw_direct", kernel, image, s0, s1, p0, p1, d0, d1)
    return summed(call, found, (bias, *sums), activation)


@composite(made=9, multiplied=2)
def conv_2d_last(
    call: Expansion, kernel: Tensor, image: Tensor, bias: Tensor | None, s0: int, s1: int, p0: int, p1: int, q0: int, q1: int,
    d0: int, d1: int, direct: bool, activation: ActivationOrNone, *sums: Tensor,
) -> Tensor:  # fmt: skip
    """The same of images with their channels last, [N, H, W, C], which may lie in planes, with pads before and behind, plus a
    vector [C_out], plus each of `sums`; the result is [N, H, W, C_out]. With kernels [C, 1, KH, KW] each channel is by itself."""
    return _last(call, kernel, image, bias, sums, (s0, s1), (p0, p1, q0, q1), (d0, d1), direct, activation)


@composite(made=12, multiplied=2)
def expanded_conv_2d(
    call: Expansion, weight: Tensor, image: Tensor, sum: Tensor | None, inner: ActivationOrNone, kernel: Tensor,
    bias: Tensor | None, s0: int, s1: int, p0: int, p1: int, q0: int, q1: int, d0: int, d1: int, activation: ActivationOrNone,
) -> Tensor:  # fmt: skip
    """The same of each channel by itself, of what a weight [C_wide, C] makes of the pixels, plus a vector [C_wide], and an
    `inner` activation of that."""
    c, w, h, n = image.ne
    require_vectors(sum)
    pixels = call("ggml_reshape_4d", image, c, w * h, n, 1) if image.contiguous else image
    wide = summed(call, call("ggml_mul_mat", weight, pixels), (sum,), inner)
    wide = call("ggml_reshape_4d", wide, wide.ne[0], w, h, n)
    return _last(call, kernel, wide, bias, (), (s0, s1), (p0, p1, q0, q1), (d0, d1), False, activation)


def _last(
    call: Expansion, kernel: Tensor, image: Tensor, bias: Tensor | None, sums: Sequence[Tensor], strides: tuple[int, int],
    pads: tuple[int, int, int, int], dilations: tuple[int, int], direct: bool, activation: ActivationOrNone,
) -> Tensor:  # fmt: skip
    """A convolution of an image with its channels last, by one of planes."""
    require_vectors(bias)
    p0, p1, q0, q1 = pads
    planes = call("ggml_permute", image, *FIRST)
    planes = planes if planes.contiguous else call("ggml_cont", planes)
    if (p0, p1) != (q0, q1):
        planes, p0, p1 = call("ggml_pad_ext", planes, p0, q0, p1, q1, 0, 0, 0, 0), 0, 0
    found = _convolution(call, kernel, planes, (*strides, p0, p1, *dilations), direct)
    return summed(call, from_planes(call, found), (bias, *sums), activation)


def require_vectors(*operands: Tensor | None) -> None:
    """Raises ProgramError for operands that are no vectors."""
    for each in operands:
        if each is not None:
            require(each.ne[1:] == (1, 1, 1), f"{each.ne} in the place of a vector")


def _convolution(call: Expansion, kernel: Tensor, image: Tensor, settings: tuple[int, ...], direct: bool) -> Tensor:
    """A convolution of planes: of all channels, of each by itself, or in groups."""
    channels = image.ne[2]
    if kernel.ne[2] == channels:
        return call("ggml_conv_2d_direct" if direct else "ggml_conv_2d", kernel, image, *settings)
    if kernel.ne[2] == 1 and kernel.ne[3] == channels:
        return call("ggml_conv_2d_dw_direct", kernel, image, *settings)
    return _in_groups(call, kernel, image, settings)


def _in_groups(call: Expansion, kernel: Tensor, image: Tensor, settings: tuple[int, ...]) -> Tensor:
    """A convolution in groups of channels: the columns of each group, and a product of many matrices."""
    width, height, channels, count = image.ne
    _, _, inner, outer = kernel.ne
    whole = isinstance(channels, int) and isinstance(inner, int) and isinstance(outer, int) and inner > 0
    groups = channels // inner
    require(
        whole and channels % inner == 0 and outer % groups == 0, f"{channels} channels for kernels of {inner} in groups"
    )
    apart = call("ggml_reshape_4d", image, width, height, inner, groups * count)
    columns = call("ggml_im2col", kernel, apart, *settings, True, Constant("GGML_TYPE_F32"))
    _, across, down, _ = columns.ne
    found = _products_of_groups(call, columns, kernel, across * down, groups, count)
    return call("ggml_reshape_4d", found, across, down, outer, count)


def _products_of_groups(
    call: Expansion, columns: Tensor, kernel: Tensor, pixels: Dim, groups: Dim, count: Dim
) -> Tensor:
    """The products of each group's columns with its kernels, for each image."""
    depth = columns.ne[0]
    require(kernel.size % (groups * depth) == 0, f"kernels in {groups} groups")
    columns = call("ggml_reshape_4d", columns, depth, pixels, groups, count)
    kernels = call("ggml_reshape_4d", kernel, depth, kernel.size // (groups * depth), groups, 1)
    if count != 1:
        kernels = call("ggml_repeat_4d", kernels, *kernels.ne[:3], count)
    return call("ggml_mul_mat", columns, kernels)


def summed(call: Expansion, found: Tensor, sums: Iterable[Tensor | None], activation: ActivationOrNone) -> Tensor:
    """A result plus tensors that broadcast to it, where they are there; an activation of that."""
    for each in sums:
        found = found if each is None else call("ggml_add", found, each)
    return activated(call, found, activation)
