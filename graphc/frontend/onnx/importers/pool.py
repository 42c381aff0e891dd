"""Pooling over windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.reduce import lp_power, lp_root
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.importers.windows import Window, padded, window
from graphc.frontend.onnx.node import OnnxNode, check_table, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.frontend.onnx.tensors import Unknown
from graphc.ir import Value
from graphc.ir.types import FLOATS
from graphc.ops.indexing import Gather
from graphc.ops.movement import Expand
from graphc.ops.pointwise import Binary, Where
from graphc.ops.pool import AveragePool, MaxPool
from graphc.shapes import Dim, Expr, static_shape


def _window(node: OnnxNode, x: Value) -> Window:
    """The window. One that is larger than the padded image, which ceil_mode allows, sees all of it: what lies beyond
    counts neither as an element nor as padding."""
    _check_rank(x)
    return _seen(node, x, window(node, x.shape[2:], node.ints("kernel_shape")))


def _check_rank(x: Value) -> None:
    refuse_unless(3 <= x.type.rank <= 5, f"pooling over {x.type.rank - 2} axes")


def _seen(node: OnnxNode, x: Value, found: Window) -> Window:
    if not node.int("ceil_mode", 0):
        return found
    kernel = [
        size if isinstance(room, Expr) else min(size, max((room + before + after - 1) // dilation + 1, 1))
        for size, room, dilation, before, after in zip(
            found.kernel, x.shape[2:], found.dilations, found.before, found.after, strict=True
        )
    ]
    return replace(found, kernel=tuple(kernel))


@onnx_op("MaxPool")
def max_pool(node: OnnxNode, emit: SizeEmit) -> Value | tuple[Value, ...]:
    """The largest element, and its index in the whole tensor."""
    x = node.input(0)
    y = maxima(node, emit, x)
    return (y, _largest(node, emit, x, _window(node, x), y.shape)) if node.wants(1) else y


def maxima(node: OnnxNode, emit: SizeEmit, x: Value) -> Value:
    """The largest element of each window that the node's settings say."""
    _check_rank(x)
    least = -np.inf if x.dtype in FLOATS else int(np.iinfo(x.dtype).min)
    x, found = padded(node, emit, x, node.ints("kernel_shape"), least)
    w = _seen(node, x, found)
    return emit(MaxPool(w.kernel, w.strides, w.dilations, w.before, w.after, bool(node.int("ceil_mode", 0))), x)


def _largest(node: OnnxNode, emit: SizeEmit, x: Value, w: Window, shape: Sequence[Dim]) -> Value:
    """The index of the first largest element of each window: element after element of the windows is compared."""
    sizes, counts = (static_shape(sizes) for sizes in (x.shape, shape))
    if sizes is None or counts is None:
        raise Unknown("the indices of the largest elements of a symbolic shape are not supported")
    check_table(*sizes[2:])
    check_table(*counts)
    spatial, order = sizes[2:], "F" if node.int("storage_order", 0) else "C"
    planes = np.arange(sizes[0] * sizes[1]).reshape(*sizes[:2], *[1] * len(spatial)) * prod(spatial)
    numbers = np.arange(prod(spatial)).reshape(spatial, order=order)  # type: ignore[call-overload]
    best: Value | None = None
    found: Value | None = None
    flat = to_shape(emit, x, (*sizes[:2], prod(spatial)))
    for tap in np.ndindex(*w.kernel):
        places = [
            np.arange(count) * stride - before + at * dilation
            for count, stride, before, at, dilation in zip(
                counts[2:], w.strides, w.before, tap, w.dilations, strict=True
            )
        ]
        grid = np.meshgrid(*places, indexing="ij")
        inside = [(place >= 0) & (place < size) for place, size in zip(grid, spatial, strict=True)]
        there = tuple(np.clip(place, 0, size - 1) for place, size in zip(grid, spatial, strict=True))
        rows = np.ravel_multi_index(there, spatial)
        here = to_shape(emit, emit(Gather(2), flat, emit.constant(rows.reshape(-1))), counts)
        index = emit.constant(planes + numbers[there])
        counted = emit.constant(np.logical_and.reduce(inside))
        if best is None or found is None:
            lowest = emit.constant(-np.inf if x.dtype in FLOATS else np.iinfo(x.dtype).min, like=x)
            best = emit(Where(), counted, here, lowest)
            found = index
            continue
        larger = emit(Binary("And"), emit(Binary("Greater"), here, best), counted)
        best, found = emit(Where(), larger, here, best), emit(Where(), larger, index, found)
    assert found is not None
    return found


@onnx_op("AveragePool")
def average_pool(node: OnnxNode, emit: SizeEmit) -> Value:
    """The mean, with or without the padding."""
    return averages(node, emit, node.input(0))


def averages(node: OnnxNode, emit: SizeEmit, x: Value) -> Value:
    """The mean of each window that the node's settings say."""
    _check_rank(x)
    kernel, with_padding = node.ints("kernel_shape"), bool(node.int("count_include_pad", 0))
    image, found = padded(node, emit, x, kernel)
    operator = _average(node, _seen(node, image, found), with_padding)
    mean = emit(operator, image)
    if image is x or with_padding:
        return mean
    ones = emit(Expand((1, 1, *x.shape[2:])), emit.constant(np.ones((1,) * x.type.rank), like=x))
    return emit(Binary("Div"), mean, emit(operator, padded(node, emit, ones, kernel)[0]))


@onnx_op("LpPool")
def lp_pool(node: OnnxNode, emit: SizeEmit) -> Value:
    """The p-norm of each window: the mean of the powers, times how many they are."""
    x = node.input(0)
    w = _window(node, x)
    mean = emit(_average(node, w, True), lp_power(emit, x, node))
    return lp_root(emit, emit(Binary("Mul"), mean, emit.constant(prod(w.kernel), like=x)), node)


def _average(node: OnnxNode, w: Window, count_pad: bool) -> AveragePool:
    ceil_mode = bool(node.int("ceil_mode", 0))
    return AveragePool(w.kernel, w.strides, w.dilations, w.before, w.after, ceil_mode, count_pad)
