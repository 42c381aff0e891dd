"""Regions of images, and convolutions whose windows are bent: both read images between their elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from itertools import product as combinations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.conv import kernel_of
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.sampling import Arithmetic, Tap, neighbours, read_at, sampled
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.importers.windows import explicit_pads, spatial
from graphc.frontend.onnx.node import OnnxNode, check_table, fixed_size, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import I64
from graphc.ops.conv import window_count
from graphc.ops.indexing import Gather
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Transpose
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.sequences import Range
from graphc.shapes import Dim


@onnx_op("RoiAlign")
def roi_align(node: OnnxNode, emit: SizeEmit) -> Value:
    """[N, C, H, W] in regions [R, 4] (x, y, x, y) of the images that `batch_indices` says: [R, C, rows, columns]."""
    x, regions, images = node.input(0), node.input(1), node.input(2)
    samples = node.int("sampling_ratio", 0)
    refuse_unless(samples > 0, "as many samples as a region is large are not supported")
    corners = node.opset >= 16 and node.choice("coordinate_transformation_mode", "half_pixel", MODES) == "half_pixel"
    largest = node.choice("mode", "avg", ("avg", "max")) == "max"
    math = Arithmetic(emit, regions.dtype)
    count, (height, width) = regions.shape[0], x.shape[2:]
    axes, bins = [], (node.int("output_height", 1), node.int("output_width", 1))
    for axis, size in enumerate((height, width)):
        bounds = [to_shape(emit, cut(emit, regions, 1, place, 1), (count, 1)) for place in (1 - axis, 3 - axis)]
        scale = node.float("spatial_scale", 1.0)
        start, end = (math("Sub", math("Mul", bound, scale), 0.5 if corners else 0.0) for bound in bounds)
        length = math("Sub", end, start)
        length = length if corners else math("Max", length, 1.0)
        check_table(bins[axis], samples)
        found: list[Tap] = []
        for sample in range(samples):
            steps = (np.arange(bins[axis]) + (sample + 0.5) / samples) / bins[axis]
            place = math("Add", start, math("Mul", length, emit.constant(steps.astype(regions.dtype)[None])))
            found += _between(math, place, size, 1.0 if largest else 1.0 / samples)
        axes.append(found)
    return read_regions(math, x, images, axes[0], axes[1], largest)


MODES = ("half_pixel", "output_half_pixel")


def _between(math: Arithmetic, place: Value, size: Dim, share: float) -> list[Tap]:
    """The two elements on either side of a place, and their weights, which are a share; none of more than 1 beyond the ends."""
    last = math("Sub", math.size(size), 1.0)
    inside = math.emit(Binary("And"), math("GreaterOrEqual", place, -1.0), math("LessOrEqual", place, math.size(size)))
    clipped = math("Min", math("Max", place, 0.0), last)
    low = math.emit(Unary("Floor"), clipped)
    past = math("Sub", clipped, low)
    high = math("Min", math("Add", low, 1.0), last)
    weights = (math("Mul", math("Sub", 1.0, past), share), math("Mul", past, share))
    zero = math.number(0.0)
    return [
        (math.emit(Cast(I64), index), math.emit(Where(), inside, weight, zero))
        for index, weight in zip((low, high), weights, strict=True)
    ]


def read_regions(
    math: Arithmetic, x: Value, images: Value, rows: Sequence[Tap], columns: Sequence[Tap], largest: bool = False
) -> Value:
    """Of [N, C, H, W] for each region [R], of the image that `images` says, the sums of what its rows [R, n] and columns [R, m]
    meet, each of `rows` with each of `columns`, or the largest of that: [R, C, n, m]."""
    emit, (there, channels, height, width) = math.emit, x.shape
    (count, high), wide = rows[0][0].shape, columns[0][0].shape[1]
    known = emit(Gather(0), emit(Range(0, there, 1, I64)), images)  # refuses images that there are not
    image = to_shape(emit, known, (count, 1, 1))
    points = (count * high * wide,)

    def crossed(place: Tap, *shape: Dim) -> Tap:
        index, weight = place
        return to_shape(emit, index, shape), None if weight is None else to_shape(emit, weight, shape)

    read = []
    for row, column in combinations(rows, columns):
        corner = (image, None), crossed(row, count, high, 1), crossed(column, count, 1, wide)
        read.append(crossed(read_at(math, corner, (height * width, width, 1)), *points))
    lines = to_shape(emit, emit(Transpose((1, 0, 2, 3)), x), (channels, there * height * width))
    parts = [[each] for each in read] if largest else [read]
    total = reduce(partial(emit, Binary("Max")), [sampled(emit, lines, 1, part, 0) for part in parts])
    return emit(Transpose((1, 0, 2, 3)), to_shape(emit, total, (channels, count, high, wide)))


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
    total = sampled(emit, flat, 2, [read_at(math, corner, (x.shape[3], 1)) for corner in combinations(*axes)], 1)
    if mask is not None:
        total = emit(Binary("Mul"), total, to_shape(emit, mask, (batch * deformed, 1, count)))
    patches = to_shape(emit, total, (batch, groups, channels // groups * taps, points))
    weights = to_shape(emit, w, (1, groups, w.shape[0] // groups, w.shape[1] * taps))
    y = to_shape(emit, emit(MatMul(), weights, patches), (batch, w.shape[0], rows, columns))
    return y if bias is None else emit(Binary("Add"), y, to_shape(emit, bias, (1, w.shape[0], 1, 1)))
