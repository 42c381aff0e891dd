"""The user's cache: what graphc measured, built and compiled on this machine. Programs from it are run, so it must be the
user's own: what another user may have put there is not read."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphc.files import open_regular, replacing
from graphc.trace import warn

OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_folder(name: str) -> Path:
    """The folder of this name in the cache, which may not be there.

    Raises OSError where there is no home folder, and where the cache belongs to another user.
    """
    cache = _cache()
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        _check_owner(cache)
    return cache / name


def make_cache_folder(name: str) -> Path:
    """A folder of this name in the user's cache, made if it is not there. Raises OSError where nothing can be written to it."""
    folder = cache_folder(name)
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)
        _check_owner(each)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "permission denied", str(folder))
    return folder


def is_own(path: Path) -> bool:
    """True if a file or folder is the user's (or the system's) and nobody else may write to it; not for links."""
    try:
        return _is_own(path.lstat())
    except OSError:
        return False


def read_own(path: Path) -> bytes | None:
    """What is in a file that is the user's own; None where there is no such file."""
    if path.is_symlink():
        return None
    try:
        with open_regular(path) as file:
            return file.read() if _is_own(os.fstat(file.fileno())) else None
    except OSError:
        return None


def keep(folder: str, name: str, content: bytes) -> None:
    """Write a file to a folder of the cache, whole or not at all. Where that is not possible there is one warning, whatever was
    to be kept, for all is done again the next time."""
    try:
        with replacing(make_cache_folder(folder) / name) as unfinished:
            unfinished.write_bytes(content)
            unfinished.chmod(0o600)
    except OSError as error:
        where = error.filename or _cache()
        warn_once(f"the cache cannot be written, so what is computed is not kept: {where}: {error.strerror}")


def forget_oldest(folder: str, ending: str, most: int) -> None:
    """Remove the files with an ending from a folder of the cache, but for so many that were written last."""
    with contextlib.suppress(OSError):  # another process may do the same
        found = sorted(cache_folder(folder).glob(f"*{ending}"), key=lambda path: path.lstat().st_mtime_ns)
        for each in found[: max(len(found) - most, 0)]:
            each.unlink()


def checked_name(key: str, content: bytes, ending: str) -> str:
    """What a file is called of which the name says both what it was made from and what is in it."""
    return f"{key}-{hashlib.sha256(content).hexdigest()[:32]}{ending}"


def kept(folder: str, key: str, ending: str) -> Iterator[bytes]:
    """What is in the cache's files of this key that are the user's own and whole; those that are damaged are removed."""
    try:
        place = cache_folder(folder)
        names = sorted(name for name in os.listdir(place) if name.startswith(f"{key}-") and name.endswith(ending))
    except OSError:
        return
    for name in names:
        content = read_own(place / name)
        if content is not None and name == checked_name(key, content, ending):
            yield content
        else:
            with contextlib.suppress(OSError):
                (place / name).unlink()


@contextmanager
def alone(folder: str) -> Iterator[None]:
    """No other process is in such a block, of this folder of the cache, at the same time. The system opens the lock if a process
    ends."""
    with (make_cache_folder(folder) / "lock").open("ab") as file:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@functools.cache
def warn_once(message: str) -> None:
    """Warn of something, the first time that it is noticed."""
    warn(message)


def _cache() -> Path:
    chosen = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", "")
    if os.path.isabs(chosen):
        return Path(chosen) / "graphc"
    try:
        home = Path.home()
    except RuntimeError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no home folder: set XDG_CACHE_HOME", "cache") from error
    usual = {"darwin": home / "Library" / "Caches", "win32": home / "AppData" / "Local"}
    return usual.get(sys.platform, home / ".cache") / "graphc"


def _check_owner(folder: Path) -> None:
    """Raises PermissionError for a folder of another user. Of the user's own, others' right to write is taken away: a umask may
    have given it."""
    for status in (folder.lstat(), folder.stat()):
        if not _owned(status):
            raise PermissionError(errno.EACCES, "belongs to another user; set XDG_CACHE_HOME", str(folder))
    if not _is_own(folder.stat()):
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) & ~OTHERS_MAY_WRITE)


def _is_own(status: os.stat_result) -> bool:
    return _owned(status) and (os.name == "nt" or not status.st_mode & OTHERS_MAY_WRITE)


def _owned(status: os.stat_result) -> bool:
    return os.name == "nt" or status.st_uid in (os.geteuid(), 0)
