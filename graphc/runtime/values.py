"""`OrtValue` and `IOBinding`, for code that was written for onnxruntime: arrays that a session reads and writes where they lie.

They lie on the host. A session on another device copies them there and back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import InputError
from graphc.ir.foreign import named
from graphc.runtime.lent import Capsule, lent

if TYPE_CHECKING:
    from graphc.runtime.session import Session

ELEMENTS = {"float32": "float", "float64": "double"}
"""Types that onnxruntime calls by other names than NumPy."""

_NAMES = """
    float32 uint8 int8 uint16 int16 int32 int64 object bool float16 float64 uint32 uint64 complex64 complex128 bfloat16
    float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz uint4 int4 float4_e2m1fn float8_e8m0fnu uint2 int2
    float6_e2m3fn float6_e3m2fn
"""
ELEMENT_TYPES: dict[int, np.dtype] = {number: named(name) for number, name in enumerate(_NAMES.split(), 1)}
"""NumPy's types by ONNX's numbers (`TensorProto.DataType`); `object` are strings."""


def type_text(dtype: np.dtype) -> str:
    """A tensor's type as onnxruntime writes it: `tensor(float)`."""
    return f"tensor({ELEMENTS.get(dtype.name, dtype.name)})"


class OrtValue:
    """A tensor, in an array of NumPy's."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: np.ndarray, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """The array as it lies there. Raises InputError for a device that is not the CPU."""
        _check_device(device_type)
        return OrtValue(np.ascontiguousarray(numpy_obj).reshape(np.shape(numpy_obj)))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: np.ndarray, onnx_element_type: int) -> OrtValue:
        """The array as it lies there, its bytes taken for elements of a type by ONNX's number. Raises InputError."""
        dtype, array = dtype_of(onnx_element_type), np.asarray(data, order="C")
        if dtype.itemsize != array.itemsize or dtype.hasobject or array.dtype.hasobject:
            raise InputError(f"elements of {array.dtype.name} cannot be taken for {dtype.name}")
        return OrtValue(array.view(dtype))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """A tensor to be written, of a type of NumPy's or a number of ONNX's. Raises InputError."""
        _check_device(device_type)
        return OrtValue(np.zeros(tuple(shape), dtype_of(element_type)))

    @staticmethod
    def from_dlpack(data: Any) -> OrtValue:
        """Another library's tensor, or a capsule of it, where it lies. Raises InputError for one that is not on the CPU."""
        return OrtValue(lent(data if hasattr(data, "__dlpack__") else Capsule(data)))

    def to_dlpack(self) -> Any:
        """A capsule, for libraries that take one."""
        return self.__dlpack__()

    def __dlpack__(self, **settings: Any) -> Any:
        """For other libraries."""
        return self._array.__dlpack__(**settings)

    def __dlpack_device__(self) -> tuple[int, int]:
        """For other libraries."""
        return self._array.__dlpack_device__()

    def numpy(self) -> np.ndarray:
        """The elements."""
        return self._array

    def shape(self) -> list[int]:
        """Sizes."""
        return list(self._array.shape)

    def element_type(self) -> int:
        """ONNX's number of the type. Raises InputError for a type that has none."""
        kind = np.dtype(object) if self._array.dtype.kind == "U" else self._array.dtype
        number = next((number for number, known in ELEMENT_TYPES.items() if known == kind), None)
        if number is None:
            raise InputError(f"ONNX has no elements of type {kind}")
        return number

    def data_type(self) -> str:
        """The type as onnxruntime writes it."""
        return type_text(self._array.dtype)

    def device_name(self) -> str:
        """Where it lies."""
        return "cpu"

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._array.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """Bytes of the elements."""
        return int(self._array.nbytes)

    def update_inplace(self, np_arr: np.ndarray) -> None:
        """Take other elements, of the same type and sizes. Raises InputError."""
        write(self._array, np_arr, "the value")

    def has_value(self) -> bool:
        """True."""
        return True

    def is_tensor(self) -> bool:
        """True."""
        return True

    def is_sparse_tensor(self) -> bool:
        """False."""
        return False

    def is_tensor_sequence(self) -> bool:
        """False."""
        return False


