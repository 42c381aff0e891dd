"""The nodes of a graph of ggml's as text, as `cpp_nodes/nodes.c` writes those of a C++ program."""

from __future__ import annotations

import ctypes
from itertools import takewhile
from typing import Any

from graphc.ggml_library import ggml
from graphc.targets.ggml.run.device.tensors import address
from graphc.targets.ggml.run.graph import BuiltGraph

TASKS = ctypes.sizeof(ctypes.c_void_p)
"""Where a custom operator's number of tasks is, behind its function."""


def text_of(graph: BuiltGraph) -> str:
    """A line for each node: its operator, type, sizes, strides and settings, or the function that computes it, and what it
    reads, by number or by its layout."""
    count = ggml.ggml_graph_n_nodes(graph.graph)
    nodes = [ggml.ggml_graph_node(graph.graph, index) for index in range(count)]
    numbers = {address(node): index for index, node in enumerate(nodes)}
    return "".join(_line(graph, node, numbers) for node in nodes)


def _line(graph: BuiltGraph, node: Any, numbers: dict[int, int]) -> str:
    tensor = node.contents
    if tensor.op == ggml.GGML_OP_CUSTOM:
        own = graph.executor.own
        name = own.function_of(node) if own else ""
        tasks = ctypes.c_int.from_buffer(tensor.op_params, TASKS).value
        settings = f"{name or 'kernel'} tasks {tasks}"
    else:
        settings = " ".join(f"{number & 0xFFFFFFFF:x}" for number in tensor.op_params)
    sources = takewhile(bool, tensor.src)
    read = [str(numbers[address(each)]) if address(each) in numbers else _layout(each) for each in sources]
    operator = ggml.ggml_op_desc(node).decode()
    return " ".join([operator, _layout(node), settings, *(f"({each})" for each in read)]) + "\n"


def _layout(node: Any) -> str:
    tensor = node.contents
    return " ".join([ggml.ggml_type_name(tensor.type).decode(), *map(str, (*tensor.ne, *tensor.nb))])
