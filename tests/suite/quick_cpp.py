"""How the tests compile C++ projects: quickly, and all in the same way, so that ccache has their common files but once."""

from __future__ import annotations

from pathlib import Path

from graphc import bundle
from graphc.build import build, installed_ggml

WARNINGS = "-Wall -Wextra -Wpedantic -Werror"

C_OPTIONS = ("-DCMAKE_C_FLAGS=-O1 -std=gnu11 -fwrapv -ffp-contract=off", "-DCMAKE_C_FLAGS_RELEASE=")

OPTIONS = (
    f"-DCMAKE_PREFIX_PATH={installed_ggml()}",
    f"-DCMAKE_CXX_FLAGS=-O0 {WARNINGS}",
    "-DCMAKE_CXX_FLAGS_RELEASE=",
    "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0",
    *C_OPTIONS,
)
"""cmake's; our own code for the CPU has its options from the project."""

FROM_SOURCE = (
    *(f"-DCMAKE_{each}_FLAGS_RELEASE=-O1 -DNDEBUG" for each in ("C", "CXX")),
    "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0",
)
"""The same where ggml is compiled too, and has to compute."""

BUNDLED = (*bundle.OPTIONS, *FROM_SOURCE)
"""How bundles are compiled, in place of `bundle.OPTIONS`."""


def build_quickly(project: Path) -> Path:
    """The program of a project."""
    return build(project, cmake_args=OPTIONS, jobs=2)
