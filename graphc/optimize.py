"""What is done to a graph between the frontend and the lowering, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from graphc.errors import InputError
from graphc.ir.graph import Graph
from graphc.ops.control import bodies
from graphc.passes.common import common
from graphc.passes.expand import expand
from graphc.passes.fold import fold
from graphc.passes.hoist import hoist
from graphc.passes.schedule import schedule
from graphc.passes.select import select
from graphc.rewrite.engine import Log, Rule, Step, rewrite
from graphc.rewrite.explain import Explanation, Miss, explanation, near_misses
from graphc.rewrite.rules import rules_for

RAISE = rules_for(
    "cancel",  # movements that do nothing together
    "spellings",  # one of several
    "raise",
)
"""Rules that recognize what the exporters took apart."""

SIMPLIFY = rules_for(
    "masks",  # what they let through is known
    "cancel",
    "sink",  # movements go to where they cancel, or cost nothing
    "axes",  # of more than four
    "absorb",  # products and convolutions take in what is around them
    "together",
)
"""Rules that remove work."""


@dataclass(frozen=True)
class Stage:
    """A pass, or rules that are applied until none fits. The stage has a name of its own where a pass comes twice."""

    name: str
    work: Callable[[Graph], object] | Sequence[Rule]

    def run(self, graph: Graph, log: Log) -> None:
        """Do what of it the log allows. What nothing reads any more is dropped."""
        if not callable(self.work):
            rewrite(graph, self.work, log)
        elif log.allows(name := self.work.__name__):
            self.work(graph)
            log.steps.append(Step(name))
        graph.prune()


CONTROL = [Stage("select", select), Stage("hoist", hoist)]
"""What branches and loops become, before anything is done to their bodies."""

STAGES = [
    Stage("quantized", rules_for("integers")),  # before constants are folded, which leaves no integers of weights
    Stage("few bits", rules_for("few bits")),
    Stage("packed", rules_for("packed")),
    Stage("fold", fold),
    Stage("common", common),
    Stage("raise", RAISE),
    Stage("expand", expand),
    Stage("fold definitions", fold),
    Stage("whole numbers", rules_for("floats")),  # when products of integers have become products of floats
    Stage("simplify", SIMPLIFY),
    Stage("common results", common),
    Stage("fold weights", fold),
    Stage("schedule", schedule),
]


def optimize(graph: Graph, log: Log | None = None, observe: Callable[[str, Graph], None] | None = None) -> None:
    """Simplify a graph in place; its results stay the same to rounding.

    `observe` is called after each stage with the stage's name. The bodies of branches and loops come first.
    """
    log = log if log is not None else Log()
    for stage in CONTROL if bodies(graph) else ():
        stage.run(graph, log)
    for body in bodies(graph):
        optimize(body.graph, log, observe)
    for stage in STAGES:
        stage.run(graph, log)
        if observe is not None:
            observe(stage.name, graph)


def names() -> list[str]:
    """The names of all rules and passes, each of which can be left out."""
    found: dict[str, None] = {}
    for stage in (*CONTROL, *STAGES):
        found.update(dict.fromkeys([stage.work.__name__] if callable(stage.work) else [r.name for r in stage.work]))
    return list(found)


def checked(given: Iterable[str]) -> frozenset[str]:
    """The names, as a set. Raises InputError where one is not a rule or pass."""
    chosen, known = frozenset(given), names()
    if unknown := sorted(chosen.difference(known)):
        raise InputError(f"no rule or pass is called {', '.join(unknown)}; there are {', '.join(known)}")
    return chosen


def explained(name: str, graph: Graph, log: Log | None = None) -> Explanation:
    """Why the rule of this name fired or not while a graph is optimized. Raises InputError where it is not a rule."""
    rules = {rule.name: rule for stage in STAGES if not callable(stage.work) for rule in stage.work}
    if name not in rules:
        raise InputError(f"no rule is called {name}; there are {', '.join(rules)}")
    log, misses = log or Log(), list[Miss]()
    last = [stage.name for stage in STAGES if not callable(stage.work) and rules[name] in stage.work][-1]

    def observe(stage: str, graph: Graph) -> None:
        if stage == last:
            misses.extend(near_misses(rules[name], graph))

    optimize(graph, log, observe)
    return explanation(rules[name], log, misses)
