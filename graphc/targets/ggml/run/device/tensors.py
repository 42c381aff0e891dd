"""ggml's tensors and NumPy's arrays: descriptions, copies between them, and arrays that ggml can use where they lie."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from graphc.backends.generated import check_devices
from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.ggml_types import has_rows_apart
from graphc.shapes import Values
from graphc.targets.ggml.program.tensor import Tensor

ALIGNMENT = 64
"""Bytes to which arrays of our own are aligned: a vector of any processor's then lies in one line of the cache."""

SMALL = 1024
"""Elements of an array that may begin anywhere in a line of the cache."""

VIEW_OPS = (ggml.GGML_OP_NONE, ggml.GGML_OP_VIEW, ggml.GGML_OP_RESHAPE, ggml.GGML_OP_PERMUTE, ggml.GGML_OP_TRANSPOSE)
"""What computes nothing."""


def new_context(tensors: int, graph_size: int = 0) -> Any:
    """A ggml context for descriptions of tensors (and a graph), without their data."""
    size = context_bytes(tensors, graph_size)
    return ggml.ggml_init(ggml.ggml_init_params(mem_size=size, mem_buffer=None, no_alloc=True))


def context_bytes(tensors: int, graph_size: int = 0) -> int:
    """Bytes that a context takes for so many descriptions (and a graph)."""
    graph = ggml.ggml_graph_overhead_custom(graph_size, False) if graph_size else 0
    return int(tensors * ggml.ggml_tensor_overhead() + graph)


def new_tensor(context: Any, tensor: Tensor, values: Values) -> Any:
    """A tensor of the declared type and size."""
    ne = map(values.__getitem__, tensor.ne)
    return ggml.ggml_new_tensor_4d(context, getattr(ggml, f"GGML_TYPE_{tensor.type}"), *ne)


def address(tensor: Any) -> int:
    """Where a tensor's description lies."""
    return ctypes.addressof(tensor.contents)


def start_of(array: np.ndarray) -> int:
    """Where a contiguous array's first element lies."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]  # in a third of the time
    except (TypeError, ValueError):  # nobody may write into it, or there is nothing
        return int(array.ctypes.data)


def upload(tensor: Any, array: np.ndarray) -> None:
    """Copy an array's bytes to a tensor. Raises DeviceError."""
    array = np.ascontiguousarray(array)
    if array.nbytes:
        ggml.ggml_backend_tensor_set(tensor, start_of(array), 0, array.nbytes)
        check_devices()


def room_for(shape: tuple[int, ...], dtype: np.dtype, into: np.ndarray | None = None) -> np.ndarray:
    """An array for a result: `into`, if it is of this shape and type, or else a new one. Raises GraphcError where there is no
    memory for it, or no such shape."""
    if into is not None and into.shape == shape and into.dtype == dtype:
        return into
    if shape and min(shape) < 0:
        raise GraphcError(f"a result of sizes {list(shape)}")
    try:
        return np.empty(shape, dtype) if prod(shape) < SMALL else aligned_empty(shape, dtype)
    except MemoryError as error:
        raise GraphcError(f"not enough memory for a result of {prod(shape) * dtype.itemsize} bytes") from error


def download(tensor: Any, array: np.ndarray) -> None:
    """Copy a tensor's bytes to an array. Raises DeviceError."""
    if array.nbytes:
        ggml.ggml_backend_tensor_get(tensor, start_of(array), 0, array.nbytes)
        check_devices()


def in_place(array: np.ndarray, apart: bool = False) -> np.ndarray:
    """The array if the CPU can use it where it lies, else a copy: it is contiguous, or if they may, its rows lie `apart`; and
    elements lie at multiples of their size.

    More is not needed: ggml and our own code load vectors from anywhere. The scales of quantized types have 16 bits.
    """
    array = array if apart and has_rows_apart(array) else np.asarray(array, order="C")
    size = max(array.itemsize, 2)
    if not array.nbytes or array.ctypes.data % size == 0:
        return array
    copy = aligned_copy(array)
    give_back([array])
    return copy


def aligned(array: np.ndarray) -> np.ndarray:
    """The array of numbers if it is contiguous, and the CPU can use it where it lies, else a copy."""
    array = np.asarray(array)
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else aligned_copy(array)


def extent(array: np.ndarray) -> int:
    """Bytes from an array's first element to its last, with what lies between its rows."""
    steps = zip(array.shape, array.strides, strict=True)
    return sum((size - 1) * step for size, step in steps) + array.itemsize if array.size else 0


def give_back(arrays: Iterable[np.ndarray]) -> None:
    """Let the system have the memory of arrays that lie in mapped files: they are read from there if they are needed again. What
    lies elsewhere stays."""
    for array in arrays:
        owner: Any = array
        while isinstance(owner, np.ndarray):
            owner = owner.base
        if isinstance(owner, mmap.mmap) and array.nbytes and hasattr(mmap, "MADV_DONTNEED"):
            begin = array.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
            start = begin // mmap.PAGESIZE * mmap.PAGESIZE
            owner.madvise(mmap.MADV_DONTNEED, start, begin + extent(array) - start)


HUGE_PAGE = 2 << 20
"""Bytes of one on most processors; twice as many are sure to hold one."""


def prefer_huge_pages(begin: int, nbytes: int) -> None:
    """Have Linux use huge pages for this memory, which on most machines it does only where it is asked: there are fewer places of
    pages to look up."""
    if nbytes >= 2 * HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        start = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(begin + nbytes - start), mmap.MADV_HUGEPAGE)


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """A copy whose first byte is aligned."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array whose first byte is aligned; what its elements are is not said."""
    nbytes = prod(shape) * dtype.itemsize
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -start_of(raw) % ALIGNMENT
    return raw[start : start + nbytes].view(dtype).reshape(shape)


NOTHING = aligned_copy(np.zeros(ALIGNMENT, np.uint8))
"""Where tensors without elements lie."""
