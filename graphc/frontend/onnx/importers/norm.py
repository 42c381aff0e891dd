"""Normalizations and the softmax family."""

from __future__ import annotations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ops.base import normalize_axis
from graphc.ops.norm import LRN, BatchNorm, GroupNorm, InstanceNorm, LayerNorm, LpNorm, RMSNorm
from graphc.ops.pointwise import Binary, Cast
from graphc.ops.reduce import Reduce
from graphc.ops.softmax import Hardmax, LogSoftmax, Softmax
from graphc.shapes import product

SOFTMAXES = {"Softmax": Softmax, "LogSoftmax": LogSoftmax, "Hardmax": Hardmax}


@onnx_op(*SOFTMAXES)
def softmax(node: OnnxNode, emit: SizeEmit) -> Value:
    """Along one axis since opset 13; before, along all axes from one on, as if they were one."""
    x = node.input(0)
    operator = SOFTMAXES[node.operator]
    axis = normalize_axis(node.int("axis", -1 if node.opset >= 13 else 1), x.type.rank)
    if node.opset >= 13 or axis == x.type.rank - 1:
        return emit(operator(axis), x)
    flat = to_shape(emit, x, (*x.shape[:axis], product(x.shape[axis:])))
    return to_shape(emit, emit(operator(axis), flat), x.shape)


@onnx_op("LayerNormalization")
def layer_normalization(node: OnnxNode, emit: SizeEmit) -> Value | None:
    """Over the axes from `axis` on. The mean and deviation as further outputs are left to the schema's body."""
    if node.wants(1) or node.wants(2):
        return None
    x, scale, bias = node.input(0), node.input(1), node.optional(2)
    operator = LayerNorm(normalize_axis(node.int("axis", -1), x.type.rank), node.float("epsilon", 1e-5))
    return emit(operator, x, scale) if bias is None else emit(operator, x, scale, bias)


@onnx_op("RMSNormalization")
def rms_normalization(node: OnnxNode, emit: SizeEmit) -> Value:
    """By the root of the mean of squares."""
    x = node.input(0)
    operator = RMSNorm(normalize_axis(node.int("axis", -1), x.type.rank), node.float("epsilon", 1e-5))
    return emit(operator, x, node.input(1))


@onnx_op("GroupNormalization")
def group_normalization(node: OnnxNode, emit: SizeEmit) -> Value | None:
    """Scale and bias for each channel since opset 21; before, for each group, which the schema's body says."""
    if node.opset < 21:
        return None
    operator = GroupNorm(node.int("num_groups"), node.float("epsilon", 1e-5))
    return emit(operator, node.input(0), node.input(1), node.input(2))


@onnx_op("InstanceNormalization")
def instance_normalization(node: OnnxNode, emit: SizeEmit) -> Value:
    """Each channel of each image."""
    return emit(InstanceNorm(node.float("epsilon", 1e-5)), node.input(0), node.input(1), node.input(2))


@onnx_op("BatchNormalization")
def batch_normalization(node: OnnxNode, emit: SizeEmit) -> Value | tuple[Value, ...]:
    """By known means and variances; in training mode by those of the batch, which then update the known ones."""
    if node.int("training_mode", 0):
        return _trained(node, emit)
    refuse_unless(node.int("spatial", 1) == 1, "batch normalization that is not spatial is not supported")
    if any(node.wants(index) for index in range(1, 5)):
        refuse_unless(False, "running statistics as outputs are not supported", "export in evaluation mode")
    inputs = [node.input(index) for index in range(5)]
    if inputs[0].type.rank < 2:
        raise ModelError(f"batch normalization of {inputs[0].type}")
    return emit(BatchNorm(node.float("epsilon", 1e-5)), *inputs)


def _trained(node: OnnxNode, emit: SizeEmit) -> tuple[Value, ...]:
    x, scale, bias, *running = (node.input(index) for index in range(5))
    axes = tuple(axis for axis in range(x.type.rank) if axis != 1)
    mean = emit(Reduce("mean", axes, True), x)
    apart = emit(Binary("Sub"), x, mean)
    variance = emit(Reduce("mean", axes, True), emit(Binary("Mul"), apart, apart))
    batch = [to_shape(emit, found, (x.shape[1],)) for found in (mean, variance)]
    momentum = node.float("momentum", 0.9)
    updated = []
    for old, new in zip(running, batch, strict=True):
        kept = emit(Binary("Mul"), old, emit.constant(momentum, like=old))
        new = new if new.dtype == old.dtype else emit(Cast(old.dtype), new)
        added = emit(Binary("Mul"), new, emit.constant(1 - momentum, like=old))
        updated.append(emit(Binary("Add"), kept, added))
    return emit(BatchNorm(node.float("epsilon", 1e-5)), x, scale, bias, *batch), *updated


@onnx_op("LpNormalization")
def lp_normalization(node: OnnxNode, emit: SizeEmit) -> Value:
    """By the 1-norm or the 2-norm of an axis."""
    x, p = node.input(0), node.int("p", 2)
    if p not in (1, 2):
        raise ModelError(f"attribute p is {p}, not 1 or 2")
    least = float(np.finfo(x.dtype).smallest_normal)  # 0 divided by that is 0
    return emit(LpNorm(normalize_axis(node.int("axis", -1), x.type.rank), p, least), x)


@onnx_op("LRN")
def lrn(node: OnnxNode, emit: SizeEmit) -> Value:
    """By the squares of neighbouring channels."""
    operator = LRN(node.int("size"), node.float("alpha", 1e-4), node.float("beta", 0.75), node.float("bias", 1.0))
    return emit(operator, node.input(0))
