"""`OnnxNode`: what an importer sees of a node, with attributes by type and inputs as values of our graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx_ir
from onnx_ir import AttributeType

from graphc.errors import ModelError
from graphc.frontend.onnx.frame import Growing, Item, Slices, ValueList
from graphc.frontend.onnx.tensors import Refused, TensorReader, Unknown, element_type
from graphc.ir import TensorType, Value
from graphc.shapes import Dim, Expr, is_static, product

if TYPE_CHECKING:
    from graphc.frontend.onnx.bodies import Bind, ImportedBody

Index: TypeAlias = int  # inside the class, `int` is a method
PIN = "give the dimension a size or a range (--dim NAME=SIZE or NAME=LOW..HIGH)"
"""What helps where a size may not be symbolic."""


MOST_MADE = 1 << 26
"""The elements of the largest table that is made of settings alone."""

MISSING: Any = object()
"""Marks an attribute without a default: a model that leaves it out is not valid."""


@dataclass(eq=False)
class OnnxNode:
    """A node of the model. `inputs` has None for an input that is left out; `opset` is the version of its domain; `wanted` says
    which outputs something reads; `run` imports a graph that is an attribute, in place, for inputs that it is given; `body`
    imports one as a graph of its own (see `Importer`); `model` is the graph of the whole model.

    The accessors raise ModelError when an attribute or input is missing or of a wrong kind.
    """

    operator: str
    opset: Index
    inputs: tuple[Item | None, ...]
    outputs: tuple[str, ...]
    wanted: tuple[bool, ...]
    attributes: dict[str, onnx_ir.Attr]
    tensors: TensorReader
    run: Callable[[onnx_ir.Graph, Sequence[Item]], tuple[Item, ...]]
    body: Callable[[onnx_ir.Graph, Sequence[TensorType], Bind | None], ImportedBody]
    model: onnx_ir.Graph

    def has(self, name: str) -> bool:
        """True if the attribute is given."""
        return name in self.attributes

    def int(self, name: str, default: Any = MISSING) -> Any:
        """An integer attribute."""
        return self._attribute(name, AttributeType.INT, default)

    def float(self, name: str, default: Any = MISSING) -> Any:
        """A float attribute: float32 in the file, given as the shortest decimal that rounds to it."""
        value = self._attribute(name, AttributeType.FLOAT, default)
        return value if value is default else shortest(value)

    def string(self, name: str, default: Any = MISSING) -> Any:
        """A string attribute."""
        value = self._attribute(name, AttributeType.STRING, default)
        return _text(value)

    def ints(self, name: str, default: Any = MISSING) -> Any:
        """A list of integers."""
        value = self._attribute(name, AttributeType.INTS, default)
        return value if value is default else [int(item) for item in value]

    def floats(self, name: str, default: Any = MISSING) -> Any:
        """A list of floats."""
        value = self._attribute(name, AttributeType.FLOATS, default)
        return value if value is default else [shortest(item) for item in value]

    def strings(self, name: str, default: Any = MISSING) -> Any:
        """A list of strings."""
        value = self._attribute(name, AttributeType.STRINGS, default)
        return value if value is default else [_text(item) for item in value]

    def tensor(self, name: str) -> np.ndarray:
        """A tensor attribute."""
        return self.tensors.array(self.attribute_tensor(name))

    def attribute_tensor(self, name: str) -> onnx_ir.TensorProtocol:
        """A tensor attribute as the file has it."""
        tensor: onnx_ir.TensorProtocol = self._attribute(name, AttributeType.TENSOR, MISSING)
        return tensor

    def graph(self, name: str) -> onnx_ir.Graph:
        """A graph attribute."""
        graph: onnx_ir.Graph = self._attribute(name, AttributeType.GRAPH, MISSING)
        return graph

    def dtype(self, name: str, default: np.dtype | None = None) -> np.dtype:
        """An attribute that holds an element type."""
        number = self.int(name, None) if default is not None else self.int(name)
        if number is None:
            assert default is not None
            return default
        try:
            return element_type(onnx_ir.DataType(number))
        except ValueError as error:
            raise ModelError(f"attribute {name} is {number}, which is no element type") from error

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> str:
        """A string attribute that is one of a few."""
        value = self.string(name, default)
        if value not in allowed:
            raise ModelError(f"attribute {name} is {value!r}, not one of {', '.join(allowed)}")
        return str(value)

    def input(self, index: Index) -> Value:
        """An input that must be there."""
        value = self.optional(index)
        if value is None:
            raise ModelError(f"input {index} is missing")
        return value

    def optional(self, index: Index) -> Value | None:
        """An input, or None if it is left out."""
        item = self.item(index)
        if item is not None and not isinstance(item, Value):
            raise ModelError(f"input {index} is a sequence")
        return item

    def item(self, index: Index) -> Item | None:
        """An input that may be a sequence."""
        return self.inputs[index] if index < len(self.inputs) else None

    def sequence(self, index: Index) -> ValueList:
        """An input that must be a sequence."""
        item = self.item(index)
        if isinstance(item, Growing):
            raise Unknown("the loop around it carries the sequence, and does more with it than append to it")
        if isinstance(item, Slices):
            raise Unknown("how many tensors the sequence has is known only when the model runs")
        if not isinstance(item, ValueList):
            raise ModelError(f"input {index} is not a sequence")
        return item

    def given(self) -> tuple[Value, ...]:
        """All inputs of an operator that takes any number of them."""
        values = tuple(self.input(index) for index in range(len(self.inputs)))
        if not values:
            raise ModelError("it has no inputs")
        return values

    def wants(self, index: Index) -> bool:
        """True if something reads an output. Tools also name those that nothing does."""
        return index < len(self.wanted) and self.wanted[index]

    def _attribute(self, name: str, kind: AttributeType, default: Any) -> Any:
        attribute = self.attributes.get(name)
        if attribute is None:
            if default is MISSING:
                raise ModelError(f"attribute {name} is missing")
            return default
        if attribute.type != kind:
            raise ModelError(f"attribute {name} is of type {attribute.type.name}, not {kind.name}")
        return attribute.value


def is_wanted(output: onnx_ir.Value) -> bool:
    """True if something reads an output of a node."""
    return bool(output.name) and (bool(output.uses()) or output.is_graph_output())


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def shortest(value: float) -> float:
    """The double with the fewest digits that rounds to this float32: 1e-05 rather than 9.999999747378752e-06."""
    single = np.float32(value)
    return float(str(single)) if np.isfinite(single) and float(single) == value else float(value)


def refuse_unless(supported: bool, reason: str, help: str = "") -> None:
    """Raise Refused with the reason unless the condition holds."""
    if not supported:
        raise Refused(reason, help)


def check_table(*sizes: Dim) -> None:
    """Raise Refused if an importer would make a table of too many numbers, which a few attributes or sizes ask for. One of sizes
    that only a run tells is no constant."""
    if is_static(*sizes):
        shown = " x ".join(map(str, sizes))
        refuse_unless(product(sizes) <= MOST_MADE, f"a table of {shown} numbers would have to be made for it")


def fixed_size(size: Dim, what: str) -> int:
    """A size as an integer. Raises Unknown if it is symbolic."""
    if isinstance(size, Expr):
        raise Unknown(f"{what} is {size}, which is known only when the model runs", PIN)
    return size
