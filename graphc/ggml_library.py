"""ggml's libraries: those that a wheel of graphc brings, else those that ggml-python installed.

ggml-python's are loaded such that their threads wait for a moment and then sleep, unless the environment says otherwise. OpenMP
reads this when it is loaded. By itself it has a thread spin for milliseconds: where other programs need the processors too, every
step of a model then waits for a thread that has to be given one again, and becomes many times slower. A thread that sleeps at
once is as bad where nothing else runs: waking it takes longer than most steps.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from graphc.errors import GraphcError
from graphc.ggml_bindings import Ggml

TURNS = "4000"
"""Some ten microseconds."""

NAMES = {"win32": "{}.dll", "darwin": "lib{}.dylib"}.get(sys.platform, "lib{}.so")
"""How the system calls libraries."""

PARTS = ("ggml-base", "ggml-cpu", "ggml")
"""ggml's libraries, each behind those that it needs."""


def _installed() -> Path:
    """The folder of ggml-python's package. Raises GraphcError."""
    spec = find_spec("ggml")
    if spec is None or not spec.submodule_search_locations:
        raise GraphcError("there is no ggml: graphc's wheel brings it, and without one `pip install ggml-python` does")
    return Path(spec.submodule_search_locations[0]).resolve()


def _load(folder: Path) -> Ggml:
    """The libraries in a folder. Raises GraphcError if one is not there or cannot be loaded."""
    libraries = []
    for part in PARTS:
        path = folder / NAMES.format(part)
        try:
            # ggml-python's do not say where the others lie, but take what is there already.
            libraries.append(ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL))
        except OSError as error:
            raise GraphcError(f"{path} cannot be loaded: {error}; install ggml-python again") from error
    return Ggml(libraries[::-1])


@contextmanager
def _short_waits() -> Iterator[None]:
    """What is loaded meanwhile has OpenMP's threads wait for a moment."""
    silent = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}.isdisjoint(os.environ)
    if silent:
        os.environ["GOMP_SPINCOUNT"] = TURNS
    try:
        yield
    finally:
        if silent:
            del os.environ["GOMP_SPINCOUNT"]


ggml_folder = _installed()
"""Where ggml lies: its libraries in `lib`, its headers in `include`, here or beside."""

with _short_waits():
    ggml = _load(ggml_folder / "lib")


def ggml_include() -> Path | None:
    """The folder of `ggml.h`, which ggml-python installs beside its package; None if it is not there."""
    folders = (ggml_folder.parent / "include", ggml_folder / "include")
    return next((folder for folder in folders if (folder / "ggml.h").is_file()), None)
