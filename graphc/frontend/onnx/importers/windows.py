"""What convolution and pooling share: attributes for each spatial axis, and padding that is worked out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.node import PIN, OnnxNode
from graphc.frontend.onnx.tensors import Refused
from graphc.ir import Value
from graphc.ops.movement import Pad
from graphc.shapes import Dim, ceil_div, dim_max, is_static

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
MAX_RANK = 16


@dataclass(frozen=True)
class Window:
    """A window that moves over the spatial axes."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


def window(node: OnnxNode, sizes: Sequence[Dim], kernel: Sequence[int]) -> Window:
    """The window over axes of these sizes. Raises ModelError where attributes do not fit, and Refused where padding depends on
    sizes."""
    found = _window(node, sizes, kernel)
    for size, *pads in zip(sizes, found.before, found.after, strict=True):
        if not is_static(*pads):
            raise Refused(f"the padding depends on the size {size}", PIN)
    return found


def padded(node: OnnxNode, emit: SizeEmit, x: Value, kernel: Sequence[int], value: float = 0) -> tuple[Value, Window]:
    """The image and the window over it; where padding depends on the image's sizes, the image has it already, of this value."""
    found = _window(node, x.shape[2:], kernel)
    if is_static(*found.before, *found.after):
        return x, found
    none = (0,) * len(found.kernel)
    around = Pad((0, 0, *found.before), (0, 0, *found.after), "constant", value)
    return emit(around, x), replace(found, before=none, after=none)


def _window(node: OnnxNode, sizes: Sequence[Dim], kernel: Sequence[int]) -> Window:
    rank = len(sizes)
    strides = spatial(node, "strides", rank, 1)
    dilations = spatial(node, "dilations", rank, 1)
    if len(kernel) != rank or min(kernel, default=1) < 1:
        raise ModelError(f"a kernel of {list(kernel)} for {rank} spatial axes")
    extents = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    before, after = _pads(node, sizes, extents, strides)
    return Window(tuple(kernel), strides, dilations, before, after)


def spatial(node: OnnxNode, name: str, rank: int, default: int, least: int = 1) -> tuple[int, ...]:
    """An attribute with a number for each spatial axis, none below `least`."""
    values = tuple(node.ints(name, [default] * rank))
    if len(values) != rank or min(values, default=least) < least:
        raise ModelError(f"attribute {name} is {list(values)} for {rank} spatial axes")
    return values


def explicit_pads(node: OnnxNode, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The attribute `pads`: what is added before each axis, then after."""
    pads = node.ints("pads", [0] * 2 * rank)
    if len(pads) != 2 * rank or min(pads, default=0) < 0:
        raise ModelError(f"attribute pads is {pads} for {rank} spatial axes")
    return tuple(pads[:rank]), tuple(pads[rank:])


def _pads(
    node: OnnxNode, sizes: Sequence[Dim], extents: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    auto = node.choice("auto_pad", "NOTSET", AUTO_PADS)
    if auto == "NOTSET":
        return explicit_pads(node, len(sizes))
    if auto == "VALID":
        return (0,) * len(sizes), (0,) * len(sizes)
    totals = [same_total(size, extent, stride) for size, extent, stride in zip(sizes, extents, strides, strict=True)]
    return halves(totals, auto == "SAME_UPPER")


def same_total(size: Dim, extent: int, stride: int) -> Dim:
    """How much padding gives ceil(size / stride) windows."""
    return dim_max((ceil_div(size, stride) - 1) * stride + extent - size, 0)


def halves(totals: Sequence[Any], upper: bool) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Padding split between the two ends; an odd one has more at the upper end, or at the lower."""
    small, large = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
    return (small, large) if upper else (large, small)
