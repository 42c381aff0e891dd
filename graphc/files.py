"""Writing files so that nothing half-written is ever left behind."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_target(path: str | os.PathLike[str]) -> Path:
    """The path; raises OSError if a file certainly cannot be written there. Asked before long work is done in vain."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a directory", str(target))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(target.parent))
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "permission denied", str(target))
    return target


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to, in the target's folder; it takes the target's place when the block ends without an error.

    On an error (a full disk, an interrupt) what was written is removed and the target is as it was.
    Raises OSError, with the target's name, where the target cannot be written.
    """
    target = check_target(path)
    try:
        with tempfile.TemporaryDirectory(prefix=".graphc-", dir=target.parent) as beside:
            unfinished = Path(beside) / target.name
            yield unfinished
            os.replace(unfinished, target)
    except OSError as error:
        if error.filename is None or ".graphc-" in str(error.filename):
            raise OSError(error.errno, error.strerror or str(error), str(target)) from error
        raise
