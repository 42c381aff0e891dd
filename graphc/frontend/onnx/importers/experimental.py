"""Operators of ONNX's first versions, which it dropped; old converters wrote them."""

from __future__ import annotations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.matmul import scaled
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.node import OnnxNode, fixed_size
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ops.pointwise import Binary, Unary


@onnx_op("Affine")
def affine(node: OnnxNode, emit: SizeEmit) -> Value:
    """alpha * x + beta."""
    y = scaled(emit, node.input(0), node.float("alpha", 1.0))
    return emit(Binary("Add"), y, emit.constant(node.float("beta", 0.0), like=y))


@onnx_op("Scale")
def scale(node: OnnxNode, emit: SizeEmit) -> Value:
    """x times a number."""
    return scaled(emit, node.input(0), node.float("scale", 1.0))


@onnx_op("ScaledTanh")
def scaled_tanh(node: OnnxNode, emit: SizeEmit) -> Value:
    """alpha * tanh(beta * x)."""
    inner = scaled(emit, node.input(0), node.float("beta", 1.0))
    return scaled(emit, emit(Unary("Tanh"), inner), node.float("alpha", 1.0))


@onnx_op("ParametricSoftplus")
def parametric_softplus(node: OnnxNode, emit: SizeEmit) -> Value:
    """alpha * log(1 + exp(beta * x))."""
    inner = scaled(emit, node.input(0), node.float("beta", 1.0))
    return scaled(emit, emit(Unary("Softplus"), inner), node.float("alpha", 1.0))


@onnx_op("ImageScaler")
def image_scaler(node: OnnxNode, emit: SizeEmit) -> Value:
    """An image [N, C, H, W] times a number, and a number for each channel added."""
    y, bias = scaled(emit, node.input(0), node.float("scale", 1.0)), np.array(node.floats("bias"))
    if y.type.rank != 4 or y.shape[1] != len(bias):
        raise ModelError(f"{len(bias)} numbers for the channels of {y.type}")
    return emit(Binary("Add"), y, emit.constant(bias.astype(y.dtype).reshape(1, -1, 1, 1)))


@onnx_op("Crop")
def crop(node: OnnxNode, emit: SizeEmit) -> Value:
    """An image without a border (left, top, right, bottom), or so many rows and columns (`scale`) behind the first two."""
    x, (left, top, right, bottom) = node.input(0), node.ints("border")
    height, width = (fixed_size(size, "the size of the image") for size in x.shape[2:])
    sizes = node.ints("scale", [height - top - bottom, width - left - right])
    ends = (top + sizes[0], left + sizes[1])
    if min(top, left, *sizes) < 0 or ends[0] > height or ends[1] > width:
        raise ModelError(f"{sizes[0]} x {sizes[1]} pixels from {top}, {left} on of {x.type}")
    return cut(emit, cut(emit, x, 2, top, sizes[0]), 3, left, sizes[1])
