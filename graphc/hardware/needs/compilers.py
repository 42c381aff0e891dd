"""What builds any backend, and what the CPU wants."""

from __future__ import annotations

from collections.abc import Mapping

from graphc.hardware.needs.check import Lack, Need, everywhere, file, tool
from graphc.hardware.needs.cuda import nvcc

XCODE = "xcode-select --install"

C_COMPILER = Need(
    tool("a C compiler", "cc", "gcc", "clang", "python-zig"),
    everywhere("gcc") | {"apk": "gcc musl-dev", "Windows": "pip install ziglang", "Darwin": XCODE},
)
CPP_COMPILER = Need(
    tool("a C++ compiler", "c++", "g++", "clang++"),
    {"apt": "g++", "dnf": "gcc-c++", "zypper": "gcc-c++", "pacman": "gcc", "apk": "g++"},
)
CMAKE = Need(tool("cmake", "cmake"), {"*": "pip install cmake"})
GPU_COMPILER = Need(
    lambda machine, gpu: None if nvcc(machine) or machine.which("python-zig") else Lack("a compiler for GPU kernels"),
    {"*": "pip install ziglang"},
)
MAKE = Need(tool("make", "make", "ninja"), everywhere("make"))
MICROSOFT_COMPILER = Need(
    file("Microsoft's C++ compiler", "C:/Program Files*/Microsoft Visual Studio/*/*/VC/Tools/MSVC/*/bin/*/*/cl.exe"),
    {
        "*": "winget install --exact --id Microsoft.VisualStudio.2022.BuildTools --override "
        '"--passive --wait --add Microsoft.VisualStudio.Workload.VCTools --includeRecommended"'
    },
)
XCODE_TOOLS = Need(
    file("Xcode's command line tools", "/Library/Developer/CommandLineTools/usr/bin/clang", "/Applications/Xcode*.app"),
    {"*": XCODE},
)

BUILD: Mapping[str, tuple[Need, ...]] = {
    "Linux": (CPP_COMPILER, CMAKE, MAKE),
    "WSL": (CPP_COMPILER, CMAKE, MAKE),
    "Windows": (MICROSOFT_COMPILER, CMAKE),
    "Darwin": (XCODE_TOOLS, CMAKE),
}
"""What every backend needs to be built, by the kind of system."""
