"""Operators that move elements: functions that draw their inputs and attributes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .drawing import (
    ANY,
    BOOL,
    F32,
    F64,
    I32,
    I64,
    REAL,
    Drawing,
    Node,
    Tensor,
)


def transpose(d: Drawing) -> object:
    x = d.tensor(ANY, low=1)
    order = {} if d.number(0, 4) == 0 else {"perm": d.some(range(x.rank), x.rank)}
    return d.add("Transpose", x, exact=True, **order)


def reshape(d: Drawing) -> object:
    x = d.tensor(ANY)
    left, sizes = x.array.size, []
    while left > 1 and len(sizes) < 5:
        sizes.append(d.pick([n for n in range(1, left + 1) if left % n == 0]))
        left //= sizes[-1]
    sizes += [left] if left > 1 or d.flag() else []
    if sizes and d.flag():
        sizes[d.number(0, len(sizes) - 1)] = -1
    return d.add("Reshape", x, d.ints(sizes), exact=True)


def flatten(d: Drawing) -> object:
    x = d.tensor(ANY)
    return d.add("Flatten", x, exact=True, axis=d.number(-x.rank, x.rank))


def squeeze(d: Drawing) -> object:
    x = d.tensor(ANY)
    ones = [axis for axis in range(x.rank) if x.shape[axis] == 1]
    axes = d.some(ones, d.number(0, len(ones)))
    return d.add("Squeeze", x, *([d.ints([a - x.rank if d.flag() else a for a in axes])] if axes else []), exact=True)


def unsqueeze(d: Drawing) -> object:
    x = d.tensor(ANY, high=4)
    rank = x.rank + d.number(1, 2)
    axes = d.some(range(rank), rank - x.rank)
    return d.add("Unsqueeze", x, d.ints([a - rank if d.flag() else a for a in axes]), exact=True)


def expand(d: Drawing) -> object:
    x = d.tensor(ANY)
    shape = [d.number(1, 3) if size == 1 else d.pick([1, size]) for size in x.shape]
    return d.add("Expand", x, d.ints([*d.shape(0, min(2, 6 - x.rank), (1, 2)), *shape]), exact=True)


def tile(d: Drawing) -> object:
    x = d.tensor(ANY)
    return d.add("Tile", x, d.ints([d.number(1, 2) for _ in range(x.rank)]), exact=True)


def concat(d: Drawing) -> object:
    x = d.tensor(ANY, low=1)
    axis, parts = d.axis(x), [x]
    for _ in range(d.number(0, 3)):
        alike = [t for t in d.tensors if (t.dtype, t.rank) == (x.dtype, x.rank)]
        parts.append(d.pick([t for t in alike if t.without(axis) == x.without(axis)]))
    return d.add("Concat", *parts, exact=True, axis=axis)


def split(d: Drawing) -> object:
    x = d.tensor(ANY, low=1)
    axis = d.axis(x)
    cuts = sorted(d.number(0, x.shape[axis]) for _ in range(d.number(0, 2)))
    sizes = np.diff([0, *cuts, x.shape[axis]])
    return d.add("Split", x, d.ints(sizes), outputs=len(sizes), exact=True, axis=axis)


def slice_(d: Drawing) -> object:
    x = d.tensor(ANY, low=1)
    axes = d.some(range(x.rank), d.number(1, x.rank))
    far = 1 << 40
    starts = [d.pick([0, -1, far, -far, d.number(-x.shape[a], x.shape[a])]) for a in axes]
    ends = [d.pick([0, -1, far, -far, d.number(-x.shape[a], x.shape[a])]) for a in axes]
    steps = [d.pick([1, 1, -1, 2, -2, 3]) for _ in axes]
    return d.add("Slice", x, *map(d.ints, (starts, ends, axes, steps)), exact=True)


def pad(d: Drawing) -> object:
    x = d.tensor(REAL, low=1, high=5)
    mode = d.pick(["constant", "reflect", "edge", "wrap"])
    most = 0 if min(x.shape) == 1 and mode == "reflect" else 1 if mode in ("reflect", "wrap") else 2
    pads = [d.number(0, most) for _ in range(2 * x.rank)]
    value = [d.leaf(d.array(x.dtype, ()))] if mode == "constant" and d.flag() else []
    return d.add("Pad", x, d.ints(pads), *value, exact=True, mode=mode)


def indices(
    d: Drawing, size: int, shape: Sequence[int], dtypes: Sequence[np.dtype] = (I64, I32), low: int | None = None
) -> Tensor:
    """Row numbers from either end."""
    random = np.random.default_rng(d.number(0, 1 << 30))
    return d.leaf(random.integers(-size if low is None else low, size, shape).astype(d.pick(dtypes)))


def gather(d: Drawing) -> object:
    x = d.tensor(ANY, low=1, high=4)
    axis = d.axis(x)
    low = 0 if axis % x.rank == 0 else None  # graphc takes the row numbers of a constant table from 0 on
    return d.add("Gather", x, indices(d, x.shape[axis], d.shape(0, 2), low=low), exact=True, axis=axis)


def gather_elements(d: Drawing) -> object:
    x = d.tensor(ANY, low=1)
    axis = d.axis(x)
    shape = [d.number(1, size) for size in x.shape]
    return d.add("GatherElements", x, indices(d, x.shape[axis], shape), exact=True, axis=axis)


def gather_nd(d: Drawing) -> object:
    x = d.tensor(ANY, low=1, high=5)
    count = d.number(1, x.rank)
    least = min(x.shape[:count])
    return d.add("GatherND", x, indices(d, least, (*d.shape(0, 2), count), (I64,)), exact=True)


def scatter_elements(d: Drawing) -> object:
    x = d.tensor((F32, F64, I64, I32), low=1, high=5)
    axis = d.axis(x)
    reduction = d.pick(["none", "add", "mul", "max", "min"])
    shape = [d.number(1, size) for size in x.shape]
    random = np.random.default_rng(d.number(0, 1 << 30))
    places = random.permuted(np.indices(x.shape)[axis], axis=axis)
    places = places[tuple(slice(size) for size in shape)].astype(I64)
    places, updates = (d.leaf(array, constant=True) for array in (places, d.array(x.dtype, shape)))
    return d.add("ScatterElements", x, places, updates, exact=True, axis=axis, reduction=reduction)


def scatter_nd(d: Drawing) -> object:
    x = d.tensor((F32, F64, I64, I32), low=1, high=4)
    count = d.number(1, x.rank)
    random = np.random.default_rng(d.number(0, 1 << 30))
    cells = random.permutation(list(np.ndindex(*x.shape[:count])))[: d.number(1, 4)].astype(I64)
    updates = d.array(x.dtype, (len(cells), *x.shape[count:]))
    reduction = d.pick(["none", "add", "mul", "max", "min"])
    inputs = [d.leaf(array, constant=True) for array in (cells, updates)]
    return d.add("ScatterND", x, *inputs, exact=True, reduction=reduction)


def compress(d: Drawing) -> object:
    x = d.tensor(ANY, low=1)
    axis = d.pick([None, *range(-x.rank, x.rank)])
    most = x.array.size if axis is None else x.shape[axis]
    condition = d.leaf(d.array(BOOL, (d.number(1, most),)))
    return d.add("Compress", x, condition, exact=True, **({} if axis is None else {"axis": axis}))


def unique(d: Drawing) -> object:
    x = d.tensor((F32, I64), low=1, exact=True, finite=True)
    axis = d.pick([None, *range(-x.rank, x.rank)])
    return d.add("Unique", x, outputs=4, exact=True, sorted=1, **({} if axis is None else {"axis": axis}))


def one_hot(d: Drawing) -> object:
    depth = d.number(1, 4)
    values = d.leaf(d.array(d.pick((F32, I64, I32)), (2,)), constant=True)
    places = indices(d, depth + 1, d.shape(0, 3))
    return d.add("OneHot", places, d.ints([depth]), values, exact=True, axis=d.number(-places.rank - 1, places.rank))


def trilu(d: Drawing) -> object:
    x = d.tensor(ANY, low=2)
    return d.add("Trilu", x, d.leaf(np.array(d.number(-3, 3), I64), constant=True), exact=True, upper=d.number(0, 1))


def depth(operator: str) -> Node:
    def node(d: Drawing) -> object:
        size = d.number(1, 2)
        n, c, h, w = (d.number(1, 2) for _ in range(4))
        shape = (n, c * size * size, h, w) if operator == "DepthToSpace" else (n, c, h * size, w * size)
        fitting = [t for t in d.tensors if t.dtype == F32 and t.rank == 4 and t.shape[1] % size**2 == 0]
        fits = operator == "DepthToSpace" and fitting
        x = d.pick(fitting) if fits else d.leaf(d.array(F32, shape))
        mode = {"mode": d.pick(["DCR", "CRD"])} if operator == "DepthToSpace" else {}
        return d.add(operator, x, exact=True, blocksize=size, **mode)

    return node


def resize(d: Drawing) -> object:
    x = d.tensor((F32,), low=3, high=5)
    mode = d.pick(["nearest", "linear"]) if x.rank < 5 else "nearest"
    sizes = [*x.shape[:2], *(d.number(1, 2 * size) for size in x.shape[2:])]
    coordinate = d.pick(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    settings = (
        {"nearest_mode": d.pick(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])}
        if mode == "nearest"
        else {}
    )
    return d.add(
        "Resize", x, None, None, d.ints(sizes), mode=mode, coordinate_transformation_mode=coordinate, **settings
    )
