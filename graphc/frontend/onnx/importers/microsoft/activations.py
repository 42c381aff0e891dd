"""Activations, with the bias before them."""

from __future__ import annotations

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.matmul import scaled
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.pointwise import converted
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ops.activations import Clip, Gelu, Swish, all_activations
from graphc.ops.base import normalize_axis
from graphc.ops.functions import UNARY
from graphc.ops.matmul import MatMul
from graphc.ops.pointwise import Binary, Unary
from graphc.ops.softmax import Softmax
from graphc.shapes import product


@onnx_op("Gelu", "BiasGelu", domain=MICROSOFT)
def gelu(node: OnnxNode, emit: SizeEmit) -> Value:
    """The exact gelu, after a bias if there is one."""
    return emit(Gelu("none"), biased(emit, node.input(0), node.optional(1)))


@onnx_op("FastGelu", domain=MICROSOFT)
def fast_gelu(node: OnnxNode, emit: SizeEmit) -> Value:
    """The gelu by tanh, after a bias if there is one."""
    return emit(Gelu("tanh"), biased(emit, node.input(0), node.optional(1)))


@onnx_op("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu(node: OnnxNode, emit: SizeEmit) -> Value:
    """The gelu by tanh of a matrix product with a bias."""
    product = emit(MatMul(), node.input(0), node.input(1))
    return emit(Gelu("tanh"), biased(emit, product, node.optional(2)))


@onnx_op("QuickGelu", domain=MICROSOFT)
def quick_gelu(node: OnnxNode, emit: SizeEmit) -> Value:
    """x * sigmoid(1.702 * x)."""
    return emit(Swish(node.float("alpha", 1.702)), node.input(0))


@onnx_op("ScaledSiLU", domain=MICROSOFT)
def scaled_silu(node: OnnxNode, emit: SizeEmit) -> Value:
    """SiLU of x times a number, which is an input or the attribute alpha."""
    x, factor = node.input(0), node.optional(1)
    if factor is None:
        return emit(Unary("Silu"), scaled(emit, x, node.float("alpha", 1.0)))
    return emit(Unary("Silu"), emit(Binary("Mul"), x, converted(emit, factor, x.dtype)))


@onnx_op("SwiGLU", domain=MICROSOFT)
def swiglu(node: OnnxNode, emit: SizeEmit) -> Value:
    """SwiGLU of two tensors, or of the halves of one's last axis."""
    gate, up, limit = node.input(0), node.optional(1), node.float("limit", 0.0)
    if up is None:
        axis, half = gate.type.rank - 1, gate.shape[-1] // 2
        gate, up = (cut(emit, gate, axis, start, half) for start in (0, half))
    return gated(node, emit, gate, up, limit if limit > 0 else None)


def gated(node: OnnxNode, emit: SizeEmit, gate: Value, up: Value, limit: float | None) -> Value:
    """SwiGLU with the settings of a node: numbers are kept below a limit first if there is one."""
    if limit is not None:
        gate, up = emit(Clip(None, limit), gate), emit(Clip(-limit, limit), up)
    beta = node.float("activation_beta", 0.0)
    up = up if beta == 0.0 else emit(Binary("Add"), up, emit.constant(beta, like=up))
    return emit(Binary("Mul"), emit(Swish(node.float("activation_alpha", 1.0)), gate), up)


@onnx_op("GatedAdd", domain=MICROSOFT)
def gated_add(node: OnnxNode, emit: SizeEmit) -> Value:
    """x + y * gate."""
    refuse_unless(node.optional(3) is None, "a gate that is projected is not supported")
    return emit(Binary("Add"), node.input(0), emit(Binary("Mul"), node.input(1), node.input(2)))


@onnx_op("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(node: OnnxNode, emit: SizeEmit) -> Value:
    """The first half of the last axis times the exact gelu of the second, after a bias."""
    x = biased(emit, node.input(0), node.input(1))
    axis, half = x.type.rank - 1, x.shape[-1] // 2
    left, right = cut(emit, x, axis, 0, half), cut(emit, x, axis, half, half)
    return emit(Binary("Mul"), left, emit(Gelu("none"), right))


@onnx_op("BiasAdd", domain=MICROSOFT)
def bias_add(node: OnnxNode, emit: SizeEmit) -> Value:
    """A bias and a residual are added."""
    return emit(Binary("Add"), biased(emit, node.input(0), node.input(1)), node.input(2))


@onnx_op("BiasDropout", domain=MICROSOFT)
def bias_dropout(node: OnnxNode, emit: SizeEmit) -> Value:
    """A bias and a residual are added; nothing is dropped outside training."""
    training = node.optional(4)
    refuse_unless(training is None or not emit.scalar(training, "the mode"), "dropping while training is not supported")
    refuse_unless(not node.wants(1), "the mask of what is dropped as an output is not supported")
    return biased(emit, biased(emit, node.input(0), node.input(1)), node.optional(2))


@onnx_op("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(node: OnnxNode, emit: SizeEmit) -> Value:
    """A softmax over the axes from `axis` on, as if they were one, after a bias."""
    x = biased(emit, node.input(0), node.input(1))
    axis = normalize_axis(node.int("axis", 1), x.type.rank)
    flat = to_shape(emit, x, (*x.shape[:axis], product(x.shape[axis:])))
    return to_shape(emit, emit(Softmax(axis), flat), x.shape)


def biased(emit: SizeEmit, x: Value, bias: Value | None) -> Value:
    """x + bias, if there is one."""
    return x if bias is None else emit(Binary("Add"), x, bias)


def activated(node: OnnxNode, emit: SizeEmit, x: Value) -> Value:
    """What the attribute `activation` names, of x. Its settings are the attribute `activation_params`, in their order, or
    attributes of their own with the prefix `activation_`."""
    name = node.string("activation", "")
    if not name:
        return x
    if name in UNARY:
        return emit(Unary(name), x)
    known = all_activations()
    refuse_unless(name in known, f"the activation {name} is not supported")
    settings = known[name].usual()
    if node.has("activation_params"):
        given = dict(zip(settings, node.floats("activation_params"), strict=False))
    else:
        given = {each: node.float(f"activation_{each}", usual) for each, usual in settings.items()}
    return emit(known[name](**given), x)
