"""What recipes that only move elements make of a checkpoint's tensors, in the types in which it has them: blocks stay blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias, Union

import numpy as np

from graphc.ggml_types import HALVES, TYPES, nbytes
from graphc.ir.graph import Value
from graphc.ir.types import F32
from graphc.ops.base import Op
from graphc.ops.movement import Concat, Reshape, Slice, Transpose
from graphc.ops.pointwise import Cast
from graphc.shapes import integer
from graphc.weights.formats.blocks import Blocks

Tensor: TypeAlias = Union[np.ndarray, Blocks]

DEEPEST = 32
"""Movements one upon the other that are looked through."""


def moved(value: Value, given: Mapping[Value, Any], depth: int = DEEPEST) -> Tensor | None:
    """The elements of a value that movements make of the tensors `given`, in their own type, which may be narrower than the
    value's: float16 that would be widened, or blocks. None where something is computed, or would cut a block."""
    if value in given:
        found: Tensor = given[value]
        return found
    node = value.producer
    if node is None or not depth:
        return None
    parts = [moved(each, given, depth - 1) for each in node.inputs]
    if isinstance(node.op, Cast) and value.dtype == F32 and _is_narrow(parts[0]):
        return parts[0]
    move = MOVES.get(type(node.op))
    if move is None or any(each is None for each in parts):
        return None
    if all(isinstance(each, np.ndarray) for each in parts):
        same = len({each.dtype for each in parts if each is not None}) == 1
        return node.op.eval(*parts)[0] if same else None  # type: ignore[arg-type]
    blocks = [each for each in parts if isinstance(each, Blocks)]
    if len(blocks) < len(parts) or len({each.type for each in blocks}) > 1:
        return None
    raw = move(node.op, blocks)
    return None if raw is None else Blocks(blocks[0].type, raw, tuple(integer(size, {}) for size in value.shape))


def _is_narrow(tensor: Tensor | None) -> bool:
    return isinstance(tensor, Blocks) or (tensor is not None and tensor.dtype in HALVES.values())


def _reshaped(op: Any, parts: Sequence[Blocks]) -> np.ndarray | None:
    return parts[0].raw


def _transposed(op: Any, parts: Sequence[Blocks]) -> np.ndarray | None:
    (x,) = parts
    moving = max((axis + 1 for axis, source in enumerate(op.perm) if axis != source), default=0)
    return x.along(moving).transpose((*op.perm[:moving], moving)) if x.whole(moving) else None


def _cut(op: Any, parts: Sequence[Blocks]) -> np.ndarray | None:
    (x,) = parts
    places = zip(op.starts, op.sizes, op.steps, x.shape, strict=True)
    whole = [(start, size, step) == (0, limit, 1) for start, size, step, limit in places]
    count = max((axis + 1 for axis, untouched in enumerate(whole) if not untouched), default=0)
    if not x.whole(count):
        return _cut_between_blocks(op, x, count - 1)
    rows = x.along(count)
    cut = Slice((*op.starts[:count], 0), (*op.sizes[:count], rows.shape[-1]), (*op.steps[:count], 1))
    return cut.eval(rows)[0]


def _cut_between_blocks(op: Any, x: Blocks, axis: int) -> np.ndarray | None:
    """A part of an axis, the last that is cut, of which an element is not whole blocks, but the part is."""
    first, size = (integer(each[axis], {}) * prod(x.shape[axis + 1 :]) for each in (op.starts, op.sizes))
    if op.steps[axis] != 1 or not x.whole(axis) or any(each % TYPES[x.type].elements for each in (first, size)):
        return None
    start, count = (nbytes(x.type, (each,)) for each in (first, size))
    cut = Slice((*op.starts[:axis], start), (*op.sizes[:axis], count), (*op.steps[:axis], 1))
    return cut.eval(x.along(axis))[0]


def _concatenated(op: Any, parts: Sequence[Blocks]) -> np.ndarray | None:
    count = op.axis + 1
    return np.concatenate([x.along(count) for x in parts], op.axis) if all(x.whole(count) for x in parts) else None


MOVES: Mapping[type[Op], Callable[[Any, Sequence[Blocks]], np.ndarray | None]] = {
    Reshape: _reshaped,
    Transpose: _transposed,
    Slice: _cut,
    Concat: _concatenated,
}
"""How the bytes of blocks move, for each operator that computes nothing; None where a block would be cut."""
