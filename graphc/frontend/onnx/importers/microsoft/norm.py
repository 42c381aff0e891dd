"""Normalizations, with the sums before them and the activations behind."""

from __future__ import annotations

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.microsoft.activations import biased
from graphc.frontend.onnx.importers.microsoft.layouts import channels_first, channels_last
from graphc.frontend.onnx.importers.pointwise import converted
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ops.base import normalize_axis
from graphc.ops.norm import GroupNorm, LayerNorm, RMSNorm
from graphc.ops.pointwise import Binary, Unary
from graphc.shapes import Dim


@onnx_op("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(node: OnnxNode, emit: SizeEmit) -> tuple[Value | None, ...]:
    """The norm of the last axis of a sum; the fourth output is the sum."""
    simplified = node.operator != "SkipLayerNormalization"
    refuse_unless(not (node.wants(1) or node.wants(2)), "the mean and the deviation as outputs are not supported")
    total = emit(Binary("Add"), node.input(0), node.input(1))
    total = biased(emit, total, node.optional(3 if simplified else 4))
    axis, epsilon = total.type.rank - 1, node.float("epsilon", 1e-12)
    if simplified:
        return emit(RMSNorm(axis, epsilon), total, node.input(2)), None, None, total
    shift = node.optional(3)
    parameters = (node.input(2),) if shift is None else (node.input(2), shift)
    return emit(LayerNorm(axis, epsilon), total, *parameters), None, None, total


@onnx_op("SimplifiedLayerNormalization")
@onnx_op("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_normalization(node: OnnxNode, emit: SizeEmit) -> Value:
    """The root mean square norm, before ONNX had one."""
    refuse_unless(not node.wants(1), "the deviation as an output is not supported")
    x = node.input(0)
    operator = RMSNorm(normalize_axis(node.int("axis", -1), x.type.rank), node.float("epsilon", 1e-5))
    return emit(operator, x, node.input(1))


@onnx_op("GatedRMSNorm", domain=MICROSOFT)
def gated_rms_norm(node: OnnxNode, emit: SizeEmit) -> Value:
    """The norm of each group of the last axis that is as long as the weights, times an activated gate."""
    x, weight = node.input(0), node.input(1)
    kind = node.choice("activation", "silu", ("silu", "swish", "sigmoid"))
    gate = emit(Unary("Sigmoid" if kind == "sigmoid" else "Silu"), node.input(2))
    width = weight.shape[0]
    y = _of_groups(emit, x, (x.shape[-1] // width, width), node.float("epsilon", 1e-5), weight)
    return emit(Binary("Mul"), y, gate)


@onnx_op("BranchwiseRMSNorm", domain=MICROSOFT)
def branchwise_rms_norm(node: OnnxNode, emit: SizeEmit) -> Value:
    """The norm of each branch, which is the last axis, or a part of it; weights may be those of one branch or of all."""
    x, weight, count = node.input(0), node.optional(1), node.int("num_branches", 0)
    groups = (count, x.shape[-1] // count) if count else x.shape[-2:]
    if weight is not None and weight.type.rank == 1 and weight.shape[0] != groups[1]:
        weight = to_shape(emit, weight, groups)
    return _of_groups(emit, x, groups, node.float("epsilon", 1e-5), weight)


def _of_groups(emit: SizeEmit, x: Value, groups: tuple[Dim, ...], epsilon: float, weight: Value | None) -> Value:
    """The root mean square norm of each of a number of groups, [groups, width], which are the last axis or the last two."""
    lead = x.shape[:-2] if x.shape[-2:] == groups else x.shape[:-1]
    apart = to_shape(emit, x, (*lead, *groups))
    scale = () if weight is None else (converted(emit, weight, x.dtype),)
    return to_shape(emit, emit(RMSNorm(apart.type.rank - 1, epsilon), apart, *scale), x.shape)


@onnx_op("GroupNorm", domain=MICROSOFT)
def group_norm(node: OnnxNode, emit: SizeEmit) -> Value:
    """Of images whose channels are last unless `channels_last` is 0, with SiLU behind it if `activation` is 1."""
    return _normalized(node, emit, node.input(0))


@onnx_op("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(node: OnnxNode, emit: SizeEmit) -> tuple[Value, Value]:
    """GroupNorm of a sum, which is the second output. What is added has an element for each pixel, or for each channel."""
    x, skip = node.input(0), node.input(3)
    if skip.type.rank == 2:
        batch, channels = skip.shape
        last = bool(node.int("channels_last", 1))
        skip = to_shape(emit, skip, (batch, 1, 1, channels) if last else (batch, channels, 1, 1))
    bias = node.optional(4)
    if bias is not None and not node.int("channels_last", 1):
        bias = to_shape(emit, bias, (*bias.shape, 1, 1))
    total = biased(emit, emit(Binary("Add"), x, skip), bias)
    return _normalized(node, emit, total), total


def _normalized(node: OnnxNode, emit: SizeEmit, x: Value) -> Value:
    last = bool(node.int("channels_last", 1))
    operator = GroupNorm(node.int("groups"), node.float("epsilon", 1e-5))
    scales = node.input(1), node.input(2)
    wide = converted(emit, channels_first(emit, x) if last else x, scales[0].dtype)
    y = emit(operator, wide, *scales)
    y = converted(emit, emit(Unary("Silu"), y) if node.int("activation") else y, x.dtype)
    return channels_last(emit, y) if last else y
