"""Crops of images."""

from __future__ import annotations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.regions import read_regions
from graphc.frontend.onnx.importers.sampling import Arithmetic, Tap
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, check_table
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ir.types import I64
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
    count, (height, width) = boxes.shape[0], x.shape[2:]
    math = Arithmetic(emit, boxes.dtype)
    axes, inside = [], []
    for axis, (size, steps) in enumerate(zip((height, width), sizes, strict=True)):
        start, end = (to_shape(emit, cut(emit, boxes, 1, place, 1), (count, 1)) for place in (axis, axis + 2))
        place = _along(math, start, end, size, steps)
        last = math("Sub", math.size(size), 1.0)
        here = emit(Binary("And"), math("GreaterOrEqual", place, 0.0), math("LessOrEqual", place, last))
        inside.append(to_shape(emit, here, (count, 1, steps, 1) if axis == 0 else (count, 1, 1, steps)))
        axes.append(_neighbours(math, place, size, nearest))
    total = read_regions(math, x, images, axes[0], axes[1])
    outside = emit.constant(node.float("extrapolation_value", 0.0), like=total)
    return emit(Where(), emit(Binary("And"), *inside), total, outside)


def _along(math: Arithmetic, start: Value, end: Value, size: Dim, steps: int) -> Value:
    """The places [R, steps] of a crop along an axis: from its start to its end, or the middle for a single one."""
    last = math("Sub", math.size(size), 1.0)
    if steps == 1:
        return math("Mul", math("Mul", math("Add", start, end), 0.5), last)
    step = math("Div", math("Mul", math("Sub", end, start), last), float(steps - 1))
    numbers = math.emit.constant(np.arange(steps, dtype=math.dtype)[None])
    return math("Add", math("Mul", start, last), math("Mul", numbers, step))


def _neighbours(math: Arithmetic, place: Value, size: Dim, nearest: bool) -> list[Tap]:
    """The elements that are read along an axis, and their weights."""
    clipped = math("Min", math("Max", place, 0.0), math("Sub", math.size(size), 1.0))
    low = math.emit(Unary("Floor"), math("Add", clipped, 0.5) if nearest else clipped)
    if nearest:
        return [(math.emit(Cast(I64), low), None)]
    past = math("Sub", clipped, low)
    ends = ((low, math("Sub", 1.0, past)), (math.emit(Unary("Ceil"), clipped), past))
    return [(math.emit(Cast(I64), index), weight) for index, weight in ends]
