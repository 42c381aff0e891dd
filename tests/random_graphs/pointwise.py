"""Elementwise operators, reductions and sorting: functions that draw their inputs and attributes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx.helper import np_dtype_to_tensor_dtype

from .drawing import (
    ANY,
    BOOL,
    F32,
    F64,
    FLOATS,
    I32,
    I64,
    NUMBERS,
    REAL,
    U8,
    Drawing,
    Node,
    broadcast,
)


def unary(operator: str, dtypes: Sequence[np.dtype] = FLOATS, exact: bool = False, jumps: bool = False) -> Node:
    """A function of one tensor; one that `jumps` is given only exact numbers."""
    return lambda d: d.add(operator, d.tensor(dtypes, exact=jumps), exact=exact)


def parametric(operator: str, **ranges: tuple[float, float]) -> Node:
    """A function of one tensor whose attributes are numbers, in quarters, within ranges."""

    def node(d: Drawing) -> object:
        attributes = {name: d.number(int(4 * low), int(4 * high)) / 4 for name, (low, high) in ranges.items()}
        return d.add(operator, d.tensor(REAL, exact=operator in ("ThresholdedRelu", "Shrink")), **attributes)

    return node


def binary(operator: str, dtypes: Sequence[np.dtype] = NUMBERS, exact: bool = True, jumps: bool = False) -> Node:
    """A function of two tensors that broadcast, in either order."""

    def node(d: Drawing) -> object:
        a = d.tensor(dtypes, exact=jumps)
        b = d.beside(a, exact=jumps)
        return d.add(operator, *((a, b) if d.flag() else (b, a)), exact=exact)

    return node


def division(operator: str, **attributes: int) -> Node:
    """A quotient or remainder, by what is nowhere 0."""

    def node(d: Drawing) -> object:
        a = d.tensor((F32, F64) if operator == "Div" and d.flag() else (I64, I32), exact=operator == "Mod")
        b = d.beside(a, exact=operator == "Mod")
        b = b if np.all(b.array != 0) else d.leaf(np.where(b.array == 0, 3, b.array).astype(a.dtype))
        return d.add(operator, a, b, exact=a.dtype.kind == "i", **attributes)

    return node


def variadic(operator: str, dtypes: Sequence[np.dtype], exact: bool) -> Node:
    """One to four tensors that broadcast."""

    def node(d: Drawing) -> object:
        a = d.tensor(dtypes)
        return d.add(operator, a, *(d.beside(a) for _ in range(d.number(0, 3))), exact=exact)

    return node


def where(d: Drawing) -> object:
    a = d.tensor(ANY)
    b = d.beside(a)
    shape = np.broadcast_shapes(a.shape, b.shape)
    masks = [t for t in d.tensors if t.dtype == BOOL and broadcast(t.shape, shape)]
    mask = d.pick(masks) if masks and d.flag() else d.leaf(d.array(BOOL, shape[d.number(0, len(shape)) :]))
    return d.add("Where", mask, a, b, exact=True)


def cast(d: Drawing) -> object:
    target = d.pick((*ANY, F32))
    x = d.tensor(ANY, exact=target.kind != "f")
    limit = np.iinfo(target).max if target.kind in "iu" else np.inf
    low = np.iinfo(target).min if target.kind in "iu" else -np.inf
    values = x.array.astype(F64)
    if x.dtype.kind == "f" and np.any((values > limit) | (values < low)):  # what does not fit has no defined result
        x = d.leaf(d.array(x.dtype, x.shape) % 5)
    return d.add("Cast", x, exact=True, to=np_dtype_to_tensor_dtype(target))


def clip(d: Drawing) -> object:
    x = d.tensor((*FLOATS, I64, I32))
    bounds = [None if d.number(0, 3) == 0 else d.leaf(d.array(x.dtype, ())) for _ in range(2)]
    return d.add("Clip", x, *bounds, exact=True)


def power(d: Drawing) -> object:
    x = d.tensor(REAL)
    return d.add("Pow", x, d.leaf(np.array(d.pick((0, 1, 2, 3, 0.5, -1)), x.dtype)))


def bit_shift(d: Drawing) -> object:
    x = d.tensor((U8,))
    return d.add("BitShift", x, d.leaf(d.array(U8, x.shape)), exact=True, direction=d.pick(["LEFT", "RIGHT"]))


def reduction(operator: str, dtypes: Sequence[np.dtype], exact: bool = False) -> Node:
    def node(d: Drawing) -> object:
        x = d.tensor(dtypes)
        count = d.number(0, x.rank)
        axes = d.some(range(x.rank), count)
        axes = [axis - x.rank if d.flag() else axis for axis in axes]
        given = [d.ints(axes)] if axes or d.flag() else []
        settings = {"keepdims": d.number(0, 1), "noop_with_empty_axes": d.number(0, 1)}
        return d.add(operator, x, *given, exact=exact, **settings)

    return node


def extreme_place(operator: str) -> Node:
    def node(d: Drawing) -> object:
        x = d.tensor((F32, F64, I64, I32), low=1, exact=True)
        settings = {"keepdims": d.number(0, 1), "select_last_index": d.number(0, 1)}
        return d.add(operator, x, exact=True, axis=d.axis(x), **settings)

    return node


def top_k(d: Drawing) -> object:
    x = d.tensor((F32, F64, I64, I32), low=1, exact=True)
    axis = d.axis(x)
    if x.shape[axis] > 1:  # ties may come in any order of places: every element is another
        x = d.leaf(np.argsort(np.argsort(x.array, axis), axis).astype(x.dtype))
    settings = {"axis": axis, "largest": d.number(0, 1), "sorted": 1}
    return d.add("TopK", x, d.ints([d.number(1, x.shape[axis])]), outputs=2, exact=True, **settings)


def along(operator: str, dtypes: Sequence[np.dtype] = REAL) -> Node:
    """An operator with an axis."""
    return lambda d: d.add(operator, x := d.tensor(dtypes, low=1), axis=d.axis(x))


def cumulative(d: Drawing) -> object:
    x = d.tensor((F32, F64, I64, I32), low=1)
    axis = d.leaf(np.array(d.axis(x), I64), constant=True)
    return d.add("CumSum", x, axis, exact=x.dtype.kind == "i", exclusive=d.number(0, 1), reverse=d.number(0, 1))


def quantize(d: Drawing) -> object:
    x = d.tensor((F32,), exact=True)
    scale = d.leaf(np.array(d.pick([0.25, 0.5, 1.0]), F32), constant=True)
    zero = d.leaf(np.array(d.number(0, 9), U8), constant=True)
    (y,) = d.add("QuantizeLinear", x, scale, zero, exact=True)
    return d.add("DequantizeLinear", y, scale, zero, exact=True)


def silu(d: Drawing) -> object:
    x = d.tensor((F32,))
    (gate,) = d.add("Sigmoid", x)
    return d.add("Mul", *((x, gate) if d.flag() else (gate, x)))
