"""What PyTorch's exporter has no form in ONNX for, or a wrong one, as ONNX operators.

A translation is called with what the operator is called with, tensors being values of the ONNX graph, and types numbers of ONNX.
Complex tensors are real ones whose last axis holds the two parts of a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from onnx_ir import DataType, Shape, tensor
from onnxscript import BOOL, COMPLEX64, COMPLEX128, DOUBLE, FLOAT, INT32, INT64, opset18
from torch.overrides import TorchFunctionMode

Value = Any
"""A value of the ONNX graph."""

Translation = Callable[..., Any]

op: Any = opset18
"""ONNX's operators, which take numbers and lists of such for values too."""

EUCLIDEAN_ROWS = 25
"""Up to so many rows PyTorch computes distances by differences, and beyond by a product of matrices."""

PARTS: Mapping[int, int] = {COMPLEX64.dtype: FLOAT.dtype, COMPLEX128.dtype: DOUBLE.dtype}
"""Complex types, and the type of each part."""


class TracedData(TorchFunctionMode):
    """Has the exporter see what is done with a tensor's `data`, which it takes for a constant."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of PyTorch's."""
        if func == torch.Tensor.data.__get__:  # type: ignore[attr-defined]
            return args[0].detach()
        return func(*args, **(kwargs or {}))


