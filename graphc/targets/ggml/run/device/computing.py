"""Having ggml compute a graph on the CPU, also in a process that was forked.

GNU OpenMP gives each thread that computes a team of threads, and keeps the team for the next time. Of a process that is forked,
the child has one thread, which believes that it still has its team, and would wait for it forever. So in a child another thread
computes for that one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from graphc.forking import renew_in_child
from graphc.ggml_library import ggml

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


def compute(backend: Any, graph: Any) -> int:
    """Compute a graph on a backend of the CPU; ggml's status."""
    return _stand_in.compute(backend, graph)


class _StandIn:
    """The thread that computes in place of the one that forked."""

    def __init__(self) -> None:
        self.forked = 0
        self.worker: ThreadPoolExecutor | None = None

    def renew(self) -> None:
        """See `Renewed`."""
        self.forked, self.worker = threading.get_ident(), None  # the other thread is not there

    def compute(self, backend: Any, graph: Any) -> int:
        """See above."""
        if threading.get_ident() != self.forked:
            return int(ggml.ggml_backend_graph_compute(backend, graph))
        from concurrent.futures import ThreadPoolExecutor, wait  # few processes are such children

        if self.worker is None:
            self.worker = ThreadPoolExecutor(1, "graphc-compute")
        computed = self.worker.submit(ggml.ggml_backend_graph_compute, backend, graph)
        try:
            return int(computed.result())
        finally:  # an interrupt ends the waiting, and nobody may use the graph yet
            wait([computed])


_stand_in = _StandIn()
renew_in_child(_stand_in)
