"""Normalizations and softmax: what needs sums of rows or of groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import gcd

from graphc.ir.types import F32
from graphc.kernels.gpu.skeletons.groups import Grouped, group_factors, side_by_side
from graphc.kernels.gpu.tile import index as scalar
from graphc.kernels.scalar import Scalar, variable
from graphc.shapes import Dim, integer, product, symbols
from graphc.targets.ggml.generate.arrays import (
    CHANNELS_LAST,
    PLAIN,
    ZERO,
    Array,
    Index,
    K,
    Order,
    buffers_of,
    computed,
    repeated,
    variables,
)
from graphc.targets.ggml.generate.elements import UNARY, wide
from graphc.targets.ggml.generate.generator import ColumnStage, Generator, Lines, natural_order, normal, numbered, same
from graphc.targets.ggml.generate.kernels.products import of_channels
from graphc.targets.ggml.generate.kernels.registry import kernels_of
from graphc.targets.ggml.generate.operands import CHANNELS
from graphc.targets.ggml.program.tensor import Tensor

MANY_PIXELS = 1024
"""Of an image, from which on two kernels are faster than one, of which a block has a group."""

SECTOR = 32
"""Bytes that memory gives at least."""

USUAL_SIZE = 64
"""What a free size is taken for: the latents of a picture of 512 x 512."""


def usual(size: Dim) -> int:
    """What a size is, or may be."""
    return integer(size, dict.fromkeys(symbols(size), USUAL_SIZE))


def _mean(count: Dim) -> Callable[[Scalar], Scalar]:
    return lambda total: total / K.cast(scalar(count), F32)


def _inverse_root(count: Dim, epsilon: float) -> Callable[[Scalar], Scalar]:
    return lambda total: 1.0 / K.call("sqrt", total / K.cast(scalar(count), F32) + epsilon)


def _squared(read: Callable[[Index, Scalar], Scalar]) -> Callable[[Index, Scalar, Scalar], Scalar]:
    """The square of what an element of a line differs from its mean."""

    def value(at: Index, column: Scalar, mean: Scalar) -> Scalar:
        difference = read(at, column) - mean
        return difference * difference

    return value


def _squares(x: Array) -> Callable[[Index, Scalar], Scalar]:
    """The squares of a row's elements."""

    def value(at: Index, column: Scalar) -> Scalar:
        read = x.element((column, *at[1:]))
        return read * read

    return value


@kernels_of("graphc_layer_norm")
def layer_norm(
    g: Generator, result: Tensor, x: Array, scale: Array | None, shift: Array | None, epsilon: float
) -> Array:
    """`graphc_layer_norm`."""
    x = g.stored(x) if x.work > 2 else x

    def read(at: Index, column: Scalar) -> Scalar:
        return x.element((column, *at[1:]))

    found = g.rows(
        "layer_norm", x.ne, Lines.rows(x.ne), lambda at, mean, inverse: (x.element(at) - mean) * inverse,
        ColumnStage("sum", read, _mean(x.ne[0])), ColumnStage("sum", _squared(read), _inverse_root(x.ne[0], epsilon)),
    )  # fmt: skip
    return affine(result, found, scale, shift)


@kernels_of("graphc_rms_norm")
def rms_norm(g: Generator, result: Tensor, x: Array, scale: Array | None, shift: Array | None, epsilon: float) -> Array:
    """`graphc_rms_norm`."""
    x = g.stored(x) if x.work > 2 else x

    finish = _inverse_root(x.ne[0], epsilon)
    lines = Lines.rows(x.ne)
    found = g.rows(
        "rms_norm", x.ne, lines, lambda at, inverse: x.element(at) * inverse, ColumnStage("sum", _squares(x), finish)
    )
    return affine(result, found, scale, shift)


@kernels_of("graphc_l2_norm")
def l2_norm(g: Generator, result: Tensor, x: Array, least: float) -> Array:
    """`graphc_l2_norm`."""
    x = g.stored(x) if x.work > 2 else x

    stage = ColumnStage("sum", _squares(x), lambda total: 1.0 / K.call("sqrt", total).maximum(least))
    return g.rows("l2_norm", x.ne, Lines.rows(x.ne), lambda at, inverse: x.element(at) * inverse, stage)


def affine(result: Tensor, x: Array, scale: Array | None, shift: Array | None) -> Array:
    """x times a scale, plus a shift, if there are; both broadcast to it."""

    def value(at: Index) -> Scalar:
        found = x.element(at)
        if scale is not None:
            found = found * wide(repeated(scale, at, result.ne))
        return found if shift is None else found + wide(repeated(shift, at, result.ne))

    return computed(result.ne, [each for each in (x, scale, shift) if each is not None], value, 2)


@kernels_of("graphc_group_norm")
def group_norm(
    g: Generator, result: Tensor, x: Array, scale: Array | None, shift: Array | None, groups: int, epsilon: float, silu: bool
) -> Array:  # fmt: skip
    """`graphc_group_norm`. There are few groups for a GPU that has a block for each, so large images are cut into strips."""
    scale, shift = (each and of_channels(each, result.ne) for each in (scale, shift))
    width, height, channels, _ = x.ne
    large = usual(width * height) >= MANY_PIXELS and isinstance(channels, int) and _has_lines(x, channels)
    if large and natural_order(x) != CHANNELS_LAST:
        x = g.stored(x, CHANNELS_LAST)
    elif x.work > 2:
        x = g.stored(x)
    if large:
        factors = _group_factors(g, x, scale, shift, groups, epsilon)

        def value(at: Index) -> Scalar:
            factor, added = (factors.element((at[2], scalar(which), at[3], ZERO)) for which in range(2))
            return wide(x.element(at)) * factor + added

        found = computed(result.ne, [x, factors], value, 2)
    else:
        found = affine(result, _by_groups(g, x, groups, epsilon), scale, shift)
    if silu:
        normalized = found
        found = computed(result.ne, [normalized], lambda at: UNARY["silu"](normalized.element(at)), 4)
    return replace(found, called="group_norm")


