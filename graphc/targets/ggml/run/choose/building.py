"""What the composite calls of one graph become, by the C that decides it for Python and C++: `build.c`, `composites/`."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.once import once
from graphc.targets.ggml.program.composites import COMPOSITES, PREFIX
from graphc.targets.ggml.program.in_c import c_text
from graphc.targets.ggml.program.tensor import Activation
from graphc.targets.ggml.run.choose.library import Own
from graphc.targets.ggml.run.device.devices import backend_name


class Building:
    """Makes tensors in a context of ggml's. It is freed after the graph, whose custom operators read their settings in it.

    `devices` are the backends but for the CPU's, `choices` what was measured, as `graphc tune` writes it. `uses_own` says whether
    our own code may compute, and `fast` whether what is multiplied may be rounded. C has it at its `address`, and at
    `decided_at` how many choices were made.
    """

    def __init__(
        self,
        own: Own,
        context: Any,
        threads: int,
        devices: Sequence[Any],
        choices: bytes,
        *,
        uses_own: bool,
        fast: bool,
    ) -> None:
        self.own, self.library = own, own.library
        table = own.table if uses_own else None
        self.address = self.library.graphc_builder_new(context, ggml_functions(), table, threads, fast)
        if not self.address:
            raise GraphcError("not enough memory for a graph")
        self.decided_at = self.library.graphc_builder_decided(self.address)
        for device in devices:
            self.library.graphc_builder_device(self.address, device, backend_name(device).encode(), fast)
        self.library.graphc_builder_choose(self.address, choices, len(choices))

    def call(self, function: str, args: Sequence[Any]) -> Any:
        """The tensor of a composite call that is built in C, given ggml's tensors, numbers and addresses of activations; null
        where it fails."""
        made, count, more = _in_c(self.library, function)
        if more:
            others = args[count:]
            args = (*args[:count], (ctypes.POINTER(ggml.ggml_tensor) * len(others))(*others), len(others))
        return made(self.address, *args)

    def activation(self, activation: Activation) -> int:
        """Where what C is told of an activation lies. Raises GraphcError if there is no such one."""
        first, second, *_ = *activation.numbers, 0.0, 0.0
        made: int | None = self.library.graphc_builder_activation(self.address, activation.name.encode(), first, second)
        if not made:
            raise GraphcError(f"there is no activation {activation.name}, or not enough memory for a graph")
        return made

    @property
    def decided(self) -> int:
        """How many choices were made so far."""
        return ctypes.c_int.from_address(self.decided_at).value

    def taken(self) -> Iterator[tuple[str, str]]:
        """What these choices depended on, and the ways that were taken."""
        key, way = ctypes.c_char_p(), ctypes.c_char_p()
        for index in range(self.decided):
            self.library.graphc_builder_taken(self.address, index, ctypes.byref(key), ctypes.byref(way))
            yield (key.value or b"").decode(), (way.value or b"").decode()

    def free(self) -> None:
        """Give back the settings."""
        self.library.graphc_builder_free(self.address)
        self.address = self.decided_at = None


def maker(library: ctypes.CDLL, function: str) -> Any:
    """What makes a composite in C."""
    return getattr(library, f"graphc_build_{function.removeprefix(PREFIX)}")


@functools.cache
def _in_c(library: ctypes.CDLL, function: str) -> tuple[Any, int, bool]:
    """What makes a composite in C, how many arguments it has, and whether tensors may follow."""
    composite = COMPOSITES[function]
    return maker(library, function), len(composite.parameters), bool(composite.more)


def ggml_names() -> list[str]:
    """What is called of ggml in C, in the order of `graphc_ggml`."""
    return [f"ggml_{name}" for name in re.findall(r"\bF\((\w+)\)", c_text("build.h"))]


@once
def ggml_functions() -> Any:
    """`graphc_ggml`. Builders read it where it lies, so there must be one, which stays."""
    return ggml.table(ggml_names())
