"""Rules for convolutions side by side. Those of one image that are added up, as networks have them that were trained with several
branches, are one convolution, with the sum of their kernels. What is done to all that are joined is done to each."""

from __future__ import annotations

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ops.base import Emit
from graphc.ops.conv import Conv
from graphc.ops.movement import Concat, Pad, Reshape, Slice
from graphc.ops.pointwise import Binary
from graphc.rewrite.engine import Refusal, Site, rule
from graphc.rewrite.rules.movement import ACTIVATIONS
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


@rule("s := Mul(joined, factor)", "s := Add(joined, factor)")
def channels_of_joined(emit: Site, joined: Value, factor: Value, s: Node) -> Value | Refusal:
    """A number for each channel of what convolutions made and is joined is one for each channel of theirs."""
    parts = _convolved(emit, joined)
    if parts is None or not are_constant(factor) or along(factor, joined, 1) != joined.shape[1]:
        return Refusal(
            "it is no constant for each channel, or not of convolutions that are joined along these for it alone"
        )
    axis = len(factor.shape) - len(joined.shape) + 1
    found: list[Value] = []
    begin: Dim = 0
    for part in parts:
        count, steps = part.shape[1], (1,) * len(factor.shape)
        starts = (*(0,) * axis, begin, *(0,) * len(factor.shape[axis + 1 :]))
        own = emit(Slice(starts, (*factor.shape[:axis], count, *factor.shape[axis + 1 :]), steps), factor)
        found.append(emit(s.op, part, own))
        begin += count
    return emit(Concat(1), *found)


@rule(*(f"f := {name}(joined)" for name in ACTIVATIONS))
def activation_of_joined(emit: Site, joined: Value, f: Node) -> Value | Refusal:
    """A function of each number of what convolutions made and is joined comes before, where they can do it on their way out."""
    parts = _convolved(emit, joined)
    if parts is None:
        return Refusal("it is not of convolutions that are joined along their channels for it alone")
    return emit(Concat(1), *(emit(f.op, part) for part in parts))


def _convolved(emit: Site, joined: Value) -> list[Value] | None:
    """The results of convolutions that nothing else reads, and that are joined along their channels for one reader; None if it is
    something else."""
    node = joined.producer
    if node is None or not isinstance(node.op, Concat) or node.op.axis != 1 or not emit.alone(joined):
        return None
    alone = all(
        each.producer is not None and isinstance(each.producer.op, Conv) and emit.alone(each) for each in node.inputs
    )
    return list(node.inputs) if alone else None


RULES = {"absorb": [convolutions_of_one, convolution_and_scale, channels_of_joined, activation_of_joined]}
