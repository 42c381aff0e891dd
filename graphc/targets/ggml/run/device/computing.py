"""Computing on the CPU, also in a process that was forked.

GNU OpenMP gives each thread that computes a team of threads, and keeps the team for the next time. Of a process that is forked,
the child has one thread, which believes that it still has its team, and would wait for it forever. So in a child another thread
computes for that one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from graphc.forking import renew_in_child

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


def compute(call: Callable[[], int]) -> int:
    """What a call gives that may use OpenMP: ggml's status."""
    return _stand_in.compute(call)


class _StandIn:
    """The thread that computes in place of the one that forked."""

    def __init__(self) -> None:
        self.forked = 0
        self.worker: ThreadPoolExecutor | None = None

    def renew(self) -> None:
        """See `Renewed`."""
        self.forked, self.worker = threading.get_ident(), None  # the other thread is not there

    def compute(self, call: Callable[[], int]) -> int:
        """See above."""
        if threading.get_ident() != self.forked:
            return call()
        from concurrent.futures import ThreadPoolExecutor, wait  # few processes are such children

        if self.worker is None:
            self.worker = ThreadPoolExecutor(1, "graphc-compute")
        computed = self.worker.submit(call)
        try:
            return computed.result()
        finally:  # an interrupt ends the waiting, and nobody may use the graph yet
            wait([computed])


_stand_in = _StandIn()
renew_in_child(_stand_in)
