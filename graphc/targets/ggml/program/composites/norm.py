"""Normalizations, with their scale and shift; of groups of channels, with SiLU too."""

from __future__ import annotations

from graphc.targets.ggml.program.composites.composite import (
    Args,
    Expansion,
    along_channels,
    composite,
    raises,
    tail,
)
from graphc.targets.ggml.program.tensor import Tensor


@composite()
def layer_norm(call: Expansion, x: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float) -> Tensor:
    """The rows of x with mean 0 and variance 1, times a scale, plus a shift."""
    return affine(call, call("ggml_norm", x, epsilon), scale, shift)


@composite()
def rms_norm(call: Expansion, x: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float) -> Tensor:
    """The rows of x divided by the root of the mean of their squares, times a scale, plus a shift."""
    return affine(call, call("ggml_rms_norm", x, epsilon), scale, shift)


@composite(vectors=("scale", "shift"))
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


@raises(layer_norm, "ggml_norm")
@raises(rms_norm, "ggml_rms_norm")
def _rows(x: Tensor, epsilon: float) -> Args:
    return x, None, None, epsilon


@raises(group_norm, "ggml_group_norm")
def _groups(x: Tensor, groups: int, epsilon: float) -> Args:
    return x, None, None, groups, epsilon, False


@tail(layer_norm, "ggml_mul")
@tail(rms_norm, "ggml_mul")
@tail(group_norm, "ggml_mul")
def _scale(args: Args, result: Tensor, behind: Args) -> Args | None:
    x, scale, shift, *settings = args
    fits = scale is shift is None and may_be_affine(args, result, behind)
    return (x, behind[1], None, *settings) if fits else None


@tail(layer_norm, "ggml_add")
@tail(rms_norm, "ggml_add")
@tail(group_norm, "ggml_add")
def _shift(args: Args, result: Tensor, behind: Args) -> Args | None:
    x, scale, shift, *settings = args
    fits = scale is not None and shift is None and may_be_affine(args, result, behind)
    return (x, scale, behind[1], *settings) if fits else None


@tail(group_norm, "graphc_silu")
def _silu(args: Args, result: Tensor, behind: Args) -> Args | None:
    return (*args[:5], True) if behind[1] is None else None


def may_be_affine(args: Args, result: Tensor, behind: Args) -> bool:
    """True if what another call reads behind a result may be the scale or shift: for an image not after SiLU, and not along the
    image's width, as which it would be taken for a vector."""
    first, other = behind
    of_rows = not isinstance(args[-1], bool)
    is_first = isinstance(first, Tensor) and first.call == result.call
    return is_first and isinstance(other, Tensor) and (of_rows or (not args[-1] and other.ne[0] == 1))
