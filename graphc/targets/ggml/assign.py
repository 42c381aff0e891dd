"""Which tensors of a graph the CPU computes where another device runs it.

ggml's scheduler gives the CPU what the device's backend does not support. Two things it does not see: calls that a backend says
it supports and then ends the process at, and small tensors between two of the CPU's, for which the data would go to the
device and come back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphc.ggml_library import ggml
from graphc.targets.ggml.devices import backend_name
from graphc.targets.ggml.tensors import VIEW_OPS, address

COPIES = (ggml.GGML_OP_CONT, ggml.GGML_OP_CPY, ggml.GGML_OP_DUP)
HEAVY = (ggml.GGML_OP_MUL_MAT, ggml.GGML_OP_CONV_2D, ggml.GGML_OP_IM2COL, ggml.GGML_OP_CONV_TRANSPOSE_2D)
"""What a device is for: worth moving data."""

SMALL = 1 << 16
"""Bytes of a weight that may be copied to the CPU in every run."""


def _copies_odd_elements(tensor: Any) -> bool:
    """Whether it copies elements of one byte or eight. Source: `ggml_vk_get_cpy_pipeline`."""
    return (
        tensor.op in COPIES
        and ggml.ggml_type_size(tensor.type) not in (2, 4)
        and not ggml.ggml_is_quantized(tensor.type)
    )


def _is_kernel(tensor: Any) -> bool:
    """Whether a function of this process makes it. What a server runs is not known here; it is sent everything."""
    return bool(tensor.op == ggml.GGML_OP_CUSTOM)


ENDS_THE_PROCESS: Mapping[str, Callable[[Any], bool]] = {"Vulkan": _copies_odd_elements, "RPC": _is_kernel}
"""By backend: what it says that it supports and does not."""


@dataclass(frozen=True)
class Assignment:
    """A graph's computed tensors: those of the device, those that its backend refuses, those at which it would end the process,
    and those that it could compute and are better on the CPU."""

    device: list[Any]
    refused: list[Any]
    broken: list[Any]
    kept: list[Any]

    @property
    def pinned(self) -> list[Any]:
        """What the scheduler would not give the CPU by itself."""
        return [*self.broken, *self.kept]


def assign(backend: Any, graph: Any) -> Assignment:
    """Who computes what of a graph whose tensors have no places yet."""
    nodes = [ggml.ggml_graph_node(graph, index) for index in range(ggml.ggml_graph_n_nodes(graph))]
    nodes = [node for node in nodes if node.contents.op not in VIEW_OPS]
    ends = ENDS_THE_PROCESS.get(backend_name(backend), lambda tensor: False)
    broken: list[Any] = []
    refused: list[Any] = []
    rest: list[Any] = []
    for node in nodes:
        kind = broken if ends(node.contents) else rest if ggml.ggml_backend_supports_op(backend, node) else refused
        kind.append(node)
    between = _between(nodes, {address(node) for node in (*broken, *refused)})
    kept = [node for node in rest if address(node) in between]
    return Assignment([node for node in rest if address(node) not in between], refused, broken, kept)


def _between(nodes: Sequence[Any], cpu: set[int]) -> set[int]:
    """The light tensors that are made from the CPU's alone, and that only those read that are the CPU's too."""
    if not cpu:
        return set()
    fed, sources = set(cpu), {address(node): list(map(address, computed_sources(node))) for node in nodes}
    light = {address(node) for node in nodes if is_light(node)}
    for key in sources:
        if key in light and sources[key] and fed.issuperset(sources[key]):
            fed.add(key)
    readers: dict[int, list[int]] = {}
    for key, read in sources.items():
        for each in read:
            readers.setdefault(each, []).append(key)
    eaten = set(cpu)
    for key in reversed(sources):
        if key in fed and readers.get(key) and eaten.issuperset(readers[key]):
            eaten.add(key)
    return (fed & eaten) - cpu


def is_light(node: Any) -> bool:
    """Whether a tensor is nothing that a device is for, and reads no weight that had to be copied."""
    weights = (each for each in _sources(node) if each.contents.op == ggml.GGML_OP_NONE)
    large = any(
        ggml.ggml_nbytes(each) > SMALL and not each.contents.flags & ggml.GGML_TENSOR_FLAG_INPUT for each in weights
    )
    return node.contents.op not in HEAVY and not large


def computed_sources(node: Any) -> list[Any]:
    """The computed tensors that a tensor reads, directly or through views."""
    return [each for each in _sources(node) if each.contents.op not in VIEW_OPS]


def _sources(node: Any) -> list[Any]:
    """What a tensor reads; of a view, what it is a view of."""
    found = [node.contents.src[index] for index in range(ggml.GGML_MAX_SRC)]
    return [
        each.contents.view_src if each.contents.view_src and each.contents.op in VIEW_OPS else each
        for each in found
        if each
    ]
