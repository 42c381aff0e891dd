"""Where the time of a run goes: each node of the graphs is computed and timed by itself.

A node by itself costs some microseconds more than in its graph, where threads wait for the next node and devices are given
many at once. On devices ggml's scheduler runs the graph, so what it copies between them is timed too.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import accumulate, groupby
from time import perf_counter
from typing import Any

import numpy as np

from graphc.backends.generated import timed_nodes
from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.kernels.gpu.devices import Gpu
from graphc.kernels.gpu.roofline import estimate
from graphc.kernels.gpu.tile import TileKernel
from graphc.runtime.model import Model, prepared
from graphc.shapes import integer
from graphc.targets.ggml.generate.schedules import device_of
from graphc.targets.ggml.program.calls import VIEWS
from graphc.targets.ggml.program.composites import COMPOSITES, PREFIX
from graphc.targets.ggml.program.cost import count_of, is_copy, numbered
from graphc.targets.ggml.program.program import Call
from graphc.targets.ggml.program.tensor import Activation
from graphc.targets.ggml.run.choose.runner import Runner
from graphc.targets.ggml.run.device.computing import compute
from graphc.targets.ggml.run.device.devices import backend_name, device_name
from graphc.targets.ggml.run.device.tensors import VIEW_OPS, address, download, new_context
from graphc.targets.ggml.run.executor import Executor
from graphc.targets.ggml.run.graph import BuiltGraph
from graphc.targets.ggml.run.memory.results import ComputeMemory
from graphc.targets.ggml.run.memory.streams import Streams

PRODUCTS = (
    *("mul_mat", "matmul", "conv", "out_prod"),
    *(name.removeprefix(PREFIX) for name, each in COMPOSITES.items() if each.multiplied),
)
"""Parts of the names of steps that are products."""


@dataclass(frozen=True)
class Timing:
    """One step: what computes it, for which node and module of the model, its result, seconds, when it began in the run,
    floating-point operations, bytes that it reads and writes, the number of its call (`cost.numbered`; -1 for what is not a call:
    a copy from one device to another, a wait for weights that are streamed), whether it only copies, the device, and the seconds
    of the roofline by the device's data sheet: 0 where it is not known. Of generated kernels, operations and bytes are those that
    kernels have, of whole tiles and of the device's memory."""

    step: str
    source: str
    module: str
    result: str
    seconds: float
    start: float
    operations: int
    nbytes: int
    number: int
    copies: bool
    device: str = "CPU"
    roofline: float = 0.0


@dataclass(frozen=True)
class Total:
    """Steps of one kind together."""

    name: str
    count: int
    seconds: float
    operations: int
    nbytes: int
    roofline: float = 0.0

    @property
    def gflops(self) -> float:
        """Billions of operations a second."""
        return self.operations / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gbytes(self) -> float:
        """Billions of bytes a second."""
        return self.nbytes / self.seconds / 1e9 if self.seconds else 0.0


@dataclass(frozen=True)
class Computed:
    """A node of a graph that was computed by itself: on which device, in how many seconds, how long before it something else
    was done, and how long the device waited behind it for weights."""

    node: Any
    device: str
    seconds: float
    before: float = 0.0
    waited: float = 0.0


def profile(model: Model, inputs: Mapping[str, np.ndarray], rounds: int = 1) -> list[Timing]:
    """The steps of a run, in order, each with the median of its times in so many runs, after a run that is not timed. Raises
    GraphcError as a run does."""
    runs: list[list[Timing]] = []
    with model.alone() as executor:
        given = prepared(model.program, {name: np.asarray(array) for name, array in inputs.items()})
        executor.run(*given)
        numbers = numbered(executor.program)
        executor.observer = lambda graph: runs[-1].extend(timed(graph, numbers))
        try:
            for _ in range(rounds):
                runs.append([])
                executor.run(*given)
        finally:
            executor.observer = None
    seconds = [statistics.median(each.seconds for each in step) for step in zip(*runs, strict=True)]
    starts = accumulate(seconds, initial=0.0)
    return [
        replace(step, seconds=time, start=start) for step, time, start in zip(runs[0], seconds, starts, strict=False)
    ]


def whole_run(model: Model, inputs: Mapping[str, np.ndarray], rounds: int) -> float:
    """The median seconds of so many runs that nobody looks into."""
    seconds = []
    for _ in range(rounds):
        began = perf_counter()
        model.run(inputs)
        seconds.append(perf_counter() - began)
    return statistics.median(seconds)


