"""Sequences of tensors whose length is known, and optional values: both are gone once a model is imported."""

from __future__ import annotations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.frame import Item, ValueList
from graphc.frontend.onnx.importers.control import stacked
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, fixed_size, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ops.base import normalize_axis
from graphc.ops.movement import Concat


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
    """One tensor, by a known position."""
    items = node.sequence(0).items
    return items[_position(node, emit, 1, len(items), len(items) - 1)]


@onnx_op("SequenceInsert")
def sequence_insert(node: OnnxNode, emit: SizeEmit) -> ValueList:
    """One tensor more: at a known position, or at the end."""
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
    return emit.constant(np.array(len(node.sequence(0).items), np.int64))


@onnx_op("SplitToSequence")
def split_to_sequence(node: OnnxNode, emit: SizeEmit) -> ValueList:
    """Parts of an axis: of one size, of given sizes, or single elements, whose axis may be dropped."""
    x = node.input(0)
    axis = normalize_axis(node.int("axis", 0), x.type.rank)
    given = node.optional(1)
    total = fixed_size(x.shape[axis], "the size of the axis")
    if given is None or given.type.rank == 0:
        step = 1 if given is None else emit.ints(given, "the size of the parts")[0]
        if step < 1:
            raise ModelError(f"parts of size {step}")
        sizes = [min(step, total - start) for start in range(0, total, step)]
    else:
        sizes = emit.ints(given, "the sizes of the parts")
    if sum(sizes) != total or min(sizes, default=0) < 0:
        raise ModelError(f"parts of {sizes} for an axis of {total}")
    starts = np.cumsum([0, *sizes])
    parts = [cut(emit, x, axis, int(start), part) for start, part in zip(starts, sizes, strict=False)]
    if given is None and not node.int("keepdims", 1):
        parts = [to_shape(emit, part, (*x.shape[:axis], *x.shape[axis + 1 :])) for part in parts]
    return ValueList(tuple(parts))


@onnx_op("ConcatFromSequence")
def concat_from_sequence(node: OnnxNode, emit: SizeEmit) -> Value:
    """All tensors, one after the other or along a new axis."""
    items = list(node.sequence(0).items)
    if not items:
        raise ModelError("the sequence is empty")
    if node.int("new_axis", 0):
        return stacked(emit, items, node.int("axis"))
    return emit(Concat(normalize_axis(node.int("axis"), items[0].type.rank)), *items)


@onnx_op("Optional", "OptionalGetElement")
def optional(node: OnnxNode, emit: SizeEmit) -> Item:
    """The value itself, which must be there."""
    item = node.item(0)
    refuse_unless(item is not None, "an optional value without one is not supported")
    assert item is not None
    return item


@onnx_op("OptionalHasElement")
def optional_has_element(node: OnnxNode, emit: SizeEmit) -> Value:
    """Whether the value is there."""
    return emit.constant(np.array(node.item(0) is not None))
