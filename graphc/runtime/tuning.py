"""Measures in which ways a device computes the calls of a model fastest; `targets/ggml/run/choose/choices.py` remembers them.

A call is computed alone, with the model's own weights: each way in turn, after the cache was filled with
something else and what the call reads was written, as in a run.
"""

from __future__ import annotations

import functools
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.runtime.model import Model, prepared
from graphc.targets.ggml.program.composites import COMPOSITES, PREFIX
from graphc.targets.ggml.program.sections import Section, kernels_run
from graphc.targets.ggml.program.tensor import Tensor
from graphc.targets.ggml.run.choose.choices import kind_of
from graphc.targets.ggml.run.device.tensors import upload
from graphc.targets.ggml.run.executor import Executor
from graphc.targets.ggml.run.graph import BuiltGraph
from graphc.trace import SILENT, Progress

GAIN = 0.05
"""A way is chosen if its median and its best time are so much below those of the way that fixed rules take."""

STEADY = 1.5
"""A median of so many times the best time says what else the machine did, and nothing of ways."""

HOPELESS = 3.0
"""A way that first took so many times as long as the fastest is not measured further."""

ROUNDS = (5, 20)
"""Measurements of each way, at least and at most; their median counts."""

SECONDS = 1.0
"""For all measurements of a call, unless the fewest take longer."""

CACHED = 1 << 26
"""Bytes that fill the processor's cache."""


@dataclass(frozen=True)
class Measured:
    """A call that the model makes so often: the way that fixed rules take, the one that is chosen, the seconds of each way that
    can compute it, and whether they were much the same in all rounds; else nothing is chosen."""

    key: str
    count: int
    usual: str
    way: str
    seconds: Mapping[str, float]
    steady: bool

    @property
    def saved(self) -> float:
        """Seconds that a run needs less by the choice."""
        return self.count * (self.seconds[self.usual] - self.seconds[self.way])


def tune(model: Model, inputs: Mapping[str, np.ndarray], progress: Progress = SILENT) -> list[Measured]:
    """The calls that a run with these inputs makes and that can be computed in several ways, those that take longest first.

    The model is run once, by fixed rules, which its graphs follow from then on.
    """
    with model.alone() as executor:
        executor.choices = b""
        executor.forget()
        executor.run(*prepared(model.program, {name: np.asarray(array) for name, array in inputs.items()}))
        return _measured(executor, progress)


def _measured(executor: Executor, progress: Progress) -> list[Measured]:
    """What `tune` gives, of an executor that ran once."""
    made = [(graph, index) for graph in executor.graphs for index in graph.taken]
    counts = Counter(graph.taken[index].key for graph, index in made)
    first = {graph.taken[index].key: (graph, index) for graph, index in reversed(made)}
    found = []
    with progress.stage("measure", len(first)) as step:
        for key, (graph, index) in first.items():
            times = measure(graph, index)
            usual = graph.taken[index].way
            seconds = {way: statistics.median(each) for way, each in times.items()}
            if times:
                steady = all(seconds[way] < STEADY * min(each) for way, each in times.items())
                way = choose(times, usual) if steady else usual
                found.append(Measured(key, counts[key], usual, way, seconds, steady))
            step(1)
    return sorted(found, key=lambda each: -each.count * each.seconds[each.usual])


def choose(times: Mapping[str, Sequence[float]], usual: str) -> str:
    """The way with the least median, given the seconds of each, among those that are clearly faster than the usual one."""

    def better(way: str) -> bool:
        return all(of(times[way]) < (1 - GAIN) * of(times[usual]) for of in (statistics.median, min))

    return min(filter(better, times), key=lambda way: statistics.median(times[way]), default=usual)


def measure(graph: BuiltGraph, index: int) -> dict[str, list[float]]:
    """The seconds of each way that can compute a call of a graph, of hopeless ones those of the first round; nothing where there
    is one way alone."""
    usual = graph.taken[index].way
    graphs = _graphs(graph, index)
    try:
        if len(graphs) == 1:
            return {}
        arrays = numbers_for(graphs[usual])
        first = {way: min(compute_once(each, arrays) for _ in range(2)) for way, each in graphs.items()}
        kept = [way for way in first if way == usual or first[way] < HOPELESS * min(first.values())]
        fewest, most = ROUNDS
        rounds = max(fewest, min(most, int(SECONDS / sum(first[way] for way in kept))))
        times = {way: [seconds] for way, seconds in first.items()} | {way: [] for way in kept}
        for way in kept * rounds:
            times[way].append(compute_once(graphs[way], arrays))
        return times
    finally:
        for each in graphs.values():
            each.free()


def _graphs(graph: BuiltGraph, index: int) -> dict[str, BuiltGraph]:
    """A graph of a call alone for each way that can compute it."""
    executor, key = graph.executor, graph.taken[index].key
    section = alone(graph, index)
    found = {}
    for way in COMPOSITES[PREFIX + kind_of(key)].ways:
        executor.choices = f"{key} = {way}".encode()
        made = BuiltGraph(graph.owner, graph.program, section, graph.binding)
        if index in made.taken and made.taken[index].way == way:
            found[way] = made
        else:
            made.free()
    executor.choices = b""
    return found


def alone(graph: BuiltGraph, index: int) -> Section:
    """A call of a graph as a section: with the views that it reads. What else is read is given."""
    program = graph.program
    calls, reads, inputs, uses = [index], set[int](), set[int](), Counter([index])
    waiting = [index]
    while waiting:
        for arg in program.calls[waiting.pop()].args:
            if not isinstance(arg, Tensor):
                continue
            uses[arg.call] += 1
            if arg.input >= 0:
                inputs.add(arg.input)
            elif arg.call >= 0 and program.is_view(arg) and arg.call not in calls:
                calls.append(arg.call)
                waiting.append(arg.call)
            elif arg.call >= 0 and arg.call not in calls:
                reads.add(arg.call)
    given = tuple(sorted(reads))
    kernels = kernels_run(program, calls)
    return Section(tuple(sorted(calls)), given, (index,), tuple(sorted(inputs)), (), frozenset(), uses, kernels)


def numbers_for(graph: BuiltGraph) -> list[np.ndarray]:
    """Numbers for what a graph is given."""
    rng = np.random.default_rng(0)
    floats: dict[int, type] = {ggml.GGML_TYPE_F32: np.float32, ggml.GGML_TYPE_F16: np.float16}
    sizes = [(ggml.ggml_nbytes(tensor), tensor.contents.type) for tensor in graph.given]
    return [
        (rng.random(nbytes // np.dtype(floats[type]).itemsize, np.float32) - 0.5).astype(floats[type])
        if type in floats
        else np.zeros(nbytes, np.uint8)
        for nbytes, type in sizes
    ]


def compute_once(graph: BuiltGraph, arrays: list[np.ndarray]) -> float:
    """The seconds that it takes to compute a graph once. Raises GraphcError if ggml cannot."""
    owner = graph.owner
    owner.compute.place(graph.placement)
    if len(owner.backends) == 1:
        filler = _filler()
        filler += 1
    for tensor, array in zip(graph.given, arrays, strict=True):
        upload(tensor, array)
    start = perf_counter()
    status = owner.compute.compute(graph.placement)
    taken = perf_counter() - start
    if status != ggml.GGML_STATUS_SUCCESS:
        raise GraphcError("ggml could not compute a call")
    return taken


@functools.cache
def _filler() -> np.ndarray:
    """What fills the processor's cache when it is changed."""
    return np.zeros(CACHED, np.uint8)
