"""Which graphc reads a file that graphc wrote. `docs/versions.md` says what may change in which release."""

from __future__ import annotations

import re

from graphc import __version__
from graphc.errors import EngineError

RELEASE = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})")


def least_reader(version: str = __version__) -> str:
    """The least graphc that reads what a version writes: the first of its minor releases, for a patch adds nothing to files."""
    major, minor, _ = _numbers(version)
    return f"{major}.{minor}.0"


def check_reader(needed: object) -> None:
    """Raises EngineError if a file needs a newer graphc than this one, or does not say which it needs."""
    if not isinstance(needed, str) or not RELEASE.fullmatch(needed):
        raise EngineError("it is damaged: it does not say which graphc it needs")
    if _numbers(needed) > _numbers(__version__):
        raise EngineError(f"it needs graphc {needed} or newer, and this is graphc {__version__}; update graphc")


def check_format(what: str, found: object, known: int) -> None:
    """Raises EngineError if a file, or a part of it, is of another format than the one that this graphc reads."""
    if found != known:
        raise EngineError(f"{what} of format {found}, and graphc {__version__} reads format {known}; compile it again")


def _numbers(version: str) -> tuple[int, ...]:
    """A version's major, minor and patch number, which compare as releases do; `.dev1` and the like do not count."""
    found = RELEASE.match(version)
    assert found, version
    return tuple(map(int, found.groups()))
