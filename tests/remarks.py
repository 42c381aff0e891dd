"""What the library logs: the records of its logger while something is done."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def records() -> Iterator[list[str]]:
    """The messages that the logger `graphc` gets meanwhile, of warnings and worse."""
    found: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("graphc")
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


@contextmanager
def remarked(match: str) -> Iterator[list[str]]:
    """Expects a remark that the pattern is found in."""
    with records() as found:
        yield found
    assert any(re.search(match, each) for each in found), found


@contextmanager
def silent() -> Iterator[None]:
    """Expects no remark."""
    with records() as found:
        yield
    assert not found
