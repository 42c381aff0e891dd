"""What the libraries of wheels compute where there is no Python to load them: by a program, natively, by Wine or by QEMU.

    python -m tests.wheel_library VARIANT dist/graphc-…-manylinux_2_17_x86_64.whl dist/graphc-…-win_amd64.whl

Compiles `wheel_library.cpp` for the system of each wheel, runs it with the wheel's code for that kind of processor, and shows
whether all say the same, bit for bit. Needs ziglang, and for other systems than this one Debian's wine64 or qemu-user.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from graphc_build.libraries import zig_program
from graphc_build.targets import Target, target_of

HERE = Path(__file__).parent

BUILD = HERE.parent / "graphc" / "targets" / "ggml" / "project" / "graphc" / "build.h"

VARIANTS = "#pragma once\n#define GRAPHC_POINTER(function) decltype(function) *\n#define GRAPHC_API\nstruct graphc_functions;\n"
"""Of the header that build.h includes, what a program needs that looks all functions up."""

LINKING = {"linux": ("-ldl", "-lpthread"), "windows": ("-static",)}


def runner(target: Target) -> list[str]:
    """What runs a program of a system here, before its name. Raises AssertionError where nothing does."""
    if target.system == "windows":
        found = shutil.which("wine64") or shutil.which("wine64", path="/usr/lib/wine")
    elif target.processor == ("x86" if platform.machine() == "x86_64" else "arm"):
        return []
    else:
        found = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    assert found, f"nothing here runs programs of {target.name}"
    return [found]


def answers(wheel: Path, variant: str, folder: Path) -> str:
    """What the program says, in a folder that is there. Raises CalledProcessError, with what the program or the compiler says."""
    target = target_of(wheel)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [each for each in archive.namelist() if each.startswith("graphc/ggml/")])
    (folder / "variants.h").write_text(VARIANTS)
    shutil.copy(BUILD, folder)
    program = folder / "program.exe"
    command = [zig_program(), "c++", "-std=c++17", "-O1", "-target", target.triple, f"-I{folder}"]
    included = f"-I{folder / 'graphc' / 'ggml' / 'include'}"
    subprocess.run([*command, included, HERE / "wheel_library.cpp", *LINKING[target.system], "-o", program], check=True)
    known = {**os.environ, "WINEPREFIX": str(folder / "wine"), "WINEDEBUG": "-all"}
    words = [*runner(target), str(program), "graphc/ggml/lib", variant]
    done = subprocess.run(words, cwd=folder, env=known, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.replace("\r", "")


def main(variant: str, *wheels: str) -> None:
    """Prints what each says."""
    said = set()
    for wheel in map(Path, wheels):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Wine writes a moment longer
            found = answers(wheel.resolve(), variant, Path(folder))
        print(wheel.name, found, sep="\n")
        said.add(found)
    print("all say the same" if len(said) == 1 else "they differ")


if __name__ == "__main__":
    main(*sys.argv[1:])
