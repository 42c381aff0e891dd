"""From a legal graph to a program of ggml calls.

Each node is computed in the first of these ways that works: the ggml calls that its operator knows, its definition in
smaller operators, a kernel that calls its routine, or one generated from its element function. What depends on constants
alone makes no calls: such a value becomes a stored weight, evaluated when the engine is written.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from graphc.errors import GraphcError, Problem, UnsupportedError
from graphc.ggml_types import HALVES, fits
from graphc.ir.graph import Graph, Node, Value
from graphc.ir.numbers import identity, read_numbers
from graphc.ir.types import F32, I8, I32, I64
from graphc.kernels.c.routine import has_kernel, routine_of
from graphc.kernels.scalar import trace
from graphc.kernels.use import KernelUse
from graphc.ops.base import Emit, Op
from graphc.ops.control import Control
from graphc.ops.indexing import RowNumbers
from graphc.ops.movement import Concat, Reshape
from graphc.ops.pointwise import Cast
from graphc.passes.fold import FOLD_BYTES
from graphc.shapes import Dim, Expr, Undecidable, bind, integer, lower_bound, product, static_shape, symbol, symbols
from graphc.targets.ggml.lowering.builder import Builder
from graphc.targets.ggml.lowering.dtypes import SMALL
from graphc.targets.ggml.lowering.methods import Methods
from graphc.targets.ggml.program.program import Host, Program
from graphc.targets.ggml.program.prune import pruned
from graphc.targets.ggml.program.tensor import STORAGE, Tensor

KNOWN_LIMIT = 4096
"""Elements of a computed constant that an operator may look at while it is lowered."""

WORTH_SHARING = 4096
"""Bytes from which on equal constants are one weight: smaller ones take no room, and keep the places where they are read."""


def lower(graph: Graph, methods: Methods | None = None) -> Program:
    """The program that computes the graph; `methods` is told how. Raises UnsupportedError with every node that ggml and kernels
    cannot do."""
    lowering = Lowering(graph, Program(graph.name, example=graph.example, about=graph.about), {}, methods)
    lowering.run()
    if lowering.problems:
        raise UnsupportedError(lowering.problems)
    return pruned(lowering.program)


class Lowering:
    """The state of one lowering: which tensor holds each value. `weights` and `methods` are those of all graphs of the model."""

    def __init__(
        self, graph: Graph, program: Program, weights: dict[Hashable, Tensor], methods: Methods | None = None
    ) -> None:
        self.graph = graph
        self.methods = Methods() if methods is None else methods
        self.program = program
        self.builder = NodeBuilder(self)
        self.tensors: dict[Value, Tensor] = {}
        self.weights = weights
        self.placed: dict[Value, Tensor] = {}
        self.problems: list[Problem] = []
        self.broken: set[Value] = set()
        self.tables = row_number_inputs(graph)
        self.wide: dict[Value, Tensor] = {}
        for value in graph.inputs:
            self.input(value)

    def run(self) -> None:
        """Lower every node, and declare the outputs if nothing is unsupported."""
        for controlled, nodes in groupby(self.graph.nodes, lambda node: isinstance(node.op, Control)):
            run = list(nodes)
            if controlled:  # first whatever they read, so that nothing is left to compute between them
                for value in (value for node in run for value in node.inputs if value in self.tensors or value.static):
                    self.place(value)
            for node in run:
                if not node.outputs[0].static:
                    self.node(node)
        if not self.problems:
            self.outputs()

    def place(self, value: Value) -> Tensor:
        """The tensor of a value where the host can read it."""
        if value not in self.placed:
            self.placed[value] = self.builder.placed(self.tensor(value))
        return self.placed[value]

    def input(self, value: Value) -> None:
        """Declare a model input; int64 row numbers of a constant table are held as I32 and checked by the runtime."""
        limit = self.tables.get(value)
        type = STORAGE[value.dtype] if limit is None else "I32"
        bounds = {} if limit is None else {"low": 0, "high": limit}
        self.tensors[value] = self.program.add_input(value.name, value.dtype, value.shape, type, **bounds)

    def tensor(self, value: Value) -> Tensor:
        """The tensor that holds a value; a weight is declared when it is first asked for."""
        if value not in self.tensors:
            assert value.static, f"{value} is read before it is lowered"
            self.tensors[value] = self.weight(value)
        tensor = self.tensors[value]
        return tensor if tensor.type == STORAGE[value.dtype] else self.widened(value, tensor)

    def weight(self, value: Value, type: str = "") -> Tensor:
        """The tensor of a constant in a type, its own unless another is asked for. Equal constants are one, if large."""
        shape = static_shape(value.shape)
        if shape is None:
            raise GraphcError(f"the constant {value} has sizes that are only known when the model is run")
        large = product(shape) * value.dtype.itemsize >= WORTH_SHARING
        key = (identity(value, FOLD_BYTES) if large else value, type)
        if key not in self.weights:
            self.weights[key] = self.program.add_weight(value.name, value.dtype, shape, value, type)
        return self.weights[key]

    def widened(self, value: Value, narrow: Tensor) -> Tensor:
        """An int64 value as itself, where its input is held as I32."""
        if value not in self.wide:
            use = KernelUse(Cast(I64), ((I32, value.shape),), I64, value.shape)
            self.wide[value] = self.builder.kernel(use, narrow)
        return self.wide[value]

    def in_float32(self, value: Value) -> Tensor:
        """A constant's numbers as float32."""
        if value not in self.wide:
            self.wide[value] = self.weight(Emit(self.graph)(Cast(F32), value, name=value.name))
        return self.wide[value]

    def node(self, node: Node) -> None:
        """Lower one node, or record why it cannot be."""
        if any(value in self.broken for value in node.inputs):
            self.broken.update(node.outputs)
            return
        try:
            reason = self.attempt(node)
        except GraphcError as error:
            reason = str(error)
        except Undecidable as undecided:
            reason = f"{undecided} is not known before the model runs"
        if reason:
            source = node.source
            self.problems.append(Problem(source.name or str(node.outputs[0]), source.operator or node.op.name, reason))
            self.broken.update(node.outputs)

    def attempt(self, node: Node) -> str:
        """Lower one node; returns the reason if it cannot be."""
        self.builder.enter(node)
        start = len(self.program.calls)
        if isinstance(node.op, Control):
            self.by_host(node, node.op)
            self.methods.saw(node, self.program, start)
            return ""
        results = self.by_ggml(node) or self.by_definition(node) or self.by_kernel(node)
        if results is None:
            types = ", ".join(str(value.type) for value in node.inputs)
            return f"neither ggml nor a generated kernel computes it for {types}"
        self.tensors.update(zip(node.outputs, results, strict=True))
        self.methods.saw(node, self.program, start)
        return ""

    def by_ggml(self, node: Node) -> Sequence[Tensor] | None:
        """The operator's own ggml calls; none where a tensor has no elements, which ggml's functions do not expect. (Where
        the result may have none, depending on the sizes, no call is made for such sizes.)"""
        empty = any(value.type.size == 0 for value in (*node.inputs, *node.outputs))
        if empty or something_from_nothing(node) or type(node.op).to_ggml is Op.to_ggml:
            return None
        found = node.op.to_ggml(self.builder, *map(self.tensor, node.inputs))
        return (found,) if isinstance(found, Tensor) else found

    def by_definition(self, node: Node) -> Sequence[Tensor] | None:
        """The operator's definition, its nodes lowered in turn."""
        emit = Emit(self.graph, node.source)
        values = node.op.define(emit, *node.inputs)
        if values is None:
            return None
        outer, self.builder.within_definition = self.builder.within_definition, True
        for inner in emit.nodes:
            if not inner.outputs[0].static:
                reason = self.attempt(inner)
                if reason:
                    raise GraphcError(f"{inner.op.name}: {reason}")
        self.builder.within_definition = outer
        for value, original in zip(values, node.outputs, strict=True):
            assert value.type == original.type, f"{node.op} is defined as {value.type}, not {original.type}"
        return [self.tensor(value) for value in values]

    def by_kernel(self, node: Node) -> Sequence[Tensor] | None:
        """A kernel that calls the operator's routine, or is generated from its element function."""
        if not has_kernel(node.op) or len(node.outputs) != 1:
            return None
        types = tuple((value.dtype, value.shape) for value in node.inputs)
        use = KernelUse(node.op, types, node.output.dtype, node.output.shape)
        if routine_of(use) is None:
            trace(use)  # raises an error if there is no loop form for these types
        return (self.builder.kernel(use, *map(self.tensor, node.inputs)),)

    def by_host(self, node: Node, op: Control) -> None:
        """What the host does between two graphs of the backend, its bodies lowered in turn."""
        args = [self.place(value) for value in node.inputs]
        blocks = []
        for body in op.bodies:
            inner = Lowering(body.graph, self.program.block(body.graph.name), self.weights, self.methods)
            inner.run()
            self.problems += inner.problems
            blocks.append(inner.program)
        host = Host(op.name, tuple(value.type for value in node.inputs), blocks=tuple(blocks), **op.told)
        results = self.program.call_host(host, args, node.source.scope, node.source.name)
        self.tensors.update(zip(node.outputs, results or args, strict=True))

    def outputs(self) -> None:
        """Declare the outputs: contiguous, and never the memory of an input or a weight."""
        from graphc.targets.ggml.program.program import Output

        b = self.builder
        b.scope, b.source = (), ""
        for name, value in zip(self.graph.output_names, self.graph.outputs, strict=True):
            tensor = b.cont(self.tensor(value))
            if root(self.program, tensor).call < 0:
                tensor = b.copy(tensor)
            self.program.outputs.append(Output(name, value.dtype, value.shape, tensor))


