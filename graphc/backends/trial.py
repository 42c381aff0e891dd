"""Trying in a process of its own what a broken driver may end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Any

from graphc.errors import BuildError

SECONDS = 120

FAILED = 1
"""The status of a Python process that ends with an error; Windows has larger ones for those that crash."""


class DriverFailed(BuildError):
    """A driver ended the process that tried it, or did not answer."""


def try_alone(what: str, code: str, *arguments: str) -> Any:
    """What Python code prints last, as JSON, in a process that imports from where this one does. `what` is the library that it
    loads. Raises DriverFailed, and BuildError with what the code says if it fails."""
    command = [sys.executable, "-P", "-c", code, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DriverFailed(f"the driver says nothing: {what} was tried for {SECONDS} seconds") from error
    except OSError as error:
        raise BuildError(f"{what} cannot be tried: {error}") from error
    if done.returncode < 0 or done.returncode > FAILED:
        raise DriverFailed(f"the driver crashes: {what} was tried, which ended with {_ending(done.returncode)}")
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[-5:]) or f"the process ended with status {done.returncode}"
        raise BuildError(f"{what} cannot be loaded:\n{said}")
    return json.loads(done.stdout.splitlines()[-1])


def _ending(status: int) -> str:
    """How a process ended that did not end itself."""
    if status < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-status).name
    return f"status {status & 0xFFFFFFFF:#x}"
