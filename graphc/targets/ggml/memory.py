"""The memory of intermediate results: one for all graphs of an executor, as large as the largest needs.

Graphs run one after the other, and nothing of a run is needed in the next, so all of them use the same memory. What ggml
writes into a graph's tensors when it gives them their places is undone by putting back the context's bytes as they were
when the graph was built.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from graphc.errors import GraphcError
from graphc.ggml_library import ggml


class Placement:
    """A graph whose tensors have been described in a context, and its places in a `ComputeMemory`."""

    def __init__(self, context: Any, graph: Any) -> None:
        byte = ggml.ggml_new_tensor_1d(context, ggml.GGML_TYPE_I8, 1)  # ggml cannot place a graph that has no bytes
        ggml.ggml_set_input(byte)
        ggml.ggml_build_forward_expand(graph, byte)
        self.graph = graph
        self.turn = -1
        self._address = ggml.ggml_get_mem_buffer(context)
        self._untouched = ctypes.string_at(self._address, ggml.ggml_used_mem(context))

    def reset(self) -> None:
        """Make the tensors what they were when the graph was built."""
        ctypes.memmove(self._address, self._untouched, len(self._untouched))


class ComputeMemory:
    """Memory on the backends of an executor. `tensors` bounds the number of tensors of a graph.

    On one backend, graphs keep their places until a larger one comes; the scheduler of several holds one graph at a time.
    """

    def __init__(self, backends: Sequence[Any], tensors: int) -> None:
        self._backends = list(backends)
        self._turn = 0
        if len(self._backends) == 1:
            self._allocator = ggml.ggml_gallocr_new(ggml.ggml_backend_get_default_buffer_type(self._backends[0]))
            self._scheduler = None
        else:
            handles = (ctypes.c_void_p * len(self._backends))(*self._backends)
            self._scheduler = ggml.ggml_backend_sched_new(handles, None, len(self._backends), tensors, False, True)

    @property
    def nbytes(self) -> int:
        """Bytes that are reserved, on all backends."""
        if self._scheduler is None:
            return int(ggml.ggml_gallocr_get_buffer_size(self._allocator, 0))
        return sum(ggml.ggml_backend_sched_get_buffer_size(self._scheduler, backend) for backend in self._backends)

    def compute(self, placement: Placement) -> int:
        """Run a graph that has its places; ggml's status."""
        if self._scheduler is None:
            return int(ggml.ggml_backend_graph_compute(self._backends[0], placement.graph))
        return int(ggml.ggml_backend_sched_graph_compute(self._scheduler, placement.graph))

    def place(self, placement: Placement) -> None:
        """Give a graph's tensors their places, unless it still has them. Raises GraphcError if memory is out."""
        if placement.turn == self._turn:
            return
        before = self.nbytes
        if not (self._allocate(placement) if self._scheduler is None else self._schedule(placement)):
            self._turn += 1
            raise GraphcError("not enough memory for the intermediate results of these sizes")
        if self._scheduler is not None or self.nbytes != before:
            self._turn += 1
        placement.turn = self._turn

    def free(self) -> None:
        """Give back the memory."""
        if self._scheduler is None:
            ggml.ggml_gallocr_free(self._allocator)
        else:
            ggml.ggml_backend_sched_free(self._scheduler)

    def _allocate(self, placement: Placement) -> bool:
        placement.reset()
        reserved = ggml.ggml_gallocr_reserve(self._allocator, placement.graph)
        return bool(reserved and ggml.ggml_gallocr_alloc_graph(self._allocator, placement.graph))

    def _schedule(self, placement: Placement) -> bool:
        """The scheduler would use the places of the graph before, where they are large enough; but sizes that were
        equal there may differ here, so that a result may not lie where an operand did."""
        placement.reset()
        ggml.ggml_backend_sched_reset(self._scheduler)
        if not ggml.ggml_backend_sched_reserve(self._scheduler, placement.graph):
            return False
        placement.reset()
        return bool(ggml.ggml_backend_sched_alloc_graph(self._scheduler, placement.graph))
