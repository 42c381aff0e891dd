"""The types that the file declares: those of inputs, and those that results are compared with."""

from __future__ import annotations

import numpy as np
import onnx_ir

from graphc.errors import ModelError
from graphc.frontend.onnx.dims import Dimensions, name_of
from graphc.frontend.onnx.tensors import Refused, Unknown, element_type, same_type
from graphc.ir import TensorType, Value
from graphc.ir.types import STRING
from graphc.shapes import Dim, is_static


def input_type(value: onnx_ir.Value, dimensions: Dimensions) -> TensorType:
    """The type of a model's input; a size without a name gets one. Raises Refused for what is not a tensor."""
    if value.type is not None and not isinstance(value.type, onnx_ir.TensorType):
        raise Unknown(f"is a {type(value.type).__name__}, not a tensor")
    if value.type is None or value.shape is None:
        raise Unknown("has no declared rank", "export it with the shapes of its inputs")
    shape = tuple(_dim(value, axis, dimensions) for axis in range(len(value.shape)))
    dimensions.note_batch(shape)
    return TensorType(element_type(value.type.dtype), shape)


def _dim(value: onnx_ir.Value, axis: int, dimensions: Dimensions) -> Dim:
    assert value.shape is not None
    size = value.shape[axis]
    if isinstance(size, int):
        return size if size >= 0 else dimensions.unnamed(value.name or "input", axis)
    name = name_of(size)
    return dimensions.unnamed(value.name or "input", axis) if name is None else dimensions.named(name)


def placeholder(value: onnx_ir.Value) -> Value | None:
    """A value of the declared type, where a problem kept the real one from being made and all sizes are declared: so
    that what comes after it can be looked at too."""
    if not isinstance(value.type, onnx_ir.TensorType) or value.shape is None:
        return None
    sizes = [size for size in value.shape if isinstance(size, int) and size >= 0]
    if len(sizes) != len(value.shape):
        return None
    try:
        return Value(value.name or "value", TensorType(element_type(value.type.dtype), tuple(sizes)))
    except (Refused, ModelError):
        return None


def check_declared(value: onnx_ir.Value, found: Value) -> None:
    """Compare what the file declares of a value with what it is. Raises ModelError."""
    check_type(value, found)
    if reason := other_shape(value, found):
        raise ModelError(reason)


def check_type(value: onnx_ir.Value, found: Value) -> None:
    """Compare the declared type of a value's elements with theirs. Raises ModelError."""
    declared = value.type
    if isinstance(declared, onnx_ir.TensorType) and declared.dtype != onnx_ir.DataType.UNDEFINED:
        dtype = _element_type(declared.dtype)
        if dtype is None or not same_type(dtype, found.dtype):
            name = declared.dtype.name.lower() if dtype in (None, STRING) else dtype.name
            raise ModelError(f"{value.name} is declared {name} but is {found.dtype.name}")


def other_shape(value: onnx_ir.Value, found: Value) -> str:
    """In what a value's shape differs from the declared one, which means nothing to those who run a model: tools change
    operators and leave what was declared of results. Empty where they agree."""
    if value.shape is None:
        return ""
    sizes = [size if isinstance(size, int) and size >= 0 else None for size in value.shape]
    agree = len(sizes) == len(found.shape) and all(
        size is None or not is_static(actual) or size == actual for size, actual in zip(sizes, found.shape, strict=True)
    )
    shown = ", ".join(map(str, value.shape))
    return (
        "" if agree else f"{value.name} is declared with shape [{shown}] but has [{', '.join(map(str, found.shape))}]"
    )


def _element_type(declared: onnx_ir.DataType) -> np.dtype | None:
    """The type of elements; None of those that no value can have."""
    try:
        return STRING if declared == onnx_ir.DataType.STRING else element_type(declared)
    except Refused:
        return None