class NodeBuilder(Builder):
    """A builder that knows the node whose calls it appends."""

    def __init__(self, lowering: Lowering) -> None:
        super().__init__(lowering.program)
        self.lowering = lowering
        self.inputs: list[Value] = []

    def enter(self, node: Node) -> None:
        """Begin a node."""
        self.inputs = node.inputs
        self.types = tuple(value.type for value in node.inputs)
        self.result = node.outputs[0].type
        self.scope, self.source = node.source.scope, node.source.name

    def placed(self, tensor: Tensor) -> Tensor:
        """The same elements where the host can read them: in an input, or in memory of their own."""
        tensor = self.cont(tensor)
        return self.copy(tensor) if tensor.weight >= 0 or self.program.is_view(tensor) else tensor

    def constant(self, index: int) -> np.ndarray | None:
        """The elements of input `index` if it is constant and small enough to look at; what looks decides by them."""
        value = self.inputs[index]
        size = value.type.size
        if value.is_constant or (value.static and isinstance(size, int) and size <= KNOWN_LIMIT):
            return read_numbers(value)
        return None

    def cast(self, x: Tensor, dtype: str) -> Tensor | None:
        """See `Builder.cast`. A constant of half precision is another one of float32."""
        value = self.program.weights[x.weight].value if x.weight >= 0 and x.type in HALVES and dtype == "F32" else None
        return super().cast(x, dtype) if value is None else replace(self.lowering.in_float32(value), rank=x.rank)

    def whole_in_blocks(self, index: int, type: str) -> Tensor | None:
        """See `Builder.whole_in_blocks`."""
        value = self.inputs[index]
        row = value.shape[-1] if value.shape else 0
        if not value.static or value.dtype != I8 or not isinstance(row, int) or not fits(type, row):
            return None
        return self.lowering.weight(value, type)

    def row_indices(self, index: int, limit: Dim) -> Tensor | None:
        """See `Builder.row_indices`."""
        value = self.inputs[index]
        known = self.constant(index)
        if known is not None:
            if not isinstance(limit, int) or known.size == 0 or known.min() < -limit or known.max() >= limit:
                return None
            rows = np.where(known < 0, known + limit, known).astype(np.int32)
            return self.lowering.tensor(self.lowering.graph.constant(rows, value.name))
        if not isinstance(limit, int):
            return None
        origin, table = through_reshapes(value), self.inputs[0]
        if self.lowering.tables.get(origin, limit + 1) <= limit:
            return self.reshape(self.lowering.tensors[origin], value.shape)
        if not table.static or product(static_shape(table.shape) or (0,)) < SMALL:
            return None
        use = KernelUse(RowNumbers(limit), ((value.dtype, value.shape),), I32, value.shape)
        return self.kernel(use, self.lowering.tensor(value))