def timed(graph: BuiltGraph, numbers: Mapping[Call, int]) -> Iterator[Timing]:
    """Compute the nodes of a graph one after the other. What ggml makes of a call before its result counts as the call's."""
    computed = list(on_cpu(graph) if len(graph.owner.backends) == 1 else on_devices(graph))
    calls = calls_of(graph, [each.node for each in computed])
    own = {address(each) for each in (*graph.placement.nodes, *graph.given, *graph.executor.weights.tensors)}
    parts: dict[int, list[Computed]] = {}
    for device, together in groupby(zip(computed, calls, strict=True), lambda pair: pair[0].device):
        stretch = list(together)
        if nbytes := arriving([each.node for each, _ in stretch], own):
            yield between(f"copy to {device}", stretch[0][0].before, nbytes, device)
        for each, index in stretch:
            parts.setdefault(index, []).append(each)
            call = graph.program.calls[index]
            if address(each.node) == address(graph.computed_as(index)) and call.function not in VIEWS:
                yield described(graph, call, numbers[call], parts[index])
            if each.waited:
                yield between("wait for weights", each.waited, 0, device)


def on_cpu(graph: BuiltGraph) -> Iterator[Computed]:
    """Compute each node where there is the CPU alone. Raises GraphcError if ggml cannot."""
    context, threads = new_context(0, graph_size=8), graph.owner.compute.threads
    try:
        for node in graph.placement.nodes:
            ggml.ggml_reset(context)
            alone = ggml.ggml_new_graph_custom(context, 8, False)
            ggml.ggml_graph_add_node(alone, node)
            runner = Runner(graph.executor.own, graph.owner.cpu, alone)
            began = perf_counter()
            status = compute(partial(runner.run, threads))
            seconds = perf_counter() - began
            if status != ggml.GGML_STATUS_SUCCESS:
                raise GraphcError("ggml could not compute a node")
            yield Computed(node, "CPU", seconds)
    finally:
        ggml.ggml_free(context)


def on_devices(graph: BuiltGraph) -> list[Computed]:
    """Have ggml's scheduler compute a graph, node by node. Raises GraphcError if ggml cannot."""
    memory, clocks = graph.owner.compute, list[Clock]()
    with timed_nodes(graph.owner.backends) as told:

        def watch(streams: Streams | None) -> Clock:
            clocks.append(Clock(memory, streams, told))
            return clocks[-1]

        if memory.compute(graph.placement, watch) != ggml.GGML_STATUS_SUCCESS:
            raise GraphcError("ggml could not compute a node")
    return clocks[0].found


class Clock:
    """Listens to ggml's scheduler, and notes when each node was begun and done. Between the two it is also launched and waited
    for: what a device has `told` of a node, in seconds by its address, is without that."""

    def __init__(self, memory: ComputeMemory, streams: Streams | None, told: Mapping[int, float]) -> None:
        self.memory, self.streams, self.told = memory, streams, told
        self.found: list[Computed] = []
        self.done, self.begun = perf_counter(), 0.0

    def wants(self, tensor: Any) -> bool:
        """All that computes something."""
        self.begun = self.begun or perf_counter()
        return tensor.contents.op not in VIEW_OPS

    def computed(self, tensor: Any) -> bool:
        """Note it, and have streams go on."""
        backend = self.memory.device_of(tensor)
        if backend_name(backend) == "RPC":  # which answers before it has computed
            download(tensor, np.empty(1, np.uint8))
        done = now = perf_counter()
        if self.streams is not None and self.streams.wants(tensor):
            self.streams.computed(tensor)
            now = perf_counter()
        seconds, before = self.told.get(address(tensor), done - self.begun), self.begun - self.done
        self.found.append(Computed(tensor, device_name(backend), seconds, before, now - done))
        self.done, self.begun = perf_counter(), 0.0
        return True


def calls_of(graph: BuiltGraph, nodes: Sequence[Any]) -> list[int]:
    """The call that each of a graph's nodes belongs to: that whose result it is, or that of the next node that reads it. What
    nothing reads is a view of the last result."""
    results = {address(graph.computed_as(index)): index for index in reversed(graph.results)}
    readers: dict[int, int] = {}
    found: list[int] = []
    for node in reversed(nodes):
        index = results.get(address(node), readers.get(address(node), found[-1] if found else max(graph.results)))
        found.append(index)
        for source in filter(None, node.contents.src):
            readers[address(source.contents.view_src or source)] = index
    return found[::-1]


def arriving(nodes: Iterable[Any], own: Set[int]) -> int:
    """The bytes that the scheduler copies to a device for these nodes: of what they read and what is not the graph's `own`."""
    sources = (source.contents.view_src or source for node in nodes for source in node.contents.src if source)
    return sum({address(each): ggml.ggml_nbytes(each) for each in sources if address(each) not in own}.values())


def between(step: str, seconds: float, nbytes: int, device: str) -> Timing:
    """What is done between nodes, and is not a call of the program."""
    return Timing(step, "", "", "", seconds, 0.0, 0, nbytes, -1, nbytes > 0, device)


