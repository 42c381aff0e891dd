"""Operators that ONNX took over later, in the spelling that they had before."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.constants import range_
from graphc.frontend.onnx.importers.indexing import gather_nd, trilu
from graphc.frontend.onnx.importers.movement import pad
from graphc.frontend.onnx.importers.sampling import grid_sample
from graphc.frontend.onnx.importers.selection import different
from graphc.frontend.onnx.importers.signal import real_inverse, transform
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, check_table, fixed_size, refuse_unless
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ops.activations import IsInf
from graphc.ops.base import normalize_axis
from graphc.ops.indexing import Gather
from graphc.ops.movement import Transpose
from graphc.ops.pointwise import Binary, Unary
from graphc.ops.reduce import Reduce

ALIKE = {"GatherND": (gather_nd, 12), "GridSample": (grid_sample, 16), "Pad": (pad, 13), "Trilu": (trilu, 14)}
"""The importers of ONNX's operators that read them, and the opset whose spelling is theirs."""


@onnx_op(*ALIKE, domain=MICROSOFT)
def as_in_onnx(node: OnnxNode, emit: SizeEmit) -> Value:
    """ONNX's operator of the same name; padding may lie in a row of its own."""
    importer, opset = ALIKE[node.operator]
    inputs = list(node.inputs)
    if node.operator == "Pad":
        inputs[1] = to_shape(emit, node.input(1), (node.input(1).type.size,))
    return importer(replace(node, opset=opset, inputs=tuple(inputs)), emit)


@onnx_op("Range", domain=MICROSOFT)
def from_start_to_limit(node: OnnxNode, emit: SizeEmit) -> Value:
    """start, start + delta, ... up to but not including limit; a delta of 1 may be left out, and numbers may have an axis."""
    bounds = [to_shape(emit, node.input(index), ()) for index in range(2)]
    step = node.optional(2)
    bounds.append(emit.constant(1, like=bounds[0]) if step is None else to_shape(emit, step, ()))
    return range_(replace(node, inputs=tuple(bounds)), emit)


@onnx_op("Unique", domain=MICROSOFT)
def unique_in_order(node: OnnxNode, emit: SizeEmit) -> tuple[Value, Value, Value]:
    """Different elements in the order in which they come, which of them each one is, and how often each occurs."""
    found, _, which, counts = different(emit, node.input(0), 0, False)
    return found, which, counts


@onnx_op("ExpandDims", domain=MICROSOFT)
def expand_dims(node: OnnxNode, emit: SizeEmit) -> Value:
    """A new axis of size 1, counted in the result."""
    x = node.input(0)
    axis = normalize_axis(int(emit.scalar(node.input(1), "the axis")), x.type.rank + 1)
    return to_shape(emit, x, (*x.shape[:axis], 1, *x.shape[axis:]))


@onnx_op("TorchEmbedding", domain=MICROSOFT)
def torch_embedding(node: OnnxNode, emit: SizeEmit) -> Value:
    """Rows of a table."""
    return emit(Gather(0), node.input(0), node.input(1))


@onnx_op("SampleOp", domain=MICROSOFT)
def sample(node: OnnxNode, emit: SizeEmit) -> Value:
    """The input itself."""
    return node.input(0)


@onnx_op("UnfoldTensor", domain=MICROSOFT)
def unfold_tensor(node: OnnxNode, emit: SizeEmit) -> Value:
    """The windows of an axis, whose elements are a new last axis."""
    x, size, step = node.input(0), node.int("size"), node.int("step", 1)
    axis = normalize_axis(node.int("dim", -1), x.type.rank)
    whole = fixed_size(x.shape[axis], "the size of the axis")
    refuse_unless(0 < size <= whole and step > 0, f"windows of {size} elements of {x.type} are not supported")
    count = (whole - size) // step + 1
    check_table(count, size)
    places = np.arange(count)[:, None] * step + np.arange(size)
    found = emit(Gather(axis), x, emit.constant(places))
    order = [i for i in range(found.type.rank) if i != axis + 1]
    return found if order[-1] == axis else emit(Transpose((*order, axis + 1)), found)


@onnx_op("Rfft", "Irfft", domain=MICROSOFT)
def real_transform(node: OnnxNode, emit: SizeEmit) -> Value:
    """The transform of real numbers along the last axis, [..., n] -> [..., n // 2 + 1, 2], and its inverse."""
    plain = (node.int("signal_ndim", 1), node.int("onesided", 1), node.int("normalized", 0)) == (1, 1, 0)
    refuse_unless(plain, "a transform of several axes, of two sides or of another scale is not supported")
    x = node.input(0)
    if node.operator == "Rfft":
        size = fixed_size(x.shape[-1], "the length")
        return transform(emit, to_shape(emit, x, (*x.shape, 1)), x.type.rank - 1, False, size // 2 + 1)
    axis = x.type.rank - 2
    y = real_inverse(emit, x, axis, 2 * (fixed_size(x.shape[axis], "the length") - 1))
    return to_shape(emit, y, y.shape[:-1])


@onnx_op("IsAllFinite", domain=MICROSOFT)
def all_finite(node: OnnxNode, emit: SizeEmit) -> Value:
    """True if no element of any input is infinite or NaN, or one of these that the attributes name."""
    wanted = [name for name in ("IsInf", "IsNaN") if not node.int(f"is{'nan' if name == 'IsInf' else 'inf'}_only", 0)]
    found = []
    for x in node.given():
        for name in wanted:
            flags = emit(IsInf(True, True) if name == "IsInf" else Unary("IsNaN"), x)
            found.append(emit(Reduce("max", tuple(range(flags.type.rank)), False), flags))
    return emit(Unary("Not"), reduce(lambda a, b: emit(Binary("Or"), a, b), found))
