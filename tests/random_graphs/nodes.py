"""The operators that graphs are drawn of: for each, a function that draws its inputs and attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx.helper import np_dtype_to_tensor_dtype

from .drawing import ANY, BOOL, F32, F64, FLOATS, I32, I64, INTEGERS, NUMBERS, U8, Drawing, Tensor, broadcast

Node = Callable[[Drawing], object]
REAL = (F32, F64)


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


def one_hot(d: Drawing) -> object:
    depth = d.number(1, 4)
    values = d.leaf(d.array(d.pick((F32, I64, I32)), (2,)), constant=True)
    places = indices(d, depth + 1, d.shape(0, 3))
    return d.add("OneHot", places, d.ints([depth]), values, exact=True, axis=d.number(-places.rank - 1, places.rank))


def trilu(d: Drawing) -> object:
    x = d.tensor(ANY, low=2)
    return d.add("Trilu", x, d.leaf(np.array(d.number(-3, 3), I64), constant=True), exact=True, upper=d.number(0, 1))


def matmul(d: Drawing) -> object:
    a = d.tensor((F32, F32, F64, I32), low=1, high=5)
    shape = [
        *([d.pick((1, n)) for n in a.shape[:-2]][d.number(0, 3) :]),
        a.shape[-1],
        *([d.number(1, 5)] if d.flag() else []),
    ]
    shape = shape if len(shape) > 1 or d.flag() else [*shape, 3]
    shape = shape[-2:] if a.rank == 1 and len(shape) > 2 else shape
    return d.add("MatMul", a, d.leaf(d.array(a.dtype, shape)), exact=a.dtype.kind == "i")


def gemm(d: Drawing) -> object:
    a = d.tensor((F32, F32, F64), low=2, high=2)
    turned, other = d.number(0, 1), d.number(0, 1)
    inner, rows = (a.shape[0], a.shape[1]) if turned else (a.shape[1], a.shape[0])
    columns = d.number(1, 5)
    b = d.leaf(d.array(a.dtype, (columns, inner) if other else (inner, columns)))
    c = d.pick([None, (), (1,), (columns,), (rows, 1), (rows, columns), (1, columns)])
    settings = {"transA": turned, "transB": other, "alpha": d.pick((1.0, 0.5)), "beta": d.pick((1.0, -2.0))}
    return d.add("Gemm", a, b, *([] if c is None else [d.leaf(d.array(a.dtype, c))]), **settings)


def windows(d: Drawing, spatial: int, dilated: bool = True) -> dict[str, object]:
    """A kernel, strides, dilations, and padding by numbers or by a rule."""
    result: dict[str, object] = {
        "kernel_shape": [d.number(1, 3) for _ in range(spatial)],
        "strides": [d.number(1, 3) for _ in range(spatial)],
    }
    if dilated and d.flag():
        result["dilations"] = [d.number(1, 2) for _ in range(spatial)]
    rule = d.pick(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if rule == "NOTSET":
        result["pads"] = [d.number(0, kernel - 1) for kernel in result["kernel_shape"] * 2]  # type: ignore[operator]
    elif rule == "VALID" or "dilations" not in result:
        result["auto_pad"] = rule
    return result


def image(d: Drawing, low: int = 3) -> Tensor:
    """Something with a batch, channels, and one to three spatial axes."""
    return d.tensor((F32,), low=low, high=5, finite=True)


def conv(d: Drawing) -> object:
    x = image(d)
    channels = x.shape[1]
    group = d.pick([n for n in range(1, channels + 1) if channels % n == 0])
    settings = windows(d, x.rank - 2)
    out = group * d.number(1, 2)
    weight = d.leaf(d.array(F32, (out, channels // group, *settings["kernel_shape"])))  # type: ignore[misc]
    bias = [d.leaf(d.array(F32, (out,)))] if d.flag() else []
    return d.add("Conv", x, weight, *bias, group=group, **settings)


def conv_transpose(d: Drawing) -> object:
    x = image(d)
    channels = x.shape[1]
    group = d.pick([n for n in range(1, channels + 1) if channels % n == 0])
    spatial = x.rank - 2
    kernel = [d.number(1, 3) for _ in range(spatial)]
    settings: dict[str, object] = {"strides": [d.number(1, 3) for _ in range(spatial)], "group": group}
    settings["pads"] = [d.number(0, (size - 1) // 2) for size in kernel * 2]
    settings["dilations"] = [d.number(1, 2) for _ in range(spatial)]
    settings["output_padding"] = [d.number(0, stride - 1) for stride in settings["strides"]]  # type: ignore[attr-defined]
    weight = d.leaf(d.array(F32, (channels, d.number(1, 2), *kernel)))
    return d.add("ConvTranspose", x, weight, **settings)


def max_pool(d: Drawing) -> object:
    x = image(d)
    return d.add("MaxPool", x, exact=True, ceil_mode=d.number(0, 1), **windows(d, x.rank - 2))


def average_pool(d: Drawing) -> object:
    x = image(d)
    more = {"ceil_mode": d.number(0, 1), "count_include_pad": d.number(0, 1)}
    return d.add("AveragePool", x, **more, **windows(d, x.rank - 2))


def normalization(operator: str) -> Node:
    def node(d: Drawing) -> object:
        x = d.tensor((F32,), low=1 if operator == "LayerNormalization" else 3)
        if operator == "LayerNormalization":
            axis = d.axis(x)
            shapes, settings = [x.shape[axis:]] * d.number(1, 2), {"axis": axis}
        elif operator == "BatchNormalization":
            shapes, settings = [x.shape[1:2]] * 4, {}
        else:
            shapes, settings = [x.shape[1:2]] * 2, {}
        scale = [d.leaf(d.array(F32, shape)) for shape in shapes]
        if operator == "BatchNormalization":
            scale[3] = d.leaf(np.abs(scale[3].array) + 1)
        return d.add(operator, x, *scale, epsilon=0.5, **settings)

    return node


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


def einsum(d: Drawing) -> object:
    x = d.tensor(REAL, low=2, high=3)
    letters = "abc"[: x.rank]
    other = d.leaf(d.array(x.dtype, (x.shape[-1], d.number(1, 3))))
    result = "".join(d.pick([list(letters[:-1] + "z"), list("z" + letters[:-1]), ["z"]]))
    return d.add("Einsum", x, other, equation=f"{letters},{letters[-1]}z->{result}")


def quantize(d: Drawing) -> object:
    x = d.tensor((F32,), exact=True)
    scale = d.leaf(np.array(d.pick([0.25, 0.5, 1.0]), F32), constant=True)
    zero = d.leaf(np.array(d.number(0, 9), U8), constant=True)
    (y,) = d.add("QuantizeLinear", x, scale, zero, exact=True)
    return d.add("DequantizeLinear", y, scale, zero, exact=True)


NODES: dict[str, Node] = {
    **{name: unary(name, exact=True) for name in ("Neg", "Abs", "Relu")},
    **{name: unary(name, jumps=True, exact=True) for name in ("Floor", "Ceil", "Round", "Sign")},
    **{name: unary(name, (I64, I32), exact=True) for name in ("Neg", "Abs", "Sign", "Relu")},
    **{name: unary(name, REAL) for name in ("Exp", "Log", "Sqrt", "Reciprocal", "Sin", "Cos", "Tan", "Atan", "Asinh", "Sinh",
        "Cosh", "Tanh", "Sigmoid", "Softplus", "Softsign", "Mish", "Acos", "Asin", "Atanh", "Acosh")},
    **{name: unary(name, (BOOL,), exact=True) for name in ("Not",)},
    **{name: unary(name, INTEGERS, exact=True) for name in ("BitwiseNot",)},
    **{name: unary(name, REAL, exact=True) for name in ("IsNaN", "IsInf")},
    "Erf": unary("Erf", (F32,)),  # the reference computes it in float32
    "HardSwish": unary("HardSwish", (F32,)),  # in float64 others compute with 1/6 of float32
    "Identity": unary("Identity", ANY, exact=True),
    "Gelu": lambda d: d.add("Gelu", d.tensor((F32,)), approximate=d.pick(["none", "tanh"])),
    "LeakyRelu": parametric("LeakyRelu", alpha=(-1, 1)),
    "Elu": parametric("Elu", alpha=(-1, 2)),
    "Selu": parametric("Selu", alpha=(0, 2), gamma=(0, 2)),
    "Celu": lambda d: d.add("Celu", d.tensor((F32,)), alpha=d.number(1, 8) / 4),
    "HardSigmoid": parametric("HardSigmoid", alpha=(-1, 1), beta=(-1, 1)),
    "ThresholdedRelu": parametric("ThresholdedRelu", alpha=(-1, 1)),
    "Shrink": parametric("Shrink", bias=(-1, 1), lambd=(0, 1)),
    **{name: binary(name) for name in ("Add", "Sub", "Mul")},
    **{name: variadic(name, (*FLOATS, I64, I32), True) for name in ("Max", "Min")},
    **{name: variadic(name, REAL, False) for name in ("Sum", "Mean")},
    **{name: binary(name, (F32, F64, I64, I32), jumps=True)
       for name in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")},
    **{name: binary(name, (BOOL,)) for name in ("And", "Or", "Xor")},
    **{name: binary(name, INTEGERS) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    "Div": division("Div"),
    "Mod": division("Mod"),
    "Fmod": division("Mod", fmod=1),
    "Pow": power,
    "PRelu": lambda d: d.add("PRelu", x := d.tensor(REAL), d.leaf(d.array(x.dtype, x.shape[d.number(0, x.rank) :]))),
    "Where": where,
    "Cast": cast,
    "Clip": clip,
    **{name: reduction(name, (F32, F64, I64, I32), exact=True) for name in ("ReduceMax", "ReduceMin")},
    **{name: reduction(name, (F32, F64, I32)) for name in ("ReduceSum", "ReduceProd", "ReduceL1")},
    **{name: reduction(name, REAL) for name in ("ReduceMean", "ReduceSumSquare", "ReduceL2", "ReduceLogSumExp", "ReduceLogSum")},
    "ArgMax": extreme_place("ArgMax"),
    "ArgMin": extreme_place("ArgMin"),
    "TopK": top_k,
    **{name: along(name) for name in ("Softmax", "LogSoftmax")},
    "Hardmax": lambda d: d.add("Hardmax", x := d.tensor(REAL, low=1, exact=True), exact=True, axis=d.axis(x)),
    "LpNormalization": lambda d: d.add("LpNormalization", x := d.tensor(REAL, low=1), axis=d.axis(x), p=d.number(1, 2)),
    "CumSum": cumulative,
    "Transpose": transpose,
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Expand": expand,
    "Tile": tile,
    "Concat": concat,
    "Split": split,
    "Slice": slice_,
    "Pad": pad,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "ScatterElements": scatter_elements,
    "OneHot": one_hot,
    "Trilu": trilu,
    "MatMul": matmul,
    "Gemm": gemm,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    **{name: lambda d, name=name: d.add(name, image(d)) for name in ("GlobalAveragePool", "GlobalMaxPool")},
    **{name: normalization(name) for name in ("LayerNormalization", "InstanceNormalization", "BatchNormalization")},
    "DepthToSpace": depth("DepthToSpace"),
    "SpaceToDepth": depth("SpaceToDepth"),
    "Resize": resize,
    "Einsum": einsum,
    "QuantizeLinear": quantize,
    "Shape": lambda d: d.add("Shape", d.tensor(ANY), exact=True),
    "Size": lambda d: d.add("Size", d.tensor(ANY), exact=True),
}  # fmt: skip
"""A node by its name here; what it draws may be rejected."""
