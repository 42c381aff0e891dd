"""Makes kernels runnable in this process: compiled by the system's C compiler or the `ziglang` package's, or evaluated by NumPy
where there is none."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from graphc.cache import warn_once
from graphc.errors import BuildError, GraphcError
from graphc.ggml_library import ggml
from graphc.targets.ggml.program import KernelUse
from graphc.targets.kernels.compiled import load_library
from graphc.targets.kernels.evaluate import EvaluatedKernel, new_userdata
from graphc.targets.kernels.render_c import render
from graphc.zig import find_zig

COMPILERS: Sequence[str] = () if os.name == "nt" else ("cc", "gcc", "clang")
"""Where `CC` is not set, the first of these that is installed compiles the kernels. On Windows it is ziglang's: there gcc puts
vectors on the stack where its own instructions fault, and clang needs Microsoft's compiler beside it."""


class LoadedKernel(Protocol):
    """A kernel that `ggml_custom_4d` can run."""

    @property
    def function(self) -> Any:
        """The function pointer, a `ggml_custom_op_t`. It lives as long as this object."""

    def userdata(self, binding: Mapping[str, int]) -> Any:
        """A new buffer to pass as userdata for these values of the size symbols; it must outlive the graph."""

    def reset(self, userdata: Any) -> None:
        """Forget a fault of an earlier run."""

    def fault(self, userdata: Any) -> str | None:
        """What went wrong in the last run with this buffer, or None."""


def load_kernels(uses: Sequence[KernelUse], symbols: Sequence[str] | None = None) -> list[LoadedKernel]:
    """The kernels, in order. `symbols`: see `render`.

    Raises GraphcError for an operator without a loop form, BuildError if there is a compiler and it fails.
    """
    if not uses:
        return []
    try:
        rendered = render(uses, symbols)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:  # of an engine from a stranger
        raise GraphcError(f"a kernel of the program cannot be made: {error}") from error
    compiler = find_compiler()
    include = ggml_include()
    if compiler is None or include is None:
        warn_once("no C compiler (set CC, or `pip install ziglang`): generated kernels run in NumPy, which is slow")
        return [EvaluatedKernel(use, rendered.symbols) for use in uses]
    library = load_library(rendered.text, compiler, include)
    return [NativeKernel(library, function, rendered.symbols, rendered.faults) for function in rendered.functions]


class NativeKernel:
    """A function of a compiled file."""

    def __init__(self, library: ctypes.CDLL, function: str, symbols: Sequence[str], faults: Sequence[str]) -> None:
        self.library = library
        self.function = ctypes.cast(getattr(library, function), ggml.ggml_custom_op_t)
        self.symbols, self.faults = tuple(symbols), tuple(faults)

    def userdata(self, binding: Mapping[str, int]) -> Any:
        """See `LoadedKernel`."""
        return new_userdata(self.symbols, binding)

    def reset(self, userdata: Any) -> None:
        """See `LoadedKernel`."""
        userdata[0] = 0

    def fault(self, userdata: Any) -> str | None:
        """See `LoadedKernel`."""
        return self.faults[userdata[0] - 1] if userdata[0] else None


def find_compiler() -> tuple[str, ...] | None:
    """The command of the C compiler: `CC` if it is set, else the first of `COMPILERS`, else ziglang's; None if there is none.

    Raises BuildError if `CC` names what is not installed, or is no command.
    """
    chosen = os.environ.get("CC", "").strip()
    if chosen:
        try:
            command = tuple(shlex.split(chosen, posix=os.name != "nt"))
        except ValueError as error:
            raise BuildError(f"CC is not a command: {chosen} ({error})") from error
        if not shutil.which(command[0]):
            raise BuildError(f"the C compiler that CC names, {command[0]}, is not installed")
        return command
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is not None:
        return (found,)
    zig = find_zig()
    return None if zig is None else (str(zig), "cc")


def ggml_include() -> Path | None:
    """The folder of `ggml.h`, which ggml-python installs beside its package; None if it is not there."""
    package = Path(ggml.__file__).parent
    folders = (package.parent / "include", package / "include")
    return next((folder for folder in folders if (folder / "ggml.h").is_file()), None)
