"""Applying rules to a graph until none fits.

A rule is a function under `@rule(pattern, ...)`: it gets what the pattern captured, and returns the value that takes the
place of the pattern's root, or a `Refusal` with its reason. Its name is its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, Union

from graphc.ir.graph import Graph, Node, Source, Value, ordered
from graphc.ops.base import Emit
from graphc.rewrite.pattern import Apply, Captures, parse


@dataclass(frozen=True)
class Refusal:
    """Why a rule does not apply where its pattern matches."""

    reason: str


MOST_SWEEPS = 100
"""How often a graph is gone through, beside once for each of its nodes."""

Body: TypeAlias = Callable[..., Union[Value, Refusal]]


@dataclass(frozen=True)
class Rule:
    """A named rewrite: any of `patterns`, and the function that builds the result."""

    name: str
    patterns: tuple[Apply, ...]
    body: Body = field(repr=False)
    doc: str = ""


@dataclass(frozen=True)
class Step:
    """One application of a rule, and the node of the model where it was; or of a pass, to the whole graph."""

    name: str
    source: Source = field(default_factory=Source)


@dataclass
class Log:
    """What may be applied to a graph, and what was: rules and passes, in order, and refusals (rule, node, reason).

    Nothing that is named in `without` is applied, and after `limit` applications nothing more.
    """

    without: frozenset[str] = frozenset()
    limit: int | None = None
    steps: list[Step] = field(default_factory=list)
    refused: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """True if the limit is reached."""
        return self.limit is not None and len(self.steps) >= self.limit

    @property
    def fired(self) -> Counter[str]:
        """How often each rule and pass was applied."""
        return Counter(step.name for step in self.steps)

    def allows(self, name: str) -> bool:
        """True if a rule or pass may be applied now."""
        return not self.full and name not in self.without


class Site(Emit):
    """Where a rule is applied: makes the nodes of the result, and knows what else reads a value."""

    def __init__(self, graph: Graph, source: Source, uses: Mapping[Value, list[Node]]) -> None:
        super().__init__(graph, source)
        self.uses = uses

    def readers(self, value: Value) -> list[Node]:
        """The nodes that read a value; none of an output of the graph, which must stay."""
        return [] if value in self.graph.outputs else self.uses.get(value, [])

    def alone(self, value: Value) -> bool:
        """True if only one node reads a value, so that it need not be computed beside what takes its place."""
        return len(self.readers(value)) == 1


def rule(*patterns: str) -> Callable[[Body], Rule]:
    """Make a rule of a function whose parameters are `emit` and the captures of every pattern."""

    def decorate(body: Body) -> Rule:
        parsed = [parse(text) for text in patterns]
        roots = tuple(pattern for pattern in parsed if isinstance(pattern, Apply))
        if len(roots) != len(parsed):
            raise ValueError(f"{body.__name__}: the root of a pattern must be an operator")
        return Rule(body.__name__, roots, body, (body.__doc__ or "").strip())

    return decorate


def rewrite(graph: Graph, rules: Sequence[Rule], log: Log | None = None) -> bool:
    """Apply the rules everywhere until none fits, in place; true if anything changed. The order is always the same.

    A result must have the type of what it replaces, and the rules must come to an end (else they are wrong: AssertionError).
    New nodes keep the root's source, and the result the root's name. Nodes that nothing reads any more are dropped.
    """
    log = log if log is not None else Log()
    by_operator: dict[str, list[tuple[Rule, Apply]]] = {}
    for each in rules:
        for pattern in each.patterns if each.name not in log.without else ():
            by_operator.setdefault(pattern.operator, []).append((each, pattern))
    sweeps, most = 0, MOST_SWEEPS + len(graph.nodes)
    while not log.full and _sweep(graph, by_operator, log):
        sweeps += 1
        assert sweeps <= most, f"rules without end: {', '.join({step.name: 0 for step in log.steps[-MOST_SWEEPS:]})}"
        graph.prune()
    return sweeps > 0


def _sweep(graph: Graph, rules: dict[str, list[tuple[Rule, Apply]]], log: Log) -> bool:
    """One pass over the nodes; a node that was rewritten is not looked at again before the next."""
    replaced: dict[Value, Value] = {}
    added: list[Node] = []
    uses = graph.uses()

    def current(value: Value) -> Value:
        while value in replaced:
            value = replaced[value]
        return value

    for node in graph.nodes:
        node.inputs = [current(value) for value in node.inputs]
        found = (
            None if log.full else _apply_first(Site(graph, node.source, uses), node, rules.get(node.op.name, ()), log)
        )
        if found is not None:
            value, nodes = found
            added += nodes
            replaced[node.outputs[0]] = value
    if not replaced:
        return False
    graph.nodes += added
    graph.replace(current)
    graph.nodes = ordered(graph.nodes)
    return True


def _apply_first(
    emit: Site, node: Node, candidates: Sequence[tuple[Rule, Apply]], log: Log
) -> tuple[Value, list[Node]] | None:
    for each, pattern in candidates:
        for captures in pattern.match_node(node, {}):
            emit.nodes, emit.source = [], node.source
            result = each.body(emit, **_arguments(captures))
            if isinstance(result, Refusal):
                log.refused.append((each.name, node.source.name, result.reason))
                continue
            assert result.type == node.outputs[0].type, f"{each.name}: {result.type} for {node.outputs[0].type}"
            log.steps.append(Step(each.name, node.source))
            if result.producer in emit.nodes:
                result.name = node.outputs[0].name
            return result, emit.nodes
    return None


def _arguments(captures: Captures) -> dict[str, Any]:
    return dict(captures)
