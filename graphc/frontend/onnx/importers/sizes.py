"""Reshape, Expand and what else gives a tensor another shape without moving elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphc.errors import ModelError, ShapeError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.node import OnnxNode
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import I64
from graphc.ops.base import broadcast_shapes, normalize_axis
from graphc.ops.indexing import Gather
from graphc.ops.movement import Expand, Reshape, Slice
from graphc.ops.pointwise import Binary, Where
from graphc.ops.reduce import Reduce
from graphc.ops.sequences import Range
from graphc.shapes import Dim, is_static, lower_bound, product, upper_bound


@onnx_op("Reshape")
def reshape(node: OnnxNode, emit: SizeEmit) -> Value:
    """The shape has 0 for a size that stays (unless allowzero) and one -1 for what is left."""
    x, sizes = node.input(0), node.input(1)
    if emit.known(sizes) is None and sizes.dtype == I64 and isinstance(sizes.type.size, int) and sizes.type.rank == 1:
        return _measured_shape(emit, x, sizes, bool(node.int("allowzero", 0)))
    wanted = emit.known_dims(sizes, "the shape")
    return to_shape(emit, x, resolve_shape(x.shape, wanted, bool(node.int("allowzero", 0))))


def _measured_shape(emit: SizeEmit, x: Value, wanted: Value, allowzero: bool) -> Value:
    """A reshape to sizes that the model computes. That they are those of as many elements is asserted, and cannot be proven,
    so the elements are gathered by their numbers."""

    def number(value: int) -> Value:
        return emit.constant(np.array([value], I64))

    (rank,) = wanted.shape
    assert isinstance(rank, int)
    if not allowzero:
        kept = emit.sizes([*x.shape[:rank], *[0] * (rank - x.type.rank)])
        wanted = emit(Where(), emit(Binary("Equal"), wanted, number(0)), kept, wanted)
    open_ended = emit(Binary("Equal"), wanted, number(-1))
    given = emit(Reduce("prod", (0,), True), emit(Where(), open_ended, number(1), wanted))
    rest = emit(Binary("Div"), emit.sizes([x.type.size]), emit(Binary("Max"), given, number(1)))
    wanted = emit(Where(), open_ended, rest, wanted)
    shape = tuple(emit.dims(wanted, "the shape", low=0))
    emit.require(emit(Reduce("prod", (0,), True), wanted), x.type.size, f"the number of elements of {emit.base}")
    numbers = cut(emit, emit(Range(0, product(shape), 1, I64)), 0, 0, product(shape))
    return to_shape(emit, emit(Gather(0), to_shape(emit, x, (x.type.size,)), numbers), shape)


@onnx_op("Flatten")
def flatten(node: OnnxNode, emit: SizeEmit) -> Value:
    """Two axes: what is before `axis`, and the rest."""
    x = node.input(0)
    axis = node.int("axis", 1)
    if not -x.type.rank <= axis <= x.type.rank:
        raise ModelError(f"axis {axis} is not an axis of {x.type}")
    axis %= x.type.rank + 1 if axis == x.type.rank else max(x.type.rank, 1)
    return to_shape(emit, x, (product(x.shape[:axis]), product(x.shape[axis:])))


@onnx_op("Squeeze")
def squeeze(node: OnnxNode, emit: SizeEmit) -> Value:
    """Drop axes of size 1: those given (an attribute before opset 13, an input since), or all that can have it."""
    x = node.input(0)
    axes = axes_of(node, emit, x.type.rank)
    if axes is None:
        axes = tuple(axis for axis, size in enumerate(x.shape) if size == 1 or _may_be_1(size))
    for axis in axes:
        x = _of_size_1(emit, x, axis)
    return to_shape(emit, x, tuple(size for axis, size in enumerate(x.shape) if axis not in axes))


def _may_be_1(size: Dim) -> bool:
    low, high = lower_bound(size), upper_bound(size)
    return (low is None or low <= 1) and (high is None or high >= 1)


def _of_size_1(emit: SizeEmit, x: Value, axis: int) -> Value:
    """The tensor, of which an axis has size 1. The model only works for runs in which that is so: of a branch, only where it is
    taken. Raises ShapeError."""
    size = x.shape[axis]
    if size == 1:
        return x
    if is_static(size):
        raise ModelError(f"axis {axis} of {x.type} does not have size 1")
    if emit.graph is emit.outermost and not emit.dimensions.is_measured(size):
        raise ShapeError(f"axis {axis} of {x.type} does not have size 1 for every value of the symbols", [(size, 1)])
    emit.require(emit.size(size), 1, f"axis {axis} of what {emit.base} takes")
    return cut(emit, x, axis, 0, 1)


@onnx_op("Unsqueeze")
def unsqueeze(node: OnnxNode, emit: SizeEmit) -> Value:
    """New axes of size 1, counted in the result."""
    x = node.input(0)
    given = node.ints("axes") if node.opset < 13 else emit.ints(node.input(1), "the axes")
    rank = x.type.rank + len(given)
    axes = unique_axes(given, rank)
    old = iter(x.shape)
    return to_shape(emit, x, tuple(1 if axis in axes else next(old) for axis in range(rank)))


@onnx_op("Expand")
def expand(node: OnnxNode, emit: SizeEmit) -> Value:
    """Broadcasting with a shape."""
    x, sizes = node.input(0), node.input(1)
    wanted = emit.dims(sizes, "the shape", low=0)
    for axis, old in zip(range(len(wanted) - 1, -1, -1), reversed(x.shape), strict=False):
        if emit.dimensions.is_measured(wanted[axis]) and isinstance(old, int) and old != 1:
            wanted[axis] = _kept(emit, emit(Slice((axis,), (1,), (1,)), sizes), old)
    shape = broadcast_shapes(x.shape, tuple(wanted))
    return x if shape == x.shape else emit(Expand(shape), x)


def _kept(emit: SizeEmit, number: Value, old: int) -> int:
    """The size of an axis that is not 1, where the number asks for it or for 1; anything else fails when the model runs."""
    stays = emit(Binary("Equal"), number, emit.constant(1, like=number))
    emit.require(emit(Where(), stays, emit.constant(np.array([old], I64)), number), old, f"the shape of {emit.base}")
    return old


def to_shape(emit: SizeEmit, x: Value, shape: tuple[Dim, ...]) -> Value:
    """The tensor in a shape with as many elements; itself if it has that shape."""
    return x if shape == x.shape else emit(Reshape(shape), x)


def axes_of(node: OnnxNode, emit: SizeEmit, rank: int, since: int = 13) -> tuple[int, ...] | None:
    """Axes given as an attribute before an opset and as an input since; None if they are left out."""
    if node.opset < since:
        given = node.ints("axes", None)
    else:
        value = node.optional(1)
        given = None if value is None else emit.ints(value, "the axes")
    return None if given is None else unique_axes(given, rank)


def unique_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes from the front, in order. Raises ModelError if one is given twice."""
    result = tuple(sorted(normalize_axis(axis, rank) for axis in axes))
    if len(set(result)) != len(result):
        raise ModelError(f"axes {list(axes)} name an axis twice")
    return result


