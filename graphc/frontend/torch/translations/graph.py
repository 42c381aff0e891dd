"""What translations are written with. Each is called with what an operator of PyTorch is called with, tensors being values of the
ONNX graph, and types numbers of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnx_ir import Shape
from onnxscript import opset18

Value = Any
"""A value of the ONNX graph."""

Translation = Callable[..., Any]

op: Any = opset18
"""ONNX's operators, which take numbers and lists of such for values too."""


def size_of(x: Value, axis: int) -> Value:
    """The size of an axis, as a list of one."""
    axis %= len(x.shape)
    size = x.shape[axis]
    return op.Constant(value_ints=[size]) if isinstance(size, int) else op.Shape(x, start=axis, end=axis + 1)


def squeeze_axes(x: Value, axes: Sequence[int]) -> Value:
    """Without those of the axes whose size is 1; ONNX refuses others, which PyTorch keeps."""
    unit = [axis for axis in axes if x.shape and x.shape[axis] == 1]
    return op.Squeeze(x, unit) if unit else op.Identity(x)


def squeeze_axis(x: Value, dim: int) -> Value:
    """Without this axis if its size is 1."""
    return squeeze_axes(x, [dim])


def like(x: Value, made: Value, shape: Sequence[Any]) -> Value:
    """A value that was made on the way, of the type of x and this shape, as the next ones are to know it."""
    made.dtype, made.shape = x.dtype, Shape(shape)
    return made
