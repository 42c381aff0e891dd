"""Branches and bodies of loops as graphs of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.frame import Item
from graphc.ir import Graph, TensorType, Value
from graphc.ir.graph import names_in
from graphc.ops.control import FOREVER, Body, Loop
from graphc.ops.movement import Reshape
from graphc.shapes import Dim, dim_max

Bind: TypeAlias = "Callable[[SizeEmit, Sequence[Value], Callable[[Value], Value]], Sequence[Item]]"
"""What a body's own inputs stand for, made from the graph's, and from values outside through the function given."""


@dataclass(eq=False)
class ImportedBody:
    """A graph inside another. Its inputs are `given`, then what it reads from outside: `captured` are the values there.

    `results` are what the model's body gives; the graph's outputs are declared later.
    """

    graph: Graph
    emit: SizeEmit
    outer: SizeEmit
    given: list[Value]
    captured: list[Value]
    results: list[Item]

    @staticmethod
    def opened(outer: SizeEmit, names: Sequence[str], types: Sequence[TensorType]) -> ImportedBody:
        """An empty body with inputs of these names and types."""
        graph = Graph(outer.base)
        given = [graph.input(name, type) for name, type in zip(names, types, strict=True)]
        body = ImportedBody(graph, outer.inside(graph), outer, given, [], [])
        body.emit.rounds = lambda: [body.capture(number) for number in outer.rounds()]
        return body

    def capture(self, value: Value) -> Value:
        """A value of the graph around the body, inside it: an input, unless constants or sizes say what it is."""
        if value.static or self.outer.is_known(value):
            return value
        if value not in self.captured:
            self.captured.append(value)
            self.graph.input(value.name, value.type)
        return self.graph.inputs[len(self.given) + self.captured.index(value)]

    def declare(self, outputs: Sequence[Value]) -> None:
        """Make these the outputs of the graph."""
        for value in outputs:
            self.graph.output(self.emit.materialized(value))
        self.graph.nodes = self.emit.nodes

    def take_all(self, captured: Sequence[Value]) -> None:
        """Give the graph an input for every value that either branch captures, in one order."""
        own = dict(zip(self.captured, self.graph.inputs, strict=True))
        self.graph.inputs = []
        self.graph.inputs = [
            own[value] if value in own else self.graph.input(value.name, value.type) for value in captured
        ]

    @property
    def sizes(self) -> set[str]:
        """The symbols that only mean something inside the body."""
        return {name for node in self.graph.nodes for name in node.op.binds}


def finish_loop(
    emit: SizeEmit, body: ImportedBody, trips: Value, going: Value, state: Sequence[Value], changing: set[str]
) -> tuple[Value, ...]:
    """The loop of a body whose outputs are declared; `changing` are the symbols of carried sizes that steps change."""
    inner = body.sizes | changing
    total = _steps(emit, trips, going, body)
    results: list[TensorType] = []
    new: list[str] = []
    for index, value in enumerate(body.graph.outputs[1:]):
        sizes: list[Dim | None] = [*value.shape] if index < len(state) else [total, *value.shape]
        shape = [
            new_size(emit, f"{index}_{axis}", new) if size is None or not names_in(size).isdisjoint(inner) else size
            for axis, size in enumerate(sizes)
        ]
        results.append(TensorType(value.dtype, tuple(shape)))
    op = Loop(Body(body.graph), len(state), tuple(results), tuple(new))
    return emit.all(op, trips, going, *state, *body.captured)


def _steps(emit: SizeEmit, trips: Value, going: Value, body: ImportedBody) -> Dim | None:
    """How often a loop runs, if its trip count alone says so and is known."""
    known, (again, *_) = emit.known(trips), body.graph.outputs
    stays = again.data is not None and bool(again.data.item())
    passed_on = again is body.graph.inputs[1] and going.data is not None and bool(going.data.item())
    if known is None or not (stays or passed_on) or known.item() == FOREVER:
        return None
    return dim_max(known.item(), 0)


def new_size(emit: SizeEmit, label: str, new: list[str]) -> Dim:
    """A size that is known when the node has run; its symbol is added to `new`."""
    size = emit.dimensions.measured(f"{emit.base}_{label}", 0, None)
    if str(size) in names_in(size):
        new.append(str(size))
    return size


def scalar(emit: SizeEmit, value: Value) -> Value:
    """A tensor of one element without axes."""
    return value if not value.shape else emit(Reshape(()), value)
