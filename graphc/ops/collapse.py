"""Fewer axes for the same elements: adjacent axes that an operator treats alike are one axis.

ggml has four axes. An operator on more is computed on `merge(shape, groups)`, where `groups` says how many adjacent axes
become one; it works wherever at most four remain.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise

from graphc.shapes import Dim, product

MAX_RANK = 4

Groups = list[int]
"""How many adjacent axes become one, front to back; they add up to the rank."""


def merge(values: Sequence[Dim], groups: Sequence[int]) -> tuple[Dim, ...]:
    """Sizes with each group of adjacent axes multiplied into one."""
    return tuple(product(part) for part in split(values, groups))


def split(values: Sequence[Dim], groups: Sequence[int]) -> list[tuple[Dim, ...]]:
    """The values of each group."""
    parts, position = [], 0
    for count in groups:
        parts.append(tuple(values[position : position + count]))
        position += count
    return parts


def group(keys: Sequence[Hashable | None]) -> Groups:
    """Adjacent axes whose keys are equal become one; None (an axis of size 1) joins whatever is beside it."""
    groups: Groups = []
    current: Hashable | None = None
    for key in keys:
        if groups and (key is None or current is None or key == current):
            groups[-1] += 1
            current = key if current is None else current
        else:
            groups.append(1)
            current = key
    return groups


def broadcast_groups(shapes: Sequence[Sequence[Dim]], result: Sequence[Dim]) -> Groups:
    """Groups for operands that broadcast to `result`: in each group an operand has all of the sizes or only ones."""
    padded = [left_padded(shape, len(result)) for shape in shapes]
    keys = [None if size == 1 else tuple(shape[axis] == 1 for shape in padded) for axis, size in enumerate(result)]
    return group(keys)


def touched_groups(touched: Sequence[bool], carries: Sequence[bool], sizes: Sequence[Dim]) -> Groups:
    """Groups for an operator that moves elements along the `touched` axes only; each of these begins a group.

    Untouched axes join each other, and join a touched axis before them that `carries`: moving blocks along it is moving
    elements along the product.
    """
    groups: Groups = []
    closed = False
    for moved, carry, size in zip(touched, carries, sizes, strict=True):
        if groups and not moved and (size == 1 or not closed):
            groups[-1] += 1
        else:
            groups.append(1)
            closed = moved and not carry
    return groups


def left_padded(shape: Sequence[Dim], rank: int) -> tuple[Dim, ...]:
    """The shape with leading ones up to `rank` axes."""
    return (*[1] * (rank - len(shape)), *shape)


def collapse_transpose(shape: Sequence[Dim], perm: Sequence[int]) -> tuple[tuple[Dim, ...], tuple[int, ...]]:
    """A transpose of fewer axes that moves the elements the same way: axes of size 1 are dropped, and axes that stay
    beside each other become one. Returns the sizes and the order."""
    kept = [axis for axis in perm if shape[axis] != 1]
    runs: list[list[int]] = []
    order = sorted(kept)
    successor = dict(pairwise(order))
    for axis in kept:
        if runs and successor.get(runs[-1][-1]) == axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    position = {run[0]: place for place, run in enumerate(sorted(runs))}
    sizes = tuple(product(shape[axis] for axis in run) for run in sorted(runs))
    return sizes, tuple(position[run[0]] for run in runs)


def block_swaps(perm: Sequence[int]) -> list[tuple[int, int, int]]:
    """A transpose as exchanges of two adjacent blocks of axes, each of which needs four axes only.

    Each `(start, middle, end)` exchanges the axes [start, middle) and [middle, end) of what the ones before it gave.
    """
    order = list(range(len(perm)))
    swaps = []
    for place, axis in enumerate(perm):
        found = order.index(axis)
        if found == place:
            continue
        end = found + 1
        while end < len(order) and end - found + place < len(perm) and order[end] == perm[end - found + place]:
            end += 1
        swaps.append((place, found, end))
        order[place:end] = order[found:end] + order[place:found]
    return swaps
