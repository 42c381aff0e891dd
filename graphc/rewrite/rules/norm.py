"""Rules that raise decomposed normalizations."""

from __future__ import annotations

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ir.numbers import decided, read_numbers
from graphc.ops.activations import Clip
from graphc.ops.base import Emit, broadcast_shapes
from graphc.ops.movement import Reshape
from graphc.ops.norm import GroupNorm, InstanceNorm, LayerNorm, LpNorm, RMSNorm
from graphc.ops.reduce import Reduce
from graphc.rewrite.engine import Refusal, Site, rule


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


@rule(
    "Div(x, Sqrt(Add(mean := ReduceMean(Sqr(x)), epsilon)))",
    "Mul(x, Reciprocal(Sqrt(Add(mean := ReduceMean(Sqr(x)), epsilon))))",
)
def rms_norm(emit: Emit, x: Value, mean: Node, epsilon: Value) -> Value | Refusal:
    """x divided by the root of the mean of its squares."""
    axis = _last_axes(mean)
    if axis is None or not epsilon.is_constant or epsilon.type.size != 1:
        return Refusal("the mean is not over the last axes, or epsilon is not a number")
    return emit(RMSNorm(axis, float(read_numbers(epsilon).item())), x)


@rule(
    "Div(x, least := Clip(Sqrt(total := ReduceSum(Sqr(x)))))",
    "Div(x, Expand(least := Clip(Sqrt(total := ReduceSum(Sqr(x))))))",
    "Div(x, Sqrt(total := ReduceSum(Sqr(x))))",
)
def l2_norm(emit: Emit, x: Value, total: Node, least: Node | None = None) -> Value | Refusal:
    """x divided by its length, the root of the sum of its squares, which is at least a number."""
    axis = _last_axes(total)
    if axis != len(x.shape) - 1:
        return Refusal("the sum is not over the last axis")
    if least is None:
        return emit(LpNorm(axis, 2, 0.0), x)
    assert isinstance(least.op, Clip)
    if least.op.high is not None or least.op.low is None or least.op.low < 0:
        return Refusal("the length is not kept above a number")
    return emit(LpNorm(axis, 2, least.op.low), x)


@rule("n := RMSNorm(Sub(x, mean := ReduceMean(x)))")
def layer_norm(emit: Emit, x: Value, mean: Node, n: Node) -> Value | Refusal:
    """The root mean square of what has mean 0 is the standard deviation."""
    assert isinstance(n.op, RMSNorm)
    if _last_axes(mean) != n.op.axis:
        return Refusal("the mean is over other axes")
    return emit(LayerNorm(n.op.axis, n.op.epsilon), x)


@rule("Mul(n := LayerNorm(x), factor)", "Mul(n := RMSNorm(x), factor)", "Add(n := LayerNorm(x, scale), factor)")
def norm_parameter(emit: Site, x: Value, factor: Value, n: Node, scale: Value | None = None) -> Value | Refusal:
    """A constant that the normalized is multiplied with is its scale; one that is added then, its bias."""
    if not factor.static or broadcast_shapes(factor.shape, x.shape) != x.shape or not emit.alone(n.output):
        return Refusal("it is not a constant of at most these sizes, or something else reads the normalized")
    return emit(n.op, *n.inputs, factor)


@rule("n := LayerNorm(x, one, *zero)", "n := RMSNorm(x, one)")
def norm_of_one(emit: Emit, x: Value, one: Value, n: Node, zero: Value | None = None) -> Value | Refusal:
    """A scale of 1 and a bias of 0 are none."""
    if not _all_equal(one, 1) or not (zero is None or _all_equal(zero, 0)):
        return Refusal("the scale is not 1, or the bias not 0")
    return emit(n.op, x)


def _last_axes(node: Node) -> int | None:
    """The first of the axes that are reduced, if they are the last, and kept."""
    assert isinstance(node.op, Reduce)
    rank, axes = len(node.inputs[0].shape), sorted(node.op.axes)
    return axes[0] if node.op.keepdims and axes and axes == list(range(axes[0], rank)) else None


def _all_equal(value: Value, number: float) -> bool:
    return value.is_constant and decided(value, lambda array: bool(np.all(np.asarray(array, np.float64) == number)))


def _per_channel(weight: Value, x: Value) -> bool:
    """True for constants that broadcasting puts along axis 1 of x, one a channel."""
    full = (1,) * (len(x.shape) - len(weight.shape)) + tuple(weight.shape)
    along = all(size == (x.shape[1] if axis == 1 else 1) for axis, size in enumerate(full))
    return weight.static and along


RULES = {
    "raise": [group_norm, group_norm_scale, group_norm_bias, rms_norm, l2_norm, layer_norm, norm_parameter, norm_of_one]
}
