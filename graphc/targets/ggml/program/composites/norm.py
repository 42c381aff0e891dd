"""Normalizations, with their scale and shift; of groups of channels, with SiLU too."""

from __future__ import annotations

from graphc.targets.ggml.program.composites.composite import Expansion, along_channels, composite
from graphc.targets.ggml.program.tensor import Tensor

AFFINE = {"scale": "ggml_mul", "shift": "ggml_add"}


@composite("ggml_norm", behind=AFFINE)
def layer_norm(call: Expansion, x: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float) -> Tensor:
    """The rows of x with mean 0 and variance 1, times a scale, plus a shift."""
    return affine(call, call("ggml_norm", x, epsilon), scale, shift)


@composite("ggml_rms_norm", behind=AFFINE)
def rms_norm(call: Expansion, x: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float) -> Tensor:
    """The rows of x divided by the root of the mean of their squares, times a scale, plus a shift."""
    return affine(call, call("ggml_rms_norm", x, epsilon), scale, shift)


@composite("ggml_l2_norm")
def l2_norm(call: Expansion, x: Tensor, least: float) -> Tensor:
    """The rows of x divided by their length, the root of the sum of their squares, or by `least` if that is more."""
    return call("ggml_l2_norm", x, least)


@composite("ggml_group_norm", behind={**AFFINE, "silu": "graphc_silu"}, vectors=("scale", "shift"))
def group_norm(
    call: Expansion, x: Tensor, scale: Tensor | None, shift: Tensor | None, groups: int, epsilon: float, silu: bool
) -> Tensor:
    """x [N, C, H, W] with mean 0 and variance 1 in each group of channels of each image, times a scale, plus a shift; SiLU of
    that if `silu`. Scale and shift have a number for each channel: [C], or [1, C, 1, 1]."""
    found = call("ggml_group_norm", x, groups, epsilon)
    found = affine(call, found, along_channels(call, scale), along_channels(call, shift))
    return call("ggml_silu", found) if silu else found


def affine(call: Expansion, x: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    """x times a scale, plus a shift, if there are."""
    scaled = x if scale is None else call("ggml_mul", x, scale)
    return scaled if shift is None else call("ggml_add", scaled, shift)
