"""Finding the application of a rule or pass after which a model gives other numbers."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from graphc.ir.graph import Graph
from graphc.optimize import optimize
from graphc.rewrite.engine import Log, Step
from graphc.runtime.compare import difference

CONTEXT = 2
"""Lines that are shown around those that changed."""


@dataclass(frozen=True)
class Culprit:
    """The application `number`, counted from 1, of `total`; how far the outputs are apart before and after it, in units of
    the largest number of an output; and the lines of the graph that it changed."""

    number: int
    total: int
    step: Step
    before: float
    after: float
    changed: tuple[str, ...]


def bisect(
    load: Callable[[], Graph], run: Callable[[Graph], Mapping[str, np.ndarray]], bound: float
) -> tuple[int, Culprit | None]:
    """How many applications there are, and the first by which the outputs differ by more than `bound` from those of the
    graph that is not optimized; None if they never do.

    `load` makes the graph anew, `run` gives its outputs. What is wrong is taken to stay wrong.
    """
    expected = run(load())

    def applied(limit: int | None) -> tuple[Graph, Log]:
        graph, log = load(), Log(limit=limit)
        optimize(graph, log)
        return graph, log

    def error(graph: Graph) -> float:
        found = run(graph)
        return max((difference(name, "", found[name], expected[name]).relative for name in expected), default=0.0)

    whole, log = applied(None)
    good, bad = 0, len(log.steps)
    errors = {good: 0.0, bad: error(whole)}
    if errors[bad] <= bound:
        return bad, None
    while bad - good > 1:
        middle = (good + bad) // 2
        errors[middle] = error(applied(middle)[0])
        good, bad = (good, middle) if errors[middle] > bound else (middle, bad)
    changed = changes(applied(good)[0], applied(bad)[0])
    step = log.steps[bad - 1]
    return len(log.steps), Culprit(bad, len(log.steps), step, errors[good], errors[bad], changed)


def changes(before: Graph, after: Graph) -> tuple[str, ...]:
    """The lines in which the text of two graphs differs, with `-` and `+` in front, and some around them."""
    lines = difflib.unified_diff(str(before).splitlines(), str(after).splitlines(), n=CONTEXT, lineterm="")
    return tuple(line for line in lines if not line.startswith(("---", "+++", "@@")))
