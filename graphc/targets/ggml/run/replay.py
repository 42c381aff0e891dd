"""The calls of a section, to be made in graphs of any sizes: by C if it has functions for all of them (`native_calls.py`), which
takes a tenth of the time, else one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.shapes import only_symbol
from graphc.shapes.compiled import SizeProgram
from graphc.targets.ggml.program.bound import SizeChecks, known_calls
from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.program.in_c import built_in_c
from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.program.sections import Section, sizes_of_tensors
from graphc.targets.ggml.run.device.tensors import new_tensor
from graphc.targets.ggml.run.native_calls import MadeCalls, NativeCalls
from graphc.targets.ggml.run.places import Places, told_args

if TYPE_CHECKING:
    from graphc.targets.ggml.run.executor import Executor
    from graphc.targets.ggml.run.graph import BuiltGraph

Make: TypeAlias = Callable[["BuiltGraph", list[Any]], Any]
"""What makes a call's result in a graph, of what the list has."""


class Replay:
    """A section of a program that an executor runs."""

    def __init__(self, executor: Executor, program: Program, section: Section) -> None:
        source = executor.source(program)
        self._checks = SizeChecks(source, section.calls if source is program else known_calls(source, section.symbols))
        self._calls = [program.calls[index] for index in section.calls]
        self._sizes = {size for call in self._calls for size in call.result.ne}
        self._names = sorted(section.symbols)
        self._told = {kernel: sorted(program.kernels[kernel].sizes()) for kernel in section.kernels}
        seen = sizes_of_tensors(program, (*section.calls, *section.reads), section.inputs, section.outputs)
        alone = {symbol.name for symbol in map(only_symbol, seen) if symbol is not None}
        some_differ = not section.symbols <= alone and all(call.launches is None for call in self._calls)
        self._seen = SizeProgram(seen) if some_differ else None
        self._last: tuple[dict[str, int], tuple[int, ...]] | None = None
        self._native: NativeCalls | None = None
        if executor.own is not None and all(map(_is_native, self._calls)):
            self._native = NativeCalls(executor.own, self._calls, executor.kernels, executor.weights.tensors)

    def check(self, binding: Mapping[str, int]) -> None:
        """Raise InputError unless ggml accepts the calls, or those that they were made of, for these sizes."""
        self._checks.check(binding)

    def key(self, binding: Mapping[str, int]) -> tuple[int, ...]:
        """What is the same for sizes of which a graph is the same, but for what its kernels are told: the sizes that its tensors
        have. Raises InputError for sizes that ggml does not accept."""
        if self._seen is None:
            return tuple([binding[name] for name in self._names])
        known, last = self.known(binding), self._last
        if last is None or last[0] != known:
            self.check(binding)
            self._last = last = known, tuple(self._seen(binding))
        return last[1]

    def known(self, binding: Mapping[str, int]) -> dict[str, int]:
        """The sizes that a graph depends on."""
        return {name: binding[name] for name in self._names}

    def told_others(self, before: Mapping[str, int], binding: Mapping[str, int]) -> list[int]:
        """The kernels that are told other sizes than before."""
        changed = {name for name, size in before.items() if binding[name] != size}
        return [kernel for kernel, names in self._told.items() if not changed.isdisjoint(names)]

    def make(self, graph: BuiltGraph) -> MadeCalls | None:
        """Make the results of all calls in a graph that has what the section is given. If C made them, it knows them, else they
        are among what the graph has `made`. Raises GraphcError where ggml fails."""
        some_empty = 0 in map(graph.values.__getitem__, self._sizes)
        if self._native is not None and graph.building is not None and not some_empty:
            return self._native.make(graph)
        values = graph.values
        places, steps = self._one_by_one
        filled = _filled(places, graph)
        for call, place, make in steps:
            if some_empty and 0 in map(values.__getitem__, call.result.ne):
                made = new_tensor(graph.context, call.result, values)
                ggml.ggml_set_input(made)  # a scheduler wants to know of everything where it comes from
            else:
                made = make(graph, filled)
            if not made:
                raise GraphcError(f"{call.function} failed for {call.source or 'a node'}")
            filled[place] = graph.made[call.result.call] = made
        return None

    @cached_property
    def _one_by_one(self) -> tuple[Places, list[tuple[Call, int, Make]]]:
        """The places of arguments, and each call with the place of its result and what makes it."""
        places = Places(self._calls)
        return places, [(call, places.of(call.result), _make(places, call)) for call in self._calls]


def _is_native(call: Call) -> bool:
    """True if there is a function in C for a call."""
    return call.launches is None and (call.function not in COMPOSITES or call.function in built_in_c())


def _filled(places: Places, graph: BuiltGraph) -> list[Any]:
    """The list, with all that a graph has before its calls are made."""
    filled, weights = places.fixed.copy(), graph.executor.weights.tensors
    for place, index in places.weights:
        filled[place] = weights[index]
    for place, index in places.inputs:
        filled[place] = graph.inputs[index]
    for place, index in places.reads:
        filled[place] = graph.made[index]
    for place, size in places.sizes:
        filled[place] = graph.values[size]
    if graph.building is not None:
        for place, activation in places.activations:
            filled[place] = graph.building.activation(activation)
    return filled


def _make(places: Places, call: Call) -> Make:
    """What makes a call's result."""
    if call.function in COMPOSITES and call.function not in built_in_c():
        return lambda graph, _: graph.expanded(call)
    found = [places.of(arg) for arg in told_args(call)]
    arguments = itemgetter(*found) if len(found) > 1 else lambda filled: [filled[place] for place in found]
    if call.function in COMPOSITES:
        return lambda graph, filled: graph.composite(call, arguments(filled))
    if call.launches is not None:
        return lambda graph, filled: graph.launched(call, arguments(filled))
    if call.kernel >= 0:
        return lambda graph, filled: graph.by_kernel(call.kernel, arguments(filled), call.result)
    function = getattr(ggml, call.function)
    return lambda graph, filled: function(graph.context, *arguments(filled))
