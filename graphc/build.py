"""From a C++ project to a program: runs cmake against the installed ggml, or against ggml's source for another backend."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from graphc.errors import BuildError
from graphc.ggml_library import ggml
from graphc.ggml_source import ggml_source
from graphc.trace import SILENT, Progress, Step

BACKENDS: Mapping[str, tuple[str, ...]] = {
    "cpu": (),
    "cuda": ("GGML_CUDA",),
    "hip": ("GGML_HIP",),
    "metal": ("GGML_METAL",),
    "musa": ("GGML_MUSA",),
    "opencl": ("GGML_OPENCL",),
    "sycl": ("GGML_SYCL",),
    "vulkan": ("GGML_VULKAN",),
    "webgpu": ("GGML_WEBGPU",),
    "blas": ("GGML_BLAS",),
}
"""The backends that ggml's source is built with, and the options that say so."""

SOURCE_OPTIONS = ("GGML_LLAMAFILE", "GGML_NATIVE")
"""What is on when ggml is built from source: fast matrix products, and this processor's instructions."""

TAIL = 40
"""Lines of a failed command's output that its error shows."""

PERCENT = re.compile(r"\[\s*(\d+)%\]|^\[(\d+)/(\d+)\]")


def build(
    directory: str | os.PathLike[str],
    backend: str | None = None,
    cmake_args: Sequence[str] = (),
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> Path:
    """Build the C++ project in a folder; returns the program.

    Without `backend`, the project uses the ggml that ggml-python installed. With one (see `BACKENDS`; "cpu" is the CPU
    alone), ggml is built from the source of the same version, which pip gets once. `cmake_args` go to the configuration,
    `jobs` (default: one a processor) is how many files are compiled at once. Raises BuildError with the end of the output
    of what failed.
    """
    project = Path(directory).resolve()
    if not (project / "graphc" / "project.cmake").is_file() or not (project / "CMakeLists.txt").is_file():
        raise BuildError(f"{project} is not a C++ project of graphc; `graphc compile MODEL --cpp DIR` writes one")
    cmake = find_cmake()
    options = backend_options(backend, progress)
    folder = project / ("build" if backend is None else f"build-{backend.lower()}")
    configure = [cmake, "-S", str(project), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release", *options, *cmake_args]
    with progress.stage("configure", 1) as step:
        _run(configure, "cmake could not configure the project")
        step(1)
    compile = [cmake, "--build", str(folder), "--config", "Release", "--parallel", str(jobs or os.cpu_count() or 1)]
    with progress.stage("compile C++", 100) as step:
        _run(compile, "the project could not be compiled", step)
    return find_program(folder)


def find_cmake() -> str:
    """The cmake command: beside this Python, or on the path. Raises BuildError if there is none."""
    beside = Path(sys.executable).parent / ("cmake.exe" if os.name == "nt" else "cmake")
    found = str(beside) if beside.is_file() else shutil.which("cmake")
    if found is None:
        raise BuildError("cmake is not installed: `pip install cmake`, or your system's package of that name")
    return found


def backend_options(backend: str | None, progress: Progress = SILENT) -> list[str]:
    """The options that choose where ggml comes from. Raises BuildError for an unknown backend, or without ggml."""
    if backend is None:
        return [f"-DCMAKE_PREFIX_PATH={installed_ggml()}"]
    switches = BACKENDS.get(backend.lower())
    if switches is None:
        raise BuildError(f"no backend {backend!r}; there is {', '.join(BACKENDS)}")
    with progress.stage("get ggml's source", 1) as step:
        source = ggml_source()
        step(1)
    return [f"-DGGML_SOURCE_DIR={source}", *(f"-D{switch}=ON" for switch in (*SOURCE_OPTIONS, *switches))]


def installed_ggml() -> Path:
    """The folder below which ggml-python installed ggml for cmake. Raises BuildError if it did not."""
    prefix = Path(ggml.__file__).resolve().parent.parent
    if not (prefix / "lib" / "cmake" / "ggml" / "ggml-config.cmake").is_file():
        raise BuildError(f"there is no ggml for cmake in {prefix}; build from source with --backend cpu")
    return prefix


def find_program(folder: Path) -> Path:
    """The program that was built; some generators put it into a folder of the configuration. Raises BuildError."""
    name = "model.exe" if os.name == "nt" else "model"
    for path in (folder / name, folder / "Release" / name):
        if path.is_file():
            return path
    raise BuildError(f"cmake built no {name} in {folder}")


def _run(command: Sequence[str], failure: str, step: Step | None = None) -> None:
    """Run a command to its end; `step` is told how many percent it says that it has come further."""
    tail: deque[str] = deque(maxlen=TAIL)
    done = 0
    try:
        for line in _lines(command):
            tail.append(line)
            now = _percent(line)
            if step is not None and now > done:
                step(now - done)
                done = now
    except OSError as error:
        raise BuildError(f"{failure}: {error}") from error
    except subprocess.CalledProcessError as error:
        raise BuildError("\n".join([f"{failure}:", *tail])) from error


def _lines(command: Sequence[str]) -> Iterator[str]:
    """What a command prints. Raises CalledProcessError if it fails; if nobody reads on, it is ended."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield line.rstrip()
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def _percent(line: str) -> int:
    """How far a line of make's or ninja's output says that the build is; 0 if it does not."""
    found = PERCENT.search(line)
    if found is None:
        return 0
    if found[1]:
        return min(int(found[1]), 100)
    return 100 * int(found[2]) // max(int(found[3]), 1)
