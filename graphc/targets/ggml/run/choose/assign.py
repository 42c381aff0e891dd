"""Which tensors of a graph the CPU computes where another device runs it: what `assign.c` says. Without a C compiler, what ggml's
scheduler does not see and would end the process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.records import dataclass
from graphc.targets.ggml.run.choose.building import ggml_functions
from graphc.targets.ggml.run.choose.library import Own
from graphc.targets.ggml.run.device.devices import backend_name
from graphc.targets.ggml.run.device.tensors import VIEW_OPS

DEVICE, REFUSED, BROKEN, KEPT, LAUNCHED = range(5)
"""`graphc_side`."""

COPIES = (ggml.GGML_OP_CONT, ggml.GGML_OP_CPY, ggml.GGML_OP_DUP)


def _copies_odd_elements(tensor: Any) -> bool:
    """True if it copies elements of one byte or eight."""
    size = ggml.ggml_type_size(tensor.type)
    return tensor.op in COPIES and size not in (2, 4) and not ggml.ggml_is_quantized(tensor.type)


ENDS_THE_PROCESS: Mapping[str, Callable[[Any], bool]] = {
    "Vulkan": _copies_odd_elements,
    "RPC": lambda tensor: bool(tensor.op == ggml.GGML_OP_CUSTOM),
}
"""By backend: what it says that it supports and does not, as `assign.c` has it."""


@dataclass(frozen=True)
class Assignment:
    """A graph's computed tensors: those of the device, those that its backend refuses, those at which it would end the process,
    those that it could compute and are better on the CPU, and its own kernels, that nobody else can compute."""

    device: list[Any]
    refused: list[Any]
    broken: list[Any]
    kept: list[Any]
    launched: list[Any]

    @property
    def pinned(self) -> list[Any]:
        """What the scheduler would not give the CPU by itself, and should."""
        return [*self.broken, *self.kept]


def assign(own: Own | None, backend: Any, graph: Any) -> Assignment:
    """Who computes what of a graph whose tensors have no places yet."""
    nodes = [ggml.ggml_graph_node(graph, index) for index in range(ggml.ggml_graph_n_nodes(graph))]
    name = backend_name(backend)
    if own is None:
        sides = [_side(name, backend, node) for node in nodes]
    else:
        made = (ctypes.c_ubyte * len(nodes))()
        if not own.library.graphc_assign(ggml_functions(), backend, name.encode(), graph, made):
            raise GraphcError("not enough memory for a graph")
        sides = list(made)
    computed = [(node, side) for node, side in zip(nodes, sides, strict=True) if node.contents.op not in VIEW_OPS]
    return Assignment(*([node for node, side in computed if side == each] for each in range(5)))


def order_views(own: Own, graph: Any) -> None:
    """Order a graph as several servers need it. See `assign.h`."""
    if not own.library.graphc_order_views(ggml_functions(), graph):
        raise GraphcError("not enough memory for a graph")


def _side(name: str, backend: Any, node: Any) -> int:
    """Who computes a node, but for what lies between."""
    if ENDS_THE_PROCESS.get(name, lambda tensor: False)(node.contents):
        return BROKEN
    if not ggml.ggml_backend_supports_op(backend, node):
        return REFUSED
    return LAUNCHED if node.contents.op == ggml.GGML_OP_CUSTOM else DEVICE
