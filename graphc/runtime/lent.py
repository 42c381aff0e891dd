"""Arrays of other libraries, used where they lie: DLPack's protocol, and what NumPy takes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from graphc.errors import InputError
from graphc.ir.foreign import foreign
from graphc.ir.types import BF16

HOSTS = {1, 3, 11}
"""DLPack's numbers of memory that the CPU reads: its own, and what CUDA and ROCm have pinned. Source: dlpack.h."""

DEVICES: Mapping[int, str] = {
    2: "CUDA",
    4: "OpenCL",
    7: "Vulkan",
    8: "Metal",
    10: "ROCm",
    13: "CUDA's managed memory",
    14: "oneAPI",
}
"""What other numbers stand for."""

TYPES: Mapping[tuple[int, int], np.dtype] = {
    (4, 16): BF16,
    (10, 8): foreign("float8_e4m3fn"),
    (11, 8): foreign("float8_e4m3fnuz"),
    (12, 8): foreign("float8_e5m2"),
    (13, 8): foreign("float8_e5m2fnuz"),
}
"""The types that NumPy's reader does not know, by DLPack's code and bits."""


class _Tensor(ctypes.Structure):
    """dlpack.h's DLTensor, with which a DLManagedTensor begins."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Capsule:
    """A capsule of DLPack's that was made before, as an object that makes it."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **settings: Any) -> Any:
        """The capsule."""
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where it lies, which its maker did not say: NumPy looks for itself."""
        return 1, 0


def lent(given: Any) -> np.ndarray:
    """The elements of an array, of another library's tensor, or of what NumPy makes one of, as a rule where they lie.

    Raises InputError for what is not on the CPU, and for what is no array.
    """
    if isinstance(given, np.ndarray):
        return given
    try:
        if not hasattr(given, "__dlpack__") or not hasattr(given, "__dlpack_device__"):
            return np.asarray(given)
        kind, number = given.__dlpack_device__()
        if kind not in HOSTS:
            raise InputError(
                f"lies on {DEVICES.get(int(kind), f'a device of kind {int(kind)}')} {number}, must be on the CPU"
            )
        return _of_dlpack(given)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        raise InputError(f"is not an array ({error})") from error


def _of_dlpack(given: Any) -> np.ndarray:
    try:
        return np.from_dlpack(given)
    except RuntimeError:
        array = _of_other_type(given.__dlpack__())
        if array is None:
            raise
        return array


def _of_other_type(capsule: Any) -> np.ndarray | None:
    """The elements in a capsule, if they are of one of `TYPES`. They live as long as it does."""
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(read(capsule, b"dltensor"))
    dtype = TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        return None
    shape = tensor.shape[: tensor.ndim]
    if not prod(shape):
        return np.empty(shape, dtype)
    steps = (
        tensor.strides[: tensor.ndim] if tensor.strides else [prod(shape[axis + 1 :]) for axis in range(tensor.ndim)]
    )
    if min(steps, default=0) < 0:
        return None
    reach = 1 + sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
    raw = (ctypes.c_uint8 * (reach * dtype.itemsize)).from_address(tensor.data + tensor.byte_offset)
    raw.capsule = capsule
    return np.ndarray(shape, dtype, np.frombuffer(raw, np.uint8), 0, [step * dtype.itemsize for step in steps])
