"""What calls of ggml's compute, an element at a time: the expressions that kernels for devices are generated from.

An entry is a function of the call's arguments, in whose place tensors are `Array`s; it gives the array of the result. What it
cannot say exactly, it refuses with None: ggml computes that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from graphc.ggml_types import TYPES
from graphc.ir.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64
from graphc.kernels.gpu.tile import index as scalar
from graphc.kernels.scalar import Scalar, constant
from graphc.shapes import Dim, divisible
from graphc.targets.ggml.generate.arrays import (
    ZERO,
    Array,
    Index,
    K,
    computed,
    repeated,
    reshaped,
    shifted,
    unflat,
    viewed,
)
from graphc.targets.ggml.program.image_calls import conv_size
from graphc.targets.ggml.program.rules import RESHAPES
from graphc.targets.ggml.program.tensor import Constant, Quad, Tensor

DTYPES: dict[str, Any] = {
    "F32": F32,
    "F16": F16,
    "BF16": BF16,
    "I8": I8,
    "I16": I16,
    "I32": I32,
    "I64": I64,
    "F64": F64,
}
"""The dtype whose elements a tensor of a type has."""

Element = Callable[..., "Array | None"]
ELEMENTS: dict[str, Element] = {}
"""By the function's name. The first argument is the call's result, as the program declares it."""


def element(*functions: str) -> Callable[[Element], Element]:
    """Register what functions compute."""

    def register(body: Element) -> Element:
        ELEMENTS.update(dict.fromkeys(functions, body))
        return body

    return register


def wide(value: Scalar) -> Scalar:
    """A number of a narrow type as float32."""
    return K.cast(value, F32)


# Views


@element(*RESHAPES)
def _reshape(result: Tensor, a: Array, *sizes: Dim) -> Array:
    return reshaped(a, result.ne)


@element("ggml_permute")
def _permute(result: Tensor, a: Array, *axes: int) -> Array:
    return viewed(a, result.ne, lambda at: a.element((at[axes[0]], at[axes[1]], at[axes[2]], at[axes[3]])))


def view(result: Tensor, source: Tensor, a: Array, offset: Dim) -> Array | None:
    """A view of a tensor, whose strides say where it looks. See `generate.py`, which alone knows them."""
    size = TYPES[source.type].size
    start = shifted(result, source, offset)
    if start is not None:
        begins = [scalar(each) for each in start]
        return viewed(a, result.ne, lambda at: a.element(_moved(at, begins)))
    steps = [offset, *result.nb]
    if not source.contiguous or not all(divisible(step, size) for step in steps):
        return None
    first, *strides = (step // size for step in steps)

    def place(at: Index) -> Scalar:
        found = scalar(first)
        for entry, stride, count in zip(at, strides, result.ne, strict=True):
            found = found + entry * stride if count != 1 else found
        return found

    return viewed(a, result.ne, lambda at: a.element(unflat(place(at), a.ne)))


def _moved(at: Index, begins: list[Scalar]) -> Index:
    return at[0] + begins[0], at[1] + begins[1], at[2] + begins[2], at[3] + begins[3]


# One element of one


def _float(template: str) -> Callable[[Scalar], Scalar]:
    return lambda x: K.call(template, x)


def _sign(x: Scalar) -> Scalar:
    return K.select(x > 0, 1.0 + x * 0, K.select(x < 0, x * 0 - 1.0, x * 0))


SIGMOID = "fast_reciprocal(1 + fast_exp(-{0}))"
"""In five instructions: a quotient as exact as C's takes thirty, and a product's tail has one for each result."""

ERFC = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
"""erfc(z) = t (c_0 + c_1 t + …) e^(-z^2) with t = 1 / (1 + 0.3275911 z), for z from 0 on; the error is at most 1.5e-7
(Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26)."""


def _gelu_erf(x: Scalar) -> Scalar:
    """By as many instructions for all numbers: C's erf goes different ways, and takes three times as long."""
    z = K.call("fabs", x) * math.sqrt(0.5)
    t = K.call("fast_reciprocal({0})", K.call("fma", z, constant(0.3275911, F32), constant(1.0, F32)))
    series = constant(ERFC[-1], F32)
    for each in reversed(ERFC[:-1]):
        series = K.call("fma", series, t, constant(each, F32))
    half = series * t * K.call("fast_exp2({0})", z * z * -math.log2(math.e)) * 0.5
    return x * K.select(x < 0, half, 1.0 - half)


