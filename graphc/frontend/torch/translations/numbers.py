"""Functions of numbers, their distances, pools, and numbers by chance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from onnx_ir import tensor
from onnxscript import FLOAT, INT64

from graphc.frontend.torch.translations.graph import Translation, Value, op
from graphc.frontend.torch.translations.order import is_nan

EUCLIDEAN_ROWS = 25
"""Up to so many rows PyTorch computes distances by differences, and beyond by a product of matrices."""


def of_numbers(name: str) -> Translation:
    """A function of `math` as `torch.compile` writes it where a number is free."""

    def translated(x: Value) -> Value:
        return getattr(op, name)(op.Cast(x, to=FLOAT.dtype))

    return translated


def subtracted(x: Value, other: Any, alpha: float = 1) -> Value:
    """A number minus some. The exporter cannot tell in which type whole ones are subtracted from a float."""
    kind = getattr(other, "dtype", None)
    if not x.dtype.is_floating_point() and (isinstance(other, float) or (kind and kind.is_floating_point())):
        x = op.Cast(x, to=FLOAT.dtype)
    return op.Sub(op.CastLike(other, x), x if alpha == 1 else op.Mul(x, op.CastLike(alpha, x)))


def grouped_products(x: Value, weights: Value, ends: Value, bias: Value = None, out_dtype: int | None = None) -> Value:
    """Rows of which each group is multiplied by a matrix of its own: how mixtures of experts compute. `ends` says where groups
    end; rows after the last one are zero."""
    if ends is None or bias is not None or len(x.shape) != 2 or len(weights.shape) != 3:
        raise ValueError("only rows are multiplied in groups, by a matrix for each, and nothing is added")
    start, made = op.Constant(value_int=0), []
    for group in range(weights.shape[0]):
        end = op.Cast(op.Gather(ends, group), to=INT64.dtype)
        rows = op.Gather(x, op.Range(start, end, 1))
        made.append(op.MatMul(rows, op.Gather(weights, group)))
        start = end
    shape = op.Concat(op.Shape(x, end=1), op.Shape(weights, start=2), axis=0)
    rest = op.Expand(op.CastLike(0.0, x), shape)
    result = op.Slice(op.Concat(*made, rest, axis=0), [0], op.Shape(x, end=1), [0])
    return result if out_dtype in (-1, None) else op.Cast(result, to=out_dtype)


def product(x: Value, dims: Sequence[int] | None, output_dtype: int = -1) -> Value:
    """Over some axes, or all."""
    x = x if output_dtype in (-1, None) else op.Cast(x, to=output_dtype)
    return op.ReduceProd(x, *([] if dims is None else [op.Constant(value_ints=list(dims))]), keepdims=0)


def number_of(choose: Translation, x: Value, y: Value) -> Value:
    """The smaller or larger of two, and the other one where one is NaN."""
    return op.Where(is_nan(x), y, op.Where(is_nan(y), x, choose(x, y)))


def sign_bit(x: Value) -> Value:
    """Where numbers are negative, negative zero among them."""
    if not x.dtype.is_floating_point():
        return op.Less(x, 0)
    return op.Less(op.Where(op.Equal(x, 0.0), op.Reciprocal(x), x), 0.0)


def copied(x: Value, source: Value, non_blocking: bool = False) -> Value:
    """Another tensor, in the shape and type of x."""
    source = source if source.dtype == x.dtype else op.CastLike(source, x)
    return op.Expand(source, op.Shape(x))


def with_sign(x: Value, y: Value) -> Value:
    """Numbers with the signs of others, those of zeros too."""
    return op.Where(sign_bit(y), op.Neg(op.Abs(x)), op.Abs(x))


def hypotenuse(x: Value, y: Value) -> Value:
    """The root of the sum of both squares, which do not overflow: what is larger is taken out."""
    x, y = op.Abs(x), op.Abs(y)
    large, small = op.Max(x, y), op.Min(x, y)
    part = op.Where(op.Equal(small, large), op.CastLike(1.0, x), op.Div(small, large))
    return op.Where(op.Equal(large, 0.0), large, op.Mul(large, op.Sqrt(op.Add(op.Mul(part, part), 1.0))))


def distances(x: Value, y: Value, p: float, compute_mode: int | None = None) -> Value:
    """Of each row of x to each row of y."""
    rows = [each.shape[-2] for each in (x, y)]
    many = any(not isinstance(size, int) or size > EUCLIDEAN_ROWS for size in rows)
    if p == 2 and (compute_mode == 1 or (many and compute_mode != 2)):
        squares = [op.ReduceSum(op.Mul(each, each), [-1]) for each in (x, y)]
        across = [*range(len(y.shape) - 2), len(y.shape) - 1, len(y.shape) - 2]
        both = op.MatMul(op.Mul(x, -2.0), op.Transpose(y, perm=across))
        found = op.Add(op.Add(both, squares[0]), op.Transpose(squares[1], perm=across))
        return op.Sqrt(op.Max(found, op.CastLike(0.0, x)))
    x, y = (op.Unsqueeze(each, [axis]) for each, axis in ((x, -2), (y, -3)))
    return norm(op.Abs(op.Sub(x, y)), p)


def norm(x: Value, p: float) -> Value:
    """Of what is not negative, over the last axis."""
    if p == 0:
        return op.ReduceSum(op.CastLike(op.Not(op.Equal(x, 0.0)), x), [-1], keepdims=0)
    reduce = {1: op.ReduceSum, 2: op.ReduceL2, float("inf"): op.ReduceMax}.get(p)
    if reduce is not None:
        return reduce(x, [-1], keepdims=0)
    return op.Pow(op.ReduceSum(op.Pow(x, p), [-1], keepdims=0), 1 / p)


def windows(size: int, count: int) -> list[range]:
    """The parts of an axis of which a pool of so many makes one number each; they may overlap."""
    return [range(index * size // count, -(-(index + 1) * size // count)) for index in range(count)]


def mean_of_windows(x: Value, output_size: Sequence[int]) -> Value:
    """Along each axis a product with the shares that numbers have in the means."""
    rank = len(x.shape)
    made = x
    for axis, count in zip(range(rank - len(output_size), rank), output_size, strict=True):
        shares = torch.zeros(x.shape[axis], count)
        for index, window in enumerate(windows(x.shape[axis], count)):
            shares[window, index] = 1 / len(window)
        last = [*(each for each in range(rank) if each != axis), axis]
        made = op.MatMul(op.Transpose(made, perm=last), op.CastLike(constant(shares), x))
        made = op.Transpose(made, perm=[last.index(each) for each in range(rank)])
    return made


def largest_of_windows(x: Value, output_size: Sequence[int]) -> tuple[Value, Value]:
    """The largest number of each window of a plane, and where in the plane it lies. Smaller windows hold their last number more
    than once."""
    height, width = x.shape[-2:]
    axis = len(x.shape) - 2
    rows, columns = (filled_windows(*each) for each in zip((height, width), output_size, strict=True))
    places = constant((rows[:, None, :, None] * width + columns[None, :, None, :]).flatten(2))
    taken = op.Gather(op.Reshape(x, [0] * axis + [-1]), places, axis=axis)
    first = op.ArgMax(taken, axis=-1, keepdims=1)
    found = op.GatherElements(op.Expand(places, op.Shape(taken)), first, axis=-1)
    return op.ReduceMax(taken, [-1], keepdims=0), op.Squeeze(found, [-1])


def filled_windows(size: int, count: int) -> torch.Tensor:
    """The windows of an axis, all as long as the longest."""
    parts = windows(size, count)
    longest = max(map(len, parts))
    return torch.tensor([[*part, *[part[-1]] * (longest - len(part))] for part in parts])


def leaky(
    x: Value, noise: Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> tuple[Value, Value]:
    """`F.rrelu` in evaluation, where the slope is the mean one."""
    if training:
        raise ValueError("slopes are random in training")
    return op.LeakyRelu(x, alpha=(lower + upper) / 2), op.Identity(noise)


def constant(made: torch.Tensor) -> Value:
    """A tensor as part of the graph."""
    return op.Constant(value=tensor(made.numpy()))


def of_fixed(make: Translation, *arguments: Any, dtype: int = -1, **settings: Any) -> Value:
    """What PyTorch makes of numbers alone."""
    made = constant(make(*arguments, dtype=torch.float64))
    return op.Cast(made, to=FLOAT.dtype if dtype in (-1, None) else dtype)


def uniform(shape: Any, *, low: float, high: float, dtype: int, **settings: Any) -> Value:
    """Random numbers."""
    return op.RandomUniformLike(op.ConstantOfShape(shape), low=float(low), high=float(high), dtype=dtype)


def permutation(n: Value, dtype: int = INT64.dtype, **settings: Any) -> Value:
    """The order in which random numbers lie."""
    count = op.Constant(value_ints=[n]) if isinstance(n, int) else op.Reshape(n, [1])
    _, order = op.TopK(op.RandomUniformLike(op.ConstantOfShape(count), dtype=FLOAT.dtype), count)
    return op.Cast(order, to=INT64.dtype if dtype in (-1, None) else dtype)


def scattered(
    usual: Translation, x: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool = True
) -> Value:
    """Means, for which ONNX has no reduction: of sums and of how many there are. The others as they are."""
    if reduce != "mean":
        return usual(x, dim, index, src, reduce, include_self=include_self)
    total, count = x, op.Expand(op.CastLike(1.0, x), op.Shape(x))
    scatter = partial(op.ScatterElements, axis=dim)
    ones = op.Expand(op.CastLike(1.0, x), op.Shape(index))
    if not include_self:
        nothing = op.Mul(ones, 0.0)
        total, count = scatter(total, index, nothing), scatter(count, index, nothing)
    src = op.Slice(src, [0] * len(src.shape), op.Shape(index))
    return op.Div(scatter(total, index, src, reduction="add"), scatter(count, index, ones, reduction="add"))


def chosen(x: Value, mask: Value) -> Value:
    """The numbers that a mask chooses, in one row."""
    if list(x.shape) != list(mask.shape):
        shape = op.Shape(op.Or(op.Equal(x, x), mask))
        x, mask = op.Expand(x, shape), op.Expand(mask, shape)
    return op.Compress(op.Reshape(x, [-1]), op.Reshape(mask, [-1]), axis=0)
