"""The path of PyTorch modules that a node comes from, the same for both exporters.

The dynamo exporter writes it into the node's metadata, as a list of full module paths from the root, with the name of
the traced operation last: ['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d_1']. The TorchScript exporter writes it
into the node's name: /layer1/layer1.0/conv1/Conv. Both become ('layer1', '0', 'conv1'): one entry for each module that
was called, and joined with dots they are the prefix of the module's parameters' names.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from itertools import takewhile

from graphc.ir import Node, Source, Value, module_path

SCOPES_KEY = "pkg.torch.onnx.name_scopes"
MAX_DEPTH = 100


def node_scope(name: str, metadata: Mapping[str, str]) -> tuple[str, ...] | None:
    """The scope of a node from its name and its metadata; None where neither says."""
    if SCOPES_KEY in metadata:
        paths = _strings(metadata[SCOPES_KEY])
        if paths:
            return _from_paths(list(map(module_path, paths[:-1])))
    if name.startswith("/"):
        return _from_parts(name.split("/")[1:-1])
    return None


def adopt_scopes(nodes: Sequence[Node], unknown: Set[Source]) -> None:
    """Give nodes that an exporter's optimizer made, whose sources are `unknown`, the innermost module around the nodes
    beside them, in place."""
    users: dict[Value, list[Node]] = {}
    for node in nodes:
        for value in node.inputs:
            users.setdefault(value, []).append(node)
    for node in nodes:
        if node.source not in unknown:
            continue
        makers = [value.producer for value in node.inputs if value.producer is not None]
        readers = [user for value in node.outputs for user in users.get(value, [])]
        scopes = {beside.source.scope for beside in (*makers, *readers) if beside.source not in unknown}
        if scopes:
            shared = takewhile(lambda level: len(set(level)) == 1, zip(*scopes, strict=False))
            node.source = replace(node.source, scope=tuple(level[0] for level in shared))


def _from_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """Each path relative to the one before. What does not lie under the last path was a caller, not a parent."""
    paths = [path for path in paths if path]
    if not paths:
        return ()
    last = paths[-1]
    result: list[str] = []
    parent = ""
    for path in paths[:MAX_DEPTH]:
        if (
            path != parent
            and (path == last or last.startswith(path + "."))
            and path.startswith(parent and parent + ".")
        ):
            result.append(path[len(parent) + 1 :] if parent else path)
            parent = path
    return tuple(result)


def _from_parts(parts: Sequence[str]) -> tuple[str, ...]:
    """A module in a Sequential carries the Sequential's name again: layer1/layer1.0 is layer1, 0."""
    result: list[str] = []
    previous = ""
    for part in parts[:MAX_DEPTH]:
        repeated = previous and part.startswith(previous + ".")
        result.append(part[len(previous) + 1 :] if repeated else part)
        previous = part
    return tuple(part for part in result if part)


def _strings(text: str) -> list[str]:
    """A printed list of strings; [] if it is anything else."""
    try:
        value = ast.literal_eval(text) if len(text) < 1 << 16 else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else []
