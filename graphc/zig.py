"""The `ziglang` package: clang, linkers and the C libraries of many systems, in one program that runs anywhere."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path


def find_zig() -> Path | None:
    """The program of the `ziglang` package; None if it is not installed."""
    package = importlib.util.find_spec("ziglang")
    if package is None or package.origin is None:
        return None
    program = Path(package.origin).parent / ("zig.exe" if os.name == "nt" else "zig")
    return program if program.is_file() else None
