"""ggml's libraries: those that a wheel of graphc brings, else those that ggml-python installed.

A wheel has a library for each kind of processor, with ggml's code for the CPU and our own; the best that this processor can run
is taken.

ggml-python's are loaded such that their threads wait for a moment and then sleep, unless the environment says otherwise. OpenMP
reads this when it is loaded. By itself it has a thread spin for milliseconds: where other programs need the processors too, every
step of a model then waits for a thread that has to be given one again, and becomes many times slower. A thread that sleeps at
once is as bad where nothing else runs: waking it takes longer than most steps.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from graphc.errors import GraphcError
from graphc.ggml_bindings import Ggml
from graphc.records import dataclass

TURNS = "4000"
"""Some ten microseconds."""

BROUGHT = Path(__file__).parent / "ggml"
"""Where a wheel has ggml."""

NAMES = {"win32": "{}.dll", "darwin": "lib{}.dylib"}.get(sys.platform, "lib{}.so")
"""How the system calls libraries."""

VARIANT = "GRAPHC_CPU_VARIANT"
"""The environment variable that names the kind of processor whose code is taken instead of the best."""

OLD_SYSTEM = (
    "this system's C library (glibc) is older than the one that it was made for; install graphc from source here"
)
"""What to do where the system says that. pip refuses such a wheel, but files may be copied."""


@dataclass(frozen=True)
class Loaded:
    """ggml's libraries. Of a wheel, `own` is the one that has our own code too, and `variant` the kind of processor it is for."""

    ggml: Ggml
    folder: Path
    own: ctypes.CDLL | None = None
    variant: str = ""


def load_wheel(folder: Path) -> Loaded:
    """A wheel's libraries. Raises GraphcError if one is damaged or none is for this processor."""
    advice = "install graphc's wheel again"
    base, registry = (_open(folder / "lib" / NAMES.format(part), advice) for part in ("ggml-base", "ggml"))
    before, after = NAMES.format("ggml-cpu-*").split("*")
    found = sorted((folder / "lib").glob(f"{before}*{after}"))
    variants = {path.name.removeprefix(before).removesuffix(after): _open(path, advice) for path in found}
    scores = {name: _score(each) for name, each in variants.items()}
    best = sorted((name for name, score in scores.items() if score > 0), key=lambda name: scores[name])
    if not best:
        known = ", ".join(variants) or "none"
        raise GraphcError(f"this processor is of none of the kinds that graphc's wheel has code for: {known}")
    variant = os.environ.get(VARIANT) or best[-1]
    if variant not in best:
        raise GraphcError(f"{VARIANT} is {variant!r}; for this processor there is {', '.join(best)}")
    loaded = Ggml((variants[variant], base, registry))
    start = loaded.symbol("ggml_backend_init")
    start.restype = ctypes.c_void_p
    register = loaded.symbol("ggml_backend_register")
    register.argtypes = [ctypes.c_void_p]
    register(start())
    return Loaded(loaded, folder, variants[variant], variant)


def _score(library: ctypes.CDLL) -> int:
    """How good a library is for this processor; 0 if it cannot run it. One without an opinion is for all."""
    try:
        return int(library.ggml_backend_score())
    except AttributeError:
        return 1


def load_installed() -> Loaded:
    """ggml-python's libraries. Raises GraphcError if one is not there or cannot be loaded."""
    spec = find_spec("ggml")
    if spec is None or not spec.submodule_search_locations:
        raise GraphcError("there is no ggml: a wheel of graphc brings it, and else `pip install ggml-python`")
    folder = Path(spec.submodule_search_locations[0]).resolve()
    with _short_waits():  # these do not say where the others lie, but take what is there already
        parts = [
            _open(folder / "lib" / NAMES.format(part), "install ggml-python again", ctypes.RTLD_GLOBAL)
            for part in ("ggml-base", "ggml-cpu", "ggml")
        ]
    return Loaded(Ggml(parts[::-1]), folder)


def _open(path: Path, advice: str, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    try:
        return opened(path, mode)
    except OSError as error:
        what = OLD_SYSTEM if "GLIBC_" in str(error) else advice
        raise GraphcError(f"{path} cannot be loaded: {error}; {what}") from error


def opened(path: Path, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """Load a library. Raises OSError, also for one whose end is missing: Linux would end the process instead (SIGBUS)."""
    if _is_cut_off(path):
        raise OSError("the end of the file is missing")
    return ctypes.CDLL(str(path), mode=mode)


def _is_cut_off(path: Path) -> bool:
    """True for an ELF library of 64 bits that ends before its table of sections does, which linkers write last."""
    with path.open("rb") as file:
        header = file.read(64)
        size = file.seek(0, os.SEEK_END)
    if len(header) < 64 or header[:5] != b"\x7fELF\x02":
        return False
    (begin,), (each, count) = struct.unpack_from("<Q", header, 40), struct.unpack_from("<2H", header, 58)
    return bool(begin + each * count > size)


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


loaded = load_wheel(BROUGHT) if BROUGHT.is_dir() else load_installed()
ggml = loaded.ggml
ggml_folder = loaded.folder
"""Where ggml lies: its libraries in `lib`, its headers in `include`, here or beside."""


def ggml_include() -> Path | None:
    """The folder of `ggml.h`, which ggml-python installs beside its package; None if it is not there."""
    folders = (ggml_folder.parent / "include", ggml_folder / "include")
    return next((folder for folder in folders if (folder / "ggml.h").is_file()), None)
