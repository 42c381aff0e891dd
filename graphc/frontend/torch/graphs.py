"""A graph of Dynamo, taken apart: what is computed, as a module that can be exported; its weights; and what stays PyTorch's.

Dynamo gives a graph its parameters and its free sizes as inputs. Here parameters become attributes again, and a size is read from
an input that has it. Outputs that are views of others, or no tensors, are made by PyTorch of what was computed, by operations
that copy nothing.
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from graphc.errors import GraphcError
from graphc.frontend.torch.fused import take_fused_apart

Rest: TypeAlias = Callable[[Sequence[Any], Sequence[torch.Tensor]], tuple[Any, ...]]
"""What makes outputs of inputs and of what was computed."""

IN_PLACE = (
    operator.setitem, operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod,
    operator.ipow, operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift, operator.imatmul,
)  # fmt: skip
"""What changes what it is given, and has no name that says so."""


ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv)
"""What may be done with a number that is free."""


class Left(GraphcError):
    """A graph is left to PyTorch, for a reason."""


@dataclass(frozen=True)
class Carrier:
    """An input that is a whole number. The module is given an array of so many rows without elements."""

    position: int

    def array(self, arguments: Sequence[Any]) -> np.ndarray:
        """The array. Raises Left for a number below 0."""
        count = int(arguments[self.position])
        if count < 0:
            raise Left(f"a whole number that it is given is {count}")
        return np.empty((count, 0), np.uint8)


@dataclass
class Given:
    """What an exported module takes: where each input is among those of the graph, an example of it, and its free axes with
    Dynamo's sizes."""

    positions: list[int | Carrier] = field(default_factory=list)
    examples: list[torch.Tensor] = field(default_factory=list)
    free: list[dict[int, torch.SymInt]] = field(default_factory=list)

    def add(self, position: int | Carrier, shape: Sequence[Any], dtype: torch.dtype) -> list[int]:
        """Take an input more; its free axes."""
        axes = {axis: size for axis, size in enumerate(shape) if isinstance(size, torch.SymInt) and _is_free(size)}
        self.positions.append(position)
        self.examples.append(torch.empty([_hint(size) for size in shape], dtype=dtype))
        self.free.append(axes)
        return list(axes)


@dataclass
class Parts:
    """What a graph consists of: a module that takes what is `given` and returns the tensors that are computed, of these `types`;
    the positions of its `weights` among the graph's inputs, by name; and what makes the graph's outputs, the `rest`, of the
    graph's inputs and what was computed. `names` are those by which the user knows the module's inputs.
    """

    module: fx.GraphModule
    given: Given
    weights: dict[str, int]
    rest: Rest
    types: list[torch.dtype]
    names: dict[str, str]


