"""Rules that raise decomposed normalizations."""

from __future__ import annotations

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ops.base import Emit
from graphc.ops.movement import Reshape
from graphc.ops.norm import GroupNorm, InstanceNorm
from graphc.rewrite.engine import Refusal, rule


@rule("outer := Reshape(n := InstanceNorm(inner := Reshape(x), one, zero))")
def group_norm(emit: Emit, x: Value, one: Value, zero: Value, outer: Node, n: Node, inner: Node) -> Value | Refusal:
    """Normalizing [N, G, rest] of an [N, C, ...] tensor is a group normalization with G groups."""
    assert isinstance(n.op, InstanceNorm)
    grouped = inner.output.shape
    if outer.output.shape != x.shape or len(x.shape) < 3 or len(grouped) != 3 or grouped[0] != x.shape[0]:
        return Refusal("it does not go from [N, C, ...] to [N, G, rest] and back")
    channels, groups = x.shape[1], grouped[1]
    if not isinstance(channels, int) or not isinstance(groups, int) or channels % groups:
        return Refusal("the number of groups or channels is not known")
    if not _all_equal(one, 1) or not _all_equal(zero, 0):
        return Refusal("the inner normalization has a scale of its own")
    ones, zeros = (emit.constant(np.full(channels, number, x.dtype)) for number in (1, 0))
    return emit(GroupNorm(groups, n.op.epsilon), x, ones, zeros)


@rule("Mul(g := GroupNorm(x, one, zero), scale)")
def group_norm_scale(emit: Emit, x: Value, one: Value, zero: Value, scale: Value, g: Node) -> Value | Refusal:
    """A factor for each channel is the normalization's own scale."""
    if not _all_equal(one, 1) or not _all_equal(zero, 0):
        return Refusal("the normalization has a scale already")
    if not _per_channel(scale, x):
        return Refusal("the factor is not one constant a channel")
    return emit(g.op, x, emit(Reshape(one.shape), scale), zero)


@rule("Add(g := GroupNorm(x, scale, zero), bias)")
def group_norm_bias(emit: Emit, x: Value, scale: Value, zero: Value, bias: Value, g: Node) -> Value | Refusal:
    """A constant for each channel is the normalization's own bias."""
    if not _all_equal(zero, 0):
        return Refusal("the normalization has a bias already")
    if not _per_channel(bias, x):
        return Refusal("the summand is not one constant a channel")
    return emit(g.op, x, scale, emit(Reshape(zero.shape), bias))


def _all_equal(value: Value, number: float) -> bool:
    return value.data is not None and bool(np.all(np.asarray(value.data, np.float64) == number))


def _per_channel(weight: Value, x: Value) -> bool:
    """True for constants that broadcasting puts along axis 1 of x, one a channel."""
    full = (1,) * (len(x.shape) - len(weight.shape)) + tuple(weight.shape)
    along = all(size == (x.shape[1] if axis == 1 else 1) for axis, size in enumerate(full))
    return weight.static and along


RULES = [group_norm, group_norm_scale, group_norm_bias]