def described(graph: BuiltGraph, call: Call, number: int, parts: Sequence[Computed]) -> Timing:
    """What is known of a call that was computed by these nodes, the last of which is its result."""
    if call.launches is not None and (sheet := sheet_of(graph.executor)) is not None:
        return launched(graph, call, number, parts, sheet)
    operations = integer(count_of(graph.program, call)[1], graph.binding)
    copies = is_copy(graph.program, call)
    node, made = parts[-1].node, {address(each.node) for each in parts}
    sources = (source for each in parts for source in each.node.contents.src if source)
    read = {address(each): each for each in sources if address(each) not in made}.values()
    return Timing(
        step=step_name(graph, call),
        source=call.source,
        module=".".join(call.scope),
        result=f"{list(node.contents.ne)[: max(call.result.rank, 1)][::-1]}",
        seconds=sum(each.seconds for each in parts),
        start=0.0,
        operations=operations,
        nbytes=ggml.ggml_nbytes(node) + sum(bytes_read(source, node, copies) for source in read),
        number=number,
        copies=copies,
        device=parts[-1].device,
    )


def launched(graph: BuiltGraph, call: Call, number: int, parts: Sequence[Computed], sheet: Gpu) -> Timing:
    """The same of a call that launches kernels, on a GPU with a data sheet."""
    costs = [estimate(each, graph.binding, sheet) for each in kernels_of(graph, call)]
    node = parts[-1].node
    return Timing(
        step=step_name(graph, call),
        source=call.source,
        module=".".join(call.scope),
        result=f"{list(node.contents.ne)[: max(call.result.rank, 1)][::-1]}",
        seconds=sum(each.seconds for each in parts),
        start=0.0,
        operations=sum(each.operations for each in costs),
        nbytes=sum(each.nbytes for each in costs),
        number=number,
        copies=False,
        device=parts[-1].device,
        roofline=sum(each.roofline for each in costs),
    )


def sheet_of(executor: Executor) -> Gpu | None:
    """The data sheet of a device of generated kernels, or what is expected by that of the nearest GPU; None for devices that are
    not NVIDIA's."""
    gpu = None if executor.launched is None else device_of(executor.launched.backend).gpu
    return gpu if gpu is not None and gpu.architecture.startswith("sm_") else None


def kernels_of(graph: BuiltGraph, call: Call) -> list[TileKernel]:
    """What a call of a graph launches."""
    assert graph.executor.launched is not None
    return [each.rendered.kernel for each in graph.executor.launched.launches_for(call, graph.binding).each]


def bytes_read(source: Any, node: Any, copies: bool) -> int:
    """Of a source of a node: all, but a copy reads no more elements than it writes."""
    most = ggml.ggml_nelements(node) * ggml.ggml_type_size(source.contents.type)
    return int(min(ggml.ggml_nbytes(source), most) if copies else ggml.ggml_nbytes(source))


def step_name(graph: BuiltGraph, call: Call) -> str:
    """What a call is called, with the way in which a composite is computed and what it does on its way out."""
    if call.launches is not None:
        return ", ".join(each.name for each in kernels_of(graph, call))
    if call.function not in COMPOSITES:
        return count_of(graph.program, call)[0]
    composite, taken = COMPOSITES[call.function], graph.taken.get(call.result.call)
    settings = dict(zip(composite.parameters, call.args, strict=False))
    extra = [" + sums"] if len(call.args) > len(settings) or settings.get("bias") is not None else []
    extra += [" + silu"] if settings.get("silu") is True else []
    extra += [f" + {each.name}" for each in call.args if isinstance(each, Activation)]
    return call.function.removeprefix(PREFIX) + (f" ({taken.way})" if taken else "") + "".join(extra)


def launched_name(call: Call) -> str:
    """What a call that launches kernels is called: by their names."""
    return ", ".join(each.rendered.kernel.name for each in call.launches.each) if call.launches else ""


def totals(timings: Iterable[Timing], key: Callable[[Timing], str]) -> list[Total]:
    """The steps by a key, the longest first."""
    groups: dict[str, list[Timing]] = {}
    for each in timings:
        groups.setdefault(key(each), []).append(each)
    return sorted((together(name, group) for name, group in groups.items()), key=lambda total: -total.seconds)


def together(name: str, timings: Sequence[Timing]) -> Total:
    """Steps as one."""
    return Total(
        name,
        len(timings),
        sum(each.seconds for each in timings),
        sum(each.operations for each in timings),
        sum(each.nbytes for each in timings),
        sum(each.roofline for each in timings),
    )


def is_product(step: str) -> bool:
    """True if a step of this name multiplies matrices."""
    return any(part in step.lower() for part in PRODUCTS)


def chrome_trace(timings: Iterable[Timing]) -> dict[str, Any]:
    """The steps as events that browsers and Perfetto show on a time line."""
    return {
        "traceEvents": [
            {
                "name": each.step,
                "cat": each.module or "model",
                "ph": "X",
                "pid": 1,
                "tid": 1,
                "ts": each.start * 1e6,
                "dur": each.seconds * 1e6,
                "args": {key: value for key, value in asdict(each).items() if key not in ("step", "start", "seconds")},
            }
            for each in timings
        ]
    }
