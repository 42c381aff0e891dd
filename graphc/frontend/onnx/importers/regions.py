"""Regions of images, and convolutions whose windows are bent: both read images between their elements."""

from __future__ import annotations

from itertools import product as combinations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.conv import kernel_of
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.sampling import Arithmetic, neighbours, read
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.importers.windows import explicit_pads, spatial
from graphc.frontend.onnx.node import OnnxNode, check_table, fixed_size, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import I64
from graphc.ops.conv import window_count
from graphc.ops.indexing import Gather
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Expand
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.reduce import Reduce
from graphc.shapes import Dim


@onnx_op("RoiAlign")
def roi_align(node: OnnxNode, emit: SizeEmit) -> Value:
    """[N, C, H, W] in regions [R, 4] (x, y, x, y) of the images that `batch_indices` says: [R, C, rows, columns]."""
    x, regions, images = node.input(0), node.input(1), node.input(2)
    samples = node.int("sampling_ratio", 0)
    refuse_unless(samples > 0, "as many samples as a region is large are not supported")
    corners = node.opset >= 16 and node.choice("coordinate_transformation_mode", "half_pixel", MODES) == "half_pixel"
    largest = node.choice("mode", "avg", ("avg", "max")) == "max"
    count, channels, height, width = regions.shape[0], *x.shape[1:]
    math = Arithmetic(emit, regions.dtype)
    axes = []
    for axis, (size, result) in enumerate(((height, "output_height"), (width, "output_width"))):
        bounds = [to_shape(emit, cut(emit, regions, 1, place, 1), (count, 1)) for place in (1 - axis, 3 - axis)]
        scale = node.float("spatial_scale", 1.0)
        start, end = (math("Sub", math("Mul", bound, scale), 0.5 if corners else 0.0) for bound in bounds)
        length = math("Sub", end, start)
        length = length if corners else math("Max", length, 1.0)
        bins = node.int(result, 1)
        check_table(bins, samples)
        steps = (np.arange(bins * samples) + 0.5) / (bins * samples)
        place = math("Add", start, math("Mul", length, emit.constant(steps.astype(regions.dtype)[None])))
        axes.append((_between(math, place, size), bins))
    flat = emit(Gather(0), to_shape(emit, x, (x.shape[0], channels, height * width)), images)
    (rows, row_bins), (columns, column_bins) = axes
    shape = (count, row_bins * samples, column_bins * samples)
    total: Value | None = None
    for (row, row_weight), (column, column_weight) in combinations(rows, columns):
        places = [spread_over(emit, row, 2, shape), spread_over(emit, column, 1, shape)]
        weight = math("Mul", spread_over(emit, row_weight, 2, shape), spread_over(emit, column_weight, 1, shape))
        points = shape[1] * shape[2]
        weight = to_shape(emit, emit(Cast(x.dtype), weight), (count, 1, points))
        found = emit(Binary("Mul"), read(emit, flat, places, [width, 1], points), weight)
        total = found if total is None else emit(Binary("Max" if largest else "Add"), total, found)
    assert total is not None
    apart = to_shape(emit, total, (count, channels, row_bins, samples, column_bins, samples))
    return emit(Reduce("max" if largest else "mean", (3, 5), False), apart)


MODES = ("half_pixel", "output_half_pixel")


def _between(math: Arithmetic, place: Value, size: Dim) -> list[tuple[Value, Value]]:
    """The two elements on either side of a place, and their weights; none of more than 1 beyond the ends."""
    last = math("Sub", math.size(size), 1.0)
    inside = math.emit(Binary("And"), math("GreaterOrEqual", place, -1.0), math("LessOrEqual", place, math.size(size)))
    clipped = math("Min", math("Max", place, 0.0), last)
    low = math.emit(Unary("Floor"), clipped)
    past = math("Sub", clipped, low)
    high = math("Min", math("Add", low, 1.0), last)
    weights = (math("Sub", 1.0, past), past)
    zero = math.number(0.0)
    return [
        (math.emit(Cast(I64), index), math.emit(Where(), inside, weight, zero))
        for index, weight in zip((low, high), weights, strict=True)
    ]


