"""Rules for movements of more than four axes, which ggml does not have: queries, keys and values of one product, taken apart.

Such a value lies contiguously, so a part of it is a copy. With its axes of size 1 left out, it is a view.
"""

from __future__ import annotations

from graphc.ir.graph import Node, Value
from graphc.ops.base import Emit
from graphc.ops.collapse import MAX_RANK
from graphc.ops.movement import Concat, Reshape, Slice, Transpose
from graphc.rewrite.blocks import blocks, cut_axes
from graphc.rewrite.engine import Refusal, rule
from graphc.shapes import Dim, product


@rule("part := Slice(t := Transpose(x))")
def slice_of_transpose(emit: Emit, x: Value, part: Node, t: Node) -> Value | Refusal:
    """Only what is taken is moved."""
    assert isinstance(part.op, Slice)
    assert isinstance(t.op, Transpose)
    if len(x.shape) <= MAX_RANK:
        return Refusal("it is a view")
    places = [t.op.perm.index(axis) for axis in range(len(x.shape))]
    starts, sizes = (tuple(each[place] for place in places) for each in (part.op.starts, part.op.sizes))
    steps = tuple(part.op.steps[place] for place in places)
    return emit(t.op, emit(Slice(starts, sizes, steps), x))


@rule("part := Slice(r := Reshape(t := Transpose(x)))")
def slice_of_reshape(emit: Emit, x: Value, part: Node, r: Node, t: Node) -> Value | Refusal:
    """What is taken along an axis that a reshape leaves alone is taken before it."""
    assert isinstance(part.op, Slice)
    moved = t.output
    cut = cut_axes(part)
    found = [each for each in blocks(moved.shape, r.output.shape) if list(each.after) == cut and len(each.before) == 1]
    if len(x.shape) <= MAX_RANK or not found or part.op.steps[cut[0]] != 1:
        return Refusal("it is a view, or not a part of one axis that stays as it is")
    (axis,) = found[0].before
    starts, sizes = _along(moved, axis, part.op.starts[cut[0]], part.output.shape[cut[0]])
    return emit(Reshape(part.output.shape), emit(Slice(starts, sizes, (1,) * len(sizes)), moved))


@rule("part := Slice(x)")
def slice_of_one(emit: Emit, x: Value, part: Node) -> Value | Refusal:
    """One element of an axis is a part of that axis and the next as one."""
    assert isinstance(part.op, Slice)
    rank = len(x.shape)
    cut = cut_axes(part)
    if rank <= MAX_RANK or len(cut) != 1 or part.output.shape[cut[0]] != 1 or cut[0] == rank - 1:
        return Refusal("it has four axes or fewer, or is not one element of an axis before the last")
    axis, following = cut[0], x.shape[cut[0] + 1]
    whole = emit(Reshape((*x.shape[:axis], x.shape[axis] * following, *x.shape[axis + 2 :])), x)
    starts, sizes = _along(whole, axis, part.op.starts[axis] * following, following)
    return emit(Reshape(part.output.shape), emit(Slice(starts, sizes, (1,) * len(sizes)), whole))


@rule("part := Slice(x)")
def slice_of_last(emit: Emit, x: Value, part: Node) -> Value | Refusal:
    """A part of the last axis is one of rows."""
    assert isinstance(part.op, Slice)
    *lead, size = x.shape
    if len(lead) < MAX_RANK or cut_axes(part) != [len(lead)] or part.op.steps[-1] != 1:
        return Refusal("it has four axes or fewer, or is not a part of the last one")
    rows = emit(Reshape((product(lead), size)), x)
    taken = (product(lead), part.output.shape[-1])
    return emit(Reshape(part.output.shape), emit(Slice((0, part.op.starts[-1]), taken, (1, 1)), rows))


@rule("cat := Concat(a, b)")
def concat_of_rows(emit: Emit, a: Value, b: Value, cat: Node) -> Value | Refusal:
    """Along the last axis, rows are joined."""
    assert isinstance(cat.op, Concat)
    *lead, _ = cat.output.shape
    if len(lead) < MAX_RANK or cat.op.axis != len(lead):
        return Refusal("it has four axes or fewer, or the axis is not the last")
    rows = [emit(Reshape((product(lead), each.shape[-1])), each) for each in (a, b)]
    return emit(Reshape(cat.output.shape), emit(Concat(1), *rows))


@rule("t := Transpose(x)")
def transpose_without_ones(emit: Emit, x: Value, t: Node) -> Value | Refusal:
    """Axes of size 1 need not be moved."""
    assert isinstance(t.op, Transpose)
    kept = [axis for axis, size in enumerate(x.shape) if size != 1]
    if len(x.shape) <= MAX_RANK or len(kept) == len(x.shape):
        return Refusal("it has four axes or fewer, or none of size 1")
    order = tuple(kept.index(axis) for axis in t.op.perm if axis in kept)
    smaller = emit(Reshape(tuple(x.shape[axis] for axis in kept)), x)
    return emit(Reshape(t.output.shape), emit(Transpose(order), smaller))


def _along(x: Value, axis: int, start: Dim, size: Dim) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """The starts and the sizes of a part of one axis."""
    places = range(len(x.shape))
    return tuple(start if i == axis else 0 for i in places), tuple(size if i == axis else x.shape[i] for i in places)


RULES = {
    "axes": [slice_of_transpose, slice_of_reshape, slice_of_one, slice_of_last, concat_of_rows, transpose_without_ones]
}