def take_apart(graph: fx.GraphModule, examples: Sequence[Any]) -> Parts:
    """What a graph of Dynamo consists of, for inputs such as `examples`. Raises Left."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    returned: tuple[Any, ...] = tuple(output.args[0])
    _check(inputs, returned, examples)
    bases = _bases(graph, inputs, returned)
    statics, settled = _names(inputs, examples, graph), _settled(graph)
    made = fx.Graph()
    copies: dict[fx.Node, Any] = dict(settled)
    taken = [node for node in inputs if node not in statics and not settled.keys() >= node.users.keys()]
    given = _take(made, inputs, taken, copies, statics)
    _copy(made, (node for node in graph.graph.nodes if node.op not in ("placeholder", "output")), copies)
    made.output(tuple(copies[base] for base in bases))
    take_fused_apart(made)
    held = [node.target for node in graph.graph.nodes if node.op in ("get_attr", "call_module")]
    weights = {name: inputs.index(node) for node, name in statics.items()}
    attributes = {name: _attribute(graph, name) for name in held}
    attributes |= {name: _detached(examples[position]) for name, position in weights.items()}
    return Parts(
        fx.GraphModule(attributes, made),
        given,
        weights,
        _rest(graph, inputs, returned, bases),
        [base.meta["example_value"].dtype for base in bases],
        {node.name: _said(node) for node in inputs},
    )


def _take(
    made: fx.Graph,
    inputs: Sequence[fx.Node],
    taken: Iterable[fx.Node],
    copies: dict[fx.Node, Any],
    statics: Mapping[fx.Node, str],
) -> Given:
    """Give a graph inputs for those that are `taken`, attributes for weights, and for whole numbers the sizes of its inputs."""
    given = Given()
    sizes: dict[str, tuple[fx.Node, int]] = {}
    numbers = {
        node: node.meta["example_value"] for node in inputs if isinstance(node.meta["example_value"], torch.SymInt)
    }
    for node in (each for each in taken if each not in numbers):
        value = node.meta["example_value"]
        copies[node] = made.placeholder(node.name)
        for axis in given.add(inputs.index(node), value.shape, value.dtype):
            sizes.setdefault(str(value.shape[axis]), (copies[node], axis))
    for node, number in numbers.items():
        if str(number) not in sizes:
            sizes[str(number)] = made.placeholder(node.name), 0
            given.add(Carrier(inputs.index(node)), (number, 0), torch.uint8)
    copies |= {node: made.get_attr(name) for node, name in statics.items()}
    copies |= {node: made.call_method("size", sizes[str(number)]) for node, number in numbers.items()}
    return given


def _check(inputs: Iterable[fx.Node], returned: Iterable[Any], examples: Iterable[Any]) -> None:
    """Raises Left for a graph that is not one of tensors on the CPU, or whose gradients are wanted."""
    if torch.is_autocast_enabled("cpu"):
        raise Left("autocast is on")
    for node, example in zip(inputs, examples, strict=True):
        value, name = node.meta["example_value"], _said(node)
        if isinstance(value, torch.SymInt):
            continue
        if type(value) is not FakeTensor or value.layout != torch.strided or value.is_quantized:
            raise Left(f"its input {name} is a {type(example).__name__}, and no dense tensor")
        if value.device.type != "cpu":
            raise Left(f"its input {name} lies on {value.device}")
        if value.dtype.is_complex:
            raise Left(f"its input {name} has complex numbers")
    for value in (_value(node) for node in returned):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            raise Left(
                "its gradients are wanted: torch.no_grad() or torch.inference_mode() around the call says that they are not"
            )
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise Left(f"an output lies on {value.device}")


def _said(node: fx.Node) -> str:
    """What an input is called, as the user knows it: `x`, or `layer.weight`."""
    found = re.findall(r"\['([^']+)'\]", _source(node))
    return ".".join(each for each in found if not each.startswith("_")) or node.name


def _source(node: fx.Node) -> str:
    """Where Dynamo has an input from."""
    return str(getattr(getattr(node, "_dynamo_source", None), "name", ""))


def _value(node: Any) -> Any:
    """What Dynamo knows of a node's result; of what is no node, itself."""
    return node.meta.get("example_value") if isinstance(node, fx.Node) else node


def _memory(value: Any) -> set[int]:
    """The memory in which the tensors of a result lie."""
    leaves = torch.utils._pytree.tree_leaves(value)
    return {each.untyped_storage()._cdata for each in leaves if isinstance(each, torch.Tensor)}


def _names(inputs: Iterable[fx.Node], examples: Iterable[Any], graph: fx.GraphModule) -> dict[fx.Node, str]:
    """The parameters and buffers, and what they are called in their module. One whose changes PyTorch does not count is an input
    as others."""
    found: dict[fx.Node, str] = {}
    used = {str(node.target).split(".")[0] for node in graph.graph.nodes if node.op in ("get_attr", "call_module")}
    for node, example in zip(inputs, examples, strict=True):
        kind = (node.meta.get("tensor_dict") or {}).get("_dynamo_static_input_type")
        if kind is None or example.is_inference():
            continue
        name = ".".join(re.findall(r"\._(?:modules|parameters|buffers)\['([^']+)'\]", _source(node)))
        first = name.split(".")[0]
        if (
            not name
            or first in used
            or hasattr(fx.GraphModule, first)
            or any(_collides(name, other) for other in found.values())
        ):
            name = node.name
        found[node] = name
    return found


def _collides(one: str, other: str) -> bool:
    """True if two names are the same, or one is that of a module of the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _detached(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, in a tensor or parameter of its own."""
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(tensor.detach(), requires_grad=False)
    return tensor.detach()


def _attribute(graph: fx.GraphModule, name: str) -> Any:
    found: Any = graph
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _hint(size: Any) -> int:
    """A size as it is in the example."""
    return size if isinstance(size, int) else int(size.node.hint)


