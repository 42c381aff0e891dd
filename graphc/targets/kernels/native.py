"""Makes kernels runnable in this process: compiled by the system's C compiler or the `ziglang` package's, or evaluated by NumPy
where there is none.

A compiled file is kept in the user's cache by the hash of everything that it depends on, so a program's kernels are
compiled once for a machine.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from graphc.errors import BuildError
from graphc.ggml_library import ggml
from graphc.targets.ggml.program import KernelUse
from graphc.targets.kernels.evaluate import EvaluatedKernel, new_userdata
from graphc.targets.kernels.render_c import FLAGS, render
from graphc.zig import find_zig

COMPILERS: Sequence[str] = () if os.name == "nt" else ("cc", "gcc", "clang")
"""Where `CC` is not set, the first of these that is installed compiles the kernels. On Windows it is ziglang's: there gcc puts
vectors on the stack where its own instructions fault, and clang needs Microsoft's compiler beside it."""

TIME_LIMIT = 600
"""Seconds after which a compiler is given up."""


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
    rendered = render(uses, symbols)
    compiler = find_compiler()
    include = ggml_include()
    if compiler is None or include is None:
        _warn_once("no C compiler (set CC, or `pip install ziglang`): generated kernels run in NumPy, which is slow")
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

    Raises BuildError if `CC` names what is not installed.
    """
    chosen = os.environ.get("CC", "").strip()
    if chosen:
        command = tuple(shlex.split(chosen, posix=os.name != "nt"))
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


def cache_folder(name: str = "kernels") -> Path:
    """Where compiled kernels, or what else is named, are kept: a folder of the user's alone, made if need be."""
    home = Path.home()
    chosen = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    usual = {"darwin": home / "Library" / "Caches", "win32": home / "AppData" / "Local"}
    folder = (Path(chosen) if chosen else usual.get(sys.platform, home / ".cache")) / "graphc" / name
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return _temporary_folder(name)


@functools.cache
def _temporary_folder(name: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"graphc-{name}-"))


def load_library(
    source: str, compiler: tuple[str, ...], include: Path, flags: Sequence[str] | None = None
) -> ctypes.CDLL:
    """The compiled and loaded source, from the cache if it is there. Raises BuildError with what the compiler says."""
    command = (*compiler, *(FLAGS if flags is None else flags), *machine_flags(), "-fPIC", "-shared", f"-I{include}")
    key = "\0".join([source, *command, (include / "ggml.h").read_text(encoding="utf-8"), machine()])
    return _load(source, command, hashlib.sha256(key.encode()).hexdigest()[:32])


@functools.lru_cache(maxsize=256)
def _load(source: str, command: tuple[str, ...], digest: str) -> ctypes.CDLL:
    library = cache_folder() / (digest + {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so"))
    if not library.is_file():
        compile_library(source, command, library)
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise BuildError(f"the compiled kernels cannot be loaded: {error}") from error


def compile_library(source: str, command: Sequence[str], library: Path) -> None:
    """Compile a C file to a shared library, which appears whole or not at all. Raises BuildError."""
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=library.stem) as folder:
        c_file, built = Path(folder) / "kernels.c", Path(folder) / library.name
        c_file.write_text(source, encoding="utf-8")
        full = [*command, str(c_file), "-o", str(built), "-lm"]
        environment = {"ZIG_GLOBAL_CACHE_DIR": str(library.parent / "zig"), **os.environ}
        try:
            done = subprocess.run(
                full,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIME_LIMIT,
                check=False,
                env=environment,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"the C compiler could not be run: {error}") from error
        if done.returncode != 0:
            first = "\n".join(done.stderr.strip().splitlines()[:8])
            raise BuildError(f"{' '.join(command)} failed on the generated kernels:\n{first}")
        try:
            os.replace(built, library)
        except PermissionError:  # on Windows, where another process has made and loaded the same
            if not library.is_file():
                raise


def machine_flags() -> tuple[str, ...]:
    """What lets the compiler use all of this processor's instructions."""
    return ("-mcpu=native",) if platform.machine().lower() in ("arm64", "aarch64") else ("-march=native",)


@functools.cache
def machine() -> str:
    """What compiled code for this processor depends on: caches may be shared between machines."""
    description = [platform.system(), platform.machine(), platform.processor()]
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        description += sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    except OSError:
        pass
    return "\n".join(description)


@functools.cache
def _warn_once(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)
