"""The memory of a run as the executor lays it out: what lies where, from which step to which.

The graphs are built and given their places, as for a run; nothing is computed, and no weight is read. What the run is given and
gives is among it, which on the CPU alone lies in the caller's arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.ggml_library import ggml
from graphc.runtime.profile import step_name
from graphc.shapes import Dim, integer
from graphc.targets.ggml.program.program import Program, with_blocks
from graphc.targets.ggml.program.sections import Section, sections
from graphc.targets.ggml.run.context import Context
from graphc.targets.ggml.run.device.tensors import ALIGNMENT, address
from graphc.targets.ggml.run.executor import Executor
from graphc.targets.ggml.run.graph import BuiltGraph


@dataclass(frozen=True)
class Held:
    """A tensor in the arena: what makes it, where in the model, its shape, bytes and place, and the first and last step at
    which it is needed. What a run is given is needed from step 0."""

    step: str
    module: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int
    first: int
    last: int


@dataclass(frozen=True)
class Arena:
    """The memory of one graph: bytes that are reserved, the number of steps, and what is held."""

    program: str
    nbytes: int
    steps: int
    held: tuple[Held, ...]

    def live(self) -> list[int]:
        """Bytes that are needed at each step. A result in the place of what it is computed from counts once."""
        return [_covered(self.at(step)) for step in range(self.steps)]

    def at(self, step: int) -> list[Held]:
        """What is needed at a step, the largest first."""
        return sorted((each for each in self.held if each.first <= step <= each.last), key=lambda each: -each.nbytes)


def arenas(program: Program, sizes: Mapping[str, int], threads: int | None = None) -> tuple[list[Arena], int]:
    """An arena for each section of the program and its blocks whose sizes are known, and how many sections have others.

    All of them share one memory, as large as the largest needs.
    """
    executor = Executor(program, stand_ins(program), "cpu", threads)
    known, unknown = known_sections(executor.program, sizes)
    try:
        with executor.context() as context:
            return [_arena(graph) for graph in graphs(context, known, sizes)], unknown
    finally:
        executor.close()


def known_sections(program: Program, sizes: Mapping[str, int]) -> tuple[list[tuple[Program, Section]], int]:
    """The sections of the program and its blocks whose sizes are known, and how many have others."""
    parts = [
        (block, section)
        for block in with_blocks(program)
        for section in sections(block)
        if isinstance(section, Section)
    ]
    known = [(block, section) for block, section in parts if section.symbols <= sizes.keys()]
    return known, len(parts) - len(known)


def graphs(
    context: Context, parts: Iterable[tuple[Program, Section]], sizes: Mapping[str, int]
) -> Iterator[BuiltGraph]:
    """The graph of each of these sections; it is freed when the next is asked for."""
    for block, section in parts:
        graph = BuiltGraph(context, block, section, {name: sizes[name] for name in section.symbols})
        try:
            yield graph
        finally:
            graph.free()


def stand_ins(program: Program) -> list[np.ndarray]:
    """Arrays of the weights' types and sizes, all in the same place, which is neither read nor written."""
    sizes = [weight.nbytes for weight in program.weights]
    block = np.zeros(max(sizes, default=0) + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return [weight.array(block[start : start + size]) for weight, size in zip(program.weights, sizes, strict=True)]


def _arena(graph: BuiltGraph) -> Arena:
    graph.owner.compute.place(graph.placement)
    nodes = [ggml.ggml_graph_node(graph.graph, index) for index in range(ggml.ggml_graph_n_nodes(graph.graph))]
    held = tuple(_held(graph, nodes))
    return Arena(graph.program.name, max((each.offset + each.nbytes for each in held), default=0), len(nodes), held)


def _held(graph: BuiltGraph, nodes: list[Any]) -> Iterator[Held]:
    """The tensors that own memory of the arena, in the order of the steps."""
    weights = set(map(address, graph.executor.weights.tensors))
    known = dict(made(graph))
    owners = {address(tensor): tensor for tensor in graph.given}
    first, last = dict.fromkeys(owners, 0), dict.fromkeys(owners, 0)
    for step, node in enumerate(nodes):
        sources = (node.contents.src[index] for index in range(ggml.GGML_MAX_SRC))
        for tensor in filter(None, (node, *sources)):
            owner = tensor.contents.view_src or tensor
            owners.setdefault(address(owner), owner)
            first.setdefault(address(owner), step)
            last[address(owner)] = step
    for key, owner in owners.items():
        buffer = owner.contents.buffer
        if key in weights or not buffer or not ggml.ggml_nbytes(owner):
            continue
        if owner.contents.flags & ggml.GGML_TENSOR_FLAG_OUTPUT:
            last[key] = len(nodes) - 1
        name, module, shape = known.get(key) or _scratch(owner, known.get(address(nodes[last[key]])))
        offset = owner.contents.data - ggml.ggml_backend_buffer_get_base(buffer)
        yield Held(name, module, shape, int(ggml.ggml_nbytes(owner)), offset, first[key], last[key])


def _scratch(tensor: Any, reader: tuple[str, str, tuple[int, ...]] | None) -> tuple[str, str, tuple[int, ...]]:
    """What is said of a tensor that the program does not know: what it is for."""
    name, module, _ = reader or ("", "", ())
    return f"scratch for {name}", module, tuple(tensor.contents.ne)[::-1]


def made(graph: BuiltGraph) -> Iterator[tuple[int, tuple[str, str, tuple[int, ...]]]]:
    """What is known of the tensors: what makes each, the module, the shape in the model's terms."""
    for index, tensor in graph.inputs.items():
        declared = graph.program.inputs[index]
        yield address(tensor), (f"input {declared.name}", "", _sizes(declared.shape, graph))
    for index, tensor in graph.results.items():
        call = graph.program.calls[index]
        yield address(tensor), (step_name(graph, call), ".".join(call.scope), _sizes(call.result.shape, graph))


def _sizes(shape: Sequence[Dim], graph: BuiltGraph) -> tuple[int, ...]:
    return tuple(integer(size, graph.binding) for size in shape)


def _covered(held: Iterable[Held]) -> int:
    """Bytes of the arena that any of these lies in."""
    end = total = 0
    for each in sorted(held, key=lambda each: each.offset):
        stop = each.offset + each.nbytes
        total += max(0, stop - max(end, each.offset))
        end = max(end, stop)
    return total