def _is_free(size: torch.SymInt) -> bool:
    """True unless Dynamo has found that it is always the same."""
    return size.node.maybe_as_int() is None


def _settled(graph: fx.GraphModule) -> dict[fx.Node, float]:
    """Inputs that are no whole numbers, and which Dynamo leaves free though they are settings (an epsilon): those with which
    more is done than arithmetic. Dynamo then compiles anew for other numbers."""
    found = {}
    for node in graph.graph.nodes:
        value = _value(node)
        if node.target != "item" or not isinstance(value, torch.SymFloat) or not value.node.has_hint():
            continue
        if any(user.target not in ARITHMETIC for user in node.users):
            found[node] = float(value)  # Dynamo notes that it was looked at
    return found


def _copy(made: fx.Graph, nodes: Iterable[fx.Node], copies: dict[fx.Node, Any]) -> None:
    """Nodes with what they read, in another graph; what Dynamo knows of their results is of its sizes, and stays behind."""
    for node in (each for each in nodes if each not in copies):
        copy = copies[node] = made.node_copy(node, copies.__getitem__)
        for key in ("example_value", "grapharg"):
            copy.meta.pop(key, None)


def _bases(graph: fx.GraphModule, inputs: Iterable[fx.Node], returned: Iterable[Any]) -> list[fx.Node]:
    """The nodes that are computed for the outputs. Of outputs that share memory it is what they are views of. Raises Left."""
    others = _lent(graph, inputs)
    groups: dict[int, list[fx.Node]] = defaultdict(list)
    for node in returned:
        for place in _memory(_value(node)) - others if isinstance(node, fx.Node) else ():
            if node not in groups[place]:
                groups[place].append(node)
    return [nodes[0] if len(nodes) == 1 else _base(graph, place) for place, nodes in groups.items()]


def _lent(graph: fx.GraphModule, inputs: Iterable[fx.Node]) -> set[int]:
    """The memory of inputs and of what the graph holds."""
    held = [node for node in graph.graph.nodes if node.op == "get_attr"]
    return {place for node in (*inputs, *held) for place in _memory(_value(node))}


def _base(graph: fx.GraphModule, place: int) -> fx.Node:
    """The first node whose result lies there. Raises Left if views of it would not be those of an array in the usual order, or
    something is written in place."""
    node: fx.Node = next(node for node in graph.graph.nodes if place in _memory(_value(node)))
    value = _value(node)
    if not isinstance(value, torch.Tensor) or not value.is_contiguous() or any(map(_writes, graph.graph.nodes)):
        raise Left("outputs share memory with each other")
    return node


def _writes(node: fx.Node) -> bool:
    """True if an operation may change what it is given, by its name."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = node.op.startswith("call") and name.endswith("_") and not name.endswith("__")
    return in_place or node.target in IN_PLACE or "out" in node.kwargs or node.kwargs.get("inplace") is True


def _rest(graph: fx.GraphModule, inputs: Sequence[fx.Node], returned: Sequence[Any], bases: Sequence[fx.Node]) -> Rest:
    """What makes the outputs of the inputs and what was computed. Raises Left if PyTorch would have to compute for that."""
    places = {node: index for index, node in enumerate(bases)}
    views = [node for node in dict.fromkeys(returned) if isinstance(node, fx.Node) and node not in places]
    needed = set(views)
    order = [node for node in graph.graph.nodes if node.op not in ("placeholder", "output") and node not in places]
    for node in reversed(order):
        if node in needed:
            needed.update(node.all_input_nodes)
    steps = [node for node in order if node in needed]
    free = _lent(graph, inputs).union(*(_memory(_value(node)) for node in bases))
    for node in steps:
        if _memory(_value(node)) - free or _value(node) is None:
            raise Left("a number that it computes decides how Python goes on")
    made = fx.Graph()
    copies = {
        node: made.placeholder(f"{kind}_{node.name}") for kind, each in (("in", inputs), ("of", bases)) for node in each
    }
    _copy(made, steps, copies)
    made.output(tuple(copies[node] for node in views))
    viewed = fx.GraphModule(graph, made)
    numbers = {node: index for index, node in enumerate(views)}

    def rest(arguments: Sequence[Any], computed: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        seen = viewed(*arguments, *computed) if views else ()
        return tuple(
            each if not isinstance(each, fx.Node) else computed[places[each]] if each in places else seen[numbers[each]]
            for each in returned
        )

    return rest
