"""Kernels on devices, and what a node of a graph launches: the structures of gpu.h."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from graphc.backends.generated import DeviceError, check_devices, library
from graphc.errors import GraphcError
from graphc.ggml_library import ggml


@dataclass(frozen=True)
class Place:
    """The address of a node's source, or with a `source` of -1 of the node itself, plus bytes."""

    source: int
    offset: int = 0


@dataclass(frozen=True)
class Scratch:
    """The address of a node's scratch memory, plus bytes."""

    offset: int = 0


@dataclass(frozen=True)
class Counters:
    """The address of memory that is 0 when a launch begins, and that it leaves so."""


Value: TypeAlias = "np.generic | np.ndarray"
"""A number of 4 or 8 bytes, or a divisor's three of 4 as an array."""


class Module:
    """Code on a device (ggml's handle), in the form that the device takes. It is given back when nothing uses it any more.

    Raises DeviceError with what the driver says, and GraphcError for a device that is none of generated kernels.
    """

    def __init__(self, device: Any, image: bytes) -> None:
        functions = library().library
        if not functions.graphc_gpu_is(device):
            raise GraphcError("this device takes no generated kernels")
        self._handle = functions.graphc_gpu_module(device, image, len(image))
        check_devices()
        self.free = weakref.finalize(self, _free, functions, self._handle, os.getpid())

    def kernel(self, name: str, shared: int = 0) -> Kernel:
        """A kernel of which a block is given at most so many bytes of shared memory. Raises DeviceError."""
        if not self.free.alive:
            raise DeviceError(f"kernel {name}: its code was given back")
        handle = library().library.graphc_gpu_kernel(self._handle, name.encode(), shared)
        check_devices()
        return Kernel(self, name, handle)


def _free(functions: ctypes.CDLL, module: int, process: int) -> None:
    """Give code back. A process that was forked leaves it: devices do not know the child."""
    if process == os.getpid():
        functions.graphc_gpu_module_free(module)


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel on a device."""

    module: Module
    name: str
    handle: int


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: blocks, threads of a block, bytes of shared memory, of the node's scratch memory, of counters."""

    kernel: Kernel
    grid: tuple[int, int, int]
    threads: int
    arguments: Sequence[Place | Scratch | Counters | Value]
    shared: int = 0
    scratch: int = 0
    counters: int = 0


TENSOR, SCRATCH, COUNTERS, VALUE = range(4)


class _Content(ctypes.Union):
    _fields_ = (("offset", ctypes.c_int64), ("bytes", ctypes.c_uint8 * 16))


class _Argument(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32), ("content", _Content))


class _Launch(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("count", ctypes.c_int32),
        ("arguments", ctypes.POINTER(_Argument)),
        ("scratch", ctypes.c_size_t),
        ("counters", ctypes.c_size_t),
    )


class _Launches(ctypes.Structure):
    _fields_ = (("count", ctypes.c_int32), ("each", ctypes.POINTER(_Launch)))


class Work:
    """What a node does: launches, one after the other. It must live as long as the node."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.launches = tuple(launches)
        self._each = (_Launch * len(launches))(*map(_launch, launches))
        self.launches_pointer = _Launches(len(launches), self._each)

    def node(self, context: Any, type: int, ne: Sequence[int], sources: Sequence[Any]) -> Any:
        """A tensor of a context of ggml's that the launches make from others. The scheduler has to be told that the CPU cannot
        compute it (`ggml_backend_sched_set_tensor_backend`)."""
        count = len(sources)
        args = (ctypes.POINTER(ggml.ggml_tensor) * max(count, 1))(*sources)
        function = ctypes.cast(library().library.graphc_gpu_node, ggml.ggml_custom_op_t)
        userdata = ctypes.addressof(self.launches_pointer)
        return ggml.ggml_custom_4d(context, type, *ne, *[1] * (4 - len(ne)), args, count, function, 1, userdata)


def _launch(launch: Launch) -> _Launch:
    arguments = (_Argument * len(launch.arguments))(*map(_argument, launch.arguments))
    grid, threads = (ctypes.c_uint32 * 3)(*launch.grid), (ctypes.c_uint32 * 3)(launch.threads, 1, 1)
    room = launch.scratch, launch.counters
    return _Launch(launch.kernel.handle, grid, threads, launch.shared, len(arguments), arguments, *room)


def _argument(argument: Place | Scratch | Counters | Value) -> _Argument:
    if isinstance(argument, Place):
        return _Argument(TENSOR, argument.source, _Content(offset=argument.offset))
    if isinstance(argument, Scratch):
        return _Argument(SCRATCH, 0, _Content(offset=argument.offset))
    if isinstance(argument, Counters):
        return _Argument(COUNTERS, 0, _Content(offset=0))
    value = argument.tobytes()
    if len(value) not in (4, 8, 12):
        raise GraphcError(f"a kernel takes no value of {len(value)} bytes")
    return _Argument(VALUE, len(value), _Content(bytes=(ctypes.c_uint8 * 16)(*value)))
