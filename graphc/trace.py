"""Seeing what happens: the library's log, and how far a long stage has come.

A stage of the pipeline is given a `Progress` and says what it does and how much of it there is:

    with progress.stage("write weights", total=size) as step:
        for part in parts:
            step(len(part))
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

VISIBLE_AFTER = 1.0
"""Seconds that a stage runs before its bar is shown."""

Step: TypeAlias = Callable[[int], None]
"""Says that so much more of a stage is done, in the unit of its total."""


def warn(message: str) -> None:
    """Say what is no error but worth knowing: weights that were quantized again, a cache that cannot be used. Python prints that
    to stderr if nobody listens; an application decides by `logging.getLogger("graphc")`."""
    import logging  # most processes have nothing to say

    logging.getLogger("graphc").warning(message)


class Progress(Protocol):
    """Where stages report."""

    def stage(self, title: str, total: int | None = None) -> AbstractContextManager[Step]:
        """Enter a stage of so much work; None where that is not known. Stages may be nested."""
        ...


class Silent:
    """Reports nothing."""

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Step]:
        """A stage that nobody watches."""
        yield lambda amount: None


SILENT: Progress = Silent()


class Bars:
    """Draws a bar on a terminal's stderr for each stage that takes longer than a second, and removes it at its end."""

    def __init__(self) -> None:
        self._bars: RichProgress | None = None
        self._open = 0

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Step]:
        """A stage with a bar; it only pulses where the total is not known."""
        bars = self._bars = self._bars or _make_bars()
        if self._open == 0:
            bars.start()
        self._open += 1
        task = bars.add_task(title, total=total or None)
        try:
            yield lambda amount: bars.advance(task, amount)
        finally:
            bars.remove_task(task)
            self._open -= 1
            if self._open == 0:
                bars.stop()


class Lines:
    """Says in a line of stderr when a stage begins, and from time to time how far it has come: for logs of what takes minutes."""

    EVERY = 20.0
    """Seconds between lines of one stage."""

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Step]:
        """A stage with a line at its beginning."""
        began = said = perf_counter()
        done = 0
        print(f"{title} …", file=sys.stderr, flush=True)

        def step(amount: int) -> None:
            nonlocal done, said
            done, now = done + amount, perf_counter()
            if now - said > self.EVERY:
                said = now
                part = f" {100 * done // total} %" if total else ""
                print(f"{title}:{part} after {said - began:.0f} s", file=sys.stderr, flush=True)

        yield step


def said_progress() -> Progress:
    """Progress of what may take minutes: bars on a terminal, else lines."""
    return Bars() if sys.stderr.isatty() else Lines()


def terminal_progress() -> Progress:
    """Bars if stderr is a terminal, else nothing."""
    return Bars() if sys.stderr.isatty() else SILENT


def _make_bars() -> RichProgress:
    from rich.console import Console, RenderableType
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    class LongStages(Progress):
        def get_renderables(self) -> Iterator[RenderableType]:
            yield self.make_tasks_table([task for task in self.tasks if (task.elapsed or 0) >= VISIBLE_AFTER])

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return LongStages(*columns, console=Console(stderr=True), transient=True)
