"""Building a backend for this machine, into the user's cache, where every engine finds it from then on."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from graphc.backends.table import BACKENDS, Backend, find_backend
from graphc.backends.trial import try_alone
from graphc.cache import cache_folder, is_own, make_cache_folder, warn_once
from graphc.cmake import run_cmake
from graphc.errors import BuildError
from graphc.ggml_library import ggml_folder
from graphc.ggml_source import RELEASE, ggml_source
from graphc.trace import SILENT, Progress, warn

ENDINGS = (".so", ".dylib", ".dll")

PROBE = """
import json, sys
from graphc.backends.load import open_library
from graphc.errors import GraphcError
from graphc.runtime.devices import devices_of
try:
    print(json.dumps([f"{each.name}: {each.description}" for each in devices_of(open_library(sys.argv[1]))]))
except GraphcError as error:
    sys.exit(str(error))
"""
"""Loads a library in a process of its own, which a broken driver may end, and prints its devices."""


def backends_folder() -> Path:
    """Where built backends lie, a folder each, for this version of ggml. Raises OSError where the user has no cache."""
    return cache_folder("backends") / RELEASE


def installed() -> dict[str, Path]:
    """The libraries of the backends that were built, by name. What is not the user's own is left out, with a warning."""
    try:
        folder = backends_folder()
    except FileNotFoundError:  # no home folder
        return {}
    except OSError as error:
        warn_once(f"backends are not looked for: {error.filename}: {error.strerror}")
        return {}
    found = {name: library for name in BACKENDS if (library := _library_in(folder / name)) is not None}
    for name, library in found.items():
        if not is_own(library):
            warn_once(f"backend {name} is left out: {library} is not yours alone; `graphc backend install {name}`")
    return {name: library for name, library in found.items() if is_own(library)}


def install(
    name: str,
    *,
    cmake_args: Sequence[str] = (),
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> list[str]:
    """Build a backend from ggml's source and put it where it will be found; returns the devices that it has here.

    One that is already there is built again. One that was built but cannot be loaded here, because a driver is missing, as where
    an image for containers is made, stays too; the log says it. Nothing is left of a build that fails or is interrupted, and
    processes that build the same one at the same time do not disturb each other: the last that is ready stays. Raises
    BuildError, and OSError where the user has no cache.
    """
    backend = find_backend(name)
    source = ggml_source(progress)
    folder = make_cache_folder("backends") / RELEASE
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{backend.name}-", dir=folder, ignore_cleanup_errors=True) as beside:
        library = _build(backend, source, Path(beside), cmake_args, jobs, progress)
        try:
            devices = probe(library)
        except BuildError as error:
            devices = []
            warn(f"{error}\n{backend.name} stays installed; `graphc doctor {backend.name}` may know what is missing")
        ready = Path(beside) / "ready"
        ready.mkdir()
        shutil.move(library, ready / library.name)
        (ready / library.name).chmod(0o700)
        _place(ready, folder / backend.name)
    return devices


def remove(name: str) -> bool:
    """Remove a backend that was built; returns whether there was one. Raises BuildError where it cannot be removed."""
    folder = backends_folder() / find_backend(name).name
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise BuildError(f"{folder} cannot be removed, perhaps because a program uses it: {error}") from error
    return True


def probe(library: Path) -> list[str]:
    """The devices that a backend's library finds, as text. Raises BuildError if it cannot be loaded, and DriverFailed."""
    return [str(each) for each in try_alone(library.name, PROBE, str(library))]


def _build(
    backend: Backend, source: Path, beside: Path, cmake_args: Sequence[str], jobs: int | None, progress: Progress
) -> Path:
    """The library, built in a folder that is removed afterwards."""
    options = [
        f"-DGGML_SOURCE_DIR={source}",
        f"-DGGML_LIBRARY_DIR={ggml_folder / 'lib'}",
        *backend.options,
        *cmake_args,
    ]
    try:
        with as_file(files("graphc.backends").joinpath("project")) as project:
            run_cmake(project, beside / "build", options, target=backend.library, jobs=jobs, progress=progress)
    except BuildError as error:
        raise BuildError(
            f"{error}\n{backend.name} needs {backend.needs}; `graphc doctor {backend.name}` says what is missing"
        ) from error
    library = _library_in(beside / "build" / "library")
    if library is None:
        raise BuildError(f"cmake built no library of the backend {backend.name}")
    return library


def _library_in(folder: Path) -> Path | None:
    """The backend's library; ggml-base, which is built with it, is not looked for."""
    found = sorted(folder.rglob("*ggml-*")) if folder.is_dir() else []
    return next((each for each in found if each.suffix in ENDINGS and "ggml-base" not in each.name), None)


def _place(ready: Path, folder: Path) -> None:
    """Put a finished folder in the place of another, which may not be there, or come and go."""
    for _ in range(10):
        try:
            os.replace(ready, folder)
            return
        except OSError:
            old = ready.parent / f"old-{os.getpid()}"
            with contextlib.suppress(OSError):  # on Windows, while a program uses it
                os.replace(folder, old)
                shutil.rmtree(old, ignore_errors=True)
    raise BuildError(f"{folder} cannot be replaced, perhaps because a program uses it")
