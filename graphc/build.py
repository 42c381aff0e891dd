"""From a C++ project to a program: runs cmake against the installed ggml, or ggml's source for another backend or system."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from graphc.backends.table import find_backend
from graphc.cmake import run_cmake
from graphc.cross import BASELINE, TARGETS, Target, cross_options, find_target
from graphc.errors import BuildError
from graphc.ggml_library import ggml_folder
from graphc.ggml_source import ggml_source
from graphc.trace import SILENT, Progress

SOURCE_OPTIONS = ("-DGGML_LLAMAFILE=ON", "-DGGML_NATIVE=ON")
"""What is on when ggml is built from source: fast matrix products, and this processor's instructions."""

EVERY_CPU = "all"
"""What `cpu` is for a program that runs on every processor of its kind, with code for several of them."""

VARIANT_OPTIONS = ("-DGRAPHC_CPU_ALL_VARIANTS=ON", "-DGGML_NATIVE=OFF")
"""What is on for such a program."""


def build(
    directory: str | os.PathLike[str],
    backend: str | None = None,
    cmake_args: Sequence[str] = (),
    jobs: int | None = None,
    progress: Progress = SILENT,
    *,
    target: str | None = None,
    cpu: str | None = None,
) -> Path:
    """Build the C++ project in a folder; returns the program.

    Without `backend`, the project uses the ggml that ggml-python installed. With one (see `backends.table`; "cpu" is
    the CPU alone), ggml is built from the source of the same version, which pip gets once. With a `target` (see `cross.TARGETS`),
    that is done for the CPU of another system; `cpu` is zig's name of a processor that programs may assume there. `EVERY_CPU`
    is for this system too, and then ggml is built from source in any case.
    `cmake_args` go to the configuration, `jobs` (default: one a processor) is how many files are compiled at once.
    Raises BuildError with the end of the output of what failed.
    """
    project = Path(directory).resolve()
    if not (project / "runtime" / "model.cmake").is_file() or not (project / "CMakeLists.txt").is_file():
        raise BuildError(f"{project} is not a C++ project of graphc; `graphc compile MODEL --cpp DIR` writes one")
    return build_application(project, "model", backend, cmake_args, jobs, progress, target=target, cpu=cpu)


def build_application(
    directory: str | os.PathLike[str],
    program: str,
    backend: str | None = None,
    cmake_args: Sequence[str] = (),
    jobs: int | None = None,
    progress: Progress = SILENT,
    *,
    target: str | None = None,
    cpu: str | None = None,
) -> Path:
    """Build an application, a folder with a `CMakeLists.txt` that has C++ projects of graphc in it; returns the program of this
    name. The rest is as in `build`."""
    project = Path(directory).resolve()
    everywhere = cpu == EVERY_CPU
    if target is None and cpu is not None and not everywhere:
        raise BuildError(
            f"a processor is chosen together with a target: {', '.join(TARGETS)}; without one there is {EVERY_CPU}"
        )
    if target is not None and backend is not None:
        raise BuildError("for another system only the CPU's backend is built: leave out the backend or the target")
    if target is None:
        backend = "cpu" if everywhere and backend is None else backend
        folder = project / "-".join(filter(None, ("build", backend and backend.lower(), cpu)))
        options, name = backend_options(backend, progress), f"{program}.exe" if os.name == "nt" else program
    else:
        system = find_target(target)
        folder = project / "-".join(filter(None, ("build", system.name, cpu)))
        options, name = (
            target_options(system, BASELINE if everywhere else cpu, folder, progress),
            system.called(program),
        )
    if everywhere:
        options += VARIANT_OPTIONS
    run_cmake(project, folder, [*options, *cmake_args], jobs=jobs, progress=progress)
    return find_program(folder, name)


def backend_options(backend: str | None, progress: Progress = SILENT) -> list[str]:
    """The options that choose where ggml comes from. Raises BuildError for an unknown backend, or without ggml."""
    if backend is None:
        return [f"-DCMAKE_PREFIX_PATH={installed_ggml()}"]
    chosen = () if backend.lower() == "cpu" else find_backend(backend).options
    return [f"-DGGML_SOURCE_DIR={ggml_source(progress)}", *SOURCE_OPTIONS, *chosen]


def target_options(target: Target, cpu: str | None, folder: Path, progress: Progress) -> list[str]:
    """The options that build for a target; see `cross_options`."""
    options = cross_options(target, cpu or target.cpu, folder / "toolchain")
    return [f"-DGGML_SOURCE_DIR={ggml_source(progress)}", *options]


def installed_ggml() -> Path:
    """The folder below which ggml-python installed ggml for cmake. Raises BuildError if it did not."""
    prefix = ggml_folder.parent
    if not (prefix / "lib" / "cmake" / "ggml" / "ggml-config.cmake").is_file():
        raise BuildError(f"there is no ggml for cmake in {prefix}; build from source with --backend cpu")
    return prefix


def find_program(folder: Path, name: str) -> Path:
    """The program that was built; some generators put it into a folder of the configuration. Raises BuildError."""
    for path in (folder / name, folder / "Release" / name):
        if path.is_file():
            return path
    raise BuildError(f"cmake built no {name} in {folder}")
