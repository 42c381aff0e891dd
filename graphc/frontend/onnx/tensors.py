"""Tensors of the file as arrays: mapped, checked against the file before anything is allocated."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import onnx
import onnx_ir

from graphc.errors import ModelError
from graphc.files import map_file
from graphc.ir.types import BOOL, FLOATS, INTEGERS, NARROW

MAX_BYTES = 1 << 46

KNOWN = FLOATS | INTEGERS | NARROW | {BOOL}

PACKED = frozenset(
    dtype for dtype in onnx_ir.DataType if dtype.name not in ("UNDEFINED", "STRING") and dtype.bitwidth < 8
)
"""Element types of which several share a byte; they are unpacked, so they are not mapped."""


class Refused(Exception):
    """What this node needs cannot be done; `help` says what the user could do about it."""

    def __init__(self, reason: str, help: str = "") -> None:
        super().__init__(reason)
        self.reason, self.help = reason, help


BY_RUN = "an engine or a C++ project needs it as a constant of the model; graphc.onnx_backend compiles for the inputs of each run"
"""What helps where nothing else is known to."""


class Unknown(Refused):
    """Refused only because elements are not known until the model runs: with the inputs of a run it can be done."""

    def __init__(self, reason: str, help: str = "") -> None:
        super().__init__(reason, help or BY_RUN)


def element_type(dtype: onnx_ir.DataType | None) -> np.dtype:
    """The numpy dtype of an ONNX element type. Raises Refused for those that no tensor of ours has."""
    if dtype is None or dtype == onnx_ir.DataType.UNDEFINED:
        raise ModelError("a tensor has no element type")
    if dtype == onnx_ir.DataType.STRING:
        raise Unknown("strings are not supported")
    try:
        found = np.dtype(dtype.numpy())
    except (TypeError, KeyError, ValueError) as error:
        raise Refused(f"element type {dtype.name} is not supported") from error
    if found not in KNOWN:
        raise Refused(f"element type {dtype.name} is not supported")
    return found


def same_type(a: np.dtype, b: np.dtype) -> bool:
    """True if two dtypes are the same element type, whatever their byte order."""
    return a.newbyteorder("=") == b.newbyteorder("=")


class TensorReader:
    """Reads the tensors of one model. External data must be regular files inside `folder`; of a model that was loaded by
    onnx_ir (`folder` is None), inside the folder that it was loaded from."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._files: dict[str, np.ndarray] = {}
        self._arrays: dict[int, tuple[onnx_ir.TensorProtocol, np.ndarray]] = {}

    def array(self, tensor: onnx_ir.TensorProtocol) -> np.ndarray:
        """The tensor's elements; external data and raw bytes are not copied. Raises ModelError."""
        if id(tensor) not in self._arrays:
            self._arrays[id(tensor)] = tensor, self._read(tensor)
        return self._arrays[id(tensor)][1]

    def _read(self, tensor: onnx_ir.TensorProtocol) -> np.ndarray:
        name = tensor.name or "a constant"
        dtype = element_type(tensor.dtype)
        shape = tuple(int(size) for size in tensor.shape)  # type: ignore[arg-type]
        if any(size < 0 for size in shape):
            raise ModelError(f"tensor {name} has a negative size: {list(shape)}")
        needed = (prod(shape) * tensor.dtype.bitwidth + 7) // 8
        if needed > MAX_BYTES:
            raise ModelError(f"tensor {name} claims {needed} bytes")
        if isinstance(tensor, onnx_ir.ExternalTensor):
            return self._external(tensor, dtype, shape, needed)
        if isinstance(tensor, onnx_ir.serde.TensorProtoTensor):
            _check_inline(tensor, name, prod(shape), needed)
        try:
            array = np.asarray(tensor.numpy())
        except (ValueError, TypeError, RuntimeError) as error:
            raise ModelError(f"tensor {name} cannot be read: {error}") from error
        if array.shape != shape or not same_type(array.dtype, dtype):
            raise ModelError(
                f"tensor {name} is declared {dtype.name}{list(shape)} but holds {array.dtype}{list(array.shape)}"
            )
        return array

    def _external(
        self, tensor: onnx_ir.ExternalTensor, dtype: np.dtype, shape: tuple[int, ...], needed: int
    ) -> np.ndarray:
        location = str(tensor.location)
        folder = self._folder or (Path(tensor.base_dir) if tensor.base_dir else None)
        data = self._file(folder, location, tensor.name or "")
        offset = tensor.offset or 0
        length = tensor.length if tensor.length is not None else needed
        where = f"external data of {tensor.name} ({location})"
        if length != needed:
            raise ModelError(f"{where}: {length} bytes for {dtype.name}{list(shape)}, which takes {needed}")
        if offset < 0 or offset + length > data.nbytes:
            raise ModelError(f"{where}: bytes {offset} to {offset + length} of a file of {data.nbytes}")
        raw = data[offset : offset + length]
        if tensor.dtype in PACKED:
            return onnx_ir.serde.TensorProtoTensor(_inline(tensor, raw)).numpy()
        return np.frombuffer(raw, dtype).reshape(shape)

    def _file(self, folder: Path | None, location: str, tensor: str) -> np.ndarray:
        """The bytes of a file inside the model's folder, mapped once."""
        if location in self._files:
            return self._files[location]
        if folder is None:
            raise ModelError(
                f"tensor {tensor} lies in the file {location!r}, but the model was not loaded from a folder"
            )
        folder = folder.resolve()
        relative = Path(location)
        if not location or "\0" in location or relative.is_absolute() or ".." in relative.parts:
            raise ModelError(f"external data of {tensor} points outside the model's folder: {location!r}")
        try:
            path = (folder / relative).resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise ModelError(f"external data of {tensor} is missing: {folder / relative}") from error
        if not path.is_relative_to(folder):
            raise ModelError(
                f"external data of {tensor} points outside the model's folder: {location!r} is a link to {path}"
            )
        try:
            mapped = map_file(path)
        except OSError as error:
            raise ModelError(f"external data of {tensor}: {path}: {error.strerror or error}") from error
        self._files[location] = mapped
        return mapped


def _inline(tensor: onnx_ir.ExternalTensor, raw: np.ndarray) -> onnx.TensorProto:
    return onnx.TensorProto(
        name=tensor.name, data_type=int(tensor.dtype), dims=tensor.shape.numpy(), raw_data=raw.tobytes()
    )


def _check_inline(tensor: onnx_ir.serde.TensorProtoTensor, name: str, count: int, needed: int) -> None:
    """Compare the declared size with what the protobuf holds, before numpy is asked for it."""
    proto = tensor.raw
    if proto.HasField("segment"):
        raise ModelError(f"tensor {name} is a segment of another, which no exporter writes")
    if proto.HasField("raw_data"):
        if len(proto.raw_data) != needed:
            raise ModelError(f"tensor {name} holds {len(proto.raw_data)} bytes, its type takes {needed}")
        return
    fields = (proto.float_data, proto.int32_data, proto.int64_data, proto.double_data, proto.uint64_data)
    held = max(len(field) for field in fields)
    packed = tensor.dtype in PACKED
    if not (held == count or (packed and held == needed) or (held == 2 * count and "COMPLEX" in tensor.dtype.name)):
        raise ModelError(f"tensor {name} holds {held} elements, its type has {count}")
