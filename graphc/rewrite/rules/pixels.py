"""Rules for convolutions of 1 x 1, which are products for each pixel. What is added up of channels, and what is added up of
neighbours where an image is made larger, can be so in either order, and before there are fewer pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate

from graphc.ir.graph import Node, Value
from graphc.ops.base import Emit
from graphc.ops.conv import Conv
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Concat, Expand, Reshape, Slice, Transpose
from graphc.ops.pointwise import Binary
from graphc.ops.resize import Resize
from graphc.rewrite.engine import Refusal, Site, rule
from graphc.rewrite.rules.weights import along, are_constant
from graphc.shapes import Dim, lower_bound


@rule("c := Conv(r := Resize(x), w, *bias)")
def convolution_of_enlarged(
    emit: Site, x: Value, w: Value, c: Node, r: Node, bias: Value | None = None
) -> Value | Refusal:
    """A convolution of 1 x 1 comes before its image is made larger. A bias stays what it is: what interpolates adds up to 1."""
    if not _is_of_pixels(c, w) or not _is_enlarged(emit, r.output, w):
        return Refusal(
            "it is no convolution of 1 x 1 with as many channels, or its image is not made larger for it alone"
        )
    emit.source = c.source
    return _enlarged(emit, r, emit(c.op, x, *c.inputs[1:]))


@rule("c := Conv(joined, w, *bias)")
def convolution_of_joined(emit: Site, joined: Value, w: Value, c: Node, bias: Value | None = None) -> Value | Refusal:
    """The same where some of several images that are joined are made larger: each of those is convolved by itself, and added to
    what becomes of the others."""
    node = joined.producer
    if node is None or not isinstance(node.op, Concat) or node.op.axis != 1 or not emit.alone(joined):
        return Refusal("it is not of images that are joined along their channels for it alone")
    counts = [count for each in node.inputs if isinstance(count := each.shape[1], int)]
    large = [_is_enlarged(emit, each, w) for each in node.inputs]
    if not any(large) or not _is_of_pixels(c, w) or not are_constant(w) or len(counts) < len(large):
        return Refusal("it is no convolution of 1 x 1, or none of the images is made larger")
    emit.source = c.source
    begins = [0, *accumulate(counts)]
    kernels = [_channels(emit, w, begin, count) for begin, count in zip(begins, counts, strict=False)]
    parts = list(zip(node.inputs, kernels, large, strict=True))
    others = [(image, kernel) for image, kernel, is_large in parts if not is_large]
    bias_once, found = list(c.inputs[2:]), []
    if others:
        found.append(emit(c.op, *(_joined(emit, each) for each in zip(*others, strict=True)), *bias_once))
        bias_once = []
    for image, kernel, is_large in parts:
        if is_large:
            assert image.producer is not None
            small = emit(c.op, *image.producer.inputs, kernel, *bias_once)
            found.append(_enlarged(emit, image.producer, small))
            bias_once = []
    first, *more = found
    return emit(Binary("Add"), first, _sum(emit, more)) if more else first


IMAGE = "c := Conv(t := Transpose(image := Reshape({})), w, *bias)"
"""A convolution of an image whose pixels were the rows of a matrix."""


@rule(IMAGE.format("m := MatMul(a, v)"), IMAGE.format("s := Add(m := MatMul(a, v), shift)"))
def convolution_of_product(
    emit: Site, a: Value, v: Value, w: Value, m: Node, t: Node, image: Node, c: Node, bias: Value | None = None,
    s: Node | None = None, shift: Value | None = None,
) -> Value | Refusal:  # fmt: skip
    """A product with a constant, and a convolution of 1 x 1 behind it, are one product, if that is less work."""
    assert isinstance(m.op, MatMul)
    assert isinstance(t.op, Transpose)
    constants = [each for each in (v, w, bias, shift) if each is not None]
    if not _is_of_pixels(c, w) or not are_constant(*constants) or len(v.shape) != 2:
        return Refusal("it is no convolution of 1 x 1, or something that is multiplied is computed")
    if not all(emit.alone(each.output) for each in (m, t, image, s) if each is not None):
        return Refusal("something else reads a result")
    results, channels, taken = w.shape[0], w.shape[1], v.shape[m.op.transpose_b]
    shape, rows = image.output.shape, m.output.shape
    last = len(shape) - 1
    if t.op.perm != (0, last, *range(1, last)) or (shape[0], shape[-1]) != (rows[0], rows[-1]) or len(rows) < 3:
        return Refusal("the rows are no pixels, or the columns no channels")
    count = None if shift is None else along(shift, m.output, len(rows) - 1)
    if shift is not None and count is None:
        return Refusal("what is added is not a number for each channel")
    if not taken * results < (taken + results) * channels:
        return Refusal("one product would be more work")
    emit.source = c.source
    kernel = emit(Reshape((results, channels)), w)
    both = emit(MatMul(), kernel, v) if m.op.transpose_b else emit(MatMul(transpose_b=True), v, kernel)
    found, added = emit(m.op, a, both), [] if bias is None else [bias]
    if shift is not None:
        assert count is not None
        column = emit(Expand((channels, 1)), emit(Reshape((count, 1)), shift))
        added.append(emit(Reshape((results,)), emit(MatMul(), kernel, column)))
    if added:
        found = emit(Binary("Add"), found, _sum(emit, added))
    return emit(t.op, emit(Reshape((*shape[:-1], results)), found))


def _is_of_pixels(c: Node, w: Value) -> bool:
    """True for a convolution that has one tap and takes every pixel once."""
    assert isinstance(c.op, Conv)
    pads = (*c.op.pads_before, *c.op.pads_after)
    return c.op.group == 1 and set(w.shape[2:]) == set(c.op.strides) == {1} and set(pads) == {0}


def _is_enlarged(emit: Site, image: Value, w: Value) -> bool:
    """True for an image of twice as many pixels or more than what it is made of, which nothing else reads, and which has no fewer
    channels than the convolution's result, so that making that larger is no more work."""
    node = image.producer
    if node is None or not isinstance(node.op, Resize) or not emit.alone(image):
        return False
    (x,), (channels, results) = node.inputs, (image.shape[1], w.shape[0])
    if node.op.coordinate == "tf_crop_and_resize" or min(node.op.changed(x.shape), default=0) < 2:
        return False
    grown = [_is_at_least(large, small) for large, small in zip(image.shape[2:], x.shape[2:], strict=True)]
    twice = [_is_at_least(large, small * 2) for large, small in zip(image.shape[2:], x.shape[2:], strict=True)]
    return all(grown) and any(twice) and isinstance(channels, int) and isinstance(results, int) and results <= channels


def _is_at_least(size: Dim, other: Dim) -> bool:
    least = lower_bound(size - other)
    return least is not None and least >= 0


def _enlarged(emit: Emit, r: Node, image: Value) -> Value:
    """Another image as one was made larger."""
    assert isinstance(r.op, Resize)
    return emit(replace(r.op, sizes=(*image.shape[:2], *r.op.sizes[2:])), image)


def _channels(emit: Emit, w: Value, begin: int, count: int) -> Value:
    """Some of the channels that a kernel takes."""
    zeros = (0,) * (len(w.shape) - 2)
    return emit(Slice((0, begin, *zeros), (w.shape[0], count, *w.shape[2:]), (1,) * len(w.shape)), w)


def _sum(emit: Emit, values: Sequence[Value]) -> Value:
    return reduce(lambda a, b: emit(Binary("Add"), a, b), values)


def _joined(emit: Emit, parts: tuple[Value, ...]) -> Value:
    """Images, or kernels, side by side along their channels."""
    return parts[0] if len(parts) == 1 else emit(Concat(1), *parts)


RULES = {"absorb": [convolution_of_enlarged, convolution_of_joined, convolution_of_product]}
