"""Rules for convolutions of one image that are added up, as networks have them that were trained with several branches: they
are one convolution, with the sum of their kernels."""

from __future__ import annotations

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ops.base import Emit
from graphc.ops.conv import Conv
from graphc.ops.movement import Pad, Reshape
from graphc.ops.pointwise import Binary
from graphc.rewrite.engine import Refusal, Site, rule
from graphc.rewrite.rules.weights import along, are_constant
from graphc.shapes import Dim, product


@rule("s := Add(c := Conv(x, w, *bias), d := Conv(x, v, *other))")
def convolutions_of_one(
    emit: Site,
    x: Value,
    w: Value,
    v: Value,
    c: Node,
    d: Node,
    s: Node,
    bias: Value | None = None,
    other: Value | None = None,
) -> Value | Refusal:
    """Two convolutions of an image that are added up are one, if one kernel reaches no farther than the other."""
    constants = [each for each in (w, v, bias, other) if each is not None]
    if c is d or not are_constant(*constants) or not emit.alone(c.output) or not emit.alone(d.output):
        return Refusal("kernels are computed, or something else reads a result")
    if c.output.shape != d.output.shape:
        return Refusal("one result is repeated")
    if product(v.shape[2:]) > product(w.shape[2:]):
        c, d, w, v = d, c, v, w
    assert isinstance(c.op, Conv)
    assert isinstance(d.op, Conv)
    pads = _pads(c.op, w.shape[2:], d.op, v.shape[2:])
    if pads is None:
        return Refusal("the smaller kernel does not meet elements that the larger one meets")
    sum_of_biases = [each for each in (bias, other) if each is not None]
    emit.source = c.source
    parts = [x, emit(s.op, w, _padded(emit, v, pads))]
    if sum_of_biases:
        parts.append(emit(s.op, *sum_of_biases) if len(sum_of_biases) == 2 else sum_of_biases[0])
    return emit(c.op, *parts)


@rule(
    "s := Add(c := Conv(x, w, *bias), m := Mul(x, factor))",
    "s := Add(c := Conv(x, w, *bias), t := Add(m := Mul(x, factor), shift))",
)
def convolution_and_scale(
    emit: Site, x: Value, w: Value, c: Node, m: Node, s: Node, factor: Value,
    bias: Value | None = None, shift: Value | None = None, t: Node | None = None,
) -> Value | Refusal:  # fmt: skip
    """A convolution of an image, and a multiple of each of its channels, added up: one kernel has the factors at its center."""
    constants = [each for each in (w, factor, bias, shift) if each is not None]
    count = along(factor, x, 1)
    if count is None or not are_constant(*constants):
        return Refusal("it is not a constant for each channel, or the kernel is computed")
    if not all(emit.alone(each.output) for each in (c, m, t) if each is not None):
        return Refusal("something else reads a result")
    channels, inner, *size = w.shape
    assert isinstance(c.op, Conv)
    ones, zeros = (1,) * len(size), (0,) * len(size)
    pads = _pads(c.op, w.shape[2:], Conv(ones, ones, zeros, zeros, c.op.group), ones)
    if pads is None or channels != x.shape[1] or x.shape != c.output.shape:
        return Refusal(
            "the result is not of the image's size, or no element of the kernel meets the pixel of the result"
        )
    emit.source = c.source
    assert isinstance(channels, int)
    assert isinstance(inner, int)
    own = np.equal.outer(np.arange(channels) % inner, np.arange(inner)).astype(w.dtype)
    spread = emit(Reshape((count, 1, *ones)), factor)
    center = emit(Binary("Mul"), emit.constant(own.reshape(channels, inner, *ones)), spread)
    found = emit(c.op, x, emit(s.op, w, _padded(emit, center, pads)), *c.inputs[2:])
    return found if shift is None else emit(s.op, found, shift)


def _pads(
    larger: Conv, sizes: tuple[Dim, ...], smaller: Conv, small_sizes: tuple[Dim, ...]
) -> list[tuple[int, int]] | None:
    """Zeros before and behind the smaller kernel along each axis, with which it is as large as the larger one and meets the same
    elements; None if it does not."""
    if (larger.strides, larger.group) != (smaller.strides, smaller.group):
        return None
    found = []
    for axis, (large, small) in enumerate(zip(sizes, small_sizes, strict=True)):
        assert isinstance(large, int)
        assert isinstance(small, int)
        step = larger.dilations[axis]
        before, rest = divmod(larger.pads_before[axis] - smaller.pads_before[axis], step)
        alike = small == 1 or smaller.dilations[axis] == step
        if rest or not alike or before < 0 or before + small > large:
            return None
        found.append((before, large - small - before))
    return found


def _padded(emit: Emit, kernel: Value, pads: list[tuple[int, int]]) -> Value:
    if not any(map(any, pads)):
        return kernel
    before, behind = zip((0, 0), (0, 0), *pads, strict=True)
    return emit(Pad(before, behind), kernel)


RULES = {"absorb": [convolutions_of_one, convolution_and_scale]}
