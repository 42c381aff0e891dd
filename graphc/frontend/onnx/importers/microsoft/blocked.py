"""The domain com.microsoft.nchwc: images whose channels lie in memory in blocks of 8 or 16, which onnxruntime's optimizer writes
at its full level.

Blocked tensors have the shapes of others, their channels filled up to whole blocks. So they are imported as others; only the
kernels, constants that were laid out in blocks, are laid out as others again.
"""

from __future__ import annotations

from functools import partial

import onnx_ir
from numpy._core._multiarray_umath import __cpu_features__

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.conv import convolution
from graphc.frontend.onnx.importers.microsoft.activations import activated, biased
from graphc.frontend.onnx.importers.microsoft.layouts import channels_first, channels_last
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.pool import averages, maxima
from graphc.frontend.onnx.importers.reduce import global_pool
from graphc.frontend.onnx.importers.resize import by_scales
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, fixed_size
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ops.movement import Pad, Transpose
from graphc.ops.resize import Resize
from graphc.shapes import ceil_div

DOMAIN = "com.microsoft.nchwc"
SMALL, LARGE = 8, 16
LARGE_ON = ("AVX512F", "ASIMD")
"""Features of processors on which onnxruntime takes the large blocks."""

COORDINATES = ("asymmetric", "align_corners", "half_pixel")

blocked_op = partial(onnx_op, domain=DOMAIN)

blocked_op("GlobalAveragePool", "GlobalMaxPool")(global_pool)


@blocked_op("ReorderInput")
def reorder_input(node: OnnxNode, emit: SizeEmit) -> Value:
    """Channels, first or last, filled up to whole blocks."""
    x = node.input(0)
    x = channels_first(emit, x) if node.int("channels_last", 0) else x
    channels = fixed_size(x.shape[1], "the number of channels")
    after = -channels % block_size(node.model)
    return emit(Pad((0,) * 4, (0, after, 0, 0)), x) if after else x


@blocked_op("ReorderOutput")
def reorder_output(node: OnnxNode, emit: SizeEmit) -> Value:
    """The channels that were there before they were filled up, first or last."""
    x = cut(emit, node.input(0), 1, 0, node.int("channels"))
    return channels_last(emit, x) if node.int("channels_last", 0) else x


@blocked_op("Conv")
def blocked_conv(node: OnnxNode, emit: SizeEmit) -> Value:
    """A convolution, what is added to it, and an activation. The kernel is in blocks."""
    x, w = node.input(0), node.input(1)
    size = block_size(node.model)
    y = convolution(node, emit, x, _plain_kernel(emit, w, size, _by_channels(node, w, size)), node.optional(2))
    return activated(node, emit, biased(emit, y, node.optional(3)))


@blocked_op("MaxPool")
def blocked_max_pool(node: OnnxNode, emit: SizeEmit) -> Value:
    """The largest element of each window."""
    return maxima(node, emit, node.input(0))


@blocked_op("AveragePool")
def blocked_average_pool(node: OnnxNode, emit: SizeEmit) -> Value:
    """The mean of each window."""
    return averages(node, emit, node.input(0))


@blocked_op("Upsample")
def blocked_upsample(node: OnnxNode, emit: SizeEmit) -> Value:
    """A resize by whole factors: nearest, or linear with one of three kinds of coordinates."""
    x = node.input(0)
    target = by_scales(x.shape, [float(scale) for scale in node.ints("scales")])
    mode = node.choice("mode", "nearest", ("nearest", "linear"))
    coordinate = node.choice("coordinate_transformation_mode", "asymmetric", COORDINATES)
    if mode == "nearest":
        coordinate = "asymmetric"
    return emit(Resize(target.sizes, target.scales, mode, coordinate, nearest="floor"), x)


def _by_channels(node: OnnxNode, w: Value, size: int) -> bool:
    """True if a kernel's input channels are in blocks too: not if it reads an image that is not, or one channel each."""
    group, channels = node.int("group", 1), fixed_size(w.shape[1], "the number of channels")
    return channels >= size if group == 1 else channels > 1


def _plain_kernel(emit: SizeEmit, w: Value, size: int, by_channels: bool) -> Value:
    """[O, I, H, W], held as [O / size, I, H, W, size] or [O / size, I / size, H, W, size, size], in its own order."""
    out, channels, height, width = (fixed_size(each, "a size of the kernel") for each in w.shape)
    if out % size or (by_channels and channels % size):
        raise ModelError(f"the kernel {w.type} is not in blocks of {size}")
    if not by_channels:
        blocks = to_shape(emit, w, (out // size, channels, height, width, size))
        return to_shape(emit, emit(Transpose((0, 4, 1, 2, 3)), blocks), w.shape)
    blocks = to_shape(emit, w, (out // size, channels // size, height, width, size, size))
    return to_shape(emit, emit(Transpose((0, 5, 1, 4, 2, 3)), blocks), w.shape)


def block_size(graph: onnx_ir.Graph) -> int:
    """How many channels are a block: what the model's kernels and channels show. Where all of them are whole blocks of both
    sizes, it is what onnxruntime takes on this processor, as its documentation asks of such files."""
    nodes = [node for node in graph if node.domain == DOMAIN]
    kernels = [_kernel(node) for node in nodes if node.op_type == "Conv"]
    if any(out % LARGE for out, _, _ in kernels):
        return SMALL
    if any(group == 1 and SMALL < channels < LARGE for _, channels, group in kernels):
        return LARGE
    kept = [node.attributes.get_int("channels", 0) for node in nodes if node.op_type == "ReorderOutput"]
    if any(ceil_div(channels, SMALL) % 2 for channels in kept):
        return LARGE
    return LARGE if any(__cpu_features__.get(feature) for feature in LARGE_ON) else SMALL


def _kernel(node: onnx_ir.Node) -> tuple[int, int, int]:
    """Output channels, input channels of a group, groups."""
    value = node.inputs[1]
    shape = None if value is None else value.shape
    if value is None or value.const_value is None or shape is None or len(shape) != 4:
        raise ModelError(f"the kernel of {node.name or 'a convolution'} is not a constant of four axes")
    return int(shape[0]), int(shape[1]), node.attributes.get_int("group", 1)  # type: ignore[arg-type]
