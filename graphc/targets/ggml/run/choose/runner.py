"""Computing a graph on the CPU: by our own threads (`runner.c`), or ggml's where there is no code of ours."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.targets.ggml.run.choose.building import ggml_functions
from graphc.targets.ggml.run.choose.library import Own


class Runner:
    """Computes a graph that has its places, and lives longer, with a backend of the CPU. Raises GraphcError if memory is out."""

    def __init__(self, own: Own | None, cpu: Any, graph: Any) -> None:
        self.own, self.cpu, self.graph = own, cpu, graph
        if own is not None:
            self._runner = own.library.graphc_runner_new(ggml_functions(), cpu, graph)
            if not self._runner:
                raise GraphcError("not enough memory for a graph")
            weakref.finalize(self, own.library.graphc_runner_free, self._runner).atexit = False

    def run(self, threads: int, stopped: Any = None, steps: Any = None) -> int:
        """Compute it with at most so many threads; ggml's status. `stopped` is ggml's callback that may end the run. Our own code
        computes it for each of the `steps` of a loop."""
        if self.own is None:
            return int(ggml.ggml_backend_graph_compute(self.cpu, self.graph))
        stops = None if stopped is None else ctypes.cast(stopped, ctypes.c_void_p)
        if steps is None:
            return int(self.own.library.graphc_runner_run(self._runner, threads, stops, None))
        return int(self.own.library.graphc_runner_repeat(self._runner, ctypes.byref(steps), threads, stops, None))
