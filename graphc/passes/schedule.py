"""The order of nodes where some sizes are only known while the model runs.

A backend runs what lies between two operators of the host as one graph. Everything that needs no later size therefore comes
before the host's operators, and these come together: so there are as few graphs as the sizes allow.
"""

from __future__ import annotations

from graphc.ir.graph import Graph, Node, Value
from graphc.ops.control import Control


def schedule(graph: Graph) -> None:
    """Order the nodes by stages, in place: what a backend computes, then what the host does with it."""
    if not any(isinstance(node.op, Control) for node in graph.nodes):
        return
    known: dict[Value, int] = {}
    measured: dict[str, int] = {}
    places: dict[Node, tuple[int, bool]] = {}
    for node in graph.nodes:
        host = isinstance(node.op, Control)
        needed = [known.get(value, 0) for value in node.inputs]
        needed += [measured[name] for name in node.sizes() if name in measured]
        stage = max(needed, default=0)
        places[node] = (stage, host)
        known.update(dict.fromkeys(node.outputs, stage + host))
        for name in node.op.binds:
            measured.setdefault(name, stage + 1)
    graph.nodes.sort(key=places.__getitem__)
