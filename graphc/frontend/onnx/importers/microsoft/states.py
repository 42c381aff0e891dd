"""Layers that carry a state from one call to the next."""

from __future__ import annotations

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, fixed_size, refuse_unless
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ops.conv import Conv
from graphc.ops.movement import Concat, Expand, Transpose
from graphc.ops.pointwise import Unary
from graphc.shapes import product

USUAL = {
    "state_window": 0,
    "state_update_capacity": 0,
    "state_length": 0,
    "input_channels": 0,
    "input_channel_offset": 0,
}
"""What only kernels for GPUs know, if it is something else."""


@onnx_op("CausalConvWithState", domain=MICROSOFT)
def causal_conv(node: OnnxNode, emit: SizeEmit) -> tuple[Value, Value]:
    """A convolution of each channel over what came before, [B, C, L], or [B, L, ...] with channels last: the result, and the
    rows that the next call is to get."""
    refuse_unless(node.int("ndim", 1) == 1, "a causal convolution of images is not supported")
    unusual = [name for name, usual in USUAL.items() if node.int(name, usual) != usual]
    refuse_unless(not unusual and node.int("state_channels_last", -1) == -1, f"{', '.join(unusual)} is not supported")
    activation = node.choice("activation", "none", ("none", "silu", "swish"))
    last, dilation = bool(node.int("channels_last", 0)), node.int("dilation", 1)
    x, w, bias, past = node.input(0), node.input(1), node.optional(2), node.optional(3)
    channels = fixed_size(w.shape[0], "the number of channels")
    before = (fixed_size(w.shape[2], "the kernel") - 1) * dilation
    rest = x.shape[2:]
    if last:
        x, past = _first(emit, x, channels), past and _first(emit, past, channels)
    if x.type.rank != 3:
        raise ModelError("a causal convolution of a tensor that does not have three axes")
    if past is None:
        past = emit(Expand((x.shape[0], channels, before)), emit.constant(0.0, like=x))
    whole = emit(Concat(2), past, x)
    operands = (whole, w) if bias is None else (whole, w, bias)
    y = emit(Conv((1,), (dilation,), (0,), (0,), channels), *operands)
    y = y if activation == "none" else emit(Unary("Silu"), y)
    present = cut(emit, whole, 2, whole.shape[2] - before, before)
    if last:
        y, present = (
            to_shape(emit, emit(Transpose((0, 2, 1)), each), (each.shape[0], each.shape[2], *rest))
            for each in (y, present)
        )
    return y, present


def _first(emit: SizeEmit, x: Value, channels: int) -> Value:
    """[B, L, ...] as [B, channels, L]."""
    if product(x.shape[2:]) != channels:
        raise ModelError(f"{x.type} for {channels} channels")
    return emit(Transpose((0, 2, 1)), to_shape(emit, x, (*x.shape[:2], channels)))
