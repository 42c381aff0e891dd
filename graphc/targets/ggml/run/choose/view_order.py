"""Graphs that several servers compute.

ggml sends a server all nodes of its stretch of a graph, also views, which compute nothing, and a server refuses a view of what
another one holds. So views come right behind what they are views of, and those of weights are no nodes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from typing import Any

from graphc.ggml_library import ggml
from graphc.targets.ggml.run.device.tensors import VIEW_OPS, address


def add_with_views(context: Any, graph: Any, results: Iterable[Any], weights: Iterable[Any]) -> None:
    """Add results to a graph in this order, each followed by its views in the context."""
    known = set(map(address, weights))
    views: dict[int, list[Any]] = {}
    for tensor in _tensors(context):
        root = tensor.contents.view_src
        if not root or tensor.contents.op not in VIEW_OPS:
            continue
        if address(root) in known:
            tensor.contents.op = ggml.GGML_OP_NONE
            tensor.contents.src[0] = ctypes.POINTER(ggml.ggml_tensor)()
        else:
            views.setdefault(address(root), []).append(tensor)
    for tensor in results:
        for each in (tensor, *views.get(address(tensor), ())):
            ggml.ggml_build_forward_expand(graph, each)


def _tensors(context: Any) -> Iterator[Any]:
    """All tensors of a context, as they were made."""
    tensor = ggml.ggml_get_first_tensor(context)
    while tensor:
        yield tensor
        tensor = ggml.ggml_get_next_tensor(context, tensor)
