"""The C compiler of the machine: the one that `CC` names, the system's, or the `ziglang` package's."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from graphc.errors import BuildError
from graphc.zig import find_zig

COMPILERS: Sequence[str] = () if os.name == "nt" else ("cc", "gcc", "clang")
"""Where `CC` is not set, the first of these that is installed compiles the kernels. On Windows it is ziglang's: there gcc puts
vectors on the stack where its own instructions fault, and clang needs Microsoft's compiler beside it."""

FLAGS = ("-std=gnu11", "-O3", "-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
"""How to compile kernels: none of it changes a result, but `-fwrapv` and `-ffp-contract=off` are needed for the right one."""


def find_compiler() -> tuple[str, ...] | None:
    """The command of the C compiler: `CC` if it is set, else the first of `COMPILERS`, else ziglang's; None if there is none.

    Raises BuildError if `CC` names what is not installed, or is not a command.
    """
    chosen = os.environ.get("CC", "").strip()
    if chosen:
        from shutil import which  # with archives and what packs them: it takes long to import

        try:
            command = tuple(shlex.split(chosen, posix=os.name != "nt"))
        except ValueError as error:
            raise BuildError(f"CC is not a command: {chosen} ({error})") from error
        if not which(command[0]):
            raise BuildError(f"the C compiler that CC names, {command[0]}, is not installed")
        return command
    found = (os.path.join(folder, name) for name in COMPILERS for folder in os.get_exec_path())
    for path in found:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return (path,)
    zig = find_zig()
    return None if zig is None else (str(zig), "cc")
