"""Kernels that are compiled functions."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from graphc.ggml_library import ggml
from graphc.shapes import Dim
from graphc.targets.ggml.run.numpy_kernels import new_userdata


class NativeKernel:
    """A compiled function, a `ggml_custom_op_t`, and what it is given: the values of size symbols, then arguments. `faults` are
    the messages of its checks."""

    def __init__(
        self, function: Any, symbols: Sequence[str], faults: Sequence[str], arguments: Sequence[Dim | float]
    ) -> None:
        self.function = ctypes.cast(function, ggml.ggml_custom_op_t)
        self.symbols, self.faults, self.arguments = symbols, faults, arguments

    def userdata(self, binding: Mapping[str, int]) -> Any:
        """See `LoadedKernel`."""
        return new_userdata(self.symbols, binding, self.arguments)

    def fault(self, userdata: Any) -> str | None:
        """See `LoadedKernel`."""
        return self.faults[userdata[0] - 1] if userdata[0] else None
