"""What a machine does beside what is measured: where it does much, the numbers say little."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from time import perf_counter, process_time, sleep

LEAST = 0.2
"""Seconds that are watched at least: the system counts in hundredths."""

SLACK = 0.25
"""Processors that others may use without harm: what a system does all the time."""

STATISTICS = Path("/proc/stat")


class Watch:
    """Counts, from `with` on, what other programs use of the processors. `threads` are those that compute here."""

    def __init__(self, threads: int) -> None:
        self.threads, self.others = threads, 0.0

    def __enter__(self) -> Watch:
        self._began = perf_counter(), _busy_seconds(), process_time()
        return self

    def __exit__(self, *error: object) -> None:
        began, busy, own = self._began
        if busy is None or error[0] is not None:
            return
        sleep(max(LEAST - (perf_counter() - began), 0.0))
        used = (_busy_seconds() or busy) - busy - (process_time() - own)
        self.others = max(used / (perf_counter() - began), 0.0)

    @property
    def warning(self) -> str:
        """What is to be said of it; empty if others left enough for the threads, or where the system does not tell."""
        left = (os.cpu_count() or 1) - self.threads
        if self.others <= max(left, 0) + SLACK:
            return ""
        return f"other programs used {self.others:.1f} processors meanwhile: measure again when the machine does nothing else"


def _busy_seconds() -> float | None:
    """What all processors together have computed since the machine started, in seconds; None where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        name, user, nice, system, _, _, *interrupts = STATISTICS.read_text(encoding="ascii").splitlines()[0].split()
        if name == "cpu":
            ticks = sum(map(int, (user, nice, system, *interrupts[:3])))
            return ticks / os.sysconf("SC_CLK_TCK")
    return None
