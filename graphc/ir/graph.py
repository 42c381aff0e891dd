"""The graph: values in single assignment, made by nodes that are kept in an order in which they can run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.about import About
from graphc.ir.types import TensorType
from graphc.records import dataclass
from graphc.shapes import Dim, Expr, is_static, symbols

if TYPE_CHECKING:
    from graphc.ops.base import Op


@dataclass(eq=False, slots=True)
class Origin:
    """Where the numbers of a static value come from, and what is asked of them: by this, weights are stored and made anew.

    `parameter` is the name that a constant has in checkpoints, if it has one. `unfolded` is what a computed constant was
    before it was computed: its producer and what that reads say how it was made. `pinned` is true for a parameter whose
    numbers the program relies on (see `ir/numbers.py`). `narrow` is true for a constant that is to be stored in a narrower
    type, which targets take only as the weight of a product.
    """

    parameter: str = ""
    unfolded: Value | None = None
    pinned: bool = False
    narrow: bool = False


@dataclass(eq=False, slots=True)
class Value:
    """One tensor: an input (no producer, no data), a constant (data), or a node's result.

    `data` of a large constant is memory-mapped from the model's file; it is never changed in place.
    `name` is the model's own name where it has one: the parameter's name for weights.
    `origin` is there for a constant, and for what is computed from constants alone (not from symbolic sizes).
    """

    name: str
    type: TensorType
    producer: Node | None = None
    data: np.ndarray | None = None
    origin: Origin | None = None

    @property
    def static(self) -> bool:
        """True for a constant, and for what is computed from constants alone."""
        return self.origin is not None

    @property
    def parameter(self) -> str:
        """The name that a constant has in checkpoints; "" for all else."""
        return "" if self.origin is None else self.origin.parameter

    @property
    def is_constant(self) -> bool:
        """True for a value with data; what is computed from constants alone is not one until it is folded."""
        return self.data is not None

    @property
    def dtype(self) -> np.dtype:
        """Element type."""
        return self.type.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Sizes, in the model's order of axes."""
        return self.type.shape

    def __str__(self) -> str:
        return f"%{self.name}"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a node comes from: its name in the model, and the path of PyTorch modules that called it."""

    name: str = ""
    operator: str = ""
    scope: tuple[str, ...] = ()


WRAPPED = re.compile(r"__dict__\[(['\"])_modules\1\]\[(['\"])([^'\"\[\]]+)\2\]")
"""How PyTorch's exporter spells a child of a module whose `forward` was exchanged."""


def module_path(text: str) -> str:
    """The path of a module by the names that parents have for their children: `down_blocks.0`."""
    return WRAPPED.sub(r"\3", text)


@dataclass(eq=False, slots=True)
class Node:
    """An operator applied to values."""

    op: Op
    inputs: list[Value]
    outputs: list[Value]
    source: Source = field(default_factory=Source)

    @property
    def output(self) -> Value:
        """The result, of a node that has one."""
        (value,) = self.outputs
        return value

    def sizes(self) -> set[str]:
        """The names of the size symbols in its settings, in its types, and in the graphs that it may run."""
        return names_in((tuple(self.op.settings), *(value.type for value in (*self.inputs, *self.outputs))))

    def __str__(self) -> str:
        results = ", ".join(f"{value}: {value.type}" for value in self.outputs)
        return f"{results} = {self.op}({', '.join(map(str, self.inputs))})"


