"""Where the time of a run goes: each node of the graphs is computed and timed by itself.

A node by itself costs some microseconds more than in its graph, where threads wait for the next node.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from time import perf_counter
from typing import Any

import numpy as np

from graphc.errors import GraphcError, InputError
from graphc.ggml_library import ggml
from graphc.runtime.model import Model, check_inputs
from graphc.shapes import integer
from graphc.targets.ggml.calls import VIEWS
from graphc.targets.ggml.cost import count_of, is_copy, numbered
from graphc.targets.ggml.executor import BuiltGraph
from graphc.targets.ggml.products import SUMS, Own
from graphc.targets.ggml.program import Call
from graphc.targets.ggml.tensors import address, new_context

PRODUCTS = ("mul_mat", "conv", "matmul", "attention", "out_prod", "winograd")
"""Parts of the names of steps that are products."""

COPIES = ("concat",)
"""Functions of ours that only copy."""

EACH = {"rotary": 3, "concat": 0}
"""Operations for each element of a result of ours, where they are not about 8."""


@dataclass(frozen=True)
class Timing:
    """One step: what computes it, for which node and module of the model, its result, seconds, when it began in the run,
    floating-point operations, bytes that it reads and writes, the number of its call (`cost.numbered`), and whether it only
    copies."""

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


@dataclass(frozen=True)
class Total:
    """Steps of one kind together."""

    name: str
    count: int
    seconds: float
    operations: int
    nbytes: int

    @property
    def gflops(self) -> float:
        """Billions of operations a second."""
        return self.operations / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gbytes(self) -> float:
        """Billions of bytes a second."""
        return self.nbytes / self.seconds / 1e9 if self.seconds else 0.0


def profile(model: Model, inputs: Mapping[str, np.ndarray], rounds: int = 1) -> list[Timing]:
    """The steps of a run, in order, each with the median of its times in so many runs, after a run that is not timed.

    Raises InputError for a device that is not the CPU.
    """
    executor = model.executor
    if len(executor.backends) > 1:
        raise InputError("a profile is of the CPU; other devices are not timed node by node")
    given = {name: np.asarray(array) for name, array in inputs.items()}
    binding = check_inputs(model.program, given)
    executor.run(given, binding)
    numbers = numbered(model.program)
    runs: list[list[Timing]] = []
    executor.observer = lambda graph: runs[-1].extend(timed(graph, numbers))
    try:
        for _ in range(rounds):
            runs.append([])
            executor.run(given, binding)
    finally:
        executor.observer = None
    seconds = [statistics.median(each.seconds for each in step) for step in zip(*runs, strict=True)]
    starts = accumulate(seconds, initial=0.0)
    return [
        replace(step, seconds=time, start=start) for step, time, start in zip(runs[0], seconds, starts, strict=False)
    ]


def timed(graph: BuiltGraph, numbers: Mapping[Call, int]) -> Iterable[Timing]:
    """Compute the nodes of a graph one after the other. What ggml makes of a call before its result counts as the call's."""
    made = {address(tensor): index for index, tensor in graph.results.items()}
    context = new_context(0, graph_size=8)
    passed = 0.0
    try:
        for place in range(ggml.ggml_graph_n_nodes(graph.graph)):
            node = ggml.ggml_graph_node(graph.graph, place)
            began = perf_counter()
            compute(context, node, graph.executor.backends[0])
            passed += perf_counter() - began
            index = made.get(address(node))
            if index is None or index in graph.section.reads:
                continue
            call = graph.program.calls[index]
            if call.function not in VIEWS:
                yield described(graph, call, numbers[call], node, passed)
            passed = 0.0
    finally:
        ggml.ggml_free(context)


def compute(context: Any, node: Any, backend: Any) -> None:
    """One node. Raises GraphcError if ggml cannot."""
    ggml.ggml_reset(context)
    alone = ggml.ggml_new_graph_custom(context, 8, False)
    ggml.ggml_graph_add_node(alone, node)
    if ggml.ggml_backend_graph_compute(backend, alone) != ggml.GGML_STATUS_SUCCESS:
        raise GraphcError("ggml could not compute a node")


def described(graph: BuiltGraph, call: Call, number: int, node: Any, seconds: float) -> Timing:
    """What is known of a call."""
    own = graph.own.get(call.result.call)
    name, operations = count_of(graph.program, call)
    tensor = node.contents
    read = [tensor.src[i] for i in range(ggml.GGML_MAX_SRC) if tensor.src[i]]
    copies = (own is None or own.name in COPIES) and is_copy(graph.program, call)
    return Timing(
        step=name if own is None else own_name(own),
        source=call.source,
        module=".".join(call.scope),
        result=f"{list(tensor.ne)[: max(call.result.rank, 1)][::-1]}",
        seconds=seconds,
        start=0.0,
        operations=integer(operations, graph.binding) if own is None else own_operations(own, node),
        nbytes=ggml.ggml_nbytes(node) + sum(bytes_read(source, node, copies) for source in read),
        number=number,
        copies=copies,
    )


def bytes_read(source: Any, node: Any, copies: bool) -> int:
    """Of a source of a node: all, but a copy reads no more elements than it writes."""
    most = ggml.ggml_nelements(node) * ggml.ggml_type_size(source.contents.type)
    return int(min(ggml.ggml_nbytes(source), most) if copies else ggml.ggml_nbytes(source))


def own_name(own: Own) -> str:
    """What a function of ours computes."""
    extra = " + sums" if own.name in SUMS and len(own.args) > 2 else ""
    active = " + silu" if own.name == "group_norm" and own.told.silu else ""
    return f"own {own.name}{extra}{active}"


def own_operations(own: Own, node: Any) -> int:
    """Floating-point operations of a function of ours; a multiplication and an addition are two."""
    size = int(ggml.ggml_nelements(node))
    first = own.args[0].contents
    if own.name == "mul_mat":
        return 2 * int(first.ne[0]) * size
    if own.name in ("conv_2d", "winograd"):  # as many as a sum of products has; Winograd's way needs fewer
        return 2 * int(first.ne[0] * first.ne[1] * first.ne[2]) * size
    if own.name == "attention":
        q = own.args[1].contents
        scores = int(first.ne[1] * q.ne[1] * q.ne[2] * q.ne[3])
        return scores * (2 * int(q.ne[0]) + 2 * int(own.args[2].contents.ne[1]) + 6)
    return EACH.get(own.name, 8) * size


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
    )


def is_product(step: str) -> bool:
    """Whether a step of this name is a product, a convolution or attention."""
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