class IOBinding:
    """Which arrays the runs of a session read, and which they write. Arrays are read when a run begins."""

    def __init__(self, session: Session) -> None:
        self._inputs = {each.name for each in session.get_inputs()}
        self._names = {each.name for each in session.get_outputs()}
        self._read: dict[str, np.ndarray] = {}
        self._written: dict[str, np.ndarray | None] = {}
        self._outputs: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Read an array, or another library's tensor, where it lies. Raises InputError for an input that there is not."""
        self._read[self._known(name, self._inputs, "input")] = lent(arr_on_cpu)

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Read elements at an address of the CPU's memory. Raises InputError."""
        _check_device(device_type)
        self.bind_cpu_input(name, at_address(buffer_ptr, shape, dtype_of(element_type)))

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Read a value. Raises InputError."""
        self.bind_cpu_input(name, ortvalue.numpy())

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Give an output: in a new array, or at an address of the CPU's memory. Raises InputError."""
        _check_device(device_type)
        if buffer_ptr is not None and (element_type is None or shape is None):
            raise InputError(f"output {name}: at an address it needs element_type and shape")
        self._known(name, self._names, "output")
        there = None if buffer_ptr is None else at_address(buffer_ptr, shape or (), dtype_of(element_type))
        self._written[name] = there

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Write an output into a value. Raises InputError."""
        self._written[self._known(name, self._names, "output")] = ortvalue.numpy()

    def synchronize_inputs(self) -> None:
        """Nothing is under way before a run."""

    def synchronize_outputs(self) -> None:
        """Nothing is under way after a run."""

    def get_outputs(self) -> list[OrtValue]:
        """What the last run gave, in the order in which outputs were bound."""
        return list(self._outputs)

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """The same as arrays of their own."""
        return [each.numpy().copy() for each in self._outputs]

    def clear_binding_inputs(self) -> None:
        """Read nothing."""
        self._read.clear()

    def clear_binding_outputs(self) -> None:
        """Give nothing."""
        self._written.clear()
        self._outputs = []

    def run(self, session: Session, run_options: Any) -> None:
        """Run a session with what is bound. Raises InputError if no output is, and as `Session.run` does."""
        if not self._written:
            raise InputError("no output is bound")
        targets = {name: target for name, target in self._written.items() if target is not None}
        found = session.run_into(targets, self._read, run_options)
        self._outputs = [OrtValue(targets.get(name, found[name])) for name in self._written]

    def _known(self, name: str, names: set[str], kind: str) -> str:
        if name not in names:
            raise InputError(f"the model has no {kind} {name}; it has {', '.join(sorted(names)) or 'none'}")
        return name


def write(target: np.ndarray, array: np.ndarray, what: str) -> None:
    """Copy elements to where others lie. Raises InputError for another type or other sizes."""
    if target.dtype != array.dtype or target.shape != array.shape:
        there = f"{target.dtype.name}{list(target.shape)}"
        raise InputError(f"{what} is {array.dtype.name}{list(array.shape)}, and where it goes there is {there}")
    target[...] = array


def at_address(address: int, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """The elements in the CPU's memory, of which the caller says that they are there."""
    count = prod(shape) * dtype.itemsize
    if not count:
        return np.empty(tuple(shape), dtype)
    raw = (ctypes.c_uint8 * count).from_address(address)
    return np.ctypeslib.as_array(raw).view(dtype).reshape(tuple(shape))


def dtype_of(element_type: Any) -> np.dtype:
    """NumPy's type of a type of its own, or of ONNX's number. Raises InputError."""
    try:
        return ELEMENT_TYPES[element_type] if isinstance(element_type, int) else np.dtype(element_type)
    except (TypeError, KeyError, ValueError) as error:
        raise InputError(f"{element_type!r} is not an element type") from error


def arrays_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of values, by name; what else is given stays what it is."""
    return {name: each.numpy() if isinstance(each, OrtValue) else each for name, each in given.items()}


def _check_device(device_type: str) -> None:
    if device_type.lower() not in ("cpu", "cuda_pinned"):
        raise InputError(
            f"values lie on the CPU, and not on {device_type!r}; a Session on another device copies them there and back"
        )
