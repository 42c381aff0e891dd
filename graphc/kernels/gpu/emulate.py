"""Runs the text of a kernel on the CPU, lane by lane, and says what it did wrong and what its accesses to memory cost.

The dialect's headers make a C++ library of the text (`dialect/emulator.h`). Shared memory is undefined (NaN) before it is
written, what an asynchronous copy writes is undefined until it was waited for, lanes, warps and blocks run in an order that a
seed draws. Races, divergent barriers, and accesses that are out of bounds or not aligned are errors, whatever the numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np

from graphc.errors import BuildError, GraphcError
from graphc.kernels.c.compiled import library_bytes, load_library
from graphc.kernels.c.compiler import find_compiler
from graphc.kernels.gpu.dialect import Divisor, complete
from graphc.kernels.gpu.evaluate import KernelFault

FLAGS = (
    "-x", "c++", "-std=c++17", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fwrapv",
    "-fno-strict-aliasing", "-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables",
    "-ftrivial-auto-var-init=pattern", "-pthread", "-w",
)  # fmt: skip
"""How a kernel's text is compiled. What is not given a value has a pattern in every byte, as if it were a register."""

QUICK = tuple("-Og" if each == "-O2" else each for each in FLAGS)
"""The same for kernels that are launched alone, which takes less time than to compile them."""

ROOM = 4096
"""Bytes around an array in which no other is."""

Number: TypeAlias = "np.generic | int | float | Divisor"
Argument: TypeAlias = "np.ndarray | Number"


@dataclass(frozen=True)
class Counters:
    """What a launch did. A request is one instruction of a warp, a wavefront what shared memory serves at once, a sector 32
    bytes; conflicts are wavefronts beyond those that are needed. In the order of `EmulatorCounters`."""

    blocks: int
    barriers: int
    mma: int
    load_matrix_wavefronts: int
    load_matrix_conflicts: int
    shared_requests: int
    shared_wavefronts: int
    shared_conflicts: int
    global_load_requests: int
    global_load_sectors: int
    global_load_bytes: int
    global_store_requests: int
    global_store_sectors: int
    global_store_bytes: int
    global_wide_bytes: int
    atomics: int

    @property
    def wide_share(self) -> float:
        """The share of bytes from and to global memory that move in accesses of 16 bytes a lane; 1 if none move."""
        total = self.global_load_bytes + self.global_store_bytes
        return self.global_wide_bytes / total if total else 1.0

    @property
    def conflicts(self) -> int:
        """All conflicts in shared memory."""
        return self.load_matrix_conflicts + self.shared_conflicts


class _Buffer(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("name", ctypes.c_char_p))


class _Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("threads", ctypes.c_uint32), ("shared_bytes", ctypes.c_uint64),
        ("seed", ctypes.c_uint64), ("workers", ctypes.c_uint32), ("argument_count", ctypes.c_uint32),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)), ("buffer_count", ctypes.c_uint64),
        ("buffers", ctypes.POINTER(_Buffer)),
    )  # fmt: skip


class _Report(ctypes.Structure):
    _fields_ = (*((each.name, ctypes.c_uint64) for each in fields(Counters)), ("error", ctypes.c_char * 512))


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("threads", ctypes.c_uint32), ("blocks_per_multiprocessor", ctypes.c_uint32),
        ("parameter_count", ctypes.c_uint32), ("parameter_bytes", ctypes.c_uint32 * 64),
    )  # fmt: skip


