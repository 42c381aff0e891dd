"""Transpose, Concat, Split, Slice, Pad, Tile and the exchanges of space and depth."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ops.base import normalize_axis
from graphc.ops.blocks import DepthToSpace, SpaceToDepth, Tile
from graphc.ops.movement import Concat, Pad, Slice, Transpose
from graphc.shapes import Dim, Expr, ceil_div, dim_max, dim_min, is_static, lower_bound, upper_bound

UNBOUNDED = (1 << 31) - 1
"""Exporters write this number, or a larger one, for the end of an axis."""

PAD_MODES = ("constant", "reflect", "edge", "wrap")


@onnx_op("Transpose")
def transpose(node: OnnxNode, emit: SizeEmit) -> Value:
    """Another order of axes; reversed if none is given."""
    x = node.input(0)
    perm = tuple(normalize_axis(axis, x.type.rank) for axis in node.ints("perm", range(x.type.rank)[::-1]))
    if sorted(perm) != list(range(x.type.rank)):
        raise ModelError(f"perm {list(perm)} is not a permutation of the axes of {x.type}")
    return x if perm == tuple(range(x.type.rank)) else emit(Transpose(perm), x)


@onnx_op("Concat")
def concat(node: OnnxNode, emit: SizeEmit) -> Value:
    """Tensors one after the other."""
    values = node.given()
    axis = normalize_axis(node.int("axis"), values[0].type.rank)
    return values[0] if len(values) == 1 else emit(Concat(axis), *values)


@onnx_op("Split")
def split(node: OnnxNode, emit: SizeEmit) -> tuple[Value, ...]:
    """Parts of an axis: sizes as an attribute before opset 13 and as an input since, or as many equal parts as outputs."""
    x = node.input(0)
    axis = normalize_axis(node.int("axis", 0), x.type.rank)
    sizes = _split_sizes(node, emit, x.shape[axis])
    if len(sizes) != len(node.outputs):
        raise ModelError(f"{len(sizes)} parts for {len(node.outputs)} outputs")
    return parts_of(emit, x, axis, sizes)


def parts_of(emit: SizeEmit, x: Value, axis: int, sizes: Sequence[Dim]) -> tuple[Value, ...]:
    """An axis in parts of these sizes. Raises ModelError where they are certainly not those of the axis."""
    total: Dim = 0
    parts = []
    for part in sizes:
        if is_static(part) and part < 0:
            raise ModelError(f"a part has size {part}")
        parts.append(cut(emit, x, axis, total, part))
        total = total + part
    if is_static(total, x.shape[axis]) and total != x.shape[axis]:
        raise ModelError(f"the parts have {total} elements, the axis {x.shape[axis]}")
    return tuple(parts)


def _split_sizes(node: OnnxNode, emit: SizeEmit, size: Dim) -> list[Dim]:
    given = node.optional(1) if node.opset >= 13 else None
    if given is not None:
        return emit.dims(given, "the sizes of the parts", low=0)
    if node.opset < 13 and node.has("split"):
        return list(node.ints("split"))
    count = node.int("num_outputs", len(node.outputs)) if node.opset >= 18 else len(node.outputs)
    if count < 1 or count != len(node.outputs):
        raise ModelError(f"{count} parts for {len(node.outputs)} outputs")
    part = ceil_div(size, count)
    return [part] * (count - 1) + [size - part * (count - 1)]


def cut(emit: SizeEmit, x: Value, axis: int, start: Dim, size: Dim) -> Value:
    """`size` elements of one axis from `start` on."""
    rank = x.type.rank
    starts = tuple(start if i == axis else 0 for i in range(rank))
    sizes = tuple(size if i == axis else x.shape[i] for i in range(rank))
    return x if sizes == x.shape and start == 0 else emit(Slice(starts, sizes, (1,) * rank), x)


@onnx_op("Slice")
def slice_(node: OnnxNode, emit: SizeEmit) -> Value:
    """Attributes before opset 10, inputs since."""
    x = node.input(0)
    starts, ends, axes, steps = _slice_bounds(node, emit)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ModelError("starts, ends, axes and steps have different lengths")
    axes = [normalize_axis(axis, x.type.rank) for axis in axes]
    if len(set(axes)) != len(axes):
        raise ModelError("an axis is given twice")
    first: list[Dim] = [0] * x.type.rank
    sizes, strides = list(x.shape), [1] * x.type.rank
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        first[axis], sizes[axis] = slice_range(x.shape[axis], start, end, step)
        if emit.dimensions.is_measured(start) and step == 1 and is_static(end - start):
            sizes[axis] = max(end - start, 0)  # as many rows as the model says, from wherever; not fewer at the end
        sizes[axis] = emit.length(sizes[axis], start, end)
        strides[axis] = step
    if tuple(sizes) == x.shape and all(start == 0 for start in first) and all(step == 1 for step in strides):
        return x
    return emit(Slice(tuple(first), tuple(sizes), tuple(strides)), x)


def _slice_bounds(node: OnnxNode, emit: SizeEmit) -> tuple[list[Dim], list[Dim], list[int], list[int]]:
    starts: list[Dim]
    if node.opset < 10:
        starts, ends = node.ints("starts"), node.ints("ends")
        return starts, ends, node.ints("axes", list(range(len(starts)))), [1] * len(starts)
    starts, ends = (emit.dims(node.input(index), what) for index, what in ((1, "the start"), (2, "the end")))
    axes, steps = node.optional(3), node.optional(4)
    return (
        starts,
        ends,
        list(range(len(starts))) if axes is None else emit.ints(axes, "the axes"),
        [1] * len(starts) if steps is None else emit.ints(steps, "the steps"),
    )


def slice_range(size: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """The first index and the number of elements of `start:end:step` on an axis. Raises Refused.

    As Python slices; only a start before the first element is moved there for negative steps too.
    """
    if step == 0:
        raise ModelError("a step is 0")
    if is_static(size, start, end):
        start = max(start, -size)
        taken = range(*slice(start, end, step).indices(int(size)))  # type: ignore[arg-type]
        return (taken.start if len(taken) else 0), len(taken)
    if step > 0:
        low, high = (_bound(value, size, 0, size) for value in (start, end))
        return low, dim_max(ceil_div(high - low, step), 0)
    high, low = _bound(start, size, dim_min(size - 1, 0), size - 1), _bound(end, size, -1, size - 1)
    return high, dim_max(ceil_div(high - low, -step), 0)


def _bound(value: Dim, size: Dim, low: Dim, high: Dim) -> Dim:
    """A bound of a slice, counted from the front and kept between `low` and `high`."""
    if is_static(value):
        if value >= UNBOUNDED:
            return high
        if value <= -UNBOUNDED:
            return low
        negative = value < 0
    elif (least := lower_bound(value)) is not None and least >= 0:
        negative = False
    elif (most := upper_bound(value)) is not None and most < 0:
        negative = True
    else:  # counted from the back by adding the size once where the value is negative
        is_negative = dim_max(dim_min(-value, 1), 0)
        return dim_max(dim_min(value + size * is_negative, high), low)
    return dim_max(value + size, low) if negative else dim_min(value, high)


@onnx_op("Pad")
def pad(node: OnnxNode, emit: SizeEmit) -> Value:
    """Attributes before opset 11, inputs since; axes since 18. A negative pad cuts."""
    x = node.input(0)
    rank = x.type.rank
    mode = node.choice("mode", "constant", PAD_MODES)
    pads, value, axes = _pads(node, emit, rank)
    if len(pads) != 2 * len(axes) or len(set(axes)) != len(axes):
        raise ModelError(f"{len(pads)} pads for {len(axes)} axes")
    before: list[Dim] = [0] * rank
    after: list[Dim] = [0] * rank
    for index, axis in enumerate(axes):
        before[axis], after[axis] = pads[index], pads[index + len(axes)]
    x = _cut_negative(emit, x, before, after, mode)
    before, after = ([_positive(size) for size in sizes] for sizes in (before, after))
    if not any((is_static(size) and size > 0) or isinstance(size, Expr) for size in (*before, *after)):
        return x
    return emit(Pad(tuple(before), tuple(after), mode, value), x)


def _pads(node: OnnxNode, emit: SizeEmit, rank: int) -> tuple[list[Dim], float | int, list[int]]:
    everything = list(range(rank))
    if node.opset < 11:
        return list(node.ints("pads")), node.float("value", 0.0), everything
    fill, chosen = node.optional(2), node.optional(3)
    value = 0 if fill is None else emit.scalar(fill, "the value to pad with")
    axes = everything if chosen is None else [normalize_axis(a, rank) for a in emit.ints(chosen, "the axes")]
    return emit.dims(node.input(1), "the padding", low=0), value, axes


def _cut_negative(emit: SizeEmit, x: Value, before: Sequence[Dim], after: Sequence[Dim], mode: str) -> Value:
    """The tensor without what negative pads cut. Where only a run tells whether one is negative, a `Pad` of a number cuts."""
    for axis, (left, right) in enumerate(zip(before, after, strict=True)):
        start, end = -_negative(left, mode), -_negative(right, mode)
        if start or end:
            size = x.shape[axis] - start - end
            if is_static(size) and size < 0:
                raise ModelError(f"the padding {left} and {right} of axis {axis} cuts more than there is")
            x = cut(emit, x, axis, start, size)
    return x


def _negative(size: Dim, mode: str) -> int:
    """The size if it is a negative number, else 0. Raises Refused if that depends on symbols, and counts."""
    if not isinstance(size, Expr):
        return min(size, 0)
    known = mode == "constant" or ((least := lower_bound(size)) is not None and least >= 0)
    refuse_unless(known, f"whether the padding {size} is negative is not known")
    return 0


def _positive(size: Dim) -> Dim:
    return size if isinstance(size, Expr) else max(size, 0)


@onnx_op("Tile")
def tile(node: OnnxNode, emit: SizeEmit) -> Value:
    """Repetition along each axis."""
    x = node.input(0)
    repeats = tuple(emit.dims(node.input(1), "the repeats", low=0))
    if len(repeats) != x.type.rank or any(is_static(count) and count < 0 for count in repeats):
        raise ModelError(f"repeats {list(repeats)} for {x.type}")
    return x if all(count == 1 for count in repeats) else emit(Tile(repeats), x)


@onnx_op("DepthToSpace")
def depth_to_space(node: OnnxNode, emit: SizeEmit) -> Value:
    """Channels to blocks of pixels."""
    return emit(DepthToSpace(node.int("blocksize"), node.choice("mode", "DCR", ("DCR", "CRD"))), node.input(0))


@onnx_op("SpaceToDepth")
def space_to_depth(node: OnnxNode, emit: SizeEmit) -> Value:
    """Blocks of pixels to channels."""
    return emit(SpaceToDepth(node.int("blocksize"), node.choice("mode", "DCR", ("DCR", "CRD"))), node.input(0))
