"""Kernels without a C compiler: our own code interprets their instructions, a block of elements at a time; routines are there
compiled, for all types."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from typing import Any

from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.kernels.c.ready import ready_name, ready_numbers
from graphc.kernels.c.routine import routine_of
from graphc.kernels.use import KernelUse
from graphc.kernels.vectors.code import wrapped
from graphc.kernels.vectors.translate import translate
from graphc.ops.base import Routine
from graphc.shapes import integer
from graphc.targets.ggml.run.choose.library import Own, load_routines
from graphc.targets.ggml.run.native_kernels import NativeKernel

NO_MEMORY = -1
"""The fault of a kernel that got no memory for its registers."""


class InterpretedKernel:
    """A kernel's instructions. Raises GraphcError if it has no loop form."""

    def __init__(self, use: KernelUse, own: Own) -> None:
        self.own = own
        self.code = translate(use)
        self.words = self.code.packed(lambda name: operator(own, name))
        self.function = ctypes.cast(own.library.graphc_vectors, ggml.ggml_custom_op_t)

    def userdata(self, binding: Mapping[str, int]) -> Any:
        """See `LoadedKernel`."""
        numbers = [
            int.from_bytes(each, "little", signed=True) if isinstance(each, bytes) else wrapped(integer(each, binding))
            for each in self.code.numbers
        ]
        return (ctypes.c_int64 * (2 + len(numbers)))(0, self.words.ctypes.data, *numbers)

    def fault(self, userdata: Any) -> str | None:
        """See `LoadedKernel`."""
        if userdata[0] == NO_MEMORY:
            return "there is no memory for a kernel's numbers"
        return self.code.faults[userdata[0] - 1] if userdata[0] else None


class ReadyKernel(NativeKernel):
    """A routine that is there compiled, at an address."""

    def __init__(self, routine: Routine, address: int) -> None:
        super().__init__(address, (), routine.faults, ready_numbers(routine))


def kernel_of(use: KernelUse, own: Own) -> InterpretedKernel | ReadyKernel | None:
    """The kernel; None if it is a routine that is not there for its types. Raises GraphcError."""
    routine = routine_of(use)
    return InterpretedKernel(use, own) if routine is None else ready_kernel(routine)


def ready_kernel(routine: Routine) -> ReadyKernel | None:
    """The kernel of a routine; None if it is not there for its types."""
    library = load_routines()
    address = None if library is None else library.graphc_routine(ready_name(routine).encode())
    return None if address is None else ReadyKernel(routine, address)


@cache
def operator(own: Own, name: str) -> int:
    """The number of an operator of the interpreter."""
    number: int = own.library.graphc_vectors_operator(name.encode())
    if number < 0:
        raise GraphcError(f"the interpreter of kernels has no {name}")
    return number
