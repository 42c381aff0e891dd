"""Running cmake: configuring and building a folder, with its progress, and the end of its output where it fails."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from graphc.errors import BuildError
from graphc.trace import SILENT, Progress, Step

TAIL = 40
"""Lines of a failed command's output that its error shows."""

PERCENT = re.compile(r"\[\s*(\d+)%\]|^\[(\d+)/(\d+)\]")


def run_cmake(
    source: Path,
    folder: Path,
    options: Sequence[str],
    *,
    target: str | None = None,
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> None:
    """Configure a project and build it in a folder: all of it or one target, `jobs` files at once (None: one a processor).

    Raises BuildError with the end of the output of what failed.
    """
    cmake = find_cmake()
    with progress.stage("configure", 1) as step:
        configure = [cmake, "-S", str(source), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release", *options]
        run(configure, "cmake could not configure the project")
        step(1)
    compile = [cmake, "--build", str(folder), "--config", "Release", "--parallel", str(jobs or os.cpu_count() or 1)]
    with progress.stage("compile", 100) as step:
        chosen = [] if target is None else ["--target", target]
        run([*compile, *chosen], "the project could not be compiled", step)


def find_cmake() -> str:
    """The cmake command: beside this Python, or on the path. Raises BuildError if there is none."""
    beside = Path(sys.executable).parent / ("cmake.exe" if os.name == "nt" else "cmake")
    found = str(beside) if beside.is_file() else shutil.which("cmake")
    if found is None:
        raise BuildError("cmake is not installed: `pip install cmake`, or your system's package of that name")
    return found


def run(command: Sequence[str], failure: str, step: Step | None = None) -> None:
    """Run a command to its end; `step` is told how many percent it says that it has come further."""
    tail: deque[str] = deque(maxlen=TAIL)
    done = 0
    try:
        for line in _lines(command):
            tail.append(line)
            now = _percent(line)
            if step is not None and now > done:
                step(now - done)
                done = now
    except OSError as error:
        raise BuildError(f"{failure}: {error}") from error
    except subprocess.CalledProcessError as error:
        raise BuildError("\n".join([f"{failure}:", *tail])) from error


def _lines(command: Sequence[str]) -> Iterator[str]:
    """What a command prints. Raises CalledProcessError if it fails; if nobody reads on, it is ended with all that it started."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=os.name == "posix",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield line.rstrip()
        except BaseException:
            if os.name == "posix":
                with contextlib.suppress(OSError):  # it has ended
                    os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def _percent(line: str) -> int:
    """How far a line of make's or ninja's output says that the build is; 0 if it does not."""
    found = PERCENT.search(line)
    if found is None:
        return 0
    if found[1]:
        return min(int(found[1]), 100)
    return 100 * int(found[2]) // max(int(found[3]), 1)
