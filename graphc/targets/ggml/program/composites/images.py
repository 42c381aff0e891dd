"""Images of another size, and the means of their windows."""

from __future__ import annotations

from graphc.targets.ggml.program.composites.composite import Args, Expansion, composite, raises
from graphc.targets.ggml.program.tensor import Arg, Constant, Tensor

NEAREST = Constant("GGML_SCALE_MODE_NEAREST")
AVERAGE = Constant("GGML_OP_POOL_AVG")

LAST, FIRST = (1, 2, 0, 3), (2, 0, 1, 3)
"""How `ggml_permute` brings the channels of images to the innermost axis, and back."""


@composite(made=6)
def upscale(call: Expansion, x: Tensor, ne0: int, ne1: int, ne2: int, ne3: int, mode: Constant, last: bool) -> Tensor:
    """x with these sizes: by its nearest elements along each axis, or interpolated along the axes of images, which are the first
    two, or the second and the third where channels are the innermost one."""
    if mode == NEAREST or not last:
        return call("ggml_interpolate", x, ne0, ne1, ne2, ne3, mode)
    return from_planes(call, call("ggml_interpolate", _planes(call, x), ne1, ne2, ne0, ne3, mode))


@raises(upscale, "ggml_interpolate")
def _upscale(x: Tensor, *args: Arg) -> Args | None:
    return (x, *args, False) if x.type == "F32" else None


@composite(made=6)
def average_pool(
    call: Expansion, x: Tensor, k0: int, k1: int, s0: int, s1: int, p0: float, p1: float, last: bool
) -> Tensor:
    """The means of the windows of images, of which the padding counts as zeros; channels are the third axis, or the innermost."""
    if not last:
        return call("ggml_pool_2d", x, AVERAGE, k0, k1, s0, s1, p0, p1)
    return from_planes(call, call("ggml_pool_2d", _planes(call, x), AVERAGE, k0, k1, s0, s1, p0, p1))


@raises(average_pool, "ggml_pool_2d")
def _average_pool(x: Tensor, kind: Constant, *args: Arg) -> Args | None:
    return (x, *args, False) if kind == AVERAGE and x.type == "F32" else None


def _planes(call: Expansion, x: Tensor) -> Tensor:
    """Images whose channels are the innermost axis as planes."""
    return call("ggml_cont", call("ggml_permute", x, *FIRST))


def from_planes(call: Expansion, x: Tensor) -> Tensor:
    """Images in planes with channels as the innermost axis."""
    return call("ggml_cont", call("ggml_permute", x, *LAST))