def known(name: str) -> Any:
    """The operator that PyTorch calls so, or None if this version has none."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def of_numbers(name: str) -> Translation:
    """A function of `math` as `torch.compile` writes it where a number is free."""

    def translated(x: Value) -> Value:
        return getattr(op, name)(op.Cast(x, to=FLOAT.dtype))

    return translated


# Sizes and axes.


def size_of(x: Value, axis: int) -> Value:
    """The size of an axis, as a list of one."""
    axis %= len(x.shape)
    size = x.shape[axis]
    return op.Constant(value_ints=[size]) if isinstance(size, int) else op.Shape(x, start=axis, end=axis + 1)


def squeeze_axes(x: Value, axes: Sequence[int]) -> Value:
    """Without those of the axes whose size is 1; ONNX refuses others, which PyTorch keeps."""
    unit = [axis for axis in axes if x.shape and x.shape[axis] == 1]
    return op.Squeeze(x, unit) if unit else op.Identity(x)


def squeeze_axis(x: Value, dim: int) -> Value:
    """Without this axis if its size is 1."""
    return squeeze_axes(x, [dim])


def squeeze_complex(x: Value, dim: int | Sequence[int]) -> Value:
    """Without those of the axes whose size is 1, of complex numbers."""
    axes = [dim] if isinstance(dim, int) else dim
    return squeeze_axes(x, [before_parts(axis) for axis in axes] if len(x.shape) > 1 else [])


def like(x: Value, made: Value, shape: Sequence[Any]) -> Value:
    """A value that was made on the way, of the type of x and this shape, as the next ones are to know it."""
    made.dtype, made.shape = x.dtype, Shape(shape)
    return made


# Order.


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


# Numbers.


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


# Complex numbers.


def before_parts(axis: int) -> int:
    """An axis of complex numbers among those of the real tensor."""
    return axis - 1 if axis < 0 else axis


MOVED: Mapping[str, Callable[[Any], Any]] = {
    "dim": before_parts,
    "dims": lambda dims: [*map(before_parts, dims)],
    "size": lambda sizes: [*sizes, 2],
    "shape": lambda sizes: [*sizes, 2],
    "repeats": lambda counts: [*counts, 1],
    "pad": lambda counts: [0, 0, *counts],
}
"""What operators call their axes, sizes and counts per axis, and what these are for the real tensor."""

OTHER: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "aten.tile.default": {"dims": MOVED["repeats"]},
    "aten.repeat_interleave.self_int": {"repeats": lambda count: count},
}
"""Operators that call other things so."""


def with_parts(target: Any, real: Translation, name: str) -> Translation:
    """The translation of an operator that leaves the parts together, for complex numbers, by the one for real numbers."""
    names = [each.name for each in target._schema.arguments]
    moved = {**MOVED, **OTHER.get(name, {})}

    def translated(*arguments: Any, **keywords: Any) -> Any:
        given = dict(zip(names, arguments, strict=False)) | keywords
        for each in target._schema.arguments:
            if each.name in moved and (each.name in given or each.has_default_value()):
                given[each.name] = moved[each.name](given.get(each.name, each.default_value))
        if given.get("value"):
            raise ValueError("complex numbers are padded with zeros alone")
        ordered = [given.pop(each) for each in names[: len(arguments)]]
        return real(*ordered, **given)

    return translated


def apart(target: Any, real: Translation, name: str) -> Translation:
    """The translation of an operator that does the same with both parts, by the one for real numbers."""

    def translated(x: Value, *arguments: Any, **keywords: Any) -> Value:
        shape = x.shape[:-1]
        return join(*(real(like(x, op.Squeeze(part, [-1]), shape), *arguments, **keywords) for part in parts(x)))

    return translated


def parts(z: Value) -> tuple[Value, Value]:
    """Real and imaginary parts, each with a last axis of size 1."""
    return op.Slice(z, [0], [1], [-1]), op.Slice(z, [1], [2], [-1])


def join(real: Value, imaginary: Value) -> Value:
    """Complex numbers of their parts."""
    return op.Concat(op.Unsqueeze(real, [-1]), op.Unsqueeze(imaginary, [-1]), axis=-1)


def number(given: complex, dtype: int) -> Value:
    """A number as its parts."""
    whole = complex(given)
    return op.Constant(value=tensor([whole.real, whole.imag], dtype=DataType(dtype)))


def filled_where_complex(value: complex | None, usual: Translation) -> Translation:
    """`torch.full` and the like for complex types too; with `value`, of that."""

    def translated(size: Sequence[Any], *arguments: Any, **settings: Any) -> Value:
        given = arguments[0] if value is None else value
        dtype = settings.get("dtype", -1)
        if dtype not in PARTS and isinstance(given, complex):
            dtype = COMPLEX64.dtype
        if dtype not in PARTS:
            return usual(size, *arguments, **settings)
        return op.Expand(number(given, PARTS[dtype]), [*size, 2])

    return translated


def filled_like(value: complex | None, z: Value, *arguments: Any, dtype: int = -1, **settings: Any) -> Value:
    """`torch.full_like` and the like of a complex tensor."""
    given: Any = arguments[0] if value is None else value
    if dtype in (-1, None) or dtype in PARTS:
        return op.Expand(number(given, PARTS.get(dtype, z.dtype)), op.Shape(z))
    return op.Expand(op.Cast(op.Constant(value_float=float(given)), to=dtype), op.Shape(z, end=-1))


def new_filled(
    value: complex | None, z: Value, size: Sequence[Any], *arguments: Any, dtype: int = -1, **settings: Any
) -> Value:
    """`Tensor.new_full` and the like of a complex tensor."""
    given: Any = arguments[0] if value is None else value
    if dtype in (-1, None) or dtype in PARTS:
        return op.Expand(number(given, PARTS.get(dtype, z.dtype)), [*size, 2])
    return op.Expand(op.Cast(op.Constant(value_float=float(given)), to=dtype), size)


def copied_complex(z: Value, source: Value, non_blocking: bool = False) -> Value:
    """Complex numbers in the type of z. With fewer axes they could be real ones."""
    if len(source.shape) != len(z.shape):
        raise ValueError("numbers are copied for several complex ones")
    return copied(z, source)


def cast_complex(z: Value, dtype: int = -1, **settings: Any) -> Value:
    """To a complex type, or of the real parts to a real one."""
    if dtype in (-1, None):
        return op.Identity(z)
    if dtype in PARTS:
        return op.Cast(z, to=PARTS[dtype])
    return op.Cast(op.Squeeze(parts(z)[0], [-1]), to=dtype)


def gather_complex(z: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    """`torch.gather` of complex numbers: both parts of each."""
    wide = op.Expand(op.Unsqueeze(index, [-1]), [1] * len(index.shape) + [2])
    return op.GatherElements(z, wide, axis=before_parts(dim))


def where_complex(condition: Value, x: Value, y: Value) -> Value:
    """`torch.where` for complex numbers: both parts of each."""
    return op.Where(op.Unsqueeze(condition, [-1]), x, y)


def masked_fill_complex(z: Value, mask: Value, value: Any) -> Value:
    """`torch.masked_fill` of complex numbers with a number."""
    if not isinstance(value, int | float | complex):
        raise ValueError("a tensor fills complex numbers")
    return op.Where(op.Unsqueeze(mask, [-1]), number(value, z.dtype), z)


def fill_complex(z: Value, value: Any) -> Value:
    """Of the shape of z, with a number or with the one of a tensor, which may be a real one."""
    if not hasattr(value, "shape"):
        return filled_like(None, z, value)
    if not value.shape:
        value = op.Concat(op.Reshape(op.CastLike(value, z), [1]), op.CastLike([0.0], z), axis=0)
    return op.Expand(value, op.Shape(z))


def multiply(x: Value, y: Value) -> Value:
    """Of complex numbers."""
    (a, b), (c, d) = parts(x), parts(y)
    return op.Concat(op.Sub(op.Mul(a, c), op.Mul(b, d)), op.Add(op.Mul(a, d), op.Mul(b, c)), axis=-1)


def multiply_number(z: Value, factor: complex) -> Value:
    """Complex numbers times one."""
    return multiply(z, number(factor, z.dtype))


def exponential(z: Value) -> Value:
    """Of complex numbers."""
    real, imaginary = parts(z)
    return op.Mul(op.Exp(real), op.Concat(op.Cos(imaginary), op.Sin(imaginary), axis=-1))


def power(z: Value, exponent: complex) -> Value:
    """A small whole power, by products."""
    if exponent not in (1, 2, 3, 4):
        raise ValueError(f"complex numbers to the power of {exponent}")
    found = z
    for _ in range(int(exponent.real) - 1):
        found = multiply(found, z)
    return op.Identity(found)


def equal_complex(x: Value, y: Value) -> Value:
    """Where both parts are."""
    y = y if hasattr(y, "shape") else number(y, x.dtype)
    same = op.Cast(op.Equal(x, y), to=INT32.dtype)
    return op.Cast(op.ReduceMin(same, [-1], keepdims=0), to=BOOL.dtype)


def unequal_complex(x: Value, y: Value) -> Value:
    """Where a part differs."""
    return op.Not(equal_complex(x, y))


def either_part(test: Translation, z: Value) -> Value:
    """Where a test holds of a part."""
    found = op.Cast(test(z), to=INT32.dtype)
    return op.Cast(op.ReduceMax(found, [-1], keepdims=0), to=BOOL.dtype)


NUMBERS = {
    getattr(torch, f"_sym_{name.lower()}", None): of_numbers(name)
    for name in ("Sqrt", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh")
}
"""Functions of `math`."""

WINDOWS = (
    *("aten.hamming_window." + each for each in ("default", "periodic", "periodic_alpha", "periodic_alpha_beta")),
    *("aten.kaiser_window." + each for each in ("default", "periodic", "beta")),
    "aten.fft_fftfreq.default",
    "aten.fft_rfftfreq.default",
)
"""What is computed of numbers alone."""

REAL: Mapping[str, Translation] = {
    "aten.squeeze.dim": squeeze_axis,
    "aten.squeeze.dims": squeeze_axes,
    "aten.kthvalue.default": kth_value,
    "aten.median.dim": median,
    "aten.median.default": partial(of_all, median),
    "aten.nanmedian.dim": median_of_numbers,
    "aten.nanmedian.default": partial(of_all, median_of_numbers),
    "aten.searchsorted.Tensor": search_sorted,
    "aten.searchsorted.Scalar": search_sorted,
    "aten.cummax.default": partial(running, op.ReduceMax, op.ArgMax),
    "aten.cummin.default": partial(running, op.ReduceMin, op.ArgMin),
    "prims.prod.default": product,
    "prims.fmax.default": partial(number_of, op.Max),
    "prims.fmin.default": partial(number_of, op.Min),
    "aten.copy.default": copied,
    "aten.signbit.default": sign_bit,
    "aten.copysign.Tensor": with_sign,
    "prims.uniform.default": uniform,
    "aten.rrelu_with_noise_functional.default": leaky,
    "prims.hypot.default": hypotenuse,
    "aten._cdist_forward.default": distances,
    "aten._adaptive_avg_pool3d.default": mean_of_windows,
    "aten.adaptive_max_pool2d.default": largest_of_windows,
    "aten.randperm.default": permutation,
    "aten.masked_select.default": chosen,
    "aten._neg_view.default": op.Neg,
    **{name: partial(of_fixed, known(name)) for name in WINDOWS},
}
"""Operators that the exporter has no form for, or one that is not right."""

WITHOUT: Mapping[str, tuple[str, str]] = {
    "aten.randn.generator": ("aten.randn.default", "generator"),
    "aten.rand.generator": ("aten.rand.default", "generator"),
    "aten.sort.stable": ("aten.sort.default", "stable"),
}
"""Operators that are others for which the exporter has a form, with one argument more that says nothing: order is stable."""

CHANGED: Mapping[str, Callable[[Translation], Translation]] = {
    "aten.scatter_reduce.two": lambda usual: partial(scattered, usual),
    "aten.full.default": partial(filled_where_complex, None),
    "aten.zeros.default": partial(filled_where_complex, 0),
    "aten.ones.default": partial(filled_where_complex, 1),
    "aten.empty.memory_format": partial(filled_where_complex, 0),
}
"""Operators whose form is made of the one that the exporter has."""

TOGETHER = (
    *("unsqueeze.default", "expand.default", "select.int", "split_with_sizes.default", "split.Tensor", "split.sizes"),
    *("chunk.default", "unbind.int", "repeat.default", "tile.default", "reshape.default", "alias.default"),
    *("detach.default", "lift_fresh_copy.default", "contiguous.default", "embedding.default", "index.Tensor"),
    *("index_select.default", "repeat_interleave.self_int", "cumsum.default", "pad.default", "constant_pad_nd.default"),
    *("slice_scatter.default", "select_scatter.default", "index_put.default", "squeeze.default", "narrow.default"),
    *("flatten.using_ints", "unflatten.int", "sym_size.int"),
)
"""Operators that leave both parts of complex numbers together."""

APART = ("tril.default", "triu.default", "diagonal.default")
"""Operators that do the same with both parts."""

COMPLEX: Mapping[str, Translation] = {
    "aten.squeeze.dim": squeeze_complex,
    "aten.squeeze.dims": squeeze_complex,
    "aten._to_copy.default": cast_complex,
    "prims.convert_element_type.default": cast_complex,
    "aten.gather.default": gather_complex,
    "aten.where.self": where_complex,
    "aten.masked_fill.Scalar": masked_fill_complex,
    "aten.fill.Scalar": fill_complex,
    "aten.fill.Tensor": fill_complex,
    "aten.mul.Scalar": multiply_number,
    "aten.exp.default": exponential,
    "aten.pow.Tensor_Scalar": power,
    "aten.square.default": lambda z: multiply(z, z),
    "aten.eq.Tensor": equal_complex,
    "aten.eq.Scalar": equal_complex,
    "aten.ne.Tensor": unequal_complex,
    "aten.ne.Scalar": unequal_complex,
    "aten.isnan.default": partial(either_part, op.IsNaN),
    "aten.isinf.default": partial(either_part, op.IsInf),
    "aten.zeros_like.default": partial(filled_like, 0),
    "aten.ones_like.default": partial(filled_like, 1),
    "aten.full_like.default": partial(filled_like, None),
    "aten.empty_like.default": partial(filled_like, 0),
    "aten.new_zeros.default": partial(new_filled, 0),
    "aten.new_ones.default": partial(new_filled, 1),
    "aten.new_full.default": partial(new_filled, None),
    "aten.copy.default": copied_complex,
}
"""Operators on complex numbers."""

SAME: Mapping[str, str] = {
    "aten.bmm.default": "aten.matmul.default",
    "prims.conj_physical.default": "aten._conj.default",
}
"""Operators on complex numbers that are others, for which the exporter has a form."""

LEFT = (
    "aten.cross_entropy_loss.default",
    "aten.atleast_1d.Sequence",
    "aten.atleast_2d.Sequence",
    "aten.atleast_3d.Sequence",
)
"""Operators of which the exporter has a form that is wrong, and which PyTorch takes apart itself."""


def real_translations() -> dict[Any, Translation]:
    """Each of the operators that PyTorch has with its translation, where that needs none of the exporter's."""
    named = {known(name): translation for name, translation in REAL.items()} | NUMBERS
    return {target: translation for target, translation in named.items() if target is not None}


