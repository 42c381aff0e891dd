"""Operators whose results are as large as their data say: the size is computed first, then measured."""

from __future__ import annotations

import numpy as np

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import F32, FLOATS, I64, STRING
from graphc.ops.base import normalize_axis
from graphc.ops.indexing import Gather, GatherND
from graphc.ops.movement import Concat, Expand, Transpose
from graphc.ops.pointwise import Binary, Cast, Unary
from graphc.ops.reduce import Reduce
from graphc.ops.scatter import ScatterElements
from graphc.ops.selection import BestBoxes, NonZero, check_boxes
from graphc.ops.sequences import CumSum, Range
from graphc.ops.sorting import ArgSort, ArgSortRows
from graphc.shapes import Dim, dim_min, product


@onnx_op("NonZero")
def non_zero(node: OnnxNode, emit: SizeEmit) -> Value:
    """The places of elements that are not zero."""
    x = node.input(0)
    x = emit(Cast(np.dtype(np.bool_)), x)
    return places_of(emit, to_shape(emit, x, x.shape or (1,)), "the count")


@onnx_op("Compress")
def compress(node: OnnxNode, emit: SizeEmit) -> Value:
    """What a condition selects."""
    x = node.input(0)
    places = places_of(emit, node.input(1), "the count")
    axis = normalize_axis(node.int("axis"), x.type.rank) if node.has("axis") else 0
    whole = x if node.has("axis") else to_shape(emit, x, (x.type.size,))
    return emit(Gather(axis), whole, to_shape(emit, places, places.shape[1:]))


def places_of(emit: SizeEmit, flags: Value, what: str) -> Value:
    """Where flags are set: int64 [rank, count]; `what` names the count."""
    size = flags.type.size
    if size == 0:
        return emit(NonZero(0), flags)
    total = emit(Reduce("sum", tuple(range(flags.type.rank)), False), emit(Cast(I64), flags))
    return emit(NonZero(emit.measured(total, what, high=size if isinstance(size, int) else None)), flags)


@onnx_op("Unique")
def unique(node: OnnxNode, emit: SizeEmit) -> tuple[Value, ...]:
    """Different elements, or slices of an axis, where each is first, which each one is, and how often each occurs. Two NaN are
    the same."""
    x = node.input(0)
    axis = normalize_axis(node.int("axis"), x.type.rank) if node.has("axis") else 0
    whole = x if node.has("axis") else to_shape(emit, x, (x.type.size,))
    return different(emit, whole, axis, bool(node.int("sorted", 1)))


def different(emit: SizeEmit, whole: Value, axis: int, in_order: bool) -> tuple[Value, ...]:
    """What Unique gives for the slices of an axis, sorted or in the order in which they come.

    Equal rows are adjacent once they are sorted; where a row differs from the one before, a group begins.
    """
    rows = _rows(emit, whole, axis)
    order = emit(ArgSortRows(), rows)
    changed = _changed(emit, emit(Gather(0), rows, order))
    numbers = emit(Range(0, rows.shape[0], 1, I64))
    begins = emit(Binary("Or"), changed, emit(Binary("Equal"), numbers, emit.constant(0, like=numbers)))
    starts = places_of(emit, begins, "the count")
    count = starts.shape[1]
    first = emit(Gather(0), order, to_shape(emit, starts, (count,)))
    groups = emit(CumSum(0), emit(Cast(I64), changed))
    inverse = emit(ScatterElements(0), order, order, groups)
    counts = emit(ScatterElements(0, "add"), _filled(emit, 0, count), groups, _filled(emit, 1, rows.shape[0]))
    if not in_order:
        found = emit(ArgSort(0, count), first)
        first, counts = emit(Gather(0), first, found), emit(Gather(0), counts, found)
        ranks = emit(ScatterElements(0), found, found, emit(Range(0, count, 1, I64)))
        inverse = emit(Gather(0), ranks, inverse)
    return emit(Gather(axis), whole, first), first, inverse, counts


def _rows(emit: SizeEmit, x: Value, axis: int) -> Value:
    """The slices of an axis as the rows of a matrix; of strings, their ranks."""
    if x.dtype == STRING:
        strings = emit.array(x, "which strings differ")
        _, ranks = np.unique(strings, return_inverse=True)
        x = emit.constant(ranks.reshape(strings.shape).astype(I64))
    others = [other for other in range(x.type.rank) if other != axis]
    if axis:
        x = emit(Transpose((axis, *others)), x)
    return to_shape(emit, x, (x.shape[0], product(x.shape[1:])))


def _changed(emit: SizeEmit, rows: Value) -> Value:
    """Which rows of a matrix differ from the one before; the first one does not."""
    numbers = emit(Range(-1, rows.shape[0] - 1, 1, I64))
    before = emit(Gather(0), rows, emit(Binary("Max"), numbers, emit.constant(0, like=numbers)))
    same = emit(Binary("Equal"), rows, before)
    if rows.dtype in FLOATS:
        same = emit(Binary("Or"), same, emit(Binary("And"), emit(Unary("IsNaN"), rows), emit(Unary("IsNaN"), before)))
    return emit(Reduce("max", (1,), False), emit(Unary("Not"), same))


def _filled(emit: SizeEmit, number: int, size: Dim) -> Value:
    return emit(Expand((size,)), emit.constant(np.array([number], I64)))


@onnx_op("NonMaxSuppression")
def non_max_suppression(node: OnnxNode, emit: SizeEmit) -> Value:
    """For each batch and class the best boxes, of those that overlap too much only the best: (batch, class, box)."""
    boxes, scores = node.input(0), node.input(1)
    check_boxes(boxes.type, scores.type)
    limit = node.optional(2)
    if limit is None:
        return emit.constant(np.zeros((0, 3), I64))
    count = scores.shape[2]
    most = dim_min(emit.measured(to_shape(emit, limit, ()), "the number of boxes"), count)
    overlap, least = (
        emit.constant(np.array(default, F32)) if value is None else to_shape(emit, value, ())
        for value, default in ((node.optional(3), 0.0), (node.optional(4), -np.inf))
    )
    order = emit(ArgSort(2, count, True), scores)
    corners = _corners(emit, boxes, bool(node.int("center_point_box", 0)))
    best = emit(BestBoxes(most), corners, scores, order, overlap, least)
    flags = emit(Binary("GreaterOrEqual"), best, emit.constant(0, like=best))
    places = emit(Transpose((1, 0)), places_of(emit, flags, "the count"))
    chosen = emit(GatherND(0), best, places)
    return emit(Concat(1), cut(emit, places, 1, 0, 2), to_shape(emit, chosen, (*chosen.shape, 1)))


def _corners(emit: SizeEmit, boxes: Value, centered: bool) -> Value:
    """Boxes as their lower corner and their upper one."""
    a, b = cut(emit, boxes, 2, 0, 2), cut(emit, boxes, 2, 2, 2)
    if centered:
        half = emit(Binary("Div"), b, emit.constant(2, like=b))
        a, b = emit(Binary("Sub"), a, half), emit(Binary("Add"), a, half)
    return emit(Concat(2), emit(Binary("Min"), a, b), emit(Binary("Max"), a, b))
