"""Crops of images."""

from __future__ import annotations

from itertools import product as combinations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.regions import spread_over
from graphc.frontend.onnx.importers.sampling import Arithmetic, read
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, check_table
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ir.types import I64
from graphc.ops.indexing import Gather
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.shapes import Dim


@onnx_op("CropAndResize", domain=MICROSOFT)
def crop_and_resize(node: OnnxNode, emit: SizeEmit) -> Value:
    """[N, C, H, W] in boxes [R, 4] (y, x, y, x, from 0 to 1) of the images that the third input says: [R, C, rows, columns].
    What lies outside an image is one number."""
    x, boxes, images = node.input(0), node.input(1), node.input(2)
    sizes = emit.ints(node.input(3), "the size of the crops")
    nearest = node.choice("mode", "bilinear", ("bilinear", "nearest")) == "nearest"
    if len(sizes) != 2 or min(sizes) < 1 or x.type.rank != 4:
        raise ModelError(f"crops of the size {sizes} of {x.type}")
    check_table(*sizes)
    count, channels, height, width = boxes.shape[0], *x.shape[1:]
    math, points = Arithmetic(emit, boxes.dtype), sizes[0] * sizes[1]
    shape: tuple[Dim, ...] = (count, sizes[0], sizes[1])
    axes, inside = [], []
    for axis, (size, steps) in enumerate(zip((height, width), sizes, strict=True)):
        start, end = (to_shape(emit, cut(emit, boxes, 1, place, 1), (count, 1)) for place in (axis, axis + 2))
        place = _along(math, start, end, size, steps)
        last = math("Sub", math.size(size), 1.0)
        here = emit(Binary("And"), math("GreaterOrEqual", place, 0.0), math("LessOrEqual", place, last))
        inside.append(spread_over(emit, emit(Cast(boxes.dtype), here), 2 - axis, shape))
        axes.append(_neighbours(math, place, size, nearest))
    flat = emit(Gather(0), to_shape(emit, x, (x.shape[0], channels, height * width)), images)
    total: Value | None = None
    for (row, row_weight), (column, column_weight) in combinations(*axes):
        where = [spread_over(emit, row, 2, shape), spread_over(emit, column, 1, shape)]
        found = read(emit, flat, where, [width, 1], points)
        if not nearest:
            weight = math("Mul", spread_over(emit, row_weight, 2, shape), spread_over(emit, column_weight, 1, shape))
            found = emit(Binary("Mul"), found, to_shape(emit, emit(Cast(x.dtype), weight), (count, 1, points)))
        total = found if total is None else emit(Binary("Add"), total, found)
    assert total is not None
    both = emit(Binary("Greater"), math("Mul", *inside), math.number(0.5))
    outside = emit.constant(node.float("extrapolation_value", 0.0), like=total)
    y = emit(Where(), to_shape(emit, both, (count, 1, points)), total, outside)
    return to_shape(emit, y, (count, channels, *sizes))


def _along(math: Arithmetic, start: Value, end: Value, size: Dim, steps: int) -> Value:
    """The places [R, steps] of a crop along an axis: from its start to its end, or the middle for a single one."""
    last = math("Sub", math.size(size), 1.0)
    if steps == 1:
        return math("Mul", math("Mul", math("Add", start, end), 0.5), last)
    step = math("Div", math("Mul", math("Sub", end, start), last), float(steps - 1))
    numbers = math.emit.constant(np.arange(steps, dtype=math.dtype)[None])
    return math("Add", math("Mul", start, last), math("Mul", numbers, step))


def _neighbours(math: Arithmetic, place: Value, size: Dim, nearest: bool) -> list[tuple[Value, Value]]:
    """The elements that are read along an axis, and their weights."""
    clipped = math("Min", math("Max", place, 0.0), math("Sub", math.size(size), 1.0))
    low = math.emit(Unary("Floor"), math("Add", clipped, 0.5) if nearest else clipped)
    if nearest:
        return [(math.emit(Cast(I64), low), low)]
    past = math("Sub", clipped, low)
    ends = ((low, math("Sub", 1.0, past)), (math.emit(Unary("Ceil"), clipped), past))
    return [(math.emit(Cast(I64), index), weight) for index, weight in ends]