def spread_over(emit: SizeEmit, x: Value, new_axis: int, shape: tuple[Dim, ...]) -> Value:
    """[R, n] at every place of the other axis, as [R, rows * columns]."""
    wide = to_shape(emit, x, (*x.shape[:new_axis], 1, *x.shape[new_axis:]))
    return to_shape(emit, emit(Expand(shape), wide), (shape[0], shape[1] * shape[2]))


@onnx_op("DeformConv")
def deform_conv(node: OnnxNode, emit: SizeEmit) -> Value:
    """A convolution of images whose windows read beside their places, by offsets, and weigh what they read, by a mask."""
    x, w, offset, bias, mask = (node.input(0), node.input(1), node.input(2), node.optional(3), node.optional(4))
    refuse_unless(x.type.rank == 4, f"deformed windows of {x.type.rank - 2} axes are not supported")
    kernel = [fixed_size(size, "the kernel") for size in w.shape[2:]]
    groups, deformed = node.int("group", 1), node.int("offset_group", 1)
    strides, dilations = spatial(node, "strides", 2, 1), spatial(node, "dilations", 2, 1)
    before, after = explicit_pads(node, 2)
    kernel_of(node, x, w)
    batch, channels = x.shape[:2]
    rows, columns = offset.shape[2:]
    taps, points = kernel[0] * kernel[1], rows * columns
    if offset.shape[1] != deformed * taps * 2:
        raise ModelError(f"offsets {offset.type} for {deformed} groups of {taps} taps")
    counts = tuple(
        window_count(size, *rest)
        for size, *rest in zip(
            x.shape[2:], kernel, strides, dilations, map(sum, zip(before, after, strict=True)), strict=True
        )
    )
    if (rows, columns) != counts:
        raise ModelError(f"offsets {offset.type} for {counts[0]} x {counts[1]} windows")
    parts = to_shape(emit, offset, (batch * deformed, taps, 2, rows, columns))
    math = Arithmetic(emit, offset.dtype)
    count = taps * points
    axes = []
    for axis, size in enumerate(x.shape[2:]):
        moved = to_shape(emit, cut(emit, parts, 2, axis, 1), (batch * deformed, taps, rows, columns))
        windows = fixed_size((rows, columns)[axis], "the number of windows")
        check_table(taps, windows)
        tap = np.indices(kernel)[axis].reshape(-1) * dilations[axis]
        start = np.arange(windows) * strides[axis] - before[axis]
        grid = tap.reshape(-1, 1, 1) + (start[:, None] if axis == 0 else start[None, :])
        place = math("Add", moved, emit.constant(grid[None].astype(offset.dtype)))
        place = to_shape(emit, place, (batch * deformed, count))
        axes.append(neighbours(math, place, size, (0, 1), "zeros", False))
    flat = to_shape(emit, x, (batch * deformed, channels // deformed, x.shape[2] * x.shape[3]))
    total: Value | None = None
    for corner in combinations(*axes):
        found = read(emit, flat, [index for index, _ in corner], [x.shape[3], 1], count)
        for _, weight in corner:
            assert weight is not None
            spread = to_shape(emit, emit(Cast(x.dtype), weight), (batch * deformed, 1, count))
            found = emit(Binary("Mul"), found, spread)
        total = found if total is None else emit(Binary("Add"), total, found)
    assert total is not None
    if mask is not None:
        total = emit(Binary("Mul"), total, to_shape(emit, mask, (batch * deformed, 1, count)))
    patches = to_shape(emit, total, (batch, groups, channels // groups * taps, points))
    weights = to_shape(emit, w, (1, groups, w.shape[0] // groups, w.shape[1] * taps))
    y = to_shape(emit, emit(MatMul(), weights, patches), (batch, w.shape[0], rows, columns))
    return y if bias is None else emit(Binary("Add"), y, to_shape(emit, bias, (1, w.shape[0], 1, 1)))
