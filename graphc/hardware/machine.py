"""What is asked of a machine: its files, its tools, its environment. Whatever is not there is empty, never an error."""

from __future__ import annotations

import functools
import glob
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Protocol

TOOL_SECONDS = 10.0
"""A tool that takes longer is given up: some wait for ever on a GPU that hangs."""

LONGEST = 1 << 22
"""Characters of a file or an output that are read."""


class Machine(Protocol):
    """A machine that can be asked; the tests have recorded ones."""

    @property
    def system(self) -> str:
        """Linux, Windows or Darwin."""

    @property
    def architecture(self) -> str:
        """x86_64, AMD64, arm64, …"""

    @property
    def is_root(self) -> bool:
        """True if commands need no sudo."""

    def read(self, path: str) -> str:
        """The text of a file."""

    def find(self, pattern: str) -> list[str]:
        """The paths that a pattern with `*` matches, sorted."""

    def may_use(self, path: str) -> bool:
        """True if this user may read and write a file."""

    def which(self, tool: str) -> str:
        """Where a tool is."""

    def run(self, tool: str, *arguments: str) -> str:
        """What a tool prints, also if it fails; nothing if it does not end in time."""

    def variable(self, name: str) -> str:
        """A variable of the environment."""


class ThisMachine:
    """The machine that this process runs on; `root` is the folder in which its files are looked for."""

    def __init__(self, root: str = "/", seconds: float = TOOL_SECONDS) -> None:
        self.root, self.seconds = root, seconds
        self.system, self.architecture = platform.system(), platform.machine()
        self.is_root = os.name == "posix" and os.geteuid() == 0

    def read(self, path: str) -> str:
        """See `Machine`."""
        try:
            with open(self._place(path), encoding="utf-8", errors="replace") as file:
                return file.read(LONGEST)
        except (OSError, ValueError):
            return ""

    def find(self, pattern: str) -> list[str]:
        """See `Machine`."""
        found = sorted(glob.glob(self._place(pattern)))
        return found if self.root == "/" else ["/" + os.path.relpath(each, self.root) for each in found]

    def may_use(self, path: str) -> bool:
        """See `Machine`."""
        return os.access(self._place(path), os.R_OK | os.W_OK)

    def which(self, tool: str) -> str:
        """See `Machine`. Beside this Python is where pip puts tools."""
        return shutil.which(tool) or shutil.which(tool, path=str(Path(sys.executable).parent)) or ""

    @functools.cache  # noqa: B019  (a machine lives as long as the process)
    def run(self, tool: str, *arguments: str) -> str:
        """See `Machine`. A tool is run once with the same arguments."""
        path = self.which(tool)
        return output_of([path, *arguments], self.seconds) if path else ""

    def variable(self, name: str) -> str:
        """See `Machine`."""
        return os.environ.get(name, "")

    def _place(self, path: str) -> str:
        return path if self.root == "/" else os.path.join(self.root, path.lstrip("/"))


def output_of(command: list[str], seconds: float) -> str:
    """What a command prints to its stdout, in English where it can; nothing if it cannot be started or does not end in time.

    A process that the kernel does not let go (a GPU's driver hangs) is not waited for, nor are processes that it started.
    """
    group: dict[str, Any] = {"start_new_session": True} if os.name == "posix" else {}
    with tempfile.TemporaryFile() as printed:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.DEVNULL,
                env={**os.environ, "LC_ALL": "C"}, **group,
            )  # fmt: skip
        except (OSError, ValueError):
            return ""
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            return ""
        printed.seek(0)
        return printed.read(LONGEST).decode("utf-8", errors="replace")


def _end(process: subprocess.Popen) -> None:
    try:
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait(1)
    except (OSError, subprocess.TimeoutExpired):
        process.returncode = -signal.SIGTERM  # no one waits for it, so that it is not warned of