def something_from_nothing(node: Node) -> bool:
    """True if an input may have no elements while a result has some: a sum of nothing. (Something beside it is joined to it by
    calls that look for each element whether it is there.)"""
    if isinstance(node.op, Concat):
        return False
    absent = {
        size for value in node.inputs for size in value.shape if isinstance(size, Expr) and lower_bound(size) == 0
    }
    return any(not any(_is_part(size, other) for size in value.shape) for other in absent for value in node.outputs)


TRIED = 256
"""Values of a symbol that are tried out, where a size may be 0."""


def _is_part(size: Dim, other: Dim) -> bool:
    """True if a size is 0 wherever the other is: it is that, or half of it, or one with a window around each."""
    found = symbols(size, other)
    if size == other or len(found) != 1:
        return size == other
    ((name, atom),) = found.items()
    small = range(-(-max(atom.low, 0) // atom.multiple) * atom.multiple, TRIED, atom.multiple)
    empty = [number for number in small if integer(other, {name: number}) == 0]
    later = lower_bound(bind(other, {name: symbol(name, TRIED, atom.high, atom.multiple)}))
    return all(integer(size, {name: number}) == 0 for number in empty) and later is not None and later > 0


def row_number_inputs(graph: Graph) -> dict[Value, int]:
    """The integer inputs that number the rows of constant tables, and the number of rows of the smallest."""
    from graphc.ops.indexing import Gather

    limits: dict[Value, int] = {}
    for node in graph.nodes:
        if not isinstance(node.op, Gather) or node.op.axis != 0:
            continue
        table, numbers = node.inputs
        origin = through_reshapes(numbers)
        rows = table.shape[0] if table.shape else 0
        if table.is_constant and origin in graph.inputs and origin.dtype in (I32, I64) and isinstance(rows, int):
            limits[origin] = min(rows, limits.get(origin, rows))
    return limits


def through_reshapes(value: Value) -> Value:
    """The value that this one is a reshape of."""
    while value.producer is not None and isinstance(value.producer.op, Reshape):
        value = value.producer.inputs[0]
    return value


def root(program: Program, tensor: Tensor) -> Tensor:
    """The tensor whose memory a chain of views reads."""
    from graphc.targets.ggml.program.calls import VIEWS

    while tensor.call >= 0 and program.calls[tensor.call].function in VIEWS:
        tensor = program.calls[tensor.call].args[0]  # type: ignore[assignment]
    return tensor
