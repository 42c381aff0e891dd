"""Sorting, medians, searches among edges, and the largest so far."""

from __future__ import annotations

from onnxscript import INT32, INT64

from graphc.frontend.torch.translations.graph import Translation, Value, like, op, size_of


def is_nan(x: Value) -> Value:
    """Where there are NaN; of whole numbers, nowhere."""
    return op.IsNaN(x) if x.dtype.is_floating_point() else op.Less(x, x)


def place_in_order(x: Value, place: Value, dim: int, keepdim: bool) -> tuple[Value, Value]:
    """The numbers that come at a place along an axis, and where they lie."""
    if not x.shape:
        return op.Identity(x), op.Constant(value_int=0)
    values, indices = op.TopK(x, size_of(x, dim), axis=dim, largest=0)
    place = op.Expand(place, op.Shape(op.ReduceMax(x, [dim], keepdims=1)))
    found = [op.GatherElements(each, place, axis=dim) for each in (values, indices)]
    if not keepdim:
        found = [op.Squeeze(each, [dim]) for each in found]
    return found[0], found[1]


def kth_value(x: Value, k: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The k-th smallest number, counted from 1."""
    place = op.Constant(value_int=k - 1) if isinstance(k, int) else op.Sub(k, 1)
    return place_in_order(x, place, dim, keepdim)


def median(x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The lower one of two in the middle; the first NaN, if there is any, which comes after all numbers."""
    if not x.shape:
        return place_in_order(x, None, dim, keepdim)
    numbers, size = count_of_numbers(x, dim), size_of(x, dim)
    middle = op.Div(op.Sub(size, 1), 2)
    return place_in_order(x, op.Where(op.Equal(numbers, size), middle, numbers), dim, keepdim)


def median_of_numbers(x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The lower one of two in the middle of what is not NaN."""
    if not x.shape:
        return place_in_order(x, None, dim, keepdim)
    numbers = op.Max(count_of_numbers(x, dim), 1)
    middle = op.Div(op.Sub(numbers, 1), 2)
    return place_in_order(x, middle, dim, keepdim)


def count_of_numbers(x: Value, dim: int) -> Value:
    """How many along an axis, which is kept, are not NaN."""
    return op.ReduceSum(op.Cast(op.Not(is_nan(x)), to=INT64.dtype), [dim])


def of_all(along: Translation, x: Value) -> Value:
    """What a translation along an axis finds among all numbers."""
    return along(like(x, op.Reshape(x, [-1]), [None]), 0)[0]


def search_sorted(
    edges: Value,
    x: Value,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value = None,
) -> Value:
    """How many edges lie before each number, or up to it. A NaN comes after all."""
    if not hasattr(x, "shape"):
        x = op.CastLike(op.Constant(value_float=float(x)), edges)
    several = len(edges.shape) > 1
    if sorter is not None:
        edges = op.GatherElements(edges, sorter, axis=-1)
    after = op.Greater if right or side == "right" else op.GreaterOrEqual
    own_edges = op.Unsqueeze(edges, [-2]) if several else edges
    beyond = after(own_edges, op.Unsqueeze(x, [-1]))
    counted = op.ReduceSum(op.Cast(op.Not(beyond), to=INT64.dtype), [-1], keepdims=0)
    return op.Cast(counted, to=INT32.dtype) if out_int32 else counted


def running(reduce: Translation, which: Translation, x: Value, dim: int) -> tuple[Value, Value]:
    """The largest or smallest of the numbers so far, and where the last such lies. A number stands for those to come."""
    if not x.shape:
        return op.Identity(x), op.Constant(value_int=0)
    axis = dim % len(x.shape)
    there = op.Range(0, op.Squeeze(size_of(x, axis)), 1)
    seen = op.Gather(x, op.Min(op.Unsqueeze(there, [1]), there), axis=axis)
    found = which(seen, axis=axis + 1, keepdims=0, select_last_index=1)
    own = op.Reshape(there, [-1, *[1] * (len(x.shape) - 1 - axis)])
    return reduce(seen, [axis + 1], keepdims=0), op.Min(found, own)
