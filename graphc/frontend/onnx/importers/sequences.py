"""Sequences of tensors and optional values: both are gone once a model is imported.

A sequence is a list of known length, or, of tensors of one shape, the slices of one (`Slices`).
"""

from __future__ import annotations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.frame import Growing, Item, Slices, ValueList
from graphc.frontend.onnx.importers.control import joined_slices, stacked
from graphc.frontend.onnx.importers.movement import parts_of
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, fixed_size, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ops.base import normalize_axis
from graphc.ops.indexing import Gather
from graphc.ops.movement import Concat, Transpose
from graphc.shapes import Expr, ceil_div

MOST_PARTS = 1 << 14
"""Tensors of a sequence that is a list: each is a node."""


@onnx_op("SequenceConstruct")
def sequence_construct(node: OnnxNode, emit: SizeEmit) -> ValueList:
    """Some tensors."""
    return ValueList(node.given())


@onnx_op("SequenceEmpty")
def sequence_empty(node: OnnxNode, emit: SizeEmit) -> ValueList:
    """No tensors."""
    return ValueList(())


@onnx_op("SequenceAt")
def sequence_at(node: OnnxNode, emit: SizeEmit) -> Value:
    """One tensor; by a position that only a run knows, where all have one shape."""
    found, position = node.item(0), node.input(1)
    if isinstance(found, ValueList) and emit.known(position) is None and len({x.type for x in found.items}) == 1:
        found = Slices(stacked(emit, list(found.items), 0))
    if isinstance(found, Slices):
        return emit(Gather(0), found.whole, to_shape(emit, position, ()))
    items = node.sequence(0).items
    return items[_position(node, emit, 1, len(items), len(items) - 1)]


@onnx_op("SequenceInsert")
def sequence_insert(node: OnnxNode, emit: SizeEmit) -> Item:
    """One tensor more: at a known position, or at the end."""
    before, x = node.item(0), node.input(1)
    if isinstance(before, Growing) and node.optional(2) is None:
        return Growing(before.number, (*before.added, x))
    if isinstance(before, Slices) and node.optional(2) is None:
        return joined_slices(emit, before, Slices(to_shape(emit, x, (1, *x.shape))))
    items = node.sequence(0).items
    place = len(items) if node.optional(2) is None else _position(node, emit, 2, len(items), len(items))
    return ValueList((*items[:place], node.input(1), *items[place:]))


@onnx_op("SequenceErase")
def sequence_erase(node: OnnxNode, emit: SizeEmit) -> ValueList:
    """One tensor less: at a known position, or the last."""
    items = node.sequence(0).items
    place = len(items) - 1 if node.optional(1) is None else _position(node, emit, 1, len(items), len(items) - 1)
    if not items:
        raise ModelError("the sequence is empty")
    return ValueList((*items[:place], *items[place + 1 :]))


def _position(node: OnnxNode, emit: SizeEmit, index: int, length: int, last: int) -> int:
    place = int(emit.scalar(node.input(index), "the position in a sequence"))
    place += length if place < 0 else 0
    if not 0 <= place <= last:
        raise ModelError(f"position {place} of a sequence of {length}")
    return place


@onnx_op("SequenceLength")
def sequence_length(node: OnnxNode, emit: SizeEmit) -> Value:
    """How many tensors there are."""
    found = node.item(0)
    if isinstance(found, Slices):
        return emit.size(found.whole.shape[0])
    return emit.constant(np.array(len(node.sequence(0).items), np.int64))


@onnx_op("SplitToSequence")
def split_to_sequence(node: OnnxNode, emit: SizeEmit) -> Item:
    """Parts of an axis: of one size, of given sizes, or single elements, whose axis may be dropped."""
    x = node.input(0)
    axis = normalize_axis(node.int("axis", 0), x.type.rank)
    given = node.optional(1)
    known = None if given is None else emit.known(given)
    single = given is None or (given.type.rank == 0 and known is not None and known.item() == 1)
    if single and (isinstance(x.shape[axis], Expr) or x.shape[axis] > MOST_PARTS):
        rest = (*x.shape[:axis], *([] if given is None and not node.int("keepdims", 1) else [1]), *x.shape[axis + 1 :])
        first = emit(Transpose((axis, *(i for i in range(x.type.rank) if i != axis))), x)
        return Slices(to_shape(emit, first, (x.shape[axis], *rest)))
    if given is not None and given.type.rank:
        return ValueList(parts_of(emit, x, axis, emit.known_dims(given, "the sizes of the parts")))
    total = fixed_size(x.shape[axis], "the size of the axis")
    step = 1 if given is None else emit.ints(given, "the size of the parts")[0]
    if step < 1:
        raise ModelError(f"parts of size {step}")
    refuse_unless(total <= step * MOST_PARTS, f"a sequence of {ceil_div(total, step)} tensors is not supported")
    parts = parts_of(emit, x, axis, [min(step, total - start) for start in range(0, total, step)])
    if given is None and not node.int("keepdims", 1):
        parts = tuple(to_shape(emit, part, (*x.shape[:axis], *x.shape[axis + 1 :])) for part in parts)
    return ValueList(parts)


@onnx_op("ConcatFromSequence")
def concat_from_sequence(node: OnnxNode, emit: SizeEmit) -> Value:
    """All tensors, one after the other or along a new axis."""
    found = node.item(0)
    if isinstance(found, Slices):
        return _concatenated(emit, found.whole, node.int("axis"), bool(node.int("new_axis", 0)))
    items = list(node.sequence(0).items)
    if not items:
        raise ModelError("the sequence is empty")
    if node.int("new_axis", 0):
        return stacked(emit, items, node.int("axis"))
    return emit(Concat(normalize_axis(node.int("axis"), items[0].type.rank)), *items)


def _concatenated(emit: SizeEmit, whole: Value, axis: int, new: bool) -> Value:
    """The slices of a tensor's first axis beside one another along another axis, or along a new one."""
    count, *shape = whole.shape
    axis = normalize_axis(axis, len(shape) + new)
    moved = emit(Transpose((*range(1, axis + 1), 0, *range(axis + 1, whole.type.rank))), whole)
    return moved if new else to_shape(emit, moved, (*shape[:axis], count * shape[axis], *shape[axis + 1 :]))


@onnx_op("Optional", "OptionalGetElement")
def optional(node: OnnxNode, emit: SizeEmit) -> Item:
    """The value itself, which must be there."""
    item = node.item(0)
    refuse_unless(item is not None, "an optional value without one is not supported")
    assert item is not None
    return item


@onnx_op("OptionalHasElement")
def optional_has_element(node: OnnxNode, emit: SizeEmit) -> Value:
    """True if the value is there."""
    return emit.constant(np.array(node.item(0) is not None))
