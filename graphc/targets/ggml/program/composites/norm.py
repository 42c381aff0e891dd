"""Normalizations, with their scale and shift; of groups of channels, with SiLU too."""

from __future__ import annotations

from graphc.targets.ggml.program.composites.composite import (
    Args,
    Expansion,
    along_channels,
    composite,
    raises,
    tail,
    takes_vectors,
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


@composite()
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
def _scale(args: Args, result: Tensor, behind: Args) -> Args | None:
    x, scale, shift, *settings = args
    return (x, behind[1], None, *settings) if scale is shift is None and is_first(result, behind) else None


@tail(layer_norm, "ggml_add")
@tail(rms_norm, "ggml_add")
def _shift(args: Args, result: Tensor, behind: Args) -> Args | None:
    x, scale, shift, *settings = args
    fits = scale is not None and shift is None
    return (x, scale, behind[1], *settings) if fits and is_first(result, behind) else None


@tail(group_norm, "ggml_mul")
def _scale_of_channels(args: Args, result: Tensor, behind: Args) -> Args | None:
    return _scale(args, result, behind) if may_be_affine(args, behind) else None


@tail(group_norm, "ggml_add")
def _shift_of_channels(args: Args, result: Tensor, behind: Args) -> Args | None:
    return _shift(args, result, behind) if may_be_affine(args, behind) else None


@takes_vectors(group_norm)
def _of_channels(args: Args, place: int, vector: Tensor) -> Args | None:
    return (*args[:place], vector, *args[place + 1 :]) if place in (1, 2) else None


@tail(group_norm, "graphc_silu")
def _silu(args: Args, result: Tensor, behind: Args) -> Args | None:
    return (*args[:5], True) if behind[1] is None else None


def may_be_affine(args: Args, behind: Args) -> bool:
    """True if a group normalization may have what another call reads as its scale or shift: not along the width of an image, as
    which it would take a vector, and not after SiLU."""
    return args[-1] is False and isinstance(behind[1], Tensor) and behind[1].ne[0] == 1


def is_first(result: Tensor, behind: Args) -> bool:
    """True if it is the first operand."""
    return isinstance(behind[0], Tensor) and behind[0].call == result.call
