"""Measures schedules of a model's contractions on a device of generated kernels; `generate/schedules.py` remembers them.

A contraction is computed alone, with the model's own weights, in each of the schedules that are guessed to be the fastest, in
turn. Times are those of the device's events.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphc.backends.generated import check_devices, timed_nodes
from graphc.errors import GraphcError
from graphc.kernels.gpu.candidates import Sizes
from graphc.kernels.gpu.schedule import Schedule
from graphc.kernels.gpu.scheduling import Scheduling
from graphc.runtime.model import Model, prepared
from graphc.runtime.tuning import alone, compute_once, numbers_for
from graphc.targets.ggml.program.launch import Choice
from graphc.targets.ggml.run.device.tensors import address
from graphc.targets.ggml.run.executor import Executor
from graphc.targets.ggml.run.graph import BuiltGraph
from graphc.trace import SILENT, Progress

CANDIDATES = 8
"""Schedules that are measured of each contraction, besides the one that it has."""

ROUNDS = 7
"""Measurements of each schedule, after one that does not count; their median does."""


@dataclass(frozen=True)
class MeasuredSchedules:
    """A contraction that a run makes so often: the schedule that it had, and the seconds of each that was measured."""

    sizes: Sizes
    count: int
    usual: Schedule
    seconds: Mapping[Schedule, float]

    @property
    def best(self) -> Schedule:
        """The fastest."""
        return min(self.seconds, key=lambda each: (self.seconds[each], str(each)))

    @property
    def saved(self) -> float:
        """Seconds that a run needs less by it."""
        return self.count * (self.seconds[self.usual] - self.seconds[self.best])


def tune_schedules(
    model: Model, inputs: Mapping[str, np.ndarray], progress: Progress = SILENT
) -> list[MeasuredSchedules]:
    """The contractions that a run with these inputs makes, those that take longest first. The model follows the measurements from
    then on. Raises GraphcError as a run does."""
    with model.alone() as executor:
        executor.run(*prepared(model.program, {name: np.asarray(array) for name, array in inputs.items()}))
        made = [(graph, index) for graph in executor.graphs for index in graph.works]
        kinds: dict[Sizes, list[tuple[BuiltGraph, int, Choice]]] = {}
        for graph, index in made:
            choice = choice_of(graph, index)
            if choice is not None and min((sizes := choice.sizes.bound(graph.binding)).numbers) > 0:
                kinds.setdefault(sizes, []).append((graph, index, choice))
        found = []
        if kinds:
            launched, scheduling = executor.launched, scheduling_of(executor)
            assert launched is not None
            compared = {sizes: compared_schedules(scheduling, sizes, calls[0][2]) for sizes, calls in kinds.items()}
            launched.prepare((calls[0][2], compared[sizes]) for sizes, calls in kinds.items())
            with progress.stage("measure", len(kinds)) as step:
                for sizes, calls in kinds.items():
                    graph, index, _ = calls[0]
                    times = measure(graph, index, compared[sizes])
                    seconds = {each: statistics.median(times[each]) for each in compared[sizes]}
                    found.append(MeasuredSchedules(sizes, len(calls), compared[sizes][0], seconds))
                    step(1)
            launched.prepare((choice, [each.best]) for each in found for _, _, choice in kinds[each.sizes][1:])
            for each in found:
                scheduling.learn(each.sizes, each.seconds)
        executor.forget()
        return sorted(found, key=lambda each: -each.count * each.seconds[each.usual])


def compared_schedules(scheduling: Scheduling, sizes: Sizes, choice: Choice) -> list[Schedule]:
    """What is measured of calls of the same sizes: the schedule that they have, of those that there is a choice among, first, and
    those that are guessed to be the fastest."""
    usual = scheduling.best(sizes, choice.ways)
    return list(dict.fromkeys([usual, *scheduling.guessed(sizes)[:CANDIDATES]]))


def choice_of(graph: BuiltGraph, index: int) -> Choice | None:
    """The ways of a call of a graph; None where it has only one."""
    launches = graph.program.calls[index].launches
    choice = launches and launches.choice
    if not choice or not all(scheduling_of(graph.executor).takes(each, choice.sizes.operand) for each in choice.ways):
        return None
    return choice


def scheduling_of(executor: Executor) -> Scheduling:
    """The schedules of an executor's device. Raises GraphcError for a device that follows fixed rules."""
    scheduling = executor.launched and executor.launched.generated.scheduling
    if not scheduling:
        raise GraphcError("the schedules of this device, or of the code in this engine, follow fixed rules")
    return scheduling


def measure(graph: BuiltGraph, index: int, schedules: Sequence[Schedule]) -> dict[Schedule, list[float]]:
    """The seconds of a call of a graph in each of these schedules."""
    launched, call = graph.executor.launched, graph.program.calls[index]
    assert launched is not None
    section, graphs = alone(graph, index), dict[Schedule, BuiltGraph]()
    try:
        for each in schedules:
            launched.forced[call] = each
            graphs[each] = BuiltGraph(graph.owner, graph.program, section, graph.binding)
        arrays = numbers_for(graphs[schedules[0]])
        times: dict[Schedule, list[float]] = {each: [] for each in schedules}
        with timed_nodes(graph.owner.backends) as told:
            for _ in range(1 + ROUNDS):
                for each, made in graphs.items():
                    compute_once(made, arrays)
                    check_devices()
                    times[each].append(told[address(made.results[index])])
        return {each: seconds[1:] for each, seconds in times.items()}
    finally:
        launched.forced.pop(call, None)
        for made in graphs.values():
            made.free()
