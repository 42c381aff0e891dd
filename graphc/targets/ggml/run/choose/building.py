"""What the composite calls of one graph become, by the C that decides it for Python and C++: `build.c`, `composites/`."""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Sequence
from typing import Any

from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.once import once
from graphc.targets.ggml.program.composites import COMPOSITES, ActivationOrNone
from graphc.targets.ggml.program.composites.activations import told
from graphc.targets.ggml.program.in_c import c_text
from graphc.targets.ggml.run.choose.library import Own
from graphc.targets.ggml.run.device.devices import backend_name

KINDS = {float: ctypes.c_float, int: ctypes.c_int, bool: ctypes.c_bool}
"""What C takes for a composite's numbers; for all else it takes a tensor."""


class Building:
    """Makes tensors in a context of ggml's. It is freed after the graph, whose custom operators read their settings in it.

    `devices` are the backends but for the CPU's, `choices` what was measured, as `graphc tune` writes it. `uses_own` says whether
    our own code may compute, and `fast` whether what is multiplied may be rounded.
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
        made = self.library.graphc_builder_new(ctypes.c_void_p(context), ggml_functions(), table, threads, fast)
        if not made:
            raise GraphcError("not enough memory for a graph")
        self._builder = ctypes.c_void_p(made)
        for device in devices:
            name = backend_name(device).encode()
            self.library.graphc_builder_device(self._builder, ctypes.c_void_p(device), name, fast)
        self.library.graphc_builder_choose(self._builder, choices, ctypes.c_size_t(len(choices)))

    def knows(self, function: str) -> bool:
        """True if a composite may become anything but its expansion."""
        return function in self.own.builds

    def call(self, function: str, args: Sequence[Any]) -> Any:
        """The tensor of a composite call that is known, given ggml's tensors and numbers."""
        composite = COMPOSITES[function]
        kinds = zip(composite.parameters.values(), args, strict=False)
        given: list[Any] = [self._given(kind, arg) for kind, arg in kinds]
        if composite.more:
            more = args[len(given) :]
            given += [(ctypes.POINTER(ggml.ggml_tensor) * len(more))(*more), len(more)]
        return self.own.builds[function](self._builder, *given)

    def _given(self, kind: Any, arg: Any) -> Any:
        """What C is given for an argument of this kind."""
        if kind != ActivationOrNone:
            return KINDS[kind](arg) if kind in KINDS else arg
        found = told(arg)
        if found is None:
            return None
        first, second = map(ctypes.c_float, (*found.numbers, 0.0, 0.0)[:2])
        made = self.library.graphc_builder_activation(self._builder, found.name.encode(), first, second)
        if not made:
            raise GraphcError(f"there is no activation {found.name}, or not enough memory for a graph")
        return ctypes.c_void_p(made)

    def taken(self) -> tuple[str, str] | None:
        """What the choice for the call that was built last depends on, and the way that it took, told once; None where there are
        not several."""
        key, way = ctypes.c_char_p(), ctypes.c_char_p()
        if not self.library.graphc_builder_taken(self._builder, ctypes.byref(key), ctypes.byref(way)):
            return None
        assert key.value is not None
        assert way.value is not None
        return key.value.decode(), way.value.decode()

    def products(self) -> list[str]:
        """The names that choices have for the products that our own code may round, in their order."""
        names = map(self.library.graphc_builder_product, itertools.repeat(self._builder), itertools.count())
        return [name.decode() for name in itertools.takewhile(bool, names)]

    def free(self) -> None:
        """Give back the settings."""
        self.library.graphc_builder_free(self._builder)
        self._builder = ctypes.c_void_p()


def ggml_names() -> list[str]:
    """What is called of ggml in C, in the order of `graphc_ggml`."""
    return [f"ggml_{name}" for name in re.findall(r"\bF\((\w+)\)", c_text("build.h"))]


@once
def ggml_functions() -> Any:
    """`graphc_ggml`. Builders read it where it lies, so there must be one, which stays."""
    return ggml.table(ggml_names())
