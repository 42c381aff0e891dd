"""What of a program the CPU computes when it runs on another device, and what that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from graphc.backends.rpc import Servers
from graphc.runtime.arena import graphs, known_sections, made, stand_ins
from graphc.targets.ggml.adapt import Adapter
from graphc.targets.ggml.assign import assign
from graphc.targets.ggml.devices import open_backends
from graphc.targets.ggml.executor import Executor
from graphc.targets.ggml.place import split_devices
from graphc.targets.ggml.program import Program
from graphc.targets.ggml.tensors import address


@dataclass(frozen=True)
class Assigned:
    """How many of a program's steps the device computes, and those that the CPU does: how often each, by what it is.

    `refused` are those that the device cannot compute, `kept` those between them that stay with them. `moved_bytes` go from one
    to the other in a run. `unknown` sections of the program have sizes that are not known.
    """

    device: int
    refused: Counter[str]
    kept: Counter[str]
    moved_bytes: int
    unknown: int


def assigned(program: Program, device: str, sizes: Mapping[str, int]) -> Assigned:
    """Who computes what on a device; neither weights nor memory are given to it. Raises GraphcError for an unknown device."""
    backends = Servers(split_devices(device)).call(lambda: open_backends(device, 1))
    executor = Executor(program, stand_ins(program), "cpu", 1)
    executor.products = None
    executor.adapter = Adapter(backends)
    known, unknown = known_sections(program, sizes)
    total, moved, refused, kept = 0, 0, Counter[str](), Counter[str]()
    try:
        for graph in graphs(executor, known, sizes):
            names = {key: name for key, (name, _, _) in made(graph)}
            found = assign(backends[0], graph.graph) if len(backends) > 1 else None
            if found is None:
                continue
            total += len(found.device)
            moved += found.moved_bytes
            for steps, counter in (((*found.refused, *found.broken), refused), (found.kept, kept)):
                counter.update(names.get(address(each), "a copy") for each in steps)
    finally:
        executor.close()
    return Assigned(total, refused, kept, moved, unknown)