UNARY: dict[str, Callable[[Scalar], Scalar]] = {
    "abs": _float("fabs"), "neg": lambda x: -x, "exp": _float("exp"), "log": _float("log"), "sqrt": _float("sqrt"),
    "sqr": lambda x: x * x, "sin": _float("sin"), "cos": _float("cos"), "tanh": _float("tanh"),
    "relu": lambda x: x.maximum(0), "graphc_relu": lambda x: x.maximum(0),
    "sigmoid": _float(SIGMOID), "elu": lambda x: K.select(x > 0, x, K.call("expm1", x)),
    "hardswish": lambda x: x * ((x + 3.0) / 6.0).maximum(0).minimum(1), "floor": _float("floor"), "ceil": _float("ceil"),
    "round": _float("round"), "expm1": _float("expm1"), "silu": _float("({0} * " + SIGMOID + ")"),
    "gelu_erf": _gelu_erf, "sgn": _sign,
}  # fmt: skip


def _unary(function: Callable[[Scalar], Scalar]) -> Element:
    def body(result: Tensor, a: Array, *rest: Any) -> Array:
        return computed(result.ne, [a], lambda at: function(wide(a.element(at))), 4, DTYPES[result.type])

    return body


for _name, _function in UNARY.items():
    ELEMENTS[_name if _name.startswith("graphc_") else f"ggml_{_name}"] = _unary(_function)


@element("ggml_scale")
def _scale(result: Tensor, a: Array, factor: float) -> Array:
    return computed(result.ne, [a], lambda at: a.element(at) * factor)


@element("ggml_scale_bias")
def _scale_bias(result: Tensor, a: Array, factor: float, bias: float) -> Array:
    return computed(result.ne, [a], lambda at: a.element(at) * factor + bias)


@element("ggml_fill")
def _fill(result: Tensor, a: Array, value: float) -> Array:
    return computed(result.ne, [], lambda at: constant(value, F32))


@element("ggml_cont", "graphc_copy")
def _copy(result: Tensor, a: Array) -> Array:
    return viewed(a, result.ne, a.element)


@element("ggml_cast", "graphc_cast")
def _cast(result: Tensor, a: Array, type: Constant) -> Array:
    dtype = DTYPES[result.type]
    return computed(result.ne, [a], lambda at: K.cast(a.element(at), dtype), 1, dtype)


# One element of two


BINARY: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    "ggml_add": lambda a, b: a + b, "ggml_sub": lambda a, b: a - b,
    "ggml_mul": lambda a, b: a * b, "ggml_div": lambda a, b: a / b,
}  # fmt: skip


def _binary(function: Callable[[Scalar, Scalar], Scalar]) -> Element:
    def body(result: Tensor, a: Array, b: Array) -> Array:
        def value(at: Index) -> Scalar:
            return function(wide(a.element(at)), wide(repeated(b, at, result.ne)))

        return computed(result.ne, [a, b], value, 1, DTYPES[result.type])

    return body


for _name, _both in BINARY.items():
    ELEMENTS[_name] = _binary(_both)


@element("graphc_gelu")
def _gelu(result: Tensor, x: Array, other: Array | None) -> Array:
    return _gated(result, x, other, UNARY["gelu_erf"])


@element("graphc_silu")
def _silu(result: Tensor, x: Array, other: Array | None) -> Array:
    return _gated(result, x, other, UNARY["silu"])


@element("graphc_gate")
def _gate(result: Tensor, x: Array, other: Array | None, linear: float, cubic: float) -> Array:
    def gate(x: Scalar) -> Scalar:
        bent = (x * x * cubic + linear) * x if cubic else x * linear
        return UNARY["sigmoid"](bent) * x

    return _gated(result, x, other, gate)


def _gated(result: Tensor, x: Array, other: Array | None, gate: Callable[[Scalar], Scalar]) -> Array:
    if other is None:
        return computed(result.ne, [x], lambda at: gate(x.element(at)), 6)
    return computed(result.ne, [x, other], lambda at: gate(x.element(at)) * other.element(at), 6)


# Elements elsewhere


@element("ggml_repeat_4d", "graphc_repeat")
def _repeat(result: Tensor, a: Array, *sizes: Dim) -> Array:
    return viewed(a, result.ne, lambda at: repeated(a, at, result.ne))


@element("graphc_concat")
def _concat(result: Tensor, axis: int, *parts: Array) -> Array:
    return joined(result.ne, axis, parts)


@element("ggml_concat")
def _concat_two(result: Tensor, a: Array, b: Array, axis: int) -> Array:
    return joined(result.ne, axis, (a, b))


