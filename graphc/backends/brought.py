"""The backends that a wheel brings, of which nobody knows yet whether they work here. They are loaded when devices are first
asked for, and each is tried before in a process of its own, which a broken driver may end."""

from __future__ import annotations

from pathlib import Path

from graphc.backends.generated import DRIVERS, no_driver, tried
from graphc.backends.install import probe
from graphc.backends.table import BACKENDS
from graphc.backends.trial import DriverFailed
from graphc.errors import BuildError
from graphc.ggml_library import NAMES, loaded


def brought() -> dict[str, Path]:
    """The libraries of the backends that the wheel brings, by name; none where there is no wheel."""
    if loaded.own is None:
        return {}
    places = {name: loaded.folder / "lib" / NAMES.format(backend.library) for name, backend in BACKENDS.items()}
    return {name: library for name, library in places.items() if library.is_file()}


def devices_found(name: str, library: Path) -> list[str]:
    """The devices of a backend, as another process finds them. How the driver did is noted for whoever else would open it.
    Raises BuildError, and DriverFailed."""
    tried[name] = ""
    try:
        return probe(library)
    except DriverFailed as error:
        tried[name] = str(error)
        raise


def without_devices(name: str, library: Path) -> str:
    """Why a backend has no device here; empty if it has one. Raises BuildError if that could not be found out."""
    try:
        return "" if devices_found(name, library) else f"there is no GPU ({BACKENDS[name].without_device})"
    except DriverFailed:
        raise
    except BuildError:
        if name in DRIVERS and (why := no_driver(name)):
            return why
        raise