def _has_lines(x: Array, channels: int) -> bool:
    """True if enough channels of a pixel lie side by side for memory to be read in whole sectors."""
    return side_by_side(channels, _together(x, channels), F32.itemsize) * F32.itemsize >= SECTOR


def _together(x: Array, channels: int) -> int:
    """Of how many channels multiples are neighbours: all, but of images that are joined along them."""
    axis, parts = x.joined or (0, ())
    sizes = [each.ne[axis] for each in parts] if axis == CHANNELS else []
    return gcd(channels, *(each if isinstance(each, int) else 1 for each in sizes))


def _group_factors(
    g: Generator, x: Array, scale: Array | None, shift: Array | None, groups: int, epsilon: float
) -> Array:  # fmt: skip
    """[C, 2, N, 1] in memory: what each channel of an image is multiplied by, to be normalized in its group, scaled and shifted,
    and what is added."""
    width, height, channels, count = x.ne
    assert isinstance(channels, int)

    def element(image: Scalar, pixel: Scalar, channel: Scalar) -> Scalar:
        return x.element((pixel % width, pixel // width, channel, image))

    def of_channel(array: Array) -> Callable[[Scalar, Scalar], Scalar]:
        return lambda image, channel: repeated(array, (ZERO, ZERO, channel, image), x.ne)

    at, pixel = variables((channels, 1, count, 1)), variable("pixel", width * height)
    beside = [None if each is None else of_channel(each) for each in (scale, shift)]
    found = [element(at[2], pixel, at[0]), *(each(at[2], at[0]) for each in beside if each is not None)]
    buffers = buffers_of(*found)

    def of_tensors(value: Callable[..., Scalar]) -> Callable[..., Scalar]:
        return lambda *places: wide(normal(numbered(value(*places), buffers)))

    what = Grouped(
        "group_factors", count, width * height, channels, groups, _together(x, channels), epsilon, usual(width * height),
        of_tensors(element), *(None if each is None else of_tensors(each) for each in beside),
    )  # fmt: skip
    kernel = group_factors(what, [(each.dtype, product(each.ne)) for each in buffers], g.form.lanes)
    return Array.of(g.launched([kernel], buffers, F32, (channels, 2, count, 1)))


def _by_groups(g: Generator, x: Array, groups: int, epsilon: float) -> Array:
    """What is normalized, by one kernel, of which a block has a group."""
    width, height, channels, count = x.ne
    own, order = channels // groups, CHANNELS_LAST if natural_order(x) == CHANNELS_LAST else PLAIN

    def place(at: Index, column: Scalar) -> Index:
        pixel, channel = _in_group(order, column, width * height, own)
        return pixel % width, pixel // width, at[0] * own + channel, at[1]

    def read(at: Index, column: Scalar) -> Scalar:
        return x.element(place(at, column))

    columns = width * height * own
    return g.rows(
        "group_norm", x.ne, Lines((groups, count, 1, 1), columns, place, long=True),
        lambda at, mean, inverse: (x.element(at) - mean) * inverse,
        ColumnStage("sum", read, _mean(columns)), ColumnStage("sum", _squared(read), _inverse_root(columns, epsilon)),
        order=order,
    )  # fmt: skip


def _in_group(order: Order, column: Scalar, pixels: Dim, own: Dim) -> tuple[Scalar, Scalar]:
    """The pixel and the channel of one of the elements that so many pixels have of a group, in the order of memory."""
    return (column // own, column % own) if order == CHANNELS_LAST else (column % pixels, column // pixels)


@kernels_of("graphc_soft_max", "ggml_soft_max", "ggml_soft_max_ext")
def soft_max(
    g: Generator, result: Tensor, x: Array, mask: Array | None = None, scale: float = 1.0, bias: float = 0.0
) -> Array:
    """`ggml_soft_max` and `ggml_soft_max_ext`."""
    x = g.stored(x) if x.work > 2 else x

    def score(at: Index) -> Scalar:
        found = x.element(at) * scale if scale != 1.0 else x.element(at)
        return found if mask is None else found + wide(repeated(mask, at, result.ne))

    return g.rows(
        "softmax", x.ne, Lines.rows(x.ne), lambda at, largest, total: K.call("exp", score(at) - largest) / total,
        ColumnStage("max", lambda at, column: score((column, *at[1:]))),
        ColumnStage("sum", lambda at, column, largest: K.call("exp", score((column, *at[1:])) - largest)),
    )  # fmt: skip


@kernels_of("ggml_mean")
def mean(g: Generator, result: Tensor, x: Array) -> Array:
    """`ggml_mean`."""
    return _summed(g, result, x, "row_means", _mean(x.ne[0]))


@kernels_of("ggml_sum_rows")
def sum_rows(g: Generator, result: Tensor, x: Array) -> Array:
    """`ggml_sum_rows`."""
    return _summed(g, result, x, "row_sums", same)


def _summed(g: Generator, result: Tensor, x: Array, name: str, finish: Callable[[Scalar], Scalar]) -> Array:
    x = g.stored(x) if x.work > 2 else x
    (found,) = g.reduced(
        name, result.ne, x.ne[0], ColumnStage("sum", lambda at, column: x.element((column, *at[1:])), finish)
    )
    return found
