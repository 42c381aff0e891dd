"""The calls of a section, to be made in graphs of any sizes. What is the same for all sizes is looked up once: a graph is built
for each new size, and where a model writes tokens one by one, that is for each of them.

A list has all that calls may be given: numbers, sizes, tensors. Each call knows the places of its arguments there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.shapes import Expr
from graphc.targets.ggml.program.bound import SizeChecks, known_calls
from graphc.targets.ggml.program.composites import COMPOSITES, ActivationOrNone
from graphc.targets.ggml.program.composites.activations import told
from graphc.targets.ggml.program.in_c import built_in_c
from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.program.sections import Section
from graphc.targets.ggml.program.tensor import Activation, Arg, Constant, Tensor
from graphc.targets.ggml.run.device.tensors import new_tensor

if TYPE_CHECKING:
    from graphc.targets.ggml.run.executor import Executor
    from graphc.targets.ggml.run.graph import BuiltGraph

Make: TypeAlias = Callable[["BuiltGraph", list[Any]], Any]
"""What makes a call's result in a graph, of what the list has."""


class Replay:
    """A section of a program that an executor runs."""

    def __init__(self, executor: Executor, program: Program, section: Section) -> None:
        source = executor.source(program)
        sizes = section.symbols
        self._checks = SizeChecks(source, section.calls if source is program else known_calls(source, sizes))
        self._fixed: list[Any] = []
        self._places: dict[Hashable, int] = {}
        self._weights: list[tuple[int, int]] = []
        self._inputs: list[tuple[int, int]] = []
        self._reads: list[tuple[int, int]] = []
        self._sizes: list[tuple[int, Expr]] = []
        self._activations: list[tuple[int, Activation]] = []
        calls = [program.calls[index] for index in section.calls]
        self._own = {call.result.call for call in calls}
        self._steps = [(call, self._place_of(call.result), self._make(call)) for call in calls]
        self._sizes_of_results = {size for call in calls for size in call.result.ne}

    def check(self, binding: Mapping[str, int]) -> None:
        """Raise InputError unless ggml accepts the calls, or those that they were made of, for these sizes."""
        self._checks.check(binding)

    def make(self, graph: BuiltGraph) -> None:
        """Make the results of all calls in a graph that has what the section is given. Raises GraphcError where ggml fails."""
        values, results = graph.values, graph.results
        filled = self._filled(graph)
        some_empty = 0 in map(values.__getitem__, self._sizes_of_results)
        for call, place, make in self._steps:
            if some_empty and 0 in map(values.__getitem__, call.result.ne):
                made = new_tensor(graph.context, call.result, values)
                ggml.ggml_set_input(made)  # a scheduler wants to know of everything where it comes from
            else:
                made = make(graph, filled)
            if not made:
                raise GraphcError(f"{call.function} failed for {call.source or 'a node'}")
            filled[place] = results[call.result.call] = made

    def _filled(self, graph: BuiltGraph) -> list[Any]:
        """The list, with all that a graph has before its calls are made."""
        filled, weights = self._fixed.copy(), graph.executor.weights.tensors
        for place, index in self._weights:
            filled[place] = weights[index]
        for place, index in self._inputs:
            filled[place] = graph.inputs[index]
        for place, index in self._reads:
            filled[place] = graph.results[index]
        for place, size in self._sizes:
            filled[place] = graph.values[size]
        if graph.building is not None:
            for place, activation in self._activations:
                filled[place] = graph.building.activation(activation)
        return filled

    def _make(self, call: Call) -> Make:
        """What makes a call's result."""
        if call.function in COMPOSITES:
            return self._make_composite(call)
        arguments = self._picked(call.args)
        if call.launches is not None:
            return lambda graph, filled: graph.launched(call, arguments(filled))
        if call.kernel >= 0:
            return lambda graph, filled: graph.by_kernel(call.kernel, arguments(filled), call.result)
        function = getattr(ggml, call.function)
        return lambda graph, filled: function(graph.context, *arguments(filled))

    def _make_composite(self, call: Call) -> Make:
        if call.function not in built_in_c():
            return lambda graph, _: graph.expanded(call)
        kinds = [*COMPOSITES[call.function].parameters.values()]
        kinds += [Tensor] * (len(call.args) - len(kinds))
        given = [told(arg) if kind == ActivationOrNone else arg for kind, arg in zip(kinds, call.args, strict=True)]  # type: ignore[arg-type]
        arguments = self._picked(given)
        return lambda graph, filled: graph.composite(call, arguments(filled))

    def _picked(self, args: Sequence[Arg]) -> Callable[[list[Any]], Sequence[Any]]:
        """What gives a call's arguments from the list."""
        places = [self._place_of(arg) for arg in args]
        if len(places) < 2:
            return lambda filled: [filled[place] for place in places]
        return itemgetter(*places)

    def _place_of(self, arg: Arg) -> int:
        """The place of an argument in the list."""
        key: Hashable = (arg.weight, arg.input, arg.call) if isinstance(arg, Tensor) else (type(arg), arg)
        if key in self._places:
            return self._places[key]
        place = self._places[key] = len(self._fixed)
        self._fixed.append(getattr(ggml, arg.name) if isinstance(arg, Constant) else arg)
        match arg:
            case Tensor() if arg.weight >= 0:
                self._weights.append((place, arg.weight))
            case Tensor() if arg.input >= 0:
                self._inputs.append((place, arg.input))
            case Tensor() if arg.call not in self._own:
                self._reads.append((place, arg.call))
            case Expr():
                self._sizes.append((place, arg))
            case Activation():
                self._activations.append((place, arg))
        return place
