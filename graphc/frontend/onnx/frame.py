"""What the names of one graph or function body stand for while it is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import onnx_ir

from graphc.errors import ModelError
from graphc.ir import Source, Value

DOMAINS = {"ai.onnx": ""}
"""Other spellings of a domain."""


@dataclass(frozen=True, eq=False)
class ValueList:
    """An ONNX sequence: a list of tensors whose length is known."""

    items: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Slices:
    """An ONNX sequence of tensors of one shape, as many as there are slices along the first axis of a tensor."""

    whole: Value


@dataclass(frozen=True, eq=False)
class Growing:
    """A sequence that a loop carries, within a step: the loop's number of it, and what the step has appended."""

    number: int
    added: tuple[Value, ...] = ()


Item: TypeAlias = "Value | ValueList | Slices | Growing"


@dataclass
class Frame:
    """One graph or function body that is being imported: what its values and attributes stand for.

    A value is None if the caller left it out, or, if it is in `missing`, because a problem kept it from being made.
    A function's nodes are part of the node that calls it, whose `source` they carry. `around` finds what a body that is a
    graph of its own reads from outside.
    """

    opsets: Mapping[str, int]
    attributes: Mapping[str, onnx_ir.Attr] = field(default_factory=dict)
    values: dict[onnx_ir.Value, Item | None] = field(default_factory=dict)
    missing: set[onnx_ir.Value] = field(default_factory=set)
    source: Source = field(default_factory=Source)
    depth: int = 0
    around: Callable[[onnx_ir.Value], Item | None] | None = None

    @property
    def in_function(self) -> bool:
        """True if this is a function's body."""
        return self.depth > 0

    def read(self, value: onnx_ir.Value | None) -> Item | None:
        """What a value stands for; None as said above. Raises ModelError if nothing has made it yet."""
        if value is None:
            return None
        if value in self.values:
            return self.values[value]
        if self.around is not None:
            self.values[value] = self.around(value)
            return self.values[value]
        if value.producer() is None:
            raise ModelError(f"it reads {value.name}, which nothing makes")
        raise ModelError(f"it reads {value.name} before it is computed: the nodes are out of order or form a cycle")

    def bind(self, value: onnx_ir.Value, item: Item | None, missing: bool = False) -> None:
        """Say what a value stands for; `missing` if a problem kept it from being made."""
        self.values[value] = item
        (self.missing.add if missing else self.missing.discard)(value)

    def attributes_of(self, node: onnx_ir.Node) -> dict[str, onnx_ir.Attr]:
        """A node's attributes; one that refers to an attribute of the function is what the caller gave, if anything."""
        result: dict[str, onnx_ir.Attr] = {}
        for name, attribute in node.attributes.items():
            if not attribute.is_ref():
                result[name] = attribute
            elif attribute.ref_attr_name in self.attributes:
                result[name] = self.attributes[attribute.ref_attr_name or ""]
        return result


def domains(opsets: Mapping[str, int]) -> dict[str, int]:
    """Operator sets by domain, in one spelling."""
    return {DOMAINS.get(domain, domain): version for domain, version in opsets.items()}


def tensors(items: Sequence[Item | None]) -> tuple[Value, ...]:
    """The items, each of which must be a tensor. Raises ModelError."""
    result = []
    for item in items:
        if not isinstance(item, Value):
            raise ModelError("a tensor is missing, or is a sequence")
        result.append(item)
    return tuple(result)