class Graph:
    """Inputs, nodes in running order, outputs, and the model's parameters. Output names may differ from the values' own.

    `example` has values of size symbols with which the model was exported, where that is known, and `about` what the model's
    file says of itself.
    """

    def __init__(self, name: str = "model") -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.output_names: list[str] = []
        self.nodes: list[Node] = []
        self.parameters: list[Value] = []
        self.example: dict[str, int] = {}
        self.about = About()
        self._names: dict[str, int] = {}

    def fresh(self, name: str) -> str:
        """A name for a value that no other value of the graph has."""
        name = name or "value"
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return self.fresh(f"{name}_{count}") if count else name

    def input(self, name: str, type: TensorType) -> Value:
        """Add an input. Raises ShapeError."""
        type.check_size()
        value = Value(self.fresh(name), type)
        self.inputs.append(value)
        return value

    def constant(self, data: np.ndarray, name: str = "constant") -> Value:
        """A constant; it belongs to the graph once a node reads it."""
        return Value(self.fresh(name), TensorType(data.dtype, tuple(map(int, data.shape))), data=data, origin=Origin())

    def declare_parameter(self, value: Value, name: str) -> None:
        """Say that checkpoints have a constant under this name. It stays in `parameters` when no node reads it any more."""
        assert value.origin is not None, f"{value} is not a constant"
        value.origin.parameter = name
        self.parameters.append(value)

    def make(self, op: Op, inputs: Sequence[Value], source: Source | None = None, names: Sequence[str] = ()) -> Node:
        """A node with inferred result types that is not in `nodes` yet. Raises ShapeError."""
        source = source or Source()
        types = op.infer(*(value.type for value in inputs))
        node = Node(op, list(inputs), [], source)
        static = all(value.static for value in inputs) and is_static(
            *op.settings, *(n for type in types for n in type.shape)
        )
        for index, type in enumerate(types):
            type.check_size()
            name = names[index] if index < len(names) else source.name or type_name(op)
            node.outputs.append(Value(self.fresh(name), type, node, origin=Origin() if static else None))
        return node

    def add(self, op: Op, inputs: Sequence[Value], source: Source | None = None, names: Sequence[str] = ()) -> Node:
        """A node at the end of `nodes`."""
        node = self.make(op, inputs, source, names)
        self.nodes.append(node)
        return node

    def output(self, value: Value, name: str = "") -> None:
        """Add an output."""
        self.outputs.append(value)
        self.output_names.append(name or value.name)

    def uses(self) -> dict[Value, list[Node]]:
        """The nodes that read each value, in running order; graph outputs are not counted."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in node.inputs:
                found.setdefault(value, []).append(node)
        return found

    def constants(self) -> Iterator[Value]:
        """Every constant that a node or an output reads, each once, in order of first use."""
        seen: set[Value] = set()
        for value in self.reads():
            if value.is_constant and value not in seen:
                seen.add(value)
                yield value

    def reads(self) -> Iterator[Value]:
        """Every value read, node by node, then the outputs."""
        for node in self.nodes:
            yield from node.inputs
        yield from self.outputs

    def replace(self, replacement: Callable[[Value], Value]) -> None:
        """Rewire every read of a value through `replacement`."""
        for node in self.nodes:
            node.inputs = [replacement(value) for value in node.inputs]
        self.outputs = [replacement(value) for value in self.outputs]

    def given_sizes(self) -> set[str]:
        """The names of the size symbols that inputs have. What a run tells of one of these is an assertion."""
        return names_in(tuple(value.type for value in self.inputs))

    def prune(self) -> None:
        """Drop the nodes whose results nothing reads and whose sizes nothing mentions, but for assertions."""
        live, given = set(self.outputs), self.given_sizes()
        sizes = any(node.op.binds for node in self.nodes)
        mentioned = names_in(tuple(value.type for value in self.outputs)) if sizes else set[str]()
        kept: list[Node] = []
        for node in reversed(self.nodes):
            used = any(value in live for value in node.outputs) or not mentioned.isdisjoint(node.op.binds)
            if used or node.op.asserts or not given.isdisjoint(node.op.binds):
                live.update(node.inputs)
                kept.append(node)
                if sizes:
                    mentioned |= node.sizes()
        self.nodes = kept[::-1]

    def __str__(self) -> str:
        lines = [f"graph {self.name}({', '.join(f'{v}: {v.type}' for v in self.inputs)})"]
        lines += [f"  {value}: {value.type} = constant" for value in self.constants()]
        lines += [f"  {node}" for node in self.nodes]
        results = (f"{name}={value}" for name, value in zip(self.output_names, self.outputs, strict=True))
        return "\n".join([*lines, f"  return {', '.join(results)}"])


def measured_first(nodes: Sequence[Node], given: Set[str] = frozenset()) -> list[Node]:
    """The nodes in an order in which each comes after those that it reads and those that bind its sizes, but for those that are
    given: theirs, as far as it can be. A size that is known to be twice another may be had by nodes that are made before the
    other is measured.

    Raises ShapeError for a size that depends on what has it.
    """
    binding = {name: node for node in reversed(nodes) for name in node.op.binds if name not in given}
    made = {value: node for node in nodes for value in node.outputs} if binding else {}
    order: list[Node] = []
    placed: dict[Node, bool] = {}
    waiting = [(node, False) for node in reversed(nodes)] if binding else []
    while waiting:
        node, ready = waiting.pop()
        if ready:
            placed[node] = True
            order.append(node)
        elif node not in placed:
            placed[node] = False
            needed, sizes = [made[value] for value in node.inputs if value in made], node.sizes()
            needed += [each for name, each in binding.items() if each is not node and name in sizes]
            if any(placed.get(each) is False for each in needed):
                raise ShapeError(f"{node.op.name} has a size that is measured by what is computed of it")
            waiting.append((node, True))
            waiting.extend((each, False) for each in reversed(needed) if each not in placed)
    return order if binding else list(nodes)


def names_in(thing: object) -> set[str]:
    """The names of the size symbols in a setting, a type, or a graph."""
    return set(symbols(*sizes_in(thing)))


def sizes_in(thing: object) -> Iterator[Expr]:
    """The sizes in a setting, a type, or a graph that are no numbers."""
    match thing:
        case Expr():
            yield thing
        case tuple():
            for item in thing:
                yield from sizes_in(item)
        case TensorType():
            yield from sizes_in(thing.shape)
        case Graph():
            for node in thing.nodes:
                yield from sizes_in((tuple(node.op.settings), *(value.type for value in (*node.inputs, *node.outputs))))
        case _ if hasattr(thing, "graph"):
            yield from sizes_in(thing.graph)


def type_name(op: object) -> str:
    """The operator's name in lower case, to name a value by."""
    return getattr(op, "name", type(op).__name__).lower()


def ordered(nodes: Iterable[Node]) -> list[Node]:
    """The nodes in an order in which they can run. Raises ValueError if they depend on themselves."""
    pending = list(nodes)
    inside = set(map(id, pending))
    done: set[int] = set()
    result: list[Node] = []
    for root in pending:
        stack = [(root, iter(root.inputs))]
        path = {id(root)}
        while stack:
            node, inputs = stack[-1]
            if id(node) in done:
                stack.pop()
                path.discard(id(node))
                continue
            for value in inputs:
                producer = value.producer
                if producer is None or id(producer) not in inside or id(producer) in done:
                    continue
                if id(producer) in path:
                    raise ValueError(f"{producer.source.name or producer.op} depends on its own result")
                path.add(id(producer))
                stack.append((producer, iter(producer.inputs)))
                break
            else:
                done.add(id(node))
                result.append(node)
                stack.pop()
                path.discard(id(node))
    return result