def joined(ne: Quad, axis: int, parts: Sequence[Array]) -> Array:
    """Parts, one after the other along an axis."""

    def value(at: Index) -> Scalar:
        ends: list[Dim] = [0]
        for part in parts:
            ends.append(ends[-1] + part.ne[axis])
        found = parts[-1].element(_less(at, axis, ends[-2]))
        for number in reversed(range(len(parts) - 1)):
            inside = at[axis] < scalar(ends[number + 1])
            found = K.select(inside, parts[number].element(_less(at, axis, ends[number])), found)
        return found

    return replace(computed(ne, parts, value, len(parts), parts[0].dtype), joined=(axis, tuple(parts)))


def _less(at: Index, axis: int, begin: Dim) -> Index:
    found = [entry - scalar(begin) if place == axis and begin != 0 else entry for place, entry in enumerate(at)]
    return found[0], found[1], found[2], found[3]


@element("graphc_pad", "ggml_pad_ext")
def _pad(result: Tensor, a: Array, *pads: int) -> Array:
    def value(at: Index) -> Scalar:
        inside, places = constant(True, BOOL), []
        for axis in range(4):
            before, behind = pads[2 * axis : 2 * axis + 2]
            place = at[axis] - before if before else at[axis]
            inside = inside.and_(place >= 0) if before else inside
            inside = inside.and_(place < scalar(a.ne[axis])) if behind else inside
            places.append(ZERO if a.ne[axis] == 1 and not (before or behind) else place)
        return K.select(inside, a.element((places[0], places[1], places[2], places[3])), constant(0, a.dtype))

    return computed(result.ne, [a], value, 2, a.dtype)


@element("ggml_get_rows")
def _get_rows(result: Tensor, a: Array, rows: Array) -> Array:
    def value(at: Index) -> Scalar:
        number = K.cast(rows.element((at[1], at[2], at[3], ZERO)), I64)
        return wide(a.element((at[0], number, at[2], at[3])))

    return computed(result.ne, [a, rows], value)


@element("ggml_interpolate")
def _interpolate(result: Tensor, a: Array, *rest: Any) -> Array:
    is_nearest = rest[-1].name == "GGML_SCALE_MODE_NEAREST"

    def nearest(at: Index) -> Scalar:
        found = [_nearest(*each) for each in zip(at, result.ne, a.ne, strict=True)]
        return a.element((found[0], found[1], found[2], found[3]))

    def between(at: Index) -> Scalar:
        left, right, across = _neighbours(at[0], result.ne[0], a.ne[0])
        above, below, down = _neighbours(at[1], result.ne[1], a.ne[1])
        plane = (_nearest(at[2], result.ne[2], a.ne[2]), _nearest(at[3], result.ne[3], a.ne[3]))

        def along(row: Scalar) -> Scalar:
            pair = [wide(a.element((column, row, *plane))) for column in (left, right)]
            return pair[0] * (1.0 - across) + pair[1] * across

        return along(above) * (1.0 - down) + along(below) * down

    if not is_nearest:
        return computed(result.ne, [a], between, 4)
    doubles = (a.ne[0] * 2, a.ne[1] * 2, *a.ne[2:]) == result.ne
    return replace(computed(result.ne, [a], nearest, 1), doubled=a if doubles else None)


def _neighbours(place: Scalar, new: Dim, old: Dim) -> tuple[Scalar, Scalar, Scalar]:
    """The elements between which a place of an axis of another size lies, and how far it is from the first."""
    ratio = K.cast(scalar(new), F32) / K.cast(scalar(old), F32)
    exact = ((K.cast(place, F32) + 0.5) / ratio - 0.5).maximum(0.0)
    first = K.cast(exact, I32).minimum(K.cast(scalar(old) - 1, I32))
    second = (first + 1).minimum(K.cast(scalar(old) - 1, I32))
    return K.cast(first, I64), K.cast(second, I64), exact - K.cast(first, F32)


