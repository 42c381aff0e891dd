"""Operators that onnxruntime's tools put into files, of the domain com.microsoft."""

from __future__ import annotations

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ops.activations import Gelu, Swish
from graphc.ops.base import normalize_axis
from graphc.ops.matmul import MatMul
from graphc.ops.norm import LayerNorm, RMSNorm
from graphc.ops.pointwise import Binary

DOMAIN = "com.microsoft"


@onnx_op("Gelu", "BiasGelu", domain=DOMAIN)
def gelu(node: OnnxNode, emit: SizeEmit) -> Value:
    """The exact gelu, after a bias if there is one."""
    return emit(Gelu("none"), _biased(node, emit))


@onnx_op("FastGelu", domain=DOMAIN)
def fast_gelu(node: OnnxNode, emit: SizeEmit) -> Value:
    """The gelu by tanh, after a bias if there is one."""
    return emit(Gelu("tanh"), _biased(node, emit))


def _biased(node: OnnxNode, emit: SizeEmit) -> Value:
    x, bias = node.input(0), node.optional(1)
    return x if bias is None else emit(Binary("Add"), x, bias)


@onnx_op("QuickGelu", domain=DOMAIN)
def quick_gelu(node: OnnxNode, emit: SizeEmit) -> Value:
    """x * sigmoid(1.702 * x)."""
    return emit(Swish(node.float("alpha", 1.702)), node.input(0))


@onnx_op("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_layer_normalization(node: OnnxNode, emit: SizeEmit) -> tuple[Value | None, ...]:
    """The norm of the last axis of a sum; the fourth output is the sum."""
    simplified = node.operator != "SkipLayerNormalization"
    refuse_unless(not (node.wants(1) or node.wants(2)), "the mean and the deviation as outputs are not supported")
    total = emit(Binary("Add"), node.input(0), node.input(1))
    bias = node.optional(3 if simplified else 4)
    if bias is not None:
        total = emit(Binary("Add"), total, bias)
    axis, epsilon = total.type.rank - 1, node.float("epsilon", 1e-5 if simplified else 1e-12)
    if simplified:
        return emit(RMSNorm(axis, epsilon), total, node.input(2)), None, None, total
    shift = node.optional(3)
    parameters = (node.input(2),) if shift is None else (node.input(2), shift)
    return emit(LayerNorm(axis, epsilon), total, *parameters), None, None, total


@onnx_op("SimplifiedLayerNormalization")
@onnx_op("SimplifiedLayerNormalization", domain=DOMAIN)
def simplified_layer_normalization(node: OnnxNode, emit: SizeEmit) -> Value:
    """The root mean square norm, before ONNX had one."""
    refuse_unless(not node.wants(1), "the deviation as an output is not supported")
    x = node.input(0)
    operator = RMSNorm(normalize_axis(node.int("axis", -1), x.type.rank), node.float("epsilon", 1e-5))
    return emit(operator, x, node.input(1))


@onnx_op("FusedMatMul", domain=DOMAIN)
def fused_matmul(node: OnnxNode, emit: SizeEmit) -> Value:
    """alpha * A' B'."""
    batched = node.int("transBatchA", 0) or node.int("transBatchB", 0)
    refuse_unless(not batched, "transposing the batch is not supported")
    y = emit(MatMul(bool(node.int("transA", 0)), bool(node.int("transB", 0))), node.input(0), node.input(1))
    alpha = node.float("alpha", 1.0)
    return y if alpha == 1.0 else emit(Binary("Mul"), y, emit.constant(alpha, like=y))
