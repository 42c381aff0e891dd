"""Constants, what is computed from sizes alone, and what does nothing at inference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import LIMIT, SizeEmit, exact_objects
from graphc.frontend.onnx.frame import Item
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.random import drawn
from graphc.frontend.onnx.node import OnnxNode, fixed_size, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import BOOL, F32, FLOATS
from graphc.ops.movement import Expand
from graphc.ops.pointwise import Binary, Cast
from graphc.ops.sequences import EyeLike, Range
from graphc.shapes import Dim, Expr, is_static

CONSTANT_FORMS: dict[str, Callable[[OnnxNode], np.ndarray]] = {
    "value_float": lambda node: np.array(node.float("value_float"), F32),
    "value_floats": lambda node: np.array(node.floats("value_floats"), F32),
    "value_int": lambda node: np.array(node.int("value_int"), np.int64),
    "value_ints": lambda node: np.array(node.ints("value_ints"), np.int64),
    "value": lambda node: node.tensor("value"),
}
"""The attributes of Constant, one of which holds the elements."""


@onnx_op("Constant")
def constant(node: OnnxNode, emit: SizeEmit) -> Value:
    """A tensor in the node itself."""
    for name, read in CONSTANT_FORMS.items():
        if node.has(name):
            return emit.constant(read(node), name=node.outputs[0])
    given = ", ".join(node.attributes)
    refuse_unless(not given, f"constants given as {given} are not supported")
    raise ModelError("a constant without a value")


@onnx_op("ConstantOfShape")
def constant_of_shape(node: OnnxNode, emit: SizeEmit) -> Value:
    """One number, repeated to a shape."""
    value = node.tensor("value") if node.has("value") else np.zeros(1, F32)
    if value.size != 1:
        raise ModelError(f"attribute value has {value.size} elements, not one")
    shape = tuple(emit.dims(node.input(0), "the shape", low=0))
    check_sizes(*shape)
    return emit(Expand(shape), emit.constant(value.reshape(())))


@onnx_op("Shape")
def shape(node: OnnxNode, emit: SizeEmit) -> Value:
    """The sizes of a tensor, or some of them (start and end since opset 15)."""
    sizes = node.input(0).shape
    start, end, _ = slice(node.int("start", 0), node.int("end", None)).indices(len(sizes))
    return emit.sizes(sizes[start:end])


@onnx_op("Size")
def size(node: OnnxNode, emit: SizeEmit) -> Value:
    """The number of elements."""
    return emit.size(node.input(0).type.size)


@onnx_op("Range")
def range_(node: OnnxNode, emit: SizeEmit) -> Value:
    """start, start + delta, ... up to but not including limit. A limit may be symbolic if the numbers are whole."""
    dtype = node.input(0).dtype
    values = [node.input(index) for index in range(3)]
    if dtype in FLOATS or all(value.data is not None for value in values):
        whole = [number for number in (_whole(emit, value) for value in values) if number is not None]
        if len(whole) == 3 and not is_static(*whole):
            return emit(Range(whole[0], whole[1], whole[2], dtype))
        start, limit, delta = (emit.scalar(value, "a bound of the range") for value in values)
        return emit(Range(start, limit, delta, dtype))
    bounds = [dim for value in values[:2] for dim in emit.dims(value, "a bound of the range")]
    bounds += emit.known_dims(values[2], "the step of the range")
    if len(bounds) != 3:
        raise ModelError("a bound of the range is not a scalar")
    numbers = emit(Range(bounds[0], bounds[1], bounds[2], dtype))
    return cut(emit, numbers, 0, 0, emit.length(numbers.shape[0], bounds[0], bounds[1]))


def _whole(emit: SizeEmit, value: Value) -> Dim | None:
    """The one element of a tensor, if it is a whole number or a size, as a model may have made a float of."""
    array = exact_objects(emit.known(value))
    element = None if array is None or array.size != 1 else array.reshape(()).item()
    return element if isinstance(element, int | Expr) else None


@onnx_op("EyeLike")
def eye_like(node: OnnxNode, emit: SizeEmit) -> Value:
    """Ones on a diagonal."""
    x = node.input(0)
    if x.type.rank != 2:
        raise ModelError(f"EyeLike of {x.type}, which is not a matrix")
    return emit(EyeLike(node.int("k", 0), node.dtype("dtype", x.dtype), x.shape))


@onnx_op("Identity")
def identity(node: OnnxNode, emit: SizeEmit) -> Item | None:
    """The input itself; an optional value may be missing."""
    return node.item(0)


@onnx_op("Dropout")
def dropout(node: OnnxNode, emit: SizeEmit) -> tuple[Value | None, ...]:
    """The input itself, and a mask that keeps everything. In training mode a part of it, scaled, and the mask. With a seed, the
    mask is the one that ONNX's reference draws, which is not possible for a symbolic shape."""
    x, ratio, training = node.input(0), node.optional(1), node.optional(2)
    if training is not None and emit.scalar(training, "training_mode"):
        part = 0.5 if ratio is None else float(emit.scalar(ratio, "the dropout ratio"))
        if part:
            return _dropped(node, emit, x, part)
    if not node.wants(1):
        return x, None
    return x, emit(Expand(x.shape), emit.constant(np.array(True, BOOL if node.opset >= 10 else x.dtype)))


def _dropped(node: OnnxNode, emit: SizeEmit, x: Value, part: float) -> tuple[Value, Value]:
    if node.has("seed"):
        sizes = [fixed_size(size, "the shape of a dropout with a seed") for size in x.shape]
        mask = emit.constant(np.random.RandomState(node.int("seed")).uniform(0, 1.0, sizes) >= part)
    else:
        mask = emit(Binary("GreaterOrEqual"), drawn(node, emit, x.shape), emit.constant(np.float64(part)))
    scaled = emit(Binary("Mul"), x, emit.constant(1 / (1 - part), like=x))
    return emit(Binary("Mul"), scaled, emit(Cast(x.dtype), mask)), mask


def check_sizes(*sizes: int | Expr) -> None:
    """Raise ModelError if a size is negative."""
    for size in sizes:
        if is_static(size) and size < 0:
            raise ModelError(f"a size is {size}")


__all__ = ["LIMIT", "check_sizes"]
