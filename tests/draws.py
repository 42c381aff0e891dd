"""Random uses of every operator that has a kernel: types, shapes of up to six axes, and sizes of which some are symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphc.ir.types import BF16, BOOL, F16, F32, F64, FLOATS, I8, I32, I64, INTEGERS, NARROW, U8
from graphc.ops.activations import Clip, Gelu, all_activations
from graphc.ops.base import Op
from graphc.ops.blocks import Tile
from graphc.ops.conv import Conv
from graphc.ops.coupling import PairwiseCoupling
from graphc.ops.functions import BINARY, UNARY
from graphc.ops.indexing import Gather, GatherElements, GatherND, OneHot, RowNumbers
from graphc.ops.integers import ChannelsFirst, ChannelsLast, IntegerConv, IntegerMatMul
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Concat, Expand, Pad, Reshape, Slice, Transpose
from graphc.ops.narrow import ROUNDING, WIDTHS, BitCast, Encode
from graphc.ops.panels import QUAD, WIDE, DepthwiseConv, PackedConv
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.pool import AveragePool, MaxPool
from graphc.ops.quantized import SMALL, ByteTable, Dequantize, Quantize, QuantizedBinary, Requantize
from graphc.ops.random import KINDS as RANDOM_KINDS
from graphc.ops.random import Random
from graphc.ops.ranges import ByteScale, ByteZero, Extremes
from graphc.ops.recurrent import CELLS, UNITS, Recurrent
from graphc.ops.reduce import KINDS, Reduce
from graphc.ops.resize import Resize
from graphc.ops.sampled import Sampled
from graphc.ops.scatter import REDUCTIONS, ScatterElements, ScatterND
from graphc.ops.selection import BestBoxes, NonZero
from graphc.ops.sequences import CumProd, CumSum, EyeLike, Range, Trilu
from graphc.ops.sorting import ArgMax, ArgMin, ArgSort, ArgSortRows
from graphc.ops.trees import TreeEnsemble
from graphc.shapes import Dim, integer, product, symbol

ALL = sorted(FLOATS | INTEGERS | {BOOL}, key=str)
NUMBERS = sorted(FLOATS | INTEGERS, key=str)
FLOAT_TYPES = sorted(FLOATS, key=str)


@dataclass
class Draw:
    """Random choices, and the values of the size symbols among them."""

    random: np.random.Generator
    symbolic: bool
    binding: dict[str, int] = field(default_factory=dict)

    def number(self, low: int, high: int) -> int:
        """An integer from `low` to `high`."""
        return int(self.random.integers(low, high + 1))

    def pick(self, items: Sequence):
        """One of several."""
        return items[self.number(0, len(items) - 1)]

    def size(self, low: int = 1, high: int = 5) -> Dim:
        """A size; sometimes a symbol."""
        value = self.number(low, high)
        if not self.symbolic or value == 0 or self.random.random() < 0.4:
            return value
        name = f"n {len(self.binding)}"
        self.binding[name] = value
        return symbol(name)

    def shape(self, low: int = 0, high: int = 6, smallest: int = 1) -> tuple[Dim, ...]:
        """A shape of `low` to `high` axes."""
        rank = self.number(low, high)
        return tuple(self.size(smallest, 5 if rank < 4 else 3) for _ in range(rank))

    def part(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """A shape that broadcasts to this one."""
        kept = [size if self.random.random() < 0.7 else 1 for size in shape]
        return tuple(kept[self.number(0, len(shape)) :])

    def sizes(self, shape: Sequence[Dim]) -> tuple[int, ...]:
        """A shape with its symbols bound."""
        return tuple(integer(size, self.binding) for size in shape)

    def array(self, dtype: np.dtype, shape: Sequence[Dim]) -> np.ndarray:
        """Random elements, of floats some that are special."""
        sizes = self.sizes(shape)
        if dtype == BOOL:
            return self.random.random(sizes) < 0.5
        if dtype in INTEGERS:
            limits = np.iinfo(dtype)
            wide = self.random.random() < 0.3
            low, high = (limits.min, limits.max) if wide else (max(-5, limits.min), 5)
            return self.random.integers(low, high, sizes, dtype=dtype, endpoint=True)
        values = self.random.standard_normal(sizes) * self.pick([1, 1, 30])
        special = np.array([0.0, -0.0, 0.5, 1.0, -1.5, np.inf, -np.inf, np.nan])
        chosen = self.random.random(sizes) < self.pick([0, 0.1])
        return np.where(chosen, self.random.choice(special, sizes), values).astype(dtype)


Sample = tuple[Op, list[tuple[np.ndarray, tuple[Dim, ...]]]]


def unary(function: str) -> Callable[[Draw], Sample]:
    def draw(d: Draw) -> Sample:
        dtype, shape = d.pick(sorted(UNARY[function].takes - {np.dtype(object)}, key=str)), d.shape(smallest=0)
        return Unary(function), [(d.array(dtype, shape), shape)]

    return draw


def binary(function: str) -> Callable[[Draw], Sample]:
    def draw(d: Draw) -> Sample:
        row = BINARY[function]
        types = sorted(row.takes - {np.dtype(object)}, key=str)
        dtype = d.pick(types)
        other = d.pick(types) if row.mixed else dtype
        shape = d.shape()
        shapes = (shape, d.part(shape))
        if function != "PRelu" and d.number(0, 1):
            shapes = shapes[::-1]
        a, b = d.array(dtype, shapes[0]), d.array(other, shapes[1])
        if row.divides and other in INTEGERS:
            b = np.where(b == 0, 1, b).astype(other)
        if function == "Pow":
            a, b = (np.clip(np.nan_to_num(x), 0, 9).astype(x.dtype) for x in (a, b))
        return Binary(function), [(a, shapes[0]), (b, shapes[1])]

    return draw


def pointwise(make: Callable[[Draw], Op], types: Sequence[np.dtype]) -> Callable[[Draw], Sample]:
    def draw(d: Draw) -> Sample:
        shape = d.shape()
        return make(d), [(d.array(d.pick(types), shape), shape)]

    return draw


def activation(op: type[Any]) -> Callable[[Draw], Sample]:
    """With its usual settings and others."""

    def draw(d: Draw) -> Op:
        usual = op.usual().items()
        return op(**{name: flag(d) if isinstance(each, bool) else each + d.pick([0, 0.1]) for name, each in usual})

    return pointwise(draw, sorted(op.takes, key=str))


def where(d: Draw) -> Sample:
    shape, dtype = d.shape(), d.pick(ALL)
    shapes = [shape, d.part(shape), d.part(shape)]
    order = d.random.permutation(3)
    types = [BOOL, dtype, dtype]
    return Where(), [(d.array(types[i], shapes[order[i]]), shapes[order[i]]) for i in range(3)]


def cast(d: Draw) -> Sample:
    source, target = d.pick(ALL), d.pick(ALL)
    x = d.array(source, shape := d.shape())
    if source in FLOATS and target in INTEGERS:  # what does not fit has a test of its own
        limits = np.iinfo(target)
        low, high = max(limits.min, -100), min(limits.max, 100)
        x = np.clip(np.nan_to_num(x.astype(F64)), low, high).astype(source)
    return Cast(target), [(x, shape)]


def bit_cast(d: Draw) -> Sample:
    source = d.pick([dtype for dtype in ALL if dtype != BOOL])
    alike = [dtype for dtype in ALL if dtype.itemsize == source.itemsize and dtype != BOOL]
    integers = [dtype for dtype in alike if dtype in INTEGERS]
    target = d.pick(integers if source in (F16, BF16) else alike)  # two kinds of halves are no bits of each other
    x = d.array(source, shape := d.shape())
    return BitCast(target), [(np.nan_to_num(x) if source in FLOATS else x, shape)]


def encode(d: Draw) -> Sample:
    target, shape = d.pick(sorted(NARROW, key=str)), d.shape()
    op = Encode(target, bool(d.number(0, 1)), d.pick(ROUNDING))
    return op, [(d.array(I32 if target in WIDTHS else F32, shape), shape)]


def reshape(d: Draw) -> Sample:
    shape = d.shape(1)
    parts = [*d.sizes(shape)] if not d.symbolic else [*shape]
    if d.number(0, 1) and len(parts) > 1:  # merged in pairs
        result: tuple[Dim, ...] = (
            *(a * b for a, b in zip(parts[::2], parts[1::2], strict=False)),
            *parts[len(parts) & ~1 :],
        )
    elif d.number(0, 1):
        result = (product(parts),)
    else:  # the factors in another order
        result = tuple(parts[i] for i in d.random.permutation(len(parts)))
    return Reshape(result), [(d.array(d.pick(ALL), shape), shape)]


def transpose(d: Draw) -> Sample:
    shape = d.shape()
    return Transpose(tuple(map(int, d.random.permutation(len(shape))))), [(d.array(d.pick(ALL), shape), shape)]


def expand(d: Draw) -> Sample:
    shape = d.shape()
    part = d.part(shape)
    return Expand(shape), [(d.array(d.pick(ALL), part), part)]


def slice_(d: Draw) -> Sample:
    shape = d.shape()
    starts, sizes, steps = [], [], []
    for size in shape:
        count = integer(size, d.binding)
        step, first = d.pick([1, 1, 2, -1, -2]), d.number(0, count - 1)
        limit = (count - 1 - first) // step + 1 if step > 0 else first // -step + 1
        whole = step == -1 and d.number(0, 1)
        starts.append(size - 1 if whole else first)
        sizes.append(size if whole else d.number(1, limit))
        steps.append(step)
    return Slice(tuple(starts), tuple(sizes), tuple(steps)), [(d.array(d.pick(ALL), shape), shape)]


def concat(d: Draw) -> Sample:
    shape, dtype = d.shape(1), d.pick(ALL)
    axis = d.number(0, len(shape) - 1)
    shapes = [(*shape[:axis], d.size(), *shape[axis + 1 :]) for _ in range(d.number(1, 4))]
    return Concat(axis), [(d.array(dtype, each), each) for each in shapes]


def pad(d: Draw) -> Sample:
    shape, mode, dtype = d.shape(), d.pick(["constant", "reflect", "edge", "wrap"]), d.pick(ALL)
    limits = [integer(size, d.binding) - (mode == "reflect") for size in shape]
    before, after = ([d.number(0, limit) for limit in limits] for _ in range(2))
    if mode == "constant" and d.number(0, 1):  # some are cut
        before, after = ([d.number(-(limit // 2), limit) for limit in limits] for _ in range(2))
    value = d.pick([0, 1, 2]) if dtype not in FLOATS else d.pick([0.0, -1.5, np.inf])
    return Pad(tuple(before), tuple(after), mode, value), [(d.array(dtype, shape), shape)]


def tile(d: Draw) -> Sample:
    shape = d.shape(0, 4)
    return Tile(tuple(d.size(1, 3) for _ in shape)), [(d.array(d.pick(ALL), shape), shape)]


def reduce(d: Draw) -> Sample:
    kind, shape = d.pick(sorted(KINDS)), d.shape(0, 6, d.pick([0, 1, 1]))
    dtype = d.pick(sorted(KINDS[kind].takes, key=str))
    axes = tuple(axis for axis in range(len(shape)) if d.number(0, 1))
    return Reduce(kind, axes, bool(d.number(0, 1))), [(d.array(dtype, shape), shape)]


def matmul(d: Draw) -> Sample:
    dtype = d.pick(NUMBERS)
    batch = d.shape(0, 3)
    m, n, k = d.size(), d.size(), d.size(0)
    swap_a, swap_b = bool(d.number(0, 1)), bool(d.number(0, 1))
    a = (*d.part(batch), *((k, m) if swap_a else (m, k)))
    b = (*batch, *((n, k) if swap_b else (k, n)))
    if d.number(0, 3) == 0 and not swap_a:
        a = (k,)
    return MatMul(swap_a, swap_b), [(d.array(dtype, shape), shape) for shape in (a, b)]


def conv(d: Draw) -> Sample:
    axes, group, dtype = d.number(1, 3), d.number(1, 2), d.pick(FLOAT_TYPES)
    kernel = [d.number(1, 3) for _ in range(axes)]
    dilations = [d.number(1, 2) for _ in range(axes)]
    x = (d.size(1, 2), 2 * group, *(d.size(5, 6) for _ in range(axes)))
    w = (group * d.number(1, 2), 2, *kernel)
    settings = ([d.number(low, high) for _ in range(axes)] for low, high in ((1, 2), (0, 2), (0, 2)))
    strides, before, after = map(tuple, settings)
    shapes = [x, w, w[:1]][: d.number(2, 3)]
    op = Conv(strides, tuple(dilations), before, after, group)
    return op, [(d.random.standard_normal(d.sizes(shape)).astype(dtype), shape) for shape in shapes]


def pool(kind: type[MaxPool] | type[AveragePool]) -> Callable[[Draw], Sample]:
    def draw(d: Draw) -> Sample:
        axes = d.number(1, 3)
        kernel = [d.number(1, 3) for _ in range(axes)]
        before, after = (tuple(d.number(0, size - 1) for size in kernel) for _ in range(2))
        strides, dilations = (tuple(d.number(1, 2) for _ in kernel) for _ in range(2))
        if axes == 3 and flag(d):  # nothing happens along the last
            kernel[2], strides, before, after = 1, (*strides[:2], 1), (*before[:2], 0), (*after[:2], 0)
        shape = (d.size(1, 2), d.size(1, 3), *(d.size(5, 6) for _ in kernel))
        more = () if kind is MaxPool else (bool(d.number(0, 1)),)
        op = kind(tuple(kernel), strides, dilations, before, after, bool(d.number(0, 1)), *more)
        dtype = d.pick(FLOAT_TYPES if more else [*FLOAT_TYPES, I8, U8])
        return op, [(d.array(dtype, shape), shape)]

    return draw


def resize(d: Draw) -> Sample:
    shape = (d.size(1, 2), d.size(1, 2), *(d.size(2, 5) for _ in range(d.number(1, 2))))
    sizes = (*shape[:2], *(d.pick([size, d.size(2, 9), 2 * size]) for size in shape[2:]))
    mode = d.pick(["nearest", "linear", "cubic"])
    coordinate = d.pick(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    nearest = d.pick(["round_prefer_floor", "floor", "ceil"])
    dtype = d.pick([*FLOAT_TYPES, I8, U8, I32])
    x = d.random.standard_normal(d.sizes(shape)) * (50 if dtype in INTEGERS else 1)
    op = Resize(sizes, (0.0,) * len(shape), mode, coordinate, nearest, exclude_outside=mode == "cubic" and flag(d))
    return op, [((np.abs(x) if dtype == U8 else x).astype(dtype), shape)]


def sampled(d: Draw) -> Sample:
    shape, dtype, taps = d.shape(1, 4), d.pick(FLOAT_TYPES), d.pick([1, 2, 4, 17])
    axis = d.number(0, len(shape) - 1)
    batch = d.number(0, axis)
    places = (taps, *shape[:batch], d.size(1, 6))
    counts = tuple(d.pick([1, size, size]) for size in places)
    numbers = d.random.integers(-1, d.sizes(shape)[axis] + 1, d.sizes(places))
    given = [(d.array(dtype, shape), shape), (numbers.astype(I32), places), (d.array(dtype, counts), counts)]
    return Sampled(axis, taps, batch), given


def indices(d: Draw, shape: Sequence[Dim], limit: int, dtype: np.dtype | None = None) -> np.ndarray:
    return d.random.integers(-limit, limit, d.sizes(shape)).astype(dtype or d.pick([I32, I64]))


def gather(d: Draw) -> Sample:
    data, places = d.shape(1, 4), d.shape(0, 2)
    axis = d.number(0, len(data) - 1)
    found = indices(d, places, integer(data[axis], d.binding))
    return Gather(axis), [(d.array(d.pick(ALL), data), data), (found, places)]


def gather_elements(d: Draw) -> Sample:
    data = d.shape(1, 5)
    axis = d.number(0, len(data) - 1)
    places = (*data[:axis], d.size(), *data[axis + 1 :])
    found = indices(d, places, integer(data[axis], d.binding))
    return GatherElements(axis), [(d.array(d.pick(ALL), data), data), (found, places)]


def tuples(d: Draw, data: Sequence[Dim], depth: int, outer: Sequence[Dim], first: int = 0) -> np.ndarray:
    columns = [indices(d, outer, integer(size, d.binding), I64) for size in data[first : first + depth]]
    return np.stack(columns, -1) if columns else np.zeros((*d.sizes(outer), 0), np.int64)


def gather_nd(d: Draw) -> Sample:
    data = d.shape(2, 5)
    batch = d.number(0, 1)
    depth = d.number(1, len(data) - batch)
    outer = (*data[:batch], *d.shape(1, 2))
    return GatherND(batch), [
        (d.array(d.pick(ALL), data), data),
        (tuples(d, data, depth, outer, batch), (*outer, depth)),
    ]


def row_numbers(d: Draw) -> Sample:
    limit, places = d.number(1, 8), d.shape(1, 4)
    return RowNumbers(limit), [(indices(d, places, limit, d.pick((I32, I64))), places)]


def scatter_elements(d: Draw) -> Sample:
    data, reduction, dtype = d.shape(1, 4), d.pick(sorted(REDUCTIONS)), d.pick(NUMBERS)
    axis = d.number(0, len(data) - 1)
    places = (*data[:axis], d.size(), *data[axis + 1 :])
    found = indices(d, places, integer(data[axis], d.binding))
    return ScatterElements(axis, reduction), [
        (d.array(dtype, data), data),
        (found, places),
        (d.array(dtype, places), places),
    ]


def scatter_nd(d: Draw) -> Sample:
    data, reduction, dtype = d.shape(1, 4), d.pick(sorted(REDUCTIONS)), d.pick(NUMBERS)
    depth, outer = d.number(1, len(data)), d.shape(1, 2)
    updates = (*outer, *data[depth:])
    return ScatterND(reduction), [
        (d.array(dtype, data), data),
        (tuples(d, data, depth, outer), (*outer, depth)),
        (d.array(dtype, updates), updates),
    ]


def one_hot(d: Draw) -> Sample:
    shape, dtype, depth = d.shape(0, 4), d.pick(ALL), d.size(1, 5)
    found = indices(d, shape, integer(depth, d.binding) + 1)
    return OneHot(d.number(0, len(shape)), depth), [(found, shape), (d.array(dtype, (2,)), (2,))]


def along(make: Callable[[Draw, int], Op], types: Sequence[np.dtype]) -> Callable[[Draw], Sample]:
    def draw(d: Draw) -> Sample:
        shape = d.shape(1, 5)
        return make(d, d.number(0, len(shape) - 1)), [(d.array(d.pick(types), shape), shape)]

    return draw


def flag(d: Draw) -> bool:
    return bool(d.number(0, 1))


def range_(d: Draw) -> Sample:
    dtype = d.pick(NUMBERS)
    if dtype in FLOATS and d.number(0, 1):
        return Range(0.5, d.number(1, 9) + 0.25, d.pick([0.5, 1.0, 0.3]), dtype), []
    return Range(d.number(0, 3), d.size(4, 9), d.number(1, 2), dtype), []


def trilu(d: Draw) -> Sample:
    shape = d.shape(2, 5)
    return Trilu(flag(d), d.number(-2, 2)), [(d.array(d.pick(ALL), shape), shape)]


def arg_sort(d: Draw) -> Sample:
    shape = d.shape(1, 4)
    axis = d.number(0, len(shape) - 1)
    count = d.pick([shape[axis], d.number(1, integer(shape[axis], d.binding))])
    return ArgSort(axis, count, flag(d)), [(d.array(d.pick(ALL), shape), shape)]


def arg_sort_rows(d: Draw) -> Sample:
    shape = (d.size(1, 60), d.size(0, 3))
    return ArgSortRows(), [(d.array(d.pick(ALL), shape), shape)]


def non_zero(d: Draw) -> Sample:
    shape = d.shape(1, 4, smallest=0)
    x = d.array(d.pick(ALL), shape)
    x = np.where(d.random.random(x.shape) < 0.5, x, 0).astype(x.dtype)
    count: Dim = int(np.count_nonzero(x))
    if d.symbolic:
        name = f"n {len(d.binding)}"
        d.binding[name] = count
        count = symbol(name, low=0)
    return NonZero(count), [(x, shape)]


def recurrent(d: Draw) -> Sample:
    name = d.pick(list(CELLS))
    steps, batch, hidden, directions = d.size(1, 5), d.size(1, 5), d.number(1, 70), d.number(1, 2)
    gates, states = CELLS[name].gates, CELLS[name].states
    weights = (directions, -(-hidden // UNITS), hidden + 1, gates, UNITS)
    shapes = [(steps, batch, directions, gates * hidden), weights, (batch,), *[(directions, batch, hidden)] * states]
    arrays = [d.random.standard_normal(d.sizes(shape)).astype(F32) for shape in shapes]
    arrays[1] /= np.sqrt(F32.type(hidden))
    arrays[2] = d.random.integers(0, len(arrays[0]) + 1, arrays[2].shape)
    reverse = tuple(bool(d.number(0, 1)) for _ in range(directions))
    return Recurrent(name, reverse), list(zip(arrays, shapes, strict=True))


def best_boxes(d: Draw) -> Sample:
    batch, classes, count = d.size(1, 2), d.size(1, 2), d.size(1, 9)
    corners = np.sort(np.round(d.random.random(d.sizes((batch, count, 2, 2))), 1), 2).astype(F32)
    boxes = corners.reshape(d.sizes((batch, count, 4)))
    scores = np.round(d.random.random(d.sizes((batch, classes, count))), 1).astype(F32)
    order = np.argsort(-scores, kind="stable")
    limits = [np.array(d.pick([0, 0.3, 1]), F32), np.array(d.pick([-np.inf, 0.4]), F32)]
    shapes = [(batch, count, 4), *[(batch, classes, count)] * 2, (), ()]
    return BestBoxes(d.size(1, 9)), list(zip([boxes, scores, order, *limits], shapes, strict=True))


def pairwise_coupling(d: Draw) -> Sample:
    classes, rows = d.number(2, 5), d.size(0, 9)
    shape = rows, classes * (classes - 1) // 2
    return PairwiseCoupling(classes), [(d.random.uniform(0.01, 0.99, d.sizes(shape)).astype(F32), shape)]


def tree_ensemble(d: Draw) -> Sample:
    """Nodes lead to later ones, or to leaves."""
    rows, features, trees, targets = d.size(0, 9), d.size(1, 4), d.size(1, 3), d.number(1, 4)
    dtype = d.pick([F32, F64])
    count, leaves, weights = d.number(1, 6), d.number(1, 5), d.number(0, 9)
    x = np.round(d.random.standard_normal(d.sizes((rows, features))), 0).astype(dtype)
    x[d.random.random(x.shape) < 0.1] = np.nan
    nodes = np.empty((count, 4), I32)
    nodes[:, 0], nodes[:, 1] = d.random.integers(0, 16, count), d.random.integers(0, x.shape[1], count)
    for place in range(count):
        nodes[place, 2:] = d.random.integers(place + 1, count + leaves, 2)
    nodes[:, 2:] = np.where(nodes[:, 2:] < count, nodes[:, 2:], count - 1 - nodes[:, 2:])
    ends = np.sort(d.random.integers(0, weights + 1, leaves))
    tables = [
        d.random.integers(-2, 3, count).astype(dtype), nodes, d.random.integers(-leaves, count, d.sizes((trees,))[0]).astype(I32),
        ends.astype(I32), d.random.integers(0, targets, weights).astype(I32), d.random.standard_normal(weights).astype(dtype),
    ]  # fmt: skip
    shapes = [(rows, features), (count,), (count, 4), (trees,), (leaves,), (weights,), (weights,)]
    return TreeEnsemble(targets, d.pick(["add", "min", "max"])), list(zip([x, *tables], shapes, strict=True))


def channels_last(d: Draw) -> Sample:
    shape = (d.size(), d.size(0, 70), *(d.size(0, 12) for _ in range(d.number(0, 3))))
    return ChannelsLast(), [(d.array(d.pick([U8, I8]), shape), shape)]


def channels_first(d: Draw) -> Sample:
    shape = (d.size(), *(d.size(0, 12) for _ in range(d.number(0, 3))), d.size(0, 70))
    return ChannelsFirst(), [(d.array(d.pick([U8, I8]), shape), shape)]


def scaled(make: type[Op]) -> Callable[[Draw], Sample]:
    def draw(d: Draw) -> Sample:
        shape, dtype = d.shape(), d.pick(SMALL)
        other = {Dequantize: d.pick([dtype, I32]), Quantize: F32, Requantize: d.pick([F32, I32])}[make]
        x = d.array(other, shape)
        scale, zero = d.part(shape), d.part(shape)
        scales = d.random.uniform(0.01, 4, d.sizes(scale)).astype(F32)
        zeros = d.array(dtype if make is not Dequantize else other, zero)
        return make(), [(x, shape), (scales, scale), (zeros, zero)]

    return draw


def zeros(d: Draw, types: Sequence[np.dtype], rows: Dim, columns: Dim) -> list[tuple[np.ndarray, tuple[Dim, ...]]]:
    """Zero points and a bias: one number, or one for each row or column."""
    kinds = [(types[0], rows), (types[1], columns), (I32, columns)]
    return [(d.array(dtype, shape), shape) for dtype, count in kinds for shape in (d.pick([(), (1,), (count,)]),)]


def integer_product(d: Draw) -> Sample:
    types, batch, m, n, k = [U8, I8], d.size(), d.size(1, 70), d.size(1, 20), d.size(0, 1100)
    types = types[:: d.pick([1, -1])]
    shapes = (batch, m, k), (d.pick([1, batch]), n, k)
    operands = [(d.array(dtype, shape), shape) for dtype, shape in zip(types, shapes, strict=True)]
    return IntegerMatMul(transpose_b=True), [*operands, *zeros(d, types, m, n)]


def integer_conv(d: Draw) -> Sample:
    types, group, channels, out = [U8, I8], d.number(1, 3), d.number(1, 40), d.number(1, 9)
    types = types[:: d.pick([1, -1])]
    x = (d.size(1, 2), d.size(5, 9), d.size(5, 9), group * channels)
    w = (group * out, d.number(1, 3), d.number(1, 3), channels)
    settings = (tuple(d.number(low, 2) for _ in range(2)) for low in (1, 1, 0, 0))
    operands = [(d.array(dtype, shape), shape) for dtype, shape in zip(types, (x, w), strict=True)]
    return IntegerConv(*settings, group, channels_last=True), [*operands, *zeros(d, types, 1, group * out)]


def panels_of(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kernels [out, ...], packed, and their sums."""
    rows = w.reshape(w.shape[0], -1)
    filled = np.pad(rows, [(0, -rows.shape[0] % WIDE), (0, -rows.shape[1] % QUAD)])
    panels = filled.reshape(-1, WIDE, filled.shape[1] // QUAD, QUAD).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(panels), rows.sum(1, dtype=I32)


def packed_conv(d: Draw) -> Sample:
    left, right = [U8, I8][:: d.pick([1, -1])]
    channels, out, kernel = d.number(1, 40), d.pick([1, 9, 32, 40, 130]), (d.number(1, 3), d.number(1, 3))
    x = (d.size(1, 2), d.size(5, 9), d.size(5, 9), channels)
    settings = [tuple(d.number(low, 2) for _ in range(2)) for low in (1, 1, 0, 0)]
    panels, sums = panels_of(d.array(right, (out, *kernel, channels)))
    factor = d.pick([(), (out,)])
    finish = [(d.random.uniform(1e-5, 1e-2, factor).astype(F32), factor), (d.array(d.pick([U8, I8]), ()), ())]
    return PackedConv(kernel, *settings), [
        (d.array(left, x), x), (panels, panels.shape), *zeros(d, (left, right), 1, out), (sums, sums.shape),
        *finish[: d.number(0, 2)],
    ]  # fmt: skip


def depthwise_conv(d: Draw) -> Sample:
    left, right = d.pick([U8, I8]), d.pick([U8, I8])
    channels, kernel = d.pick([16, 17, 32, 40, 70]), (d.number(1, 3), d.number(1, 3))
    x = (d.size(1, 2), d.size(5, 9), d.size(5, 9), channels)
    settings = [tuple(d.number(low, 2) for _ in range(2)) for low in (1, 1, 0, 0)]
    w, factor = d.array(right, (*kernel, channels)), d.pick([(), (channels,)])
    finish = [(d.random.uniform(1e-5, 1e-2, factor).astype(F32), factor), (d.array(d.pick([U8, I8]), ()), ())]
    return DepthwiseConv(*settings), [
        (d.array(left, x), x), (w, w.shape), *zeros(d, (left, right), 1, channels), *finish[: d.number(0, 2)]
    ]  # fmt: skip


def quantized_binary(d: Draw) -> Sample:
    shape = d.shape()
    repeated = tuple(d.pick([size, size, 1]) for size in shape)
    found: list[tuple[np.ndarray, tuple[Dim, ...]]] = []
    for operand in (shape, repeated, None):
        one, dtype = d.pick([(), (1,)]), d.pick(SMALL)
        found += [(d.array(dtype, operand), operand)] if operand is not None else []
        found += [(d.random.uniform(0.01, 4, one).astype(F32), one), (d.array(dtype, one), one)]
    return QuantizedBinary(d.pick(["Add", "Mul"])), found


def byte_table(d: Draw) -> Sample:
    shape = d.shape()
    return ByteTable(), [(d.array(d.pick([U8, I8]), shape), shape), (d.array(d.pick([U8, I8]), (256,)), (256,))]


def extremes(d: Draw) -> Sample:
    shape = d.shape()
    return Extremes(), [(d.array(F32, shape), shape)]


def of_extremes(op: Op) -> Callable[[Draw], Sample]:
    def draw(d: Draw) -> Sample:
        low, high = (sign * d.random.uniform(0, d.pick([0, 1, 1000]), (5, 1)) for sign in (-1, 1))
        return op, [(np.concatenate([low, high], 1).astype(F32), (5, 2))]

    return draw


DRAWS: dict[str, Callable[[Draw], Sample]] = {
    **{f"Unary-{function}": unary(function) for function in UNARY},
    **{f"Binary-{function}": binary(function) for function in BINARY},
    "Where": where,
    "Cast": cast,
    "BitCast": bit_cast,
    "Encode": encode,
    **{name: activation(op) for name, op in all_activations().items()},
    "Clip": pointwise(lambda d: Clip(d.pick([None, 1]), d.pick([None, 3])), NUMBERS),
    "Gelu": pointwise(lambda d: Gelu(d.pick(["none", "tanh"])), FLOAT_TYPES),
    "Reshape": reshape,
    "Transpose": transpose,
    "Expand": expand,
    "Slice": slice_,
    "Concat": concat,
    "Pad": pad,
    "Tile": tile,
    "MatMul": matmul,
    "Conv": conv,
    "IntegerMatMul": integer_product,
    "IntegerConv": integer_conv,
    "PackedConv": packed_conv,
    "ChannelsLast": channels_last,
    "ChannelsFirst": channels_first,
    "DepthwiseConv": depthwise_conv,
    "QuantizedBinary": quantized_binary,
    "ByteTable": byte_table,
    "Extremes": extremes,
    "ByteScale": of_extremes(ByteScale()),
    "ByteZero": of_extremes(ByteZero()),
    "Dequantize": scaled(Dequantize),
    "Quantize": scaled(Quantize),
    "Requantize": scaled(Requantize),
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "RowNumbers": row_numbers,
    "OneHot": one_hot,
    "MaxPool": pool(MaxPool),
    "AveragePool": pool(AveragePool),
    "Reduce": reduce,
    "Resize": resize,
    "Sampled": sampled,
    "Range": range_,
    "EyeLike": lambda d: (EyeLike(d.number(-2, 2), d.pick(ALL), (d.size(), d.size())), []),
    "Random": lambda d: (Random(d.pick(RANDOM_KINDS), d.number(0, 99), 0.5, 2.0, d.pick(FLOAT_TYPES), d.shape()), []),
    "Trilu": trilu,
    "CumSum": along(lambda d, axis: CumSum(axis, flag(d), flag(d)), NUMBERS),
    "CumProd": along(lambda d, axis: CumProd(axis, flag(d), flag(d)), NUMBERS),
    "ArgMax": along(lambda d, axis: ArgMax(axis, flag(d), flag(d)), NUMBERS),
    "ArgMin": along(lambda d, axis: ArgMin(axis, flag(d), flag(d)), NUMBERS),
    "ArgSort": arg_sort,
    "ArgSortRows": arg_sort_rows,
    "NonZero": non_zero,
    "BestBoxes": best_boxes,
    "TreeEnsemble": tree_ensemble,
    "PairwiseCoupling": pairwise_coupling,
    "Recurrent": recurrent,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
}