def _nearest(place: Scalar, new: Dim, old: Dim) -> Scalar:
    """The element that stands at a place of an axis of another size. Where that size is no multiple, it is found as PyTorch does:
    by a product of float32 numbers, cut off; but by a shift where it turns out to be twice the size, for a product with the
    element takes no longer than finding it otherwise."""
    factor = _times(new, old)
    if factor is not None:
        return place // factor if factor > 1 else place
    ratio = K.cast(scalar(old), F32) / K.cast(scalar(new), F32)
    found = K.cast(K.cast(place, F32) * ratio, I32).minimum(K.cast(scalar(old) - 1, I32))
    return K.cast(K.select(scalar(new).eq(scalar(old * 2)), K.cast(place, I32) // 2, found), I64)


def _times(new: Dim, old: Dim) -> int | None:
    """The whole number of times that a size is another, if it is proven to be one."""
    return next((factor for factor in range(1, 17) if new == old * factor), None)


# Windows


@element("ggml_conv_2d_dw_direct")
def _depthwise(result: Tensor, kernel: Array, image: Array, *settings: int) -> Array:
    s0, s1, p0, p1, d0, d1 = settings

    def value(at: Index) -> Scalar:
        def product(tap: tuple[Scalar, ...]) -> Scalar:
            y, x = at[1] * s1 + tap[0] * d1 - p1, at[0] * s0 + tap[1] * d0 - p0
            inside = (y >= 0).and_(y < scalar(image.ne[1])).and_((x >= 0).and_(x < scalar(image.ne[0])))
            read = image.element((x, y, at[2], at[3])) * wide(kernel.element((tap[1], tap[0], ZERO, at[2])))
            return K.select(inside, read, 0.0)

        return K.reduce("sum", (kernel.ne[1], kernel.ne[0]), product)

    return computed(result.ne, [kernel, image], value, 16)


@element("ggml_im2col")
def _im2col(result: Tensor, kernel: Array, image: Array, *settings: Any) -> Array:
    s0, s1, p0, p1, d0, d1 = settings[:6]
    dtype, (wide_taps, high_taps) = DTYPES[result.type], kernel.ne[:2]

    def value(at: Index) -> Scalar:
        tap, channel = at[0] % (wide_taps * high_taps), at[0] // (wide_taps * high_taps)
        x, y = at[1] * s0 + tap % wide_taps * d0 - p0, at[2] * s1 + tap // wide_taps * d1 - p1
        inside = (y >= 0).and_(y < scalar(image.ne[1])).and_((x >= 0).and_(x < scalar(image.ne[0])))
        return K.cast(K.select(inside, image.element((x, y, channel, at[3])), 0.0), dtype)

    return computed(result.ne, [kernel, image], value, 2, dtype)


@element("ggml_im2col_3d")
def _im2col_3d(result: Tensor, kernel: Array, volumes: Array, channels: int, *settings: Any) -> Array:
    strides, pads, dilations = settings[:3], settings[3:6], settings[6:9]
    deep = conv_size(volumes.ne[2], kernel.ne[2], strides[2], pads[2], dilations[2])

    def value(at: Index) -> Scalar:
        taps = unflat(at[0], (*kernel.ne[:3], channels))
        places = [
            place * strides[axis] + taps[axis] * dilations[axis] - pads[axis]
            for axis, place in enumerate((at[1], at[2], at[3] % deep))
        ]
        along, below, deeper = (
            (place >= 0).and_(place < scalar(size)) for place, size in zip(places, volumes.ne, strict=False)
        )
        inside = along.and_(below).and_(deeper)
        return K.select(inside, volumes.element((*places, at[3] // deep * channels + taps[3])), 0.0)

    return computed(result.ne, [kernel, volumes], value, 2)


@element("ggml_pool_2d")
def _pool(result: Tensor, a: Array, kind: Constant, k0: int, k1: int, s0: int, s1: int, p0: float, p1: float) -> Array:
    largest = kind.name == "GGML_OP_POOL_MAX"

    def value(at: Index) -> Scalar:
        def read(tap: tuple[Scalar, ...]) -> Scalar:
            y, x = at[1] * s1 + tap[0] - int(p1), at[0] * s0 + tap[1] - int(p0)
            inside = (y >= 0).and_(y < scalar(a.ne[1])).and_((x >= 0).and_(x < scalar(a.ne[0])))
            return K.select(inside, a.element((x, y, at[2], at[3])), float("-inf") if largest else 0.0)

        total = K.reduce("max" if largest else "sum", (k1, k0), read)
        return total if largest else total * (1.0 / (k0 * k1))

    return computed(result.ne, [a], value, 8)


# Rows


@element("ggml_sum_rows", "ggml_mean")
def _sum_rows(result: Tensor, a: Array) -> Array:
    def value(at: Index) -> Scalar:
        return K.reduce("sum", (a.ne[0],), lambda k: a.element((k[0], *at[1:])))

    return computed(result.ne, [a], value, 64)


def conv_sizes(kernel: Quad, image: Quad, settings: tuple[int, ...]) -> tuple[Dim, Dim]:
    """Width and height of a convolution's result."""
    s0, s1, p0, p1, d0, d1 = settings
    return conv_size(image[0], kernel[0], s0, p0, d0), conv_size(image[1], kernel[1], s1, p1, d1)
