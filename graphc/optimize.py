"""What is done to a graph between the frontend and the lowering, in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from graphc.ir.graph import Graph
from graphc.ops.control import bodies
from graphc.passes.expand import expand
from graphc.passes.fold import fold
from graphc.passes.schedule import schedule
from graphc.rewrite.engine import Log, rewrite
from graphc.rewrite.rules import activation, attention, movement, norm

RAISE = [*movement.CANCEL, *activation.RULES, *norm.RULES, *attention.RULES]
"""Rules that recognize what the exporters took apart."""

SIMPLIFY = [*movement.CANCEL, *movement.ABSORB]
"""Rules that remove work."""


def optimize(graph: Graph, log: Log | None = None, observe: Callable[[str, Graph], None] | None = None) -> None:
    """Simplify a graph in place; its results stay the same to rounding.

    `observe` is called after each stage with the stage's name. The bodies of branches and loops come first.
    """
    for body in bodies(graph):
        optimize(body.graph, log, observe)
    stages: list[tuple[str, Callable[[Graph], object]]] = [
        ("fold", fold),
        ("raise", partial(rewrite, rules=RAISE, log=log)),
        ("expand", expand),
        ("fold definitions", fold),
        ("simplify", partial(rewrite, rules=SIMPLIFY, log=log)),
        ("fold weights", fold),
        ("prune", Graph.prune),
        ("schedule", schedule),
    ]
    for name, stage in stages:
        stage(graph)
        if observe is not None:
            observe(name, graph)
