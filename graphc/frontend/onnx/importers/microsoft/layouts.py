"""Images whose channels are last."""

from __future__ import annotations

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.conv import convolution
from graphc.frontend.onnx.importers.microsoft.activations import activated, biased
from graphc.frontend.onnx.importers.pool import maxima
from graphc.frontend.onnx.node import OnnxNode
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ops.movement import Transpose


def channels_first(emit: SizeEmit, x: Value) -> Value:
    """[N, *spatial, C] as [N, C, *spatial]."""
    rank = x.type.rank
    return emit(Transpose((0, rank - 1, *range(1, rank - 1))), x)


def channels_last(emit: SizeEmit, x: Value) -> Value:
    """[N, C, *spatial] as [N, *spatial, C]."""
    rank = x.type.rank
    return emit(Transpose((0, *range(2, rank), 1)), x)


@onnx_op("NhwcConv", domain=MICROSOFT)
def channels_last_conv(node: OnnxNode, emit: SizeEmit) -> Value:
    """A convolution whose images and kernels [C_out, *kernel, C] have their channels last."""
    kernel = channels_first(emit, node.input(1))
    return channels_last(emit, convolution(node, emit, channels_first(emit, node.input(0)), kernel, node.optional(2)))


@onnx_op("NhwcFusedConv", domain=MICROSOFT)
def channels_last_fused_conv(node: OnnxNode, emit: SizeEmit) -> Value:
    """A convolution of images whose channels are last, with a kernel whose channels are not, as FusedConv otherwise."""
    y = convolution(node, emit, channels_first(emit, node.input(0)), node.input(1), node.optional(2))
    return activated(node, emit, biased(emit, channels_last(emit, y), node.optional(3)))


@onnx_op("NhwcMaxPool", domain=MICROSOFT)
def channels_last_max_pool(node: OnnxNode, emit: SizeEmit) -> Value:
    """The largest element of each window, of images whose channels are last."""
    return channels_last(emit, maxima(node, emit, channels_first(emit, node.input(0))))
