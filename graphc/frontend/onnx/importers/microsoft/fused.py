"""Products and convolutions with what is done behind them."""

from __future__ import annotations

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.conv import convolution
from graphc.frontend.onnx.importers.matmul import general_product, scaled
from graphc.frontend.onnx.importers.microsoft.activations import activated, biased
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Transpose


@onnx_op("FusedConv", domain=MICROSOFT)
def fused_conv(node: OnnxNode, emit: SizeEmit) -> Value:
    """A convolution, what is added to it, and an activation."""
    y = convolution(node, emit, node.input(0), node.input(1), node.optional(2))
    return activated(node, emit, biased(emit, y, node.optional(3)))


@onnx_op("FusedGemm", domain=MICROSOFT)
def fused_gemm(node: OnnxNode, emit: SizeEmit) -> Value:
    """Gemm and an activation."""
    return activated(node, emit, general_product(node, emit))


@onnx_op("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(node: OnnxNode, emit: SizeEmit) -> Value:
    """alpha * A' B'."""
    a, a_swapped = _operand(node, emit, 0, "A")
    b, b_swapped = _operand(node, emit, 1, "B")
    return scaled(emit, emit(MatMul(a_swapped, b_swapped), a, b), node.float("alpha", 1.0))


@onnx_op("FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul_activation(node: OnnxNode, emit: SizeEmit) -> Value:
    """alpha * A' B', and an activation of single elements."""
    refuse_unless(node.string("activation") != "Softmax", "a softmax as activation is not supported")
    return activated(node, emit, fused_matmul(node, emit))


def _operand(node: OnnxNode, emit: SizeEmit, index: int, name: str) -> tuple[Value, bool]:
    """An operand, its first axis moved before the last one if `transBatch` is set, and whether its last two axes are swapped.
    A vector has none to swap."""
    x = node.input(index)
    rank = x.type.rank
    if rank > 2 and node.int(f"transBatch{name}", 0):
        x = emit(Transpose((*range(1, rank - 1), 0, rank - 1)), x)
    return x, rank > 1 and bool(node.int(f"trans{name}", 0))
