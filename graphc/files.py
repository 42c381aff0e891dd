"""Files in and out, by the same rules for every command.

Nothing half-written is ever left behind. Links are followed, devices and pipes are written to and never replaced. What is read
must be a regular file, so that nobody waits for a pipe. What only writing needs of the standard library is imported there:
most processes only read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import numpy as np

BESIDE = ".graphc-"
"""How folders begin in which files are written before they go to their places."""

LIST = "made-by-graphc.txt"
"""The file of a folder that graphc wrote which names the other files."""

LIST_BEGINS = "graphc wrote these files, and replaces them when it writes to this folder again:"

SPECIAL = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
"""How a file is opened that may be a pipe or a terminal."""


def check_target(path: str | os.PathLike[str]) -> Path:
    """The path; raises OSError if a file certainly cannot be written there. Asked before long work is done in vain."""
    target = Path(path)
    mode = _mode(target)
    if mode is None or stat.S_ISREG(mode):
        folder = Path(os.path.realpath(target)).parent
        if not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(folder))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "permission denied", str(target))
    elif stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory", str(target))
    elif not (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
        raise OSError(errno.EINVAL, "neither a file, nor a device or pipe that takes bytes", str(target))
    elif not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "permission denied", str(target))
    return target


def beside(path: Path, suffix: str) -> Path:
    """Where to write what is made of a file, if nobody says where: its own path with another suffix."""
    return (path if path.name else path / "model").with_suffix(suffix)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to; it takes the place of the file, at the end of links, when the block ends without an error.

    It lies in the same folder. On an error (a full disk, an interrupt) what was written is removed and the file is as it was. A
    device or pipe gets the bytes when the block ends. Raises OSError, with the given path, where it cannot be written.
    """
    target = check_target(path)
    special = not stat.S_ISREG(_mode(target) or stat.S_IFREG)
    real = Path(os.path.realpath(target))
    with _beside(None if special else real.parent, target) as folder:
        unfinished = folder / (target.name if special else real.name)
        yield unfinished
        if special:
            _pour(unfinished, target)
        else:
            _put(unfinished, real)


def check_folder(path: str | os.PathLike[str]) -> Path:
    """The path; raises OSError if a folder certainly cannot be written there, FileExistsError if others' files lie in it."""
    target = Path(path)
    mode = _mode(target)
    if mode is None:
        return check_target(target)
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(errno.ENOTDIR, "is not a folder", str(target))
    if not os.access(target, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "permission denied", str(target))
    if _listed(target) is None and any(not each.name.startswith(BESIDE) for each in target.iterdir()):
        raise FileExistsError(errno.EEXIST, "graphc did not write what lies in it; give a new folder", str(target))
    return target


@contextmanager
def replacing_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to write to; its files take the places of those that were written to `path` before, when the block ends
    without an error. Those that are the same stay, so that nothing is compiled again for them, and so do other files there.

    Raises OSError where that cannot be, FileExistsError where a file would be replaced that graphc did not write.
    """
    target = check_folder(path)
    real = Path(os.path.realpath(target))
    there = real.is_dir()
    with _beside(real if there else real.parent, target) as folder:
        content = folder / "content"
        content.mkdir()
        yield content
        written = sorted(each.relative_to(content).as_posix() for each in content.rglob("*") if not each.is_dir())
        before = (_listed(real) or set()) | {LIST}
        (content / LIST).write_text("\n".join([LIST_BEGINS, *written, ""]), encoding="utf-8")
        if not there:
            os.rename(content, real)
            return
        for name in written:
            if name not in before and os.path.lexists(real / name):
                raise FileExistsError(errno.EEXIST, "graphc did not write this file", str(target / name))
        for name in (LIST, *written):
            if _same(content / name, real / name):
                continue
            (real / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(content / name, real / name)
        for name in before.difference(written, [LIST]):
            (real / name).unlink(missing_ok=True)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading. Raises OSError if it is none; a pipe is not waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | SPECIAL)
    except ValueError as error:  # a zero byte in the name
        raise OSError(errno.EINVAL, str(error), os.fspath(path)) from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory", os.fspath(path))
    raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))


def map_file(path: str | os.PathLike[str]) -> np.ndarray:
    """The bytes of a regular file, mapped. Raises OSError."""
    import numpy as np

    with open_regular(path) as file:
        if not os.fstat(file.fileno()).st_size:
            return np.empty(0, np.uint8)
        try:
            return np.asarray(np.memmap(file, np.uint8, "r"))
        except ValueError as error:
            raise OSError(errno.EIO, "it cannot be mapped", os.fspath(path)) from error


def read_file(path: str | os.PathLike[str], longest: int) -> bytes:
    """What is in a regular file of at most `longest` bytes. Raises OSError."""
    with open_regular(path) as file:
        content = file.read(longest + 1)
    if len(content) > longest:
        raise OSError(errno.EFBIG, f"it is longer than {longest} bytes", os.fspath(path))
    return content


def _mode(path: Path) -> int | None:
    """What kind of file is there, at the end of links, and who may use it; None if there is none. Raises OSError."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


@contextmanager
def _beside(folder: Path | None, target: Path) -> Iterator[Path]:
    """A folder for a moment, in another one or where the system has such; errors are of the target."""
    import tempfile

    try:
        with tempfile.TemporaryDirectory(prefix=BESIDE, dir=folder) as name:
            yield Path(name)
    except OSError as error:
        if error.filename is None or BESIDE in str(error.filename):
            raise OSError(error.errno, error.strerror or str(error), str(target)) from error
        raise


def _same(file: Path, other: Path) -> bool:
    """True if the other is a file, too, with the same bytes and permissions."""
    import filecmp

    try:
        status, there = file.lstat(), other.lstat()
    except OSError:
        return False
    return status.st_mode == there.st_mode and filecmp.cmp(file, other, shallow=False)


def _put(file: Path, target: Path) -> None:
    """Move a file to the place of another, which may be there, with the same permissions then."""
    import shutil

    if target.exists():
        shutil.copymode(target, file)
    os.replace(file, target)


def _pour(file: Path, target: Path) -> None:
    """Write what is in a file to a device, or to a pipe that somebody reads."""
    import shutil

    try:
        sink = os.open(target, os.O_WRONLY | SPECIAL)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "nobody reads from this pipe", str(target)) from error
        raise
    if os.name != "nt":
        os.set_blocking(sink, True)
    with os.fdopen(sink, "wb") as to, file.open("rb") as content:
        shutil.copyfileobj(content, to)


def _listed(folder: Path) -> set[str] | None:
    """The files that graphc wrote to a folder; None if it wrote none. Only plain names below the folder."""
    try:
        first, *names = read_file(folder / LIST, 1 << 20).decode("utf-8").splitlines()
    except (OSError, ValueError):
        return None
    if first != LIST_BEGINS:
        return None
    return {name for name in names if name and not Path(name).is_absolute() and ".." not in Path(name).parts}
