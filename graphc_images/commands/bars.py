"""Bars on the terminal: how far a pass is, at which pace, and how long all of it will still take."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphc_images.pipeline import Progress


class Bars:
    """A bar of the steps of a pass, and above it one of all pictures where there are several, or several passes."""

    def __init__(self, bars: Any, pictures: int) -> None:
        self.bars, self.pictures, self.done = bars, pictures, 0
        self.all: Any = None
        self.steps = bars.add_task("", total=None, count="", pace="")
        self.here: tuple[int, ...] = ()

    def show(self, progress: Progress) -> None:
        """Where the painting is now."""
        if self.all is None and (self.pictures > 1 or progress.turns > 1):
            self.all = self.bars.add_task("all", total=self.pictures, count="", pace="")
        here = (self.done, progress.batch, progress.turn)
        if here != self.here:  # another pass has another pace
            self.bars.reset(self.steps, total=progress.steps)
            self.here = here
        speed = self.bars.tasks[self.steps].speed
        self.bars.update(
            self.steps,
            description=f"pass {progress.turn} of {progress.turns}" if progress.turns > 1 else "",
            total=progress.steps,
            completed=progress.step,
            count=f"{progress.step}/{progress.steps}",
            pace=f"{speed:.2f} it/s" if speed else "",
        )
        self.done += len(progress.pictures)
        if self.all is not None:
            share = 0.0 if progress.pictures else progress.share
            self.bars.update(
                self.all, completed=self.done + share * len(progress.latent), count=f"{self.done}/{self.pictures}"
            )


def progress_bar() -> Any:
    """Bars with a count, the pace (the fields `count` and `pace` of a task) and the remaining time, on stderr if it is a
    terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TextColumn("{task.fields[pace]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


@contextmanager
def bars(pictures: int) -> Iterator[Bars]:
    """Bars for so many pictures."""
    with progress_bar() as shown:
        yield Bars(shown, pictures)
