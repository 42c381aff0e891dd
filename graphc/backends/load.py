"""Loading the backends that ggml was built with and those that were installed later, so that their devices are known."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import Any

from graphc.backends.brought import brought, devices_found, without_devices
from graphc.backends.generated import DRIVERS, load_generated
from graphc.backends.install import installed
from graphc.errors import BuildError
from graphc.ggml_library import ggml, opened
from graphc.once import once
from graphc.trace import warn

QUIETEST = 3
"""ggml's level of warnings: what it says of less importance is not printed, unless GRAPHC_DEBUG is set."""

CONTINUED = 5
"""ggml's level of a text that continues the one before."""


@once
def load_backends() -> None:
    """Make all devices known to ggml, once. An installed backend that cannot be loaded is warned of."""
    _hush()
    ggml.ggml_backend_load_all()
    for name, library in installed().items():
        try:
            if name in DRIVERS:
                devices_found(name, library)
            open_library(library)
        except BuildError as error:
            warn(f"backend {name}: {str(error).splitlines()[-1]}; `graphc doctor` may know why")
    load_brought()
    load_generated()


@once
def load_brought() -> dict[str, str]:
    """Load the backends that a wheel brings, once, but not those that were installed besides. Returns why others have no devices,
    by what these would be called."""
    there = installed()
    absent = {}
    for name, library in brought().items():
        if name in there:
            continue
        try:
            absent[name] = without_devices(name, library)
            if not absent[name]:
                open_library(library)
        except BuildError as error:
            absent[name] = str(error).splitlines()[-1]
    return {name: why for name, why in absent.items() if why}


def open_library(path: str | os.PathLike[str]) -> Any:
    """Load a backend's library; its registry. Raises BuildError."""
    library = Path(path)
    try:
        opened(library)  # says why it cannot be loaded, where ggml only says that
    except OSError as error:
        raise BuildError(str(error)) from error
    registry = ggml.ggml_backend_load(os.fsencode(library))
    if not registry:
        raise BuildError(f"{library.name} is of another version of ggml, or finds no driver")
    return registry


def _hush() -> None:
    """Have ggml print warnings and errors alone."""
    if not os.environ.get("GRAPHC_DEBUG"):
        ggml.ggml_log_set(_quiet_log(), None)
        atexit.register(ggml.ggml_log_set, ggml.ggml_log_callback(), None)


@once
def _quiet_log() -> Any:
    """What ggml calls for each piece of text. It is kept here, for it has to live as long as ggml."""
    last = 0

    def log(level: int, text: bytes, data: Any) -> None:
        nonlocal last
        last = last if level == CONTINUED else level
        if last >= QUIETEST:
            sys.stderr.write(text.decode(errors="replace"))

    return ggml.ggml_log_callback(log)
