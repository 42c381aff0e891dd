"""Gather and its relatives, one-hot, cumulative sums, triangles, the largest elements."""

from __future__ import annotations

import numpy as np

from graphc.errors import ModelError, ShapeError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, check_table, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import I64
from graphc.ops.base import normalize_axis
from graphc.ops.indexing import Gather, GatherElements, GatherND, OneHot
from graphc.ops.movement import Concat, Expand, Slice
from graphc.ops.pointwise import Binary, Cast, Where
from graphc.ops.sequences import CumProd, CumSum, Range, Trilu
from graphc.ops.sorting import ArgMax, ArgMin, TopK
from graphc.shapes import is_static


@onnx_op("Gather")
def gather(node: OnnxNode, emit: SizeEmit) -> Value:
    """Slices of an axis, by index."""
    x = node.input(0)
    return emit(Gather(normalize_axis(node.int("axis", 0), x.type.rank)), x, node.input(1))


@onnx_op("GatherElements")
def gather_elements(node: OnnxNode, emit: SizeEmit) -> Value:
    """One element for each index."""
    x = node.input(0)
    return emit(GatherElements(normalize_axis(node.int("axis", 0), x.type.rank)), x, node.input(1))


@onnx_op("GatherND")
def gather_nd(node: OnnxNode, emit: SizeEmit) -> Value:
    """Slices, by tuples of indices."""
    return emit(GatherND(node.int("batch_dims", 0)), node.input(0), node.input(1))


@onnx_op("OneHot")
def one_hot(node: OnnxNode, emit: SizeEmit) -> Value:
    """A new axis with one value at the index and another elsewhere."""
    indices, values = node.input(0), node.input(2)
    depth = int(emit.scalar(node.input(1), "the depth"))
    if depth < 0:
        raise ModelError(f"the depth is {depth}")
    axis = normalize_axis(node.int("axis", -1), indices.type.rank + 1)
    if indices.dtype.kind not in "iu":
        indices = emit(Cast(I64), indices)
    return emit(OneHot(axis, depth), indices, values)


@onnx_op("CumSum", "CumProd")
def running(node: OnnxNode, emit: SizeEmit) -> Value:
    """Running sums or products."""
    x = node.input(0)
    operator = CumSum if node.operator == "CumSum" else CumProd
    axis = normalize_axis(int(emit.scalar(node.input(1), "the axis")), x.type.rank)
    return emit(operator(axis, bool(node.int("exclusive", 0)), bool(node.int("reverse", 0))), x)


@onnx_op("Trilu")
def trilu(node: OnnxNode, emit: SizeEmit) -> Value:
    """A triangle of each matrix."""
    k = node.optional(1)
    diagonal = 0 if k is None else int(emit.scalar(k, "the diagonal"))
    return emit(Trilu(bool(node.int("upper", 1)), diagonal), node.input(0))


@onnx_op("ArgMax", "ArgMin")
def arg_extreme(node: OnnxNode, emit: SizeEmit) -> Value:
    """The index of the largest or smallest element."""
    x = node.input(0)
    operator = ArgMax if node.operator == "ArgMax" else ArgMin
    axis = normalize_axis(node.int("axis", 0), x.type.rank)
    return emit(operator(axis, bool(node.int("keepdims", 1)), bool(node.int("select_last_index", 0))), x)


@onnx_op("TopK")
def top_k(node: OnnxNode, emit: SizeEmit) -> tuple[Value, ...]:
    """The k largest or smallest elements; k is an attribute before opset 10."""
    x = node.input(0)
    if node.opset < 10:
        k = node.int("k")
    else:
        (k,) = emit.dims(node.input(1), "k", low=0)
    axis = normalize_axis(node.int("axis", -1), x.type.rank)
    return emit.all(TopK(axis, k, bool(node.int("largest", 1)), bool(node.int("sorted", 1))), x)


@onnx_op("ReverseSequence")
def reverse_sequence(node: OnnxNode, emit: SizeEmit) -> Value:
    """The first elements of each batch in reverse, as many as its length says; sequences of whole length are read backwards."""
    x, lengths = node.input(0), node.input(1)
    time, batch = node.int("time_axis", 0), node.int("batch_axis", 1)
    refuse_unless({time, batch} == {0, 1}, "time and batch must be the first two axes")
    steps, batches = x.shape[time], x.shape[batch]
    if lengths.shape != (batches,):
        raise ShapeError(f"lengths {lengths.type} for {x.type}", [*zip(lengths.shape, (batches,), strict=False)])
    same = emit.one_element(lengths)
    if same == steps:
        starts = tuple(steps - 1 if axis == time else 0 for axis in range(x.type.rank))
        return emit(Slice(starts, x.shape, tuple(-1 if axis == time else 1 for axis in range(x.type.rank))), x)
    known = emit.known(lengths)
    if known is not None and is_static(steps) and not all(0 <= length <= steps for length in known.tolist()):
        raise ModelError(f"lengths {known.tolist()} for {x.type}")
    check_table(steps, batches)
    sizes = x.shape[:2]
    place = to_shape(emit, emit(Range(0, steps, 1, I64)), tuple(steps if axis == time else 1 for axis in range(2)))
    row = to_shape(emit, emit(Range(0, batches, 1, I64)), tuple(batches if axis == batch else 1 for axis in range(2)))
    count = to_shape(emit, emit(Cast(I64), lengths), row.shape)
    turned = emit(Binary("Sub"), emit(Binary("Sub"), count, emit.constant(np.array(1, I64))), place)
    source = emit(Where(), emit(Binary("Less"), place, count), turned, place)
    indices = [to_shape(emit, emit(Expand(sizes), each), (*sizes, 1)) for each in (source, row)]
    return emit(GatherND(0), x, emit(Concat(2), *(indices if time == 0 else reversed(indices))))
