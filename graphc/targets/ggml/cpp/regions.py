"""The modules of a program: its calls as a tree of regions, one for each module that the model called.

A region's calls are brought together where no dependency forbids it. That does not change what ggml computes: it orders
its graph by following the outputs back, not by the order of the calls. A module that the model calls several times, in ways
that cannot be joined, becomes several regions.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

from graphc.targets.ggml.cpp.scopes import Path, readers
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.program.prune import live_calls


@dataclass(eq=False)
class Region:
    """One call of a module: `path` is its place among the modules, `items` its calls and the modules that it calls."""

    path: Path
    items: list[Item]
    results: tuple[int, ...] = ()
    """Calls inside whose results are read outside, in order."""

    @property
    def calls(self) -> list[int]:
        """Every call inside, in running order."""
        return [call for item in self.items for call in ([item] if isinstance(item, int) else item.calls)]


Item: TypeAlias = Union[int, Region]


def regions(program: Program) -> Region:
    """The whole program as a region. Calls that no output depends on are left out."""
    return _Builder(program).region((), 0, sorted(live_calls(program)))


class _Builder:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.readers = readers(program)
        self.outputs = {output.tensor.call for output in program.outputs}

    def region(self, path: Path, depth: int, calls: Sequence[int]) -> Region:
        """The region of a module whose calls these are, in running order."""
        items: list[Item] = []
        for name, unit in self.ordered(self.units(depth, calls), calls):
            if name is None:
                items += unit
            else:
                items.append(self.region((*path, name), depth + 1, unit))
        inside = set(calls)
        results = tuple(
            call
            for call in calls
            if call in self.outputs or any(reader not in inside for reader in self.readers.get(call, ()))
        )
        return Region(path, items, results)

    def child(self, call: int, depth: int) -> str | None:
        scope = self.program.calls[call].scope
        return scope[depth] if len(scope) > depth else None

    def units(self, depth: int, calls: Sequence[int]) -> list[Unit]:
        """Single calls, and the calls of each child module together unless a dependency runs out and back in."""
        split: set[str] = set()
        while True:
            units = self.grouped(depth, calls, split)
            tangled = {units[index][0] for index in cycles(self.edges(units))} - {None} - split
            if not tangled:
                return units
            split |= {name for name in tangled if name is not None}

    def grouped(self, depth: int, calls: Sequence[int], split: set[str]) -> list[Unit]:
        units: list[Unit] = []
        whole: dict[str, Unit] = {}
        previous: str | None = None
        for call in calls:
            name = self.child(call, depth)
            if name is not None and name in whole and (name not in split or name == previous):
                whole[name][1].append(call)
            else:
                unit: Unit = (name, [call])
                units.append(unit)
                if name is not None:
                    whole[name] = unit
            previous = name
        return units

    def edges(self, units: Sequence[Unit]) -> list[set[int]]:
        """For each unit, the units that read its results."""
        owner = {call: index for index, (_, calls) in enumerate(units) for call in calls}
        return [
            {owner[reader] for call in calls for reader in self.readers.get(call, ()) if reader in owner} - {index}
            for index, (_, calls) in enumerate(units)
        ]

    def ordered(self, units: list[Unit], calls: Sequence[int]) -> list[Unit]:
        """The units in an order in which they can run, otherwise as they came."""
        position = {call: index for index, call in enumerate(calls)}
        edges = self.edges(units)
        waiting = [0] * len(units)
        for targets in edges:
            for target in targets:
                waiting[target] += 1
        ready = [(position[units[index][1][0]], index) for index, count in enumerate(waiting) if count == 0]
        heapq.heapify(ready)
        result: list[Unit] = []
        while ready:
            _, index = heapq.heappop(ready)
            result.append(units[index])
            for target in edges[index]:
                waiting[target] -= 1
                if waiting[target] == 0:
                    heapq.heappush(ready, (position[units[target][1][0]], target))
        assert len(result) == len(units), "units depend on each other in a circle"
        return result


Unit: TypeAlias = tuple[Union[str, None], list[int]]


def cycles(edges: Sequence[set[int]]) -> set[int]:
    """The nodes of a directed graph that lie on a circle (Tarjan's strongly connected components)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: set[int] = set()

    for root in range(len(edges)):
        if root in index:
            continue
        work = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(edges[target]))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = stack[stack.index(node) :]
                    del stack[len(stack) - len(component) :]
                    on_stack -= set(component)
                    found |= set(component) if len(component) > 1 else set()
    return found