def add_to(registry: Any) -> None:
    """Have the exporter's table of operators know these translations too."""
    add = _adding(registry)
    for target, translation in real_translations().items():
        add(target, translation)
    for name, (other, argument) in WITHOUT.items():
        if usual := _usual(registry, known(other)):
            add(known(name), _without(argument, usual))
    for name, change in CHANGED.items():
        if usual := _usual(registry, known(name)):
            add(known(name), change(usual))
    for names, how in ((TOGETHER, with_parts), (APART, apart)):
        for name in (f"aten.{each}" for each in names):
            target = known(name)
            if usual := _usual(registry, target):
                add(target, how(target, usual, name), is_complex=True)
    for name, translation in COMPLEX.items():
        if _usual(registry, known(name)):
            add(known(name), translation, is_complex=True)
    for name, other in SAME.items():
        if usual := _usual(registry, known(other), is_complex=True):
            add(known(name), usual, is_complex=True)
    for target in filter(None, map(known, LEFT)):
        registry.functions.pop(target.name(), None)


def _adding(registry: Any) -> Callable[..., None]:
    def add(target: Any, translation: Translation, is_complex: bool = False) -> None:
        if target is not None:
            registry.register_op(target, translation, is_complex=is_complex)

    return add


def _usual(registry: Any, target: Any, is_complex: bool = False) -> Translation | None:
    """The form that the exporter has for an operator on real or complex numbers."""
    found = () if target is None else registry.get_decomps(target)
    return next((each.onnx_function for each in found if each.is_complex == is_complex), None)


def _without(argument: str, usual: Translation) -> Translation:
    def translated(*arguments: Any, **keywords: Any) -> Any:
        return usual(*arguments, **{name: given for name, given in keywords.items() if name != argument})

    return translated
