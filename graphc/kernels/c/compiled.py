"""C source to a library that is loaded: compiled once for a machine, and kept in the user's cache.

A kept file is named by the hash of all that it depends on, and by the digest of what is in it: one that was damaged is compiled
again. What is loaded is a copy of the bytes that were checked, so what happens to the file afterwards does not matter.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import hashlib
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from graphc.cache import cache_folder, checked_name, keep, kept, make_cache_folder
from graphc.errors import BuildError
from graphc.kernels.c.compiler import FLAGS

KEPT_IN = "kernels"
"""The folder of the cache."""

ENDING = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")

TIME_LIMIT = 600
"""Seconds after which a compiler is given up."""

SCRATCH = ".scratch-"
"""How folders are called in which a library is made and loaded. Windows cannot remove them while the library is in use, and
nobody does after a process was killed: the next that compiles removes those of another day."""

SCRATCH_BYTES = 64 << 20
"""What a compiler writes meanwhile, amply: a cache with less room is full."""

A_DAY = 24 * 60 * 60

_loaded: dict[str, ctypes.CDLL] = {}


def load_library(
    source: str, compiler: tuple[str, ...], include: Path | None = None, flags: Sequence[str] | None = None
) -> ctypes.CDLL:
    """The compiled and loaded source, from the cache if it is there; `include` is the folder of `ggml.h`, if it is included.
    Raises BuildError with what the compiler says."""
    key, command = _recipe(source, compiler, include, flags)
    if key not in _loaded:
        _loaded[key] = _load_kept(key) or _load(_compiled(key, source, command))
    return _loaded[key]


def library_bytes(
    source: str, compiler: tuple[str, ...], include: Path | None = None, flags: Sequence[str] | None = None
) -> bytes:
    """What is in the library that `load_library` loads, for others to load. Raises BuildError."""
    key, command = _recipe(source, compiler, include, flags)
    return next(kept(KEPT_IN, key, ENDING), None) or _compiled(key, source, command)


def _recipe(
    source: str, compiler: tuple[str, ...], include: Path | None, flags: Sequence[str] | None
) -> tuple[str, Sequence[str]]:
    """The hash of all that a library depends on, and the command that compiles it."""
    included = () if include is None else (f"-I{include}",)
    header = "" if include is None else (include / "ggml.h").read_text(encoding="utf-8")
    command = (*compiler, *(FLAGS if flags is None else flags), *machine_flags(), "-fPIC", "-shared", *included)
    depends_on = "\0".join([source, *command, header, machine()])
    return hashlib.sha256(depends_on.encode()).hexdigest()[:32], command


def _load_kept(key: str) -> ctypes.CDLL | None:
    """The library of this key in the cache that can be loaded here: several systems may share a home folder."""
    for content in kept(KEPT_IN, key, ENDING):
        with contextlib.suppress(BuildError):
            return _load(content)
    return None


def _compiled(key: str, source: str, command: Sequence[str]) -> bytes:
    with _scratch() as folder:
        _sweep()
        content = compile_library(source, command, folder)
    keep(KEPT_IN, _file_name(key, content), content)
    return content


def compile_library(source: str, command: Sequence[str], folder: Path) -> bytes:
    """Compile C source in a folder; returns what is in the shared library. Raises BuildError."""
    import subprocess  # most processes find all that they need compiled

    c_file, built = folder / "kernels.c", folder / f"kernels{ENDING}"
    c_file.write_text(source, encoding="utf-8")
    environment = {"ZIG_GLOBAL_CACHE_DIR": str(_zig_cache(folder)), **os.environ, "TMPDIR": str(folder)}
    try:
        done = subprocess.run(
            [*command, str(c_file), "-o", str(built), "-lm"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIME_LIMIT,
            check=False,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"the C compiler could not be run: {error}") from error
    if done.returncode != 0 or not built.is_file():
        first = "\n".join(done.stderr.strip().splitlines()[:8]) or f"status {done.returncode}, and no library"
        raise BuildError(f"{' '.join(command)} failed on the generated kernels:\n{first}")
    return built.read_bytes()


def _file_name(key: str, content: bytes) -> str:
    return checked_name(key, content, ENDING)


def _load(content: bytes) -> ctypes.CDLL:
    """Load a library from a new file, for the system takes a path that it knows for the library that it has."""
    with _scratch() as folder:
        file = folder / f"kernels{ENDING}"
        file.write_bytes(content)
        try:
            return ctypes.CDLL(str(file))
        except OSError as error:
            raise BuildError(f"the compiled kernels cannot be loaded: {error}") from error


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for a moment: in the cache, or else, also if that is full, where the system has such folders."""
    try:
        place = make_cache_folder(KEPT_IN)
        disk = os.statvfs(place) if hasattr(os, "statvfs") else None  # `shutil.disk_usage` takes longer to import
        if disk is not None and disk.f_bavail * disk.f_frsize < SCRATCH_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place))
        folder = place / f"{SCRATCH}{os.urandom(8).hex()}"
        folder.mkdir(mode=0o700)
    except OSError:
        import tempfile

        folder = Path(tempfile.mkdtemp(prefix="graphc-"))
    try:
        yield folder
    finally:
        try:
            for each in folder.iterdir():
                each.unlink()
            folder.rmdir()
        except OSError:  # a compiler left a folder there, or a library is in use
            import shutil

            shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """Remove what others left behind in the cache."""
    import shutil

    with contextlib.suppress(OSError):
        for path in cache_folder(KEPT_IN).glob(f"{SCRATCH}*"):
            with contextlib.suppress(FileNotFoundError):  # another process removed it meanwhile
                if time.time() - path.stat().st_mtime > A_DAY:
                    shutil.rmtree(path, ignore_errors=True)


def _zig_cache(folder: Path) -> Path:
    """Where zig keeps the C library that it compiles."""
    try:
        return make_cache_folder(KEPT_IN) / "zig"
    except OSError:
        return folder


def machine_flags() -> tuple[str, ...]:
    """What lets the compiler use all of this processor's instructions."""
    return ("-mcpu=native",) if platform.machine().lower() in ("arm64", "aarch64") else ("-march=native",)


@functools.cache
def machine() -> str:
    """What compiled code for this processor depends on: caches may be shared between machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        known = sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    except OSError:
        known = [platform.processor()]  # elsewhere, it starts a program to ask
    return "\n".join([platform.system(), platform.machine(), *known])
