"""What was made of files, and is made anew when its file is another."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

Stamp = tuple[int, ...]


def stamp(path: Path) -> Stamp:
    """What is another once a file is; nothing for one that is not there."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_size, status.st_mtime_ns


class FromFiles(Generic[T]):
    """Values by what they are called, each with the files that it was made of."""

    def __init__(self, close: Callable[[T], object] | None = None, most: int | None = None) -> None:
        """`close` frees a value that is no longer wanted: of another file, or the one that was used the longest ago, where there
        are more than `most`."""
        self._most = most
        self._close = close or (lambda value: None)
        self._made: dict[Hashable, tuple[list[Stamp], T]] = {}

    def __call__(self, name: Hashable, make: Callable[[], T], *paths: Path) -> T:
        """The value of this name; made if it was not yet, or of other files."""
        stamps = [stamp(path) for path in paths]
        if name in self._made and self._made[name][0] != stamps:
            self.drop(name)
        found = self._made.pop(name) if name in self._made else (stamps, make())
        self._made[name] = found  # behind all others, which were used before
        while self._most and len(self._made) > self._most:
            self.drop(next(iter(self._made)))
        return found[1]

    def names(self) -> list[Hashable]:
        """What there is, what was used last at the end."""
        return list(self._made)

    def values(self) -> list[T]:
        """The same, as values."""
        return [value for _, value in self._made.values()]

    def drop(self, name: Hashable) -> None:
        """Forget one."""
        self._close(self._made.pop(name)[1])
