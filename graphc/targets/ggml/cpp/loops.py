"""Repeated modules as loops: a run of the same function, each fed by the one before, over an array of weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graphc.targets.ggml.cpp.functions import Function, Functions, Operand, Step
from graphc.targets.ggml.cpp.numbers import same
from graphc.targets.ggml.cpp.scopes import Path

Links: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of an argument of a step and the result of the step before that it takes."""


@dataclass(frozen=True)
class Loop:
    """Steps `start` to `end` (exclusive) call the same function for the elements of the array `path`, from element `first`.

    `fed` says which argument takes which result of the step before.
    """

    start: int
    end: int
    path: Path
    first: int
    length: int
    fed: Links

    @property
    def whole(self) -> bool:
        """True if the loop goes over the whole array."""
        return self.first == 0 and self.end - self.start == self.length


def find_loops(functions: Functions, function: Function) -> list[Loop]:
    """The loops of at least two rounds, in order."""
    steps = function.body.steps
    found: list[Loop] = []
    start = 0
    while start < len(steps):
        loop = _loop_at(functions, function, start)
        if loop is None:
            start += 1
        else:
            found.append(loop)
            start = loop.end
    return found


def _loop_at(functions: Functions, function: Function, start: int) -> Loop | None:
    steps = function.body.steps
    first = _element(functions, steps[start])
    if first is None:
        return None
    path, place, length = first
    end, fed = start + 1, None
    while end < len(steps) and _element(functions, steps[end]) == (path, place + end - start, length):
        links = _links(functions, function, end)
        if links is None or fed not in (None, links) or _read_elsewhere(functions, function, end, links):
            break
        fed = links
        end += 1
    return Loop(start, end, path, place, length, fed) if fed is not None else None


def _element(functions: Functions, step: Step) -> tuple[Path, int, int] | None:
    """The array whose element a step is called for, its place there, and the array's length."""
    if isinstance(step, int) or step.body.base is None:
        return None
    return functions.tree.array(step.body.base)


def _links(functions: Functions, function: Function, position: int) -> Links | None:
    """Which arguments of a step are which results of the one before, if that is their only difference."""
    before, step = function.body.steps[position - 1], function.body.steps[position]
    if isinstance(before, int) or isinstance(step, int) or before.function is not step.function:
        return None
    for index, numbers in enumerate(zip(before.numbers, step.numbers, strict=True)):
        holes = {function.holes.get((place, index)) for place in (position - 1, position)}
        if len(holes) > 1 or not same([number.value for number in numbers]):
            return None
    results = {("local", (position - 1, result)): result for result in range(len(step.function.results))}
    links = []
    pairs = zip(_operands(functions, function, step), _operands(functions, function, before), strict=True)
    for argument, (here, there) in enumerate(pairs):
        if here != there:
            if here not in results:
                return None
            links.append((argument, results.pop(here)))
    return tuple(links) or None


def _read_elsewhere(functions: Functions, function: Function, position: int, links: Links) -> bool:
    """True if anything but those arguments of step `position` reads a result of the step before it."""
    before = position - 1
    if any(place == before for place, _ in function.results):
        return True
    for index, step in enumerate(function.body.steps):
        read = _operands(functions, function, step)
        if index == position:
            read = [operand for argument, operand in enumerate(read) if argument not in dict(links)]
        if any(kind == "local" and isinstance(at, tuple) and at[0] == before for kind, at in read):
            return True
    return False


def _operands(functions: Functions, function: Function, step: Step) -> Sequence[Operand]:
    return [functions.operand(function.body, ref) for ref in functions.reads(step)]
