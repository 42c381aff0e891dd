"""The order of nodes where some sizes are only known while the model runs.

A backend runs what lies between two operators of the host as one graph. Everything that needs no later size therefore comes
before the host's operators, and these come together: so there are as few graphs as the sizes allow.
"""

from __future__ import annotations

from graphc.ir.graph import Graph, Node, Value
from graphc.ops.control import Control


def schedule(graph: Graph) -> None:
    """Order the nodes by stages, in place: what a backend computes, then what the host does with it, of which each may be what
    the next needs."""
    if not any(isinstance(node.op, Control) for node in graph.nodes):
        return
    given = graph.given_sizes()
    known: dict[Value, tuple[int, bool]] = {}
    measured: dict[str, tuple[int, bool]] = {}
    places: dict[Node, tuple[int, bool]] = {}
    for node in graph.nodes:
        host = isinstance(node.op, Control)
        needed = [known[value] for value in node.inputs if value in known]
        needed += [measured[name] for name in node.sizes() if name in measured]
        stage = max((stage + (by_host and not host) for stage, by_host in needed), default=0)
        places[node] = (stage, host)
        known.update(dict.fromkeys(node.outputs, places[node]))
        for name in (name for name in node.op.binds if name not in given):
            measured.setdefault(name, places[node])
    graph.nodes.sort(key=places.__getitem__)
