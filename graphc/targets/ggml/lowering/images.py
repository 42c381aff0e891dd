"""What ggml has for images, in the model's order of axes.

Images are float32 [N, C, H, W], kernels [C_out, C / groups, KH, KW]; settings are pairs (height, width).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphc.shapes import Dim, product
from graphc.targets.ggml.program.calls import fits_workspace
from graphc.targets.ggml.program.image_calls import needs_direct
from graphc.targets.ggml.program.tensor import Arg, Constant, Tensor, storage_ne

Pair = Sequence[int]


class ImageCalls:
    """The part of the builder that is about images."""

    if TYPE_CHECKING:

        def call(self, function: str, *args: Arg, rank: int) -> Tensor:
            """See `Builder`."""

        def cont(self, x: Tensor) -> Tensor:
            """See `Builder`."""

        def rows(self, x: Tensor) -> Tensor:
            """See `Builder`."""

        def reshape(self, x: Tensor, shape: Sequence[Dim]) -> Tensor:
            """See `Builder`."""

        def expand(self, x: Tensor, shape: Sequence[Dim]) -> Tensor:
            """See `Builder`."""

    def pad_image(self, x: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
        """Zeros around the last axes, one number an axis."""
        pads = [0] * 8
        for axis, (left, right) in enumerate(zip(reversed(before), reversed(after), strict=True)):
            pads[2 * axis : 2 * axis + 2] = left, right
        return self.call("ggml_pad_ext", self.rows(x), *pads, rank=x.rank) if any(pads) else x

    def conv_2d(self, x: Tensor, w: Tensor, strides: Pair, dilations: Pair, pads: Pair, group: int) -> Tensor:
        """A convolution with the same padding at both ends, of all channels, or in groups of them."""
        x, w = self.cont(x), self.cont(w)
        settings = [setting[axis] for setting in (strides, pads, dilations) for axis in (1, 0)]
        channels = w.shape[0]
        if group != 1 and group == channels == x.shape[1]:
            return self.call("ggml_conv_2d_dw_direct", w, x, *settings, rank=4)
        if group != 1:
            return self.call("graphc_conv_2d", w, x, None, *settings, False, False, rank=4)
        function = "ggml_conv_2d_direct" if needs_direct(w, x, settings) else "ggml_conv_2d"
        return self.call(function, w, x, *settings, rank=4)

    def conv_3d(
        self, x: Tensor, w: Tensor, bias: Tensor | None, channels: int, strides: Sequence[int], dilations: Sequence[int],
        pads: Sequence[int], group: int,
    ) -> Tensor | None:  # fmt: skip
        """A convolution of volumes, held as [N * C, D, H, W] and [C_out * C / groups, KD, KH, KW], plus a vector [C_out]."""
        if not fits_workspace(channels * product(w.shape[1:]), w.shape[0] // channels):
            return None
        settings = [setting[axis] for setting in (strides, pads, dilations) for axis in (2, 1, 0)]
        return self.call("graphc_conv_3d", self.cont(w), self.cont(x), bias, *settings, channels, group, False, rank=4)

    def group_norm(self, x: Tensor, groups: int, epsilon: float) -> Tensor:
        """[N, C, H, W] with mean 0 and variance 1 in each group of channels of each image."""
        return self.call("ggml_group_norm", self.cont(x), groups, float(np.float32(epsilon)), rank=4)

    def pool_2d(self, kind: str, x: Tensor, kernel: Pair, strides: Pair, pads: Pair) -> Tensor:
        """`MAX` over windows that meet the image, or `AVG` over windows with the padding counted as zeros."""
        constant = Constant(f"GGML_OP_POOL_{kind}")
        settings = (*reversed(kernel), *reversed(strides), *(float(pad) for pad in reversed(pads)))
        return self.call("ggml_pool_2d", self.cont(x), constant, *settings, rank=4)

    def interpolate(self, x: Tensor, shape: tuple[Dim, ...], mode: str) -> Tensor:
        """A tensor of other sizes; `mode` is the end of one of ggml's names: `NEAREST`, or `BILINEAR`, which interpolates
        the last two axes."""
        rank = min(len(shape), 4)
        return self.call(
            "ggml_interpolate", self.rows(x), *storage_ne(shape), Constant(f"GGML_SCALE_MODE_{mode}"), rank=rank
        )
