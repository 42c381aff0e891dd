"""Recipes: how each stored weight of a program is made from the model's parameters, as a document in the engine.

A recipe is a graph of core operators over named parameters. Constants that are no parameters are in the document; what is made
of them alone is stored as it is and has no recipe. A pinned parameter is one whose numbers decided something about the program:
the document has the numbers, and another checkpoint must have the same.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphc.errors import EngineError, GraphcError
from graphc.ir.graph import Graph, Node, Origin, Value
from graphc.ir.interp import evaluate
from graphc.ir.numbers import is_pinned, made_by, pin, sources
from graphc.ir.types import TensorType
from graphc.ops.movement import Reshape, Transpose
from graphc.shapes import integer, is_static
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.program.tensor import ProgramError
from graphc.targets.ggml.program.text import DTYPES, READ_ERRORS, read_operator, write_operator
from graphc.versions import check_format

VERSION = 1

ROOM = 1 << 20
"""Bytes that a result within a recipe may have, whatever the sizes of parameters and weights are."""


@dataclass(frozen=True)
class Recipes:
    """The values of `weights` are computed from `parameters`; one without a recipe is None. `pinned` have their numbers."""

    parameters: list[Value]
    pinned: list[Value]
    weights: list[Value | None]

    @cached_property
    def reads(self) -> list[list[Value]]:
        """The parameters that each weight is made from."""
        return [list(parameters_of(value)) if value is not None else [] for value in self.weights]

    def compute(self, index: int, arrays: Mapping[Value, np.ndarray]) -> np.ndarray:
        """The elements of a weight that has a recipe, for those of its parameters. Raises EngineError."""
        value = self.weights[index]
        assert value is not None
        try:
            return np.asarray(evaluate(value, {each: arrays[each] for each in self.reads[index]}), order="C")
        except (*READ_ERRORS, GraphcError) as error:
            raise EngineError(f"the recipe of weight {index} cannot be computed: {error}") from error


def counts(type: TensorType) -> bool:
    """True if elements may be row numbers, which are checked when an engine is read."""
    return type.dtype.kind in "iu" and type.dtype.itemsize >= 4


def parameters_of(value: Value) -> Iterator[Value]:
    """The parameters, without the pinned ones, that a value is computed from."""
    return (each for each in sources(value) if each.parameter and not is_pinned(each))


def write_recipes(program: Program, parameters: Sequence[Value]) -> str:
    """The document of a program that was just compiled, from a model that has these parameters."""
    values = [weight.value for weight in program.weights if weight.value is not None]
    assert len(values) == len(program.weights), "an engine's recipes are in the engine"
    writer = _Writer()
    for value in values:
        writer.pin_unwritable(value)
    weights = [writer.reference(value) if writer.refits(value) else None for value in values]
    document = {
        "version": VERSION,
        "parameters": [_typed(each.parameter, each) for each in writer.parameters],
        "pinned": [{**_typed(each.parameter, each), "data": _data(each)} for each in parameters if is_pinned(each)],
        "constants": writer.constants,
        "nodes": writer.nodes,
        "weights": weights,
    }
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


class _Writer:
    """Numbers what recipes share: parameters, constants, nodes."""

    def __init__(self) -> None:
        self.parameters: list[Value] = []
        self.constants: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []
        self.places: dict[Value, dict[str, int]] = {}
        self.operators: dict[Node, dict[str, Any]] = {}

    def pin_unwritable(self, value: Value) -> None:
        """Pin what whole numbers are made of, which may number rows, and what an operator reads that a document cannot hold:
        one with graphs of its own."""
        if counts(value.type):
            pin(value)
        for node in _nodes(value):
            try:
                self.operators[node] = write_operator(node.op)
            except ProgramError:
                pin(node.outputs[0])

    def refits(self, value: Value) -> bool:
        """True if other parameters give a value other numbers."""
        return any(True for _ in parameters_of(value))

    def reference(self, value: Value) -> dict[str, int]:
        """What stands for a value; whatever it is computed from is written before it."""
        stack = [value]
        while value not in self.places:
            top = stack[-1]
            made = made_by(top)
            if not self.refits(top):
                self.places[top] = {"constant": len(self.constants)}
                self.constants.append({**_typed("", top), "data": _data(top)})
            elif made.producer is None:
                if made not in self.places:
                    self.places[made] = {"parameter": len(self.parameters)}
                    self.parameters.append(made)
                self.places[top] = self.places[made]
            elif (below := unmoved(made)) is not made:
                if below not in self.places:
                    stack.append(below)
                    continue
                self.places[top] = self.places[below]
            elif missing := [each for each in made.producer.inputs if each not in self.places]:
                stack += missing
                continue
            else:
                self.node(made.producer)
                self.places[top] = self.places[made]
            stack = [each for each in stack if each not in self.places]
        return self.places[value]

    def node(self, node: Node) -> None:
        if node.outputs[0] in self.places:
            return
        for result, value in enumerate(node.outputs):
            self.places[value] = {"node": len(self.nodes), **({"result": result} if result else {})}
        self.nodes.append({**self.operators[node], "inputs": [self.places[each] for each in node.inputs]})


def unmoved(value: Value) -> Value:
    """What two movements that undo each other were applied to; the value itself where it is not made so."""
    node = value.producer
    inner = made_by(node.inputs[0]).producer if node is not None and node.inputs else None
    if node is None or inner is None:
        return value
    first = inner.inputs[0] if inner.inputs else value
    if isinstance(node.op, Transpose) and isinstance(inner.op, Transpose):
        back = tuple(inner.op.perm[axis] for axis in node.op.perm)
        return first if back == tuple(range(len(back))) else value
    reshaped = isinstance(node.op, Reshape) and isinstance(inner.op, Reshape)
    return first if reshaped and first.shape == value.shape else value


def _nodes(value: Value) -> Iterator[Node]:
    """The nodes that a value is made by, each once, through what was folded."""
    seen: set[Node] = set()
    stack = [value]
    while stack:
        node = made_by(stack.pop()).producer
        if node is not None and node not in seen:
            seen.add(node)
            stack += node.inputs
            yield node


def _typed(name: str, value: Value) -> dict[str, Any]:
    named = {"name": name} if name else {}
    return {**named, "dtype": value.dtype.name, "shape": list(value.shape)}


def _data(value: Value) -> str:
    """The elements in base64, little-endian; one element where all have the same bits."""
    raw = np.ascontiguousarray(evaluate(value)).reshape(-1).view(np.uint8).reshape(-1, value.dtype.itemsize)
    same = len(raw) > 0 and bool(np.all(raw == raw[0]))
    return base64.b64encode((raw[:1] if same else raw).tobytes()).decode()


def recipes_of(program: Program) -> Recipes:
    """The recipes of a program. Raises EngineError where there are none, or the document is not valid."""
    if not program.recipes:
        raise EngineError("it does not say how its weights are made; compile it again")
    try:
        return _Reader(json.loads(program.recipes), program).recipes()
    except EngineError:
        raise
    except (*READ_ERRORS, GraphcError) as error:
        raise EngineError(f"its recipes are damaged ({type(error).__name__}: {error})") from error


class _Reader:
    """Makes the graph again, from a document whose every part may be wrong."""

    def __init__(self, document: Any, program: Program) -> None:
        check_format("its recipes are", document["version"], VERSION)
        self.document, self.program = document, program
        self.graph = Graph("recipes")
        self.largest = 0
        self.known: dict[str, list[tuple[Value, ...]]] = {"parameter": [], "constant": [], "node": []}

    def recipes(self) -> Recipes:
        document = self.document
        parameters = [self.parameter(each) for each in document["parameters"]]
        self.largest = ROOM + 4 * sum(_bytes(each.type) for each in parameters)
        self.largest += 4 * sum(_bytes(TensorType(each.dtype, each.shape)) for each in self.program.weights)
        pinned = [self.constant(each, str(each["name"])) for each in document["pinned"]]
        names = [each.parameter for each in (*parameters, *pinned)]
        if len(set(names)) != len(names):
            raise ValueError("a parameter is there twice")
        self.known["parameter"] = [(each,) for each in parameters]
        self.known["constant"] = [(self.constant(each),) for each in document["constants"]]
        for each in document["nodes"]:
            self.node(each)
        weights = [None if each is None else self.value(each) for each in document["weights"]]
        for value, weight in zip(weights, self.program.weights, strict=True):
            if value is not None and (value.type != TensorType(weight.dtype, weight.shape) or counts(value.type)):
                raise ValueError(f"the recipe of {weight.name} gives {value.type}")
        return Recipes(parameters, pinned, weights)

    def parameter(self, declared: Any) -> Value:
        name = declared["name"]
        if not isinstance(name, str) or not name:
            raise ValueError("a parameter without a name")
        return Value(name, _type(declared), origin=Origin(name))

    def constant(self, declared: Any, parameter: str = "") -> Value:
        type = _type(declared)
        if _bytes(type) > self.largest:
            raise ValueError("a constant is too large")
        raw = np.frombuffer(base64.b64decode(declared["data"], validate=True), type.dtype)
        shape = [integer(size, {}) for size in type.shape]
        data = raw.reshape(shape) if raw.size != 1 else np.broadcast_to(raw.reshape(()), shape)
        return Value(parameter, type, data=data, origin=Origin(parameter, pinned=bool(parameter)))

    def node(self, declared: Any) -> None:
        node = self.graph.make(read_operator(declared), [self.value(each) for each in declared["inputs"]])
        if not all(_bytes(value.type) <= self.largest and value.static for value in node.outputs):
            raise ValueError(f"a result of {node.op} is too large")
        self.known["node"].append(tuple(node.outputs))

    def value(self, reference: Any) -> Value:
        """What a reference of one key, and the number of a result, stands for."""
        found = {key: place for key, place in reference.items() if key != "result"}
        ((kind, place),) = found.items()
        result = reference.get("result", 0)
        if not isinstance(place, int) or not isinstance(result, int) or place < 0 or result < 0:
            raise ValueError("a reference to nothing")
        return self.known[kind][place][result]


def _type(declared: Any) -> TensorType:
    shape = tuple(declared["shape"])
    if not all(isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 1 << 48 for size in shape):
        raise ValueError("a size that no array has")
    return TensorType(DTYPES[declared["dtype"]], shape)


def _bytes(type: TensorType) -> int:
    size = type.nbytes
    if not isinstance(size, int) or not is_static(*type.shape) or not 0 <= size < 1 << 62:
        raise ValueError(f"{type} is not a type of a stored array")
    return size


def described(value: Value, depth: int = 8) -> str:
    """A recipe in one line, as it would be written: Transpose[perm=(1, 0)](fc.weight). What is deeper is left out."""
    if value.parameter:
        return value.parameter
    if value.producer is None:
        assert value.data is not None
        uniform = value.data.size > 0 and bool(np.all(value.data == value.data.reshape(-1)[0]))
        return f"{value.data.reshape(-1)[0]:g}" if uniform else str(value.type)
    inputs = ", ".join(described(each, depth - 1) for each in value.producer.inputs) if depth else "…"
    number = value.producer.outputs.index(value)
    return f"{value.producer.op}({inputs})" + (f"[{number}]" if len(value.producer.outputs) > 1 else "")
