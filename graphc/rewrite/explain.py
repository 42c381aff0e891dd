"""Why a rule did not fire: where its pattern nearly matched, and its refusals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from graphc.ir.graph import Graph, Node, Source, Value
from graphc.rewrite.engine import Log, Rule
from graphc.rewrite.pattern import COMMUTATIVE, Any_, Apply, Captures, Number, Pattern


class Attempt(NamedTuple):
    """A way to lay a pattern over the graph: how many operators and numbers fit, what was captured, and what did not fit."""

    matched: int
    found: Captures
    failures: tuple[tuple[Value, str], ...] = ()


@dataclass(frozen=True)
class Miss:
    """Where all but one part of a pattern fits: at which node, how much of it, and what was there instead of what."""

    source: Source
    matched: int
    size: int
    expected: str
    there: str
    value: str

    @property
    def reason(self) -> str:
        """What near misses are grouped by."""
        return f"expected {self.expected}, found {self.there}"


@dataclass
class Explanation:
    """Where a rule fired, where it refused and why, and where it nearly matched, the nearest first."""

    rule: Rule
    fired: list[Source] = field(default_factory=list)
    refused: dict[str, list[str]] = field(default_factory=dict)
    missed: list[Miss] = field(default_factory=list)


def explanation(rule: Rule, log: Log, missed: Iterable[Miss]) -> Explanation:
    """What became of a rule, by the log of its applications."""
    result = Explanation(rule, [step.source for step in log.steps if step.name == rule.name])
    fired = {source.name for source in result.fired}
    for name, node, reason in log.refused:
        nodes = result.refused.setdefault(reason, []) if name == rule.name and node not in fired else None
        if nodes is not None and node not in nodes:
            nodes.append(node)
    result.missed = sorted(missed, key=lambda miss: (miss.size - miss.matched, -miss.size, miss.reason))
    return result


def near_misses(rule: Rule, graph: Graph) -> list[Miss]:
    """Where a rule's pattern nearly matches, in a graph to which the rule was applied already."""
    return [miss for node in graph.nodes if (miss := nearest(rule, node))]


def nearest(rule: Rule, node: Node) -> Miss | None:
    """The pattern of a rule that fits a node best, but for one part; None where more is amiss, or nothing."""
    best: Miss | None = None
    for pattern in rule.patterns:
        size = parts(pattern)
        for attempt in attempts(pattern, node.outputs[0], {}) if node.op.name == pattern.operator else ():
            if not attempt.failures:
                return None
            if len(attempt.failures) == 1 and 2 * attempt.matched > size:
                value, expected = attempt.failures[0]
                there = value.producer.op.name if value.producer else described(value)
                miss = Miss(node.source, attempt.matched, size, expected, there, str(value))
                best = miss if best is None or size - attempt.matched < best.size - best.matched else best
    return best


def parts(pattern: Pattern) -> int:
    """How many operators and numbers a pattern has."""
    if isinstance(pattern, Apply):
        return 1 + sum(map(parts, pattern.args))
    return int(isinstance(pattern, Number))


def attempts(pattern: Pattern, value: Value, found: Captures) -> Iterator[Attempt]:
    """Every way to lay a pattern over a value; what does not fit is noted, and the rest still tried."""
    if not isinstance(pattern, Apply):
        fitting = next(pattern.match(value, found), None)
        fits = fitting is not None
        count = int(fits and isinstance(pattern, Number))
        yield Attempt(count, fitting or found, () if fits else ((value, wanted(pattern)),))
        return
    node = value.producer
    if node is None or not pattern.fits(node):
        yield Attempt(0, found, ((value, wanted(pattern)),))
        return
    start = {**found, pattern.capture: node} if pattern.capture else found
    orders = [node.inputs, node.inputs[::-1]] if pattern.operator in COMMUTATIVE else [node.inputs]
    for order in orders:
        yield from _all(pattern.args, order, Attempt(1, start))


def _all(patterns: Sequence[Pattern], values: Sequence[Value], so_far: Attempt) -> Iterator[Attempt]:
    if not values or len(so_far.failures) > 1:
        yield so_far
        return
    for each in attempts(patterns[0], values[0], so_far.found):
        joined = Attempt(so_far.matched + each.matched, each.found, so_far.failures + each.failures)
        yield from _all(patterns[1:], values[1:], joined)


def wanted(pattern: Pattern) -> str:
    """A part of a pattern in words."""
    match pattern:
        case Any_(name):
            return f"the same value as {name}"
        case Number(number):
            return f"the number {number:g}"
    return pattern.operator


def described(value: Value) -> str:
    """A value that no node makes, in words."""
    if value.data is None:
        return "an input"
    number = f" {value.data.item():g}" if value.data.size == 1 and value.dtype.kind in "fiu" else ""
    return f"the constant{number or f' {value.type}'}"
