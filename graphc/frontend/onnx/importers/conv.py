"""Convolutions."""

from __future__ import annotations

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.windows import AUTO_PADS, explicit_pads, halves, padded, spatial
from graphc.frontend.onnx.node import PIN, OnnxNode, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.frontend.onnx.tensors import Refused
from graphc.ir import Value
from graphc.ops.conv import Conv, ConvTranspose
from graphc.shapes import Dim, is_static, static_shape


@onnx_op("Conv")
def conv(node: OnnxNode, emit: SizeEmit) -> Value:
    """Cross-correlation; the bias may be left out, or be the zeros that PyTorch's exporter writes for volumes, twice as many."""
    x, w, bias = node.input(0), node.input(1), node.optional(2)
    if bias is not None and bias.shape == (w.shape[0], 2):
        zeros = emit.known(bias)
        bias = bias if zeros is None or zeros.any() else None
    return convolution(node, emit, x, w, bias)


def convolution(node: OnnxNode, emit: SizeEmit, x: Value, w: Value, bias: Value | None) -> Value:
    """A convolution with the node's settings."""
    x, found = padded(node, emit, x, kernel_of(node, x, w))
    operator = Conv(found.strides, found.dilations, found.before, found.after, node.int("group", 1))
    return emit(operator, x, w) if bias is None else emit(operator, x, w, bias)


def kernel_of(node: OnnxNode, x: Value, w: Value) -> tuple[int, ...]:
    """The kernel's spatial sizes, which the attribute kernel_shape may repeat."""
    if x.type.rank < 3 or w.type.rank != x.type.rank:
        raise ModelError(f"a convolution of {x.type} with {w.type}")
    refuse_unless(x.type.rank <= 5, f"a convolution over {x.type.rank - 2} axes")
    kernel = static_shape(w.shape[2:])
    if kernel is None:
        raise Refused("the kernel's sizes are symbolic")
    if tuple(node.ints("kernel_shape", kernel)) != kernel:
        raise ModelError(
            f"attribute kernel_shape is {node.ints('kernel_shape')}, the kernel's sizes are {list(kernel)}"
        )
    return kernel


@onnx_op("ConvTranspose")
def conv_transpose(node: OnnxNode, emit: SizeEmit) -> Value:
    """The transpose of a convolution. Padding may be given, or follow from output_shape or auto_pad."""
    x, w, bias = node.input(0), node.input(1), node.optional(2)
    kernel = kernel_of(node, x, w)
    rank = len(kernel)
    strides, dilations = spatial(node, "strides", rank, 1), spatial(node, "dilations", rank, 1)
    extra = spatial(node, "output_padding", rank, 0, least=0)
    extents = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    full: list[Dim] = [
        stride * (size - 1) + more + extent
        for size, stride, more, extent in zip(x.shape[2:], strides, extra, extents, strict=True)
    ]
    before, after, beyond = _transposed_pads(node, x, full, strides)
    extra = tuple(a + b for a, b in zip(extra, beyond, strict=True))
    operator = ConvTranspose(strides, dilations, before, after, extra, node.int("group", 1))
    return emit(operator, x, w) if bias is None else emit(operator, x, w, bias)


def _transposed_pads(
    node: OnnxNode, x: Value, full: list[Dim], strides: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """What is cut from the full result at each end, and how far the wanted result goes beyond it."""
    rank = len(full)
    none = (0,) * rank
    auto = node.choice("auto_pad", "NOTSET", AUTO_PADS)
    if node.has("output_shape"):
        wanted = node.ints("output_shape")[-rank:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * stride for size, stride in zip(x.shape[2:], strides, strict=True)]
    else:
        return (*(explicit_pads(node, rank) if auto == "NOTSET" else (none, none)), none)
    totals = [a - b for a, b in zip(full, wanted, strict=True)]
    refuse_unless(is_static(*totals), "the padding depends on a symbolic size", PIN)
    cut = [max(int(total), 0) for total in totals]
    return (*halves(cut, auto == "SAME_UPPER"), tuple(max(-int(total), 0) for total in totals))
