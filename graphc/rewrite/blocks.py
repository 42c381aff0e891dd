"""Which axes a reshape makes into which others, so that movements of data can change places with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphc.ir.graph import Node
from graphc.ops.movement import Slice
from graphc.shapes import Dim, product


class Block(NamedTuple):
    """Adjacent axes before a reshape, and the adjacent axes after it that hold the same elements in the same order."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def blocks(shape: Sequence[Dim], target: Sequence[Dim]) -> list[Block]:
    """The smallest blocks of a reshape, in order.

    Axes of size 1 hold nothing: one of `shape` goes with the block behind it, or else before it; those of `target` are left
    out. No blocks where every axis has size 1, or one has size 0.
    """
    if 0 in (*shape, *target):
        return []
    ends, other_ends = _ends(shape), _ends(target)
    found: list[Block] = []
    start = other_start = 0
    for end, total in enumerate(ends):
        if shape[end] != 1 and total in other_ends:
            other_end = other_ends.index(total)
            after = range(other_start, other_end + 1)
            found.append(Block(tuple(range(start, end + 1)), tuple(axis for axis in after if target[axis] != 1)))
            start, other_start = end + 1, other_end + 1
    if found and start < len(shape):
        found[-1] = Block((*found[-1].before, *range(start, len(shape))), found[-1].after)
    return found


def _ends(shape: Sequence[Dim]) -> list[Dim]:
    """The number of elements up to and with each axis."""
    return [product(shape[: axis + 1]) for axis in range(len(shape))]


def before_reshape(shape: Sequence[Dim], target: Sequence[Dim], order: Sequence[int]) -> tuple[int, ...] | None:
    """The order of axes of `shape` that makes what reshaping to `target` and then this order makes, up to a reshape.

    Leading axes of size 1 stay in front. None where a block would have to come apart.
    """
    lead = next((axis for axis, size in enumerate(shape) if size != 1), len(shape))
    found = blocks(shape[lead:], target)
    moved = [axis for axis in order if target[axis] != 1]
    result = list(range(lead))
    while moved:
        block = next((each for each in found if moved[0] in each.after), None)
        if block is None or tuple(moved[: len(block.after)]) != block.after:
            return None
        result += [lead + axis for axis in block.before]
        del moved[: len(block.after)]
    return tuple(result)


def cut_axes(part: Node) -> list[int]:
    """The axes along which a slice is not simply what it reads."""
    assert isinstance(part.op, Slice)
    settings = zip(part.inputs[0].shape, part.op.sizes, part.op.steps, strict=True)
    return [axis for axis, (full, size, step) in enumerate(settings) if size != full or step != 1]


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order of axes that undoes an order."""
    return tuple(order.index(axis) for axis in range(len(order)))