class Emulated:
    """The kernels of a text, compiled for the CPU."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def launch(
        self,
        name: str,
        grid: Sequence[int],
        shared_bytes: int,
        arguments: Sequence[Argument],
        seed: int = 0,
        workers: int = 1,
    ) -> Counters:
        """Run a kernel; its results are in the arrays that it was given, which must be contiguous.

        `grid` is of one to three sizes, in blocks. Python's integers become integers of the parameter's size, its floats float;
        NumPy's scalars stay what they are. Raises KernelFault, after which the arrays are as they were, and GraphcError if there
        is no such kernel, or its parameters are others.
        """
        kernel = self._kernel(name)
        if len(arguments) != kernel.parameter_count:
            raise GraphcError(
                f"{name} has {kernel.parameter_count} parameters, and {len(arguments)} arguments were given"
            )
        arrays = _Arrays([argument for argument in arguments if isinstance(argument, np.ndarray)])
        values = [
            arrays.place(argument)
            if isinstance(argument, np.ndarray)
            else _bytes_of(argument, size, f"{name}'s argument {i}")
            for i, (argument, size) in enumerate(zip(arguments, kernel.parameter_bytes, strict=False))
        ]
        room = [ctypes.create_string_buffer(value, len(value)) for value in values]
        addresses = (ctypes.c_void_p * len(room))(*map(ctypes.addressof, room))
        report = _Report()
        launch = _Launch(
            (ctypes.c_uint32 * 3)(*grid, *[1] * (3 - len(grid))), 0, shared_bytes, seed, workers, len(room), addresses,
            len(arrays.buffers), arrays.buffers,
        )  # fmt: skip
        function = getattr(self._library, f"graphc_emulate_{name}")
        if function(ctypes.byref(launch), ctypes.byref(report)):
            raise KernelFault(f"kernel {name}: {report.error.decode(errors='replace')}")
        arrays.give_back()
        return Counters(*(getattr(report, each.name) for each in fields(Counters)))

    def _kernel(self, name: str) -> _Kernel:
        try:
            return _Kernel.in_dll(self._library, f"graphc_kernel_{name}")
        except ValueError as error:
            raise GraphcError(f"the text has no kernel {name}") from error


class _Arrays:
    """Copies of arrays in one piece of memory, with room between them: what is touched there is out of bounds."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self.arrays = list({id(array): array for array in arrays}.values())
        if any(not array.flags.c_contiguous for array in self.arrays):
            raise GraphcError("a kernel's arrays must be contiguous")
        sizes = [-(-array.nbytes // ROOM) * ROOM + ROOM for array in self.arrays]
        self.memory = np.full(sum(sizes) + 2 * ROOM, 0xFF, np.uint8)
        start = -self.memory.ctypes.data % ROOM + ROOM
        self.starts = {}
        for array, size in zip(self.arrays, sizes, strict=True):
            self.starts[id(array)] = start
            self._copy(array)[:] = array.reshape(-1).view(np.uint8)
            start += size
        self.buffers = (_Buffer * len(self.arrays))(
            *(
                _Buffer(self._address(array), array.nbytes, f"{number} ({array.dtype}{list(array.shape)})".encode())
                for number, array in enumerate(self.arrays)
            )
        )

    def _copy(self, array: np.ndarray) -> np.ndarray:
        start = self.starts[id(array)]
        return self.memory[start : start + array.nbytes]

    def _address(self, array: np.ndarray) -> int:
        return self.memory.ctypes.data + self.starts[id(array)]

    def place(self, array: np.ndarray) -> bytes:
        """An array's address, as the value of a parameter."""
        return self._address(array).to_bytes(8, "little")

    def give_back(self) -> None:
        """Copy what the kernel left to those arrays that can be written."""
        for array in self.arrays:
            if array.flags.writeable:
                array.reshape(-1).view(np.uint8)[:] = self._copy(array)


def _bytes_of(argument: Number, size: int, what: str) -> bytes:
    """A number as the value of a parameter of this many bytes."""
    if isinstance(argument, Divisor):
        value = np.asarray(argument, np.uint32).tobytes()
    elif isinstance(argument, int):
        value = argument.to_bytes(size, "little", signed=argument < 0)
    else:
        value = (np.float32(argument) if isinstance(argument, float) else argument).tobytes()
    if len(value) != size:
        raise GraphcError(f"{what} has {len(value)} bytes, and its parameter {size}")
    return value


def compile_emulated(text: str) -> Emulated:
    """The kernels of a text, which are kept in the cache. Raises BuildError with what the compiler says of the text, and where no
    compiler for C++ is installed."""
    return Emulated(load_library(complete("emulator", text), _compiler(), flags=QUICK))


def emulated_image(text: str) -> bytes:
    """The library of a text's kernels: the code that an emulated device takes. Raises BuildError."""
    return library_bytes(complete("emulator", text), _compiler(), flags=FLAGS)


def _compiler() -> tuple[str, ...]:
    compiler = find_compiler()
    if compiler is None:
        raise BuildError("kernels cannot be emulated: install a C++ compiler, or `pip install ziglang`")
    return compiler
