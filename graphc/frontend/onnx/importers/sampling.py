"""Reading and writing images at places that are computed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.importers.windows import explicit_pads, spatial
from graphc.frontend.onnx.node import OnnxNode, check_table, fixed_size, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import I32, I64
from graphc.ops.base import normalize_axis
from graphc.ops.conv import ConvTranspose
from graphc.ops.movement import Concat, Expand, Pad
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.sampled import Sampled
from graphc.ops.scatter import ScatterElements
from graphc.ops.sequences import Range
from graphc.shapes import Dim, Expr, product

MODES = {"linear": (0, 1), "bilinear": (0, 1), "nearest": (0,), "cubic": (-1, 0, 1, 2), "bicubic": (-1, 0, 1, 2)}
"""The neighbours that each mode reads along an axis, counted from the place rounded down."""

PADDINGS = ("zeros", "border", "reflection")
CUBIC = -0.75


class Arithmetic:
    """Formulas over one dtype: numbers and sizes beside values."""

    def __init__(self, emit: SizeEmit, dtype: np.dtype) -> None:
        self.emit, self.dtype = emit, dtype

    def number(self, x: Value | float) -> Value:
        """A value, or a number as one."""
        return x if isinstance(x, Value) else self.emit.constant(np.array(x, self.dtype))

    def size(self, dim: Dim) -> Value:
        """A size as a number."""
        return to_shape(self.emit, self.emit(Cast(self.dtype), self.emit.sizes([dim])), ())

    def __call__(self, function: str, a: Value | float, b: Value | float) -> Value:
        """A binary function."""
        return self.emit(Binary(function), self.number(a), self.number(b))


@onnx_op("GridSample")
def grid_sample(node: OnnxNode, emit: SizeEmit) -> Value:
    """[N, C, *in] at the places [N, *out, D], whose last axis has the last spatial axis first: [N, C, *out]."""
    x, grid = node.input(0), node.input(1)
    spatial_rank = x.type.rank - 2
    if spatial_rank < 1 or grid.type.rank != spatial_rank + 2 or grid.shape[-1] != spatial_rank:
        raise ModelError(f"places {grid.type} in {x.type}")
    default = "linear" if node.opset >= 20 else "bilinear"
    mode = node.choice("mode", default, tuple(MODES))
    padding, corners = node.choice("padding_mode", "zeros", PADDINGS), bool(node.int("align_corners", 0))
    math = Arithmetic(emit, grid.dtype)
    batch, channels = x.shape[:2]
    count = product(grid.shape[1:-1])
    flat = to_shape(emit, x, (batch, channels, product(x.shape[2:])))
    axes = []
    for axis, size in enumerate(x.shape[2:]):
        place = cut(emit, grid, grid.type.rank - 1, spatial_rank - 1 - axis, 1)
        place = _unnormalized(math, to_shape(emit, place, (batch, count)), math.size(size), corners)
        axes.append(neighbours(math, place, size, MODES[mode], padding, corners))
    strides = [product(x.shape[3 + axis :]) for axis in range(spatial_rank)]
    corners_read = [read_at(math, corner, strides) for corner in combinations(*axes)]
    return to_shape(emit, sampled(emit, flat, 2, corners_read, 1), (batch, channels, *grid.shape[1:-1]))


def _unnormalized(math: Arithmetic, place: Value, size: Value, corners: bool) -> Value:
    """From -1 .. 1 to places along an axis: -1 and 1 are the centers of its first and last element, or its ends."""
    up = math("Add", place, 1.0)
    if corners:
        return math("Mul", up, math("Div", math("Sub", size, 1.0), 2.0))
    return math("Div", math("Sub", math("Mul", up, size), 1.0), 2.0)


def neighbours(
    math: Arithmetic, place: Value, size: Dim, offsets: Sequence[int], padding: str, corners: bool
) -> list[tuple[Value, Value | None]]:
    """The elements that are read along an axis: index, and weight (None for 1)."""
    if len(offsets) == 1:
        index, inside = _index(math, math.emit(Unary("Round"), place), size, padding, corners)
        return [(index, inside)]
    low = math.emit(Unary("Floor"), place)
    past = math("Sub", place, low)
    found: list[tuple[Value, Value | None]] = []
    for offset in offsets:
        index, inside = _index(math, math("Add", low, float(offset)), size, padding, corners)
        weight = _weight(math, past, offset, len(offsets))
        found.append((index, weight if inside is None else math("Mul", weight, inside)))
    return found


def _weight(math: Arithmetic, past: Value, offset: int, count: int) -> Value:
    """How much a neighbour counts, by how far the place is past the one at offset 0."""
    if count == 2:
        return past if offset else math("Sub", 1.0, past)
    distance = math("Sub", past, float(offset)) if offset < 1 else math("Sub", float(offset), past)
    a = CUBIC
    if offset in (0, 1):
        inner = math("Sub", math("Mul", distance, a + 2), a + 3)
        return math("Add", math("Mul", math("Mul", inner, distance), distance), 1.0)
    inner = math("Add", math("Mul", math("Sub", math("Mul", distance, a), 5 * a), distance), 8 * a)
    return math("Sub", math("Mul", inner, distance), 4 * a)


def _index(math: Arithmetic, place: Value, size: Dim, padding: str, corners: bool) -> tuple[Value, Value | None]:
    """An index that exists, and with zeros outside, 1 where the place itself does, else 0."""
    last = math("Sub", math.size(size), 1.0)
    if padding == "reflection" and size != 1:
        period = math("Mul", last if corners else math.size(size), 2.0)
        inside = math("Mod", math("Add", math("Mod", place, period), period), period)
        far = math("Sub", period, inside)
        place = math("Min", inside, far if corners else math("Sub", far, 1.0))
    clipped = math("Min", math("Max", place, 0.0), last)
    index = math.emit(Cast(I64), clipped)
    if padding != "zeros":
        return index, None
    same = math.emit(Binary("Equal"), clipped, place)
    return index, math.emit(Where(), same, math.number(1.0), math.number(0.0))


Tap = tuple[Value, "Value | None"]
"""Where something is read, and how much that counts (None for 1)."""


def read_at(math: Arithmetic, corner: Sequence[Tap], strides: Sequence[Dim]) -> Tap:
    """Where elements lie whose places along each axis are these, and how much they count."""
    (*outer, (total, count)) = corner
    for (index, weight), stride in zip(outer, strides[:-1], strict=True):
        total = math.emit(Binary("Add"), math.emit(Binary("Mul"), index, math.emit.size(stride)), total)
        count = weight if count is None else count if weight is None else math("Mul", weight, count)
    return total, count


def sampled(emit: SizeEmit, x: Value, axis: int, read: Sequence[Tap], batch: int) -> Value:
    """The sums of what is read along an axis, for each of the first `batch` axes at places of its own."""
    places, counts = zip(*read, strict=True)
    joined = [to_shape(emit, emit(Cast(I32), each), (1, *each.shape)) for each in places]
    alike = emit.constant(np.ones((1,) * (batch + 2), x.dtype))
    weights = [to_shape(emit, emit(Cast(x.dtype), each), (1, *each.shape)) for each in counts if each is not None]
    count = emit(Concat(0), *weights) if weights else alike
    return emit(Sampled(axis, len(places), batch), x, emit(Concat(0), *joined), count)


@onnx_op("Col2Im")
def col2im(node: OnnxNode, emit: SizeEmit) -> Value:
    """[N, C * kernel, blocks] -> [N, C, *image]: a transposed convolution that puts each row where it belongs."""
    x = node.input(0)
    image, kernel = emit.ints(node.input(1), "the image's size"), emit.ints(node.input(2), "the kernel")
    rank = len(kernel)
    refuse_unless(1 <= rank <= 3 and len(image) == rank and x.type.rank == 3, f"blocks of {rank} axes")
    strides, dilations = spatial(node, "strides", rank, 1), spatial(node, "dilations", rank, 1)
    before, after = explicit_pads(node, rank)
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    room = [size + a + b - each for size, a, b, each in zip(image, before, after, reach, strict=True)]
    if min(*kernel, *image) < 1 or min(room) < 0:
        raise ModelError(f"a kernel of {kernel} in an image of {image}")
    places = int(np.prod(kernel))
    channels, rest = divmod(fixed_size(x.shape[1], "the number of channels"), places)
    if rest:
        raise ModelError(f"{x.shape[1]} rows for a kernel of {places} elements")
    blocks = tuple(space // stride + 1 for space, stride in zip(room, strides, strict=True))
    extra = tuple(space % stride for space, stride in zip(room, strides, strict=True))
    check_table(channels, places, places)
    identity = np.tile(np.eye(places, dtype=x.dtype), (channels, 1)).reshape(channels * places, 1, *kernel)
    operator = ConvTranspose(strides, dilations, before, after, extra, channels)
    return emit(operator, to_shape(emit, x, (*x.shape[:2], *blocks)), emit.constant(identity))


@onnx_op("MaxUnpool")
def max_unpool(node: OnnxNode, emit: SizeEmit) -> Value:
    """Elements at the places that pooling took them from, which count through the whole tensor; 0 elsewhere."""
    x, places, wanted = node.input(0), node.input(1), node.optional(2)
    rank = x.type.rank - 2
    kernel, strides = spatial(node, "kernel_shape", rank, 1), spatial(node, "strides", rank, 1)
    before, after = explicit_pads(node, rank)
    sizes = tuple(
        (size - 1) * stride - a - b + reach
        for size, stride, a, b, reach in zip(x.shape[2:], strides, before, after, kernel, strict=True)
    )
    shape: tuple[Dim, ...] = (*x.shape[:2], *sizes)
    zeros = emit(Expand((product(shape),)), emit.constant(0, like=x))
    flat = [to_shape(emit, value, (product(x.shape),)) for value in (places, x)]
    result = to_shape(emit, emit(ScatterElements(0, "none"), zeros, *flat), shape)
    if wanted is None:
        return result
    target = emit.ints(wanted, "the result's shape")
    more = tuple(a - fixed_size(b, "a size") for a, b in zip(target, shape, strict=True))
    if min(more) < 0:
        raise ModelError(f"output_shape {target} is smaller than {list(shape)}")
    return emit(Pad((0,) * len(more), more, "constant", 0), result) if any(more) else result


@onnx_op("TensorScatter")
def tensor_scatter(node: OnnxNode, emit: SizeEmit) -> Value:
    """A cache with new rows, from a place that is given for each batch (0 if it is not) on."""
    cache, update, start = node.input(0), node.input(1), node.optional(2)
    axis = normalize_axis(node.int("axis", -2), cache.type.rank)
    circular = node.choice("mode", "linear", ("linear", "circular")) == "circular"
    steps, rank = update.shape[axis], update.type.rank
    if not isinstance(steps, Expr):
        check_table(steps)
    rows = to_shape(emit, emit(Range(0, steps, 1, I64)), tuple(steps if i == axis else 1 for i in range(rank)))
    if start is not None:
        first = to_shape(emit, emit(Cast(I64), start), (*start.shape, *[1] * (rank - 1)))
        rows = emit(Binary("Add"), rows, first)
    if circular:
        rows = emit(Binary("Mod"), rows, emit.size(cache.shape[axis]))
    return emit(ScatterElements(axis, "none"), cache, emit(Expand(update.shape), rows), update)
