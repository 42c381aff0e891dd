"""Pictures that are handed to graphs and back by name, without a folder of theirs (Acly's comfyui-tooling-nodes).

They lie in files, so that a graph which waits still has them after the server was killed.
"""

from __future__ import annotations

import re
import stat
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import graphc
from graphc_server.errors import RequestError

NAME = re.compile(r"[\w.-]{1,80}", re.ASCII)
MOST = 100 << 20
"""Bytes that they may have together before old ones go."""

OLD = 600.0
"""Seconds after which one that nobody asked for is old."""


class Handed:
    """A folder of such pictures; `needed` says whether a graph that waits names one."""

    def __init__(self, folder: Path, needed: Callable[[str], bool]) -> None:
        self.folder, self._needed = folder.resolve(), needed
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        """The file of a name, which need not be there. Raises RequestError for what is not a name."""
        if not NAME.fullmatch(name) or name.startswith("."):
            raise RequestError(f"id: {name[:80]!r} is not a name: letters, digits, and . _ -", 400)
        return self.folder / name

    def has(self, name: str) -> bool:
        """True if it is there."""
        return self.path(name).is_file()

    def put(self, name: str, content: bytes) -> None:
        """Keep a picture; old ones go where there are too many. Raises RequestError."""
        path = self.path(name)
        with graphc.replacing(path) as unfinished:
            unfinished.write_bytes(content)
        self._forget()

    def add(self, content: bytes) -> str:
        """Keep a picture under a new name."""
        name = uuid.uuid4().hex
        self.put(name, content)
        return name

    def get(self, name: str) -> bytes | None:
        """A picture, which then counts as new; None if it is not there. Raises RequestError."""
        path = self.path(name)
        try:
            content = path.read_bytes()
            path.touch()
        except OSError:
            return None
        return content

    def _forget(self) -> None:
        found = []
        for each in self.folder.iterdir():
            try:
                status = each.stat()
            except OSError:  # another thread was here
                continue
            if stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime, status.st_size, each))
        total, long_ago = sum(size for _, size, _ in found), time.time() - OLD
        for last, size, path in sorted(found):
            if total <= MOST or last > long_ago:
                return
            if not self._needed(path.name):
                path.unlink(missing_ok=True)
                total -= size
