"""What convolution and pooling share: attributes for each spatial axis, and padding that is worked out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphc.errors import ModelError
from graphc.frontend.onnx.node import PIN, OnnxNode
from graphc.frontend.onnx.tensors import Refused
from graphc.shapes import Dim, ceil_div, is_static

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
    """The window over axes of these sizes. Raises ModelError where attributes do not fit."""
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
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    auto = node.choice("auto_pad", "NOTSET", AUTO_PADS)
    if auto == "NOTSET":
        return explicit_pads(node, len(sizes))
    if auto == "VALID":
        return (0,) * len(sizes), (0,) * len(sizes)
    totals = [same_total(size, extent, stride) for size, extent, stride in zip(sizes, extents, strides, strict=True)]
    return halves(totals, auto == "SAME_UPPER")


def same_total(size: Dim, extent: int, stride: int) -> int:
    """How much padding gives ceil(size / stride) windows. Raises Refused if it depends on the size."""
    total = (ceil_div(size, stride) - 1) * stride + extent - size
    if not is_static(total):
        raise Refused(f"the padding depends on the size {size}", PIN)
    return max(int(total), 0)  # type: ignore[arg-type]


def halves(totals: Sequence[int], upper: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding split between the two ends; an odd one has more at the upper end, or at the lower."""
    small, large = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
    return (small, large) if upper else (large, small)
