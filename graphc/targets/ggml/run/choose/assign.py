"""Which tensors of a graph the CPU computes where another device runs it, and in which order: what `assign.c` says."""

from __future__ import annotations

import ctypes
from typing import Any

from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.targets.ggml.run.choose.building import ggml_functions
from graphc.targets.ggml.run.choose.library import Own
from graphc.targets.ggml.run.device.devices import backend_name
from graphc.targets.ggml.run.device.tensors import VIEW_OPS

SIDES = DEVICE, REFUSED, BROKEN, KEPT, LAUNCHED = range(5)
"""`graphc_side`: what that header says of each."""


def assign(own: Own, backend: Any, graph: Any) -> dict[int, list[Any]]:
    """The computed tensors of a graph by their sides. They have no places yet."""
    nodes = [ggml.ggml_graph_node(graph, index) for index in range(ggml.ggml_graph_n_nodes(graph))]
    sides = (ctypes.c_ubyte * len(nodes))()
    if not own.library.graphc_assign(ggml_functions(), backend, backend_name(backend).encode(), graph, sides):
        raise GraphcError("not enough memory for a graph")
    computed = [(node, side) for node, side in zip(nodes, sides, strict=True) if node.contents.op not in VIEW_OPS]
    return {each: [node for node, side in computed if side == each] for each in SIDES}


def order_views(own: Own, graph: Any) -> None:
    """Order a graph as several servers need it. See `assign.h`."""
    if not own.library.graphc_order_views(ggml_functions(), graph):
        raise GraphcError("not enough memory for a graph")
