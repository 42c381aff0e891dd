"""The rules of calls that are about images; see `calls.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.shapes import Dim, product, upper_bound
from graphc.targets.ggml.program.rules import (
    Layout,
    f32,
    packed,
    require,
    rule,
    settings_within,
    sizes_at_least_1,
    unary_f32,
)
from graphc.targets.ggml.program.tensor import Constant, Tensor

MOST_SETTING = 2**20
"""The largest stride, pad, dilation or window: ggml computes with them in 32 bits."""

MOST_SCALED = 2**22
"""The largest size that ggml finds its place in by float32."""

DIRECT_WORKSPACE = 16 << 20
"""Bytes that ggml's direct convolutions reserve: one column and its result must fit (`GGML_IM2COL_WORK_SIZE`)."""


COLUMN_LIMIT = 256 << 20
"""Bytes that the columns of a convolution may take; above, they are made piece by piece, which is slower."""


def fits_workspace(column: Dim, channels: Dim) -> bool:
    """True if a direct convolution can hold one column."""
    size = upper_bound(4 * column + 4 * channels)
    return size is not None and size <= DIRECT_WORKSPACE


def conv_size(size: Dim, kernel: Dim, stride: int, pad: int, dilation: int) -> Dim:
    """Output size of a convolution along one axis."""
    return (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1


def needs_direct(kernel: Tensor, image: Tensor, settings: Sequence[int]) -> bool:
    """True if the columns of a convolution may be larger than `COLUMN_LIMIT`, and a direct one can hold one."""
    s0, s1, p0, p1, d0, d1 = settings
    places = conv_size(image.ne[0], kernel.ne[0], s0, p0, d0), conv_size(image.ne[1], kernel.ne[1], s1, p1, d1)
    column = product(kernel.ne[:3])
    columns = upper_bound(4 * image.ne[3] * product((*places, column)))
    large = columns is None or columns > COLUMN_LIMIT
    return large and kernel.ne[:2] != (1, 1) and fits_workspace(column, kernel.ne[3])


def _conv_sizes(a: Tensor, b: Tensor, settings: tuple[int, ...]) -> tuple[Dim, Dim]:
    require(len(settings) == 6, "takes strides, pads and dilations")
    s0, s1, p0, p1, d0, d1 = settings
    settings_within(MOST_SETTING, *settings)
    require(min(s0, s1, d0, d1) >= 1, "strides and dilations are at least 1")
    width, height = conv_size(b.ne[0], a.ne[0], s0, p0, d0), conv_size(b.ne[1], a.ne[1], s1, p1, d1)
    require(all(not isinstance(n, int) or n >= 1 for n in (width, height)), "the kernel is larger than the image")
    return width, height


@rule("ggml_conv_2d")
def _conv_2d(a: Tensor, b: Tensor, *settings: int) -> Layout:
    require(a.type in ("F32", "F16"), "the kernel must be F32 or F16")
    f32(b)
    require(a.contiguous and b.contiguous, "must be contiguous")
    require(a.ne[2] == b.ne[2], f"{b.ne[2]} channels for a kernel of {a.ne[2]}")
    width, height = _conv_sizes(a, b, settings)
    return packed("F32", (width, height, a.ne[3], b.ne[3]))


@rule("ggml_conv_2d_direct")
def _conv_2d_direct(a: Tensor, b: Tensor, *settings: int) -> Layout:
    layout = _conv_2d(a, b, *settings)
    require(fits_workspace(product(a.ne[:3]), a.ne[3]), "a column does not fit into the workspace")
    return layout


@rule("ggml_conv_2d_dw_direct")
def _conv_2d_depthwise(a: Tensor, b: Tensor, *settings: int) -> Layout:
    f32(a, b)
    require(a.contiguous and b.contiguous, "must be contiguous")
    require(a.ne[2] == 1 and a.ne[3] == b.ne[2], "one kernel a channel")
    width, height = _conv_sizes(a, b, settings)
    return packed("F32", (width, height, b.ne[2], b.ne[3]))


@rule("ggml_conv_3d_direct")
def _conv_3d(a: Tensor, b: Tensor, *settings: Dim) -> Layout:
    require(a.type in ("F32", "F16"), "the kernel must be F32 or F16")
    f32(b)
    require(a.contiguous and b.contiguous, "must be contiguous")
    require(len(settings) == 12, "takes strides, pads, dilations, channels, images and output channels")
    strides, pads, dilations, (channels, batch, out) = settings[:3], settings[3:6], settings[6:9], settings[9:]
    settings_within(MOST_SETTING, *settings[:9])
    settings_within(2**31 - 1, channels, out, *[batch] * isinstance(batch, int))
    require(min(*strides, *dilations) >= 1, "strides and dilations are at least 1")
    require(a.ne[3] == channels * out and b.ne[3] == channels * batch, "channels differ")
    require(fits_workspace(channels * product(a.ne[:3]), out), "a column does not fit into the workspace")
    sizes = [conv_size(b.ne[i], a.ne[i], strides[i], pads[i], dilations[i]) for i in range(3)]  # type: ignore[arg-type]
    require(all(not isinstance(n, int) or n >= 1 for n in sizes), "the kernel is larger than the image")
    return packed("F32", (sizes[0], sizes[1], sizes[2], out * batch))


@rule("ggml_im2col")
def _im2col(
    a: Tensor, b: Tensor, s0: int, s1: int, p0: int, p1: int, d0: int, d1: int, is_2d: bool, type: Constant
) -> Layout:
    require(is_2d is True, "only the form for images")
    f32(b)
    require(b.contiguous, "must be contiguous")
    require(a.ne[2] == b.ne[2], f"{b.ne[2]} channels for a kernel of {a.ne[2]}")
    target = type.name.removeprefix("GGML_TYPE_")
    require(target in ("F32", a.type) and a.type in ("F32", "F16"), "the columns must be F32, or F16 as the kernel")
    width, height = _conv_sizes(a, b, (s0, s1, p0, p1, d0, d1))
    return packed(target, (a.ne[2] * a.ne[1] * a.ne[0], width, height, b.ne[3]))


@rule("ggml_im2col_3d")
def _im2col_3d(a: Tensor, b: Tensor, channels: int, *settings: Any) -> Layout:
    *numbers, type = settings
    require(type == Constant("GGML_TYPE_F32"), "the columns must be F32")
    f32(a, b)
    require(b.contiguous, "must be contiguous")
    strides, pads, dilations = numbers[:3], numbers[3:6], numbers[6:]
    settings_within(MOST_SETTING, *numbers)
    settings_within(2**31 - 1, channels)
    require(min(channels, *strides, *dilations) >= 1, "strides, dilations and channels are at least 1")
    images = b.ne[3] // channels
    require(b.ne[3] == channels * images and a.ne[3] % channels == 0, "channels differ")
    sizes = [conv_size(b.ne[i], a.ne[i], strides[i], pads[i], dilations[i]) for i in range(3)]
    require(all(not isinstance(n, int) or n >= 1 for n in sizes), "the kernel is larger than the image")
    return packed("F32", (channels * product(a.ne[:3]), sizes[0], sizes[1], sizes[2] * images))


@rule("ggml_conv_transpose_2d_p0")
def _conv_transpose(a: Tensor, b: Tensor, stride: int) -> Layout:
    require(a.type in ("F32", "F16"), "the kernel must be F32 or F16")
    f32(b)
    require(a.contiguous and b.contiguous, "must be contiguous")
    settings_within(MOST_SETTING, stride)
    require(stride >= 1, "the stride is at least 1")
    require(a.ne[3] == b.ne[2] and b.ne[3] == 1, "channels differ, or more than one image")
    width, height = (b.ne[0] - 1) * stride + a.ne[0], (b.ne[1] - 1) * stride + a.ne[1]
    return packed("F32", (width, height, a.ne[2], b.ne[3]))


@rule("ggml_pool_2d")
def _pool_2d(a: Tensor, kind: Constant, k0: int, k1: int, s0: int, s1: int, p0: float, p1: float) -> Layout:
    require(kind.name in ("GGML_OP_POOL_MAX", "GGML_OP_POOL_AVG"), "the kind is max or avg")
    pads = [int(p) for p in (p0, p1) if p == int(p)]
    require(len(pads) == 2, "pads are whole numbers")
    settings_within(MOST_SETTING, k0, k1, s0, s1, *pads)
    require(min(k0, k1, s0, s1) >= 1, "windows and strides are at least 1")
    scaled(*a.ne)
    unary_f32(a)
    width, height = (a.ne[0] + 2 * pads[0] - k0) // s0 + 1, (a.ne[1] + 2 * pads[1] - k1) // s1 + 1
    require(all(not isinstance(n, int) or n >= 1 for n in (width, height)), "the window is larger than the image")
    return packed("F32", (width, height, a.ne[2], a.ne[3]))


def scaled(*sizes: Dim) -> None:
    """Raise ProgramError for sizes in which float32 does not tell all places."""
    require(
        all(not isinstance(size, int) or size <= MOST_SCALED for size in sizes), "sizes that float32 does not count"
    )


@rule("ggml_interpolate")
def _interpolate(a: Tensor, ne0: Dim, ne1: Dim, ne2: Dim, ne3: Dim, mode: Constant) -> Layout:
    modes = ("GGML_SCALE_MODE_NEAREST", "GGML_SCALE_MODE_BILINEAR")
    require(mode.name in modes, "the mode is nearest or bilinear")
    f32(a)
    require(a.nb[0] == 4, "rows must be contiguous")
    ne = sizes_at_least_1(ne0, ne1, ne2, ne3)
    scaled(*a.ne, *ne)
    return packed("F32", ne)


@rule("ggml_pad_ext")
def _pad(a: Tensor, *pads: int) -> Layout:
    require(len(pads) == 8, "takes eight pads")
    settings_within(2**31 - 1, *pads)
    f32(a)
    require(a.nb[0] == 4, "rows must be contiguous")
    ne = [size + pads[2 * i] + pads[2 * i + 1] for i, size in enumerate(a.ne)]
    return packed("F32", (ne[0], ne[1], ne[2], ne[3]))