def resolve_shape(shape: Sequence[Dim], wanted: Sequence[Dim], allow_zero: bool) -> tuple[Dim, ...]:
    """The shape that Reshape's second input means. Raises ModelError if it does not fit."""
    result = list(wanted)
    for axis, size in enumerate(wanted):
        if is_static(size) and size == 0 and not allow_zero:
            if axis >= len(shape):
                raise ModelError(f"size 0 at axis {axis} stands for a size of the input, which has {len(shape)} axes")
            result[axis] = shape[axis]
        if is_static(size) and size < -1:
            raise ModelError(f"a size is {size}")
    open_axes = [axis for axis, size in enumerate(result) if is_static(size) and size == -1]
    if len(open_axes) > 1:
        raise ModelError(f"more than one size of {list(wanted)} is left open")
    if open_axes:
        others = [size for axis, size in enumerate(result) if axis != open_axes[0]]
        result[open_axes[0]] = quotient(shape, others)
    elif is_static(*shape, *result) and product(shape) != product(result):
        raise ModelError(f"{_shown(shape)} does not have as many elements as {_shown(result)}")
    return tuple(result)


def quotient(shape: Sequence[Dim], others: Sequence[Dim]) -> Dim:
    """The product of `shape` over that of `others`; equal sizes cancel, so that sums need no division."""
    above, below = list(shape), []
    for size in others:
        if size in above:
            above.remove(size)
        else:
            below.append(size)
    total, divisor = product(above), product(below)
    if is_static(divisor) and divisor == 0:
        return 0
    if is_static(total, divisor) and total % divisor != 0:
        raise ModelError(f"{_shown(shape)} does not divide by {_shown(others)}")
    return total // divisor


def _shown(sizes: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, sizes))}]"
