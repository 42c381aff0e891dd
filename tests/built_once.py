"""What takes minutes to build is built once, however many processes run the tests: the others wait for the one that does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def alone(factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A folder that all processes of this run have, while no other of them has this name. Windows' have one each."""
    folder = factory.getbasetemp()
    if os.name == "nt" or "PYTEST_XDIST_WORKER" not in os.environ:
        yield folder
        return
    import fcntl

    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder.parent


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """The folder of this name, after `build` has filled it. Where that failed, the next process tries it too."""
    with alone(factory, name) as place:
        folder, done = place / name, place / f"{name}.done"
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build(folder)
            done.touch()
    return folder
