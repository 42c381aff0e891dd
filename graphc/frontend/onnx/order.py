"""Nodes in an order in which each comes after those that it reads: ONNX demands it, but not all tools keep to it (onnxruntime's
conversion to float16 puts casts at the end), and runtimes read what they write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import onnx

from graphc.frontend.onnx.sparse import graphs, inner_graphs


def in_order(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its nodes in order, those of inner graphs and of functions too: itself if they are, else a copy.

    Nodes that read one another in a circle stay where they are.
    """
    if all(_order(nodes) is None for nodes in _lists(proto)):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for nodes in _lists(copy):
        order = _order(nodes)
        if order is not None:
            sorted_nodes = [onnx.NodeProto.FromString(nodes[i].SerializeToString()) for i in order]
            del nodes[:]
            nodes.extend(sorted_nodes)
    return copy


def _lists(proto: onnx.ModelProto) -> list[Any]:
    """The nodes of each graph, the inner ones first: what sorts an outer one copies them."""
    found: list[Any] = [graph.node for graph in graphs(proto.graph)]
    for function in proto.functions:
        found.append(function.node)
        found.extend(graph.node for node in function.node for inner in inner_graphs(node) for graph in graphs(inner))
    return found[::-1]


def _order(nodes: Sequence[onnx.NodeProto]) -> list[int] | None:
    """The places of nodes in the order that they should have, which is theirs as far as it can be; None if it is, or if there
    is none."""
    maker = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    reads = [[maker[name] for name in _read(node) if name in maker] for node in nodes]
    if all(made < i for i, needed in enumerate(reads) for made in needed):
        return None
    order: list[int] = []
    state = [0] * len(nodes)  # 1: what it reads comes first, 2: in order
    for start in range(len(nodes)):
        waiting = [start]
        while waiting:
            node = waiting[-1]
            missing = [each for each in reads[node] if state[each] < 2]
            if state[node] == 2 or not missing:
                waiting.pop()
                if state[node] < 2:
                    order.append(node)
                state[node] = 2
            elif state[node] == 1 or node in missing:
                return None
            else:
                state[node] = 1
                waiting.extend(reversed(missing))
    return order


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node reads, also within its graphs."""
    yield from filter(None, node.input)
    for graph in inner_graphs(node):
        own = {each.name for each in (*graph.input, *graph.initializer)}
        own.update(name for each in graph.node for name in each.output)
        yield from (name for each in graph.node for name in _read(each) if name not in own)
        yield from (each.name for each in graph.output if each.name not in own)
