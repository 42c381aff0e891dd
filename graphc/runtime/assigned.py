"""Who computes what of a program, and what lies where, when it runs on devices; nothing is computed or loaded there.

ggml's scheduler is asked, as for a run, with weights that only look as if they lay where they would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphc.ggml_library import ggml
from graphc.runtime.arena import graphs, known_sections, made, stand_ins
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.run.choose.assign import BROKEN, KEPT, REFUSED, assign
from graphc.targets.ggml.run.device.devices import backend_name, device_name
from graphc.targets.ggml.run.device.options import Place, memory_limits
from graphc.targets.ggml.run.device.tensors import VIEW_OPS, address
from graphc.targets.ggml.run.executor import Executor
from graphc.targets.ggml.run.graph import BuiltGraph

CANNOT, BETWEEN, BESIDE = "the device cannot", "between two of those", "what it reads is there"
"""Why the CPU computes a step."""


@dataclass
class Assigned:
    """How many of a program's steps each device computes, and those that the CPU does: how often each, by the reason and by
    what it is. `moved_bytes` of computed tensors and weights go from one to another in a run. `memory` says what lies where.
    `unknown` sections of the program have sizes that are not known. What `servers` can compute is not known: they are taken to
    compute everything."""

    devices: Counter[str] = field(default_factory=Counter)
    cpu: dict[str, Counter[str]] = field(default_factory=dict)
    moved_bytes: int = 0
    memory: list[str] = field(default_factory=list)
    unknown: int = 0
    servers: list[str] = field(default_factory=list)


def assigned(program: Program, place: Place, sizes: Mapping[str, int]) -> Assigned:
    """Who computes what at a place; for the CPU alone there is nothing to say. Raises GraphcError for an unknown device, or one
    with too little memory."""
    memory = memory_limits(place.memory)
    if place.only_cpu and not memory:
        return Assigned()
    executor = Executor(program, stand_ins(program), place.device, place.threads, memory, place.folder, planning=True)
    try:
        return executor.servers.call(lambda: _assigned(executor, sizes))
    finally:
        executor.close()


def _assigned(executor: Executor, sizes: Mapping[str, int]) -> Assigned:
    devices = executor.backends[:-1]
    found = Assigned(Counter({device_name(each): 0 for each in devices}))
    found.servers = [device_name(each) for each in devices if backend_name(each) == "RPC"]
    known, found.unknown = known_sections(executor.program, sizes)
    with executor.context() as context:
        for graph in graphs(context, known, sizes):  # larger ones change where weights lie
            context.compute.plan(graph.placement)
            found.memory = executor.fitting.text(planned=True)
        for graph in graphs(context, known, sizes):
            _add(found, graph)
    return found


def _add(found: Assigned, graph: BuiltGraph) -> None:
    """Count the steps of a graph."""
    owner, names = graph.owner, {key: name for key, (name, _, _) in made(graph)}
    own = owner.executor.own
    assert own is not None
    reasons = _reasons([assign(own, each, graph.graph) for each in owner.backends[:-1]])
    owner.compute.plan(graph.placement)
    moved: dict[tuple[int, Any], int] = {}
    for node in graph.placement.nodes:
        if node.contents.op in VIEW_OPS:
            continue
        device = owner.compute.device_of(node)
        if device == owner.backends[-1]:
            counter = found.cpu.setdefault(reasons.get(address(node), BESIDE), Counter())
            counter[names.get(address(node), "a copy")] += 1
        else:
            found.devices[device_name(device)] += 1
        for source in filter(None, node.contents.src):
            root = source.contents.view_src or source
            if not root.contents.flags & ggml.GGML_TENSOR_FLAG_INPUT and owner.compute.device_of(root) != device:
                moved[address(source), device] = ggml.ggml_nbytes(source)
    found.moved_bytes += sum(moved.values())


def _reasons(choices: Sequence[Mapping[int, Sequence[Any]]]) -> dict[int, str]:
    """Why the CPU computes nodes, where it is not for what they read."""
    between = {address(node): BETWEEN for sides in choices for node in sides[KEPT]}
    return between | {address(node): CANNOT for sides in choices for node in (*sides[REFUSED], *sides[BROKEN])}
