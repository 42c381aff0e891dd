"""`Observed`: a model's inputs for one run, for a program that is made for their values where it cannot be made without.

The sizes of a tensor may depend on an input (the shape that Reshape is given), and so may which branch is taken or how
often a loop runs. Such a value is computed while importing, from the arrays that the run gives; which inputs were looked
at is kept, because the program is right only for runs that give those the same elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import onnx_ir

from graphc.errors import InputError
from graphc.frontend.onnx.dims import name_of
from graphc.frontend.onnx.frame import Item, ValueList
from graphc.frontend.onnx.tensors import Refused, element_type, same_type
from graphc.ir import Graph, TensorType, Value
from graphc.ir.interp import apply
from graphc.ir.types import STRING

Given: TypeAlias = "np.ndarray | list[Any] | None"
"""An input: a tensor, a sequence of inputs, or an optional input without a value."""


class Observed:
    """The arrays of one run, and which of them were looked at (`read`, by the names of the graph's inputs)."""

    def __init__(self, given: Mapping[str, Given]) -> None:
        self.given = dict(given)
        self.arrays: dict[str, np.ndarray] = {}
        self.read: set[str] = set()
        self._known: dict[Value, np.ndarray] = {}
        self._origins: dict[Value, frozenset[str]] = {}
        self._sizes: dict[str, int] = {}

    def bind(self, value: onnx_ir.Value, graph: Graph) -> Item | None:
        """The graph's inputs for an input of the model: a sequence becomes as many as it has tensors. Raises InputError."""
        name = value.name or ""
        if name not in self.given:
            raise InputError(f"the input {name} is missing")
        return self._bind(name, value.type, value.shape, self.given[name], graph)

    def _bind(self, name: str, type: Any, shape: onnx_ir.Shape | None, given: Given, graph: Graph) -> Item | None:
        if isinstance(type, onnx_ir.OptionalType):
            if given is None:
                return None
            return self._bind(name, type.elem_type, shape, given, graph)
        if isinstance(type, onnx_ir.SequenceType):
            if not isinstance(given, list | tuple):
                raise InputError(f"the input {name} is a sequence; it must be given a list")
            items = (self._bind(f"{name}.{i}", type.elem_type, None, item, graph) for i, item in enumerate(given))
            return ValueList(tuple(item for item in items if isinstance(item, Value)))
        if not isinstance(type, onnx_ir.TensorType):
            raise Refused(f"is a {type.__class__.__name__}, not a tensor")
        array = np.asarray(given)
        if type.dtype == onnx_ir.DataType.STRING:
            return self._strings(name, array, graph)
        self._check(name, array, element_type(type.dtype), shape)
        return self._tensor(name, array, graph)

    def _strings(self, name: str, array: np.ndarray, graph: Graph) -> Value:
        """Strings are no tensors that a program computes with: they are constants."""
        if array.dtype.kind not in "OUS":
            raise InputError(f"the input {name} holds {array.dtype.name}, not strings")
        self.arrays[name] = array
        self.read.add(name)
        return graph.constant(array.astype(STRING), name)

    def _tensor(self, name: str, array: np.ndarray, graph: Graph) -> Value:
        value = graph.input(name, TensorType(array.dtype, array.shape))
        self.arrays[value.name] = array
        self._known[value] = array
        self._origins[value] = frozenset({value.name})
        return value

    def _check(self, name: str, array: np.ndarray, dtype: np.dtype, shape: onnx_ir.Shape | None) -> None:
        if not same_type(array.dtype, dtype):
            raise InputError(f"the input {name} holds {array.dtype.name}, must hold {dtype.name}")
        if shape is None:
            return
        if len(shape) != array.ndim:
            raise InputError(f"the input {name} has {array.ndim} axes, must have {len(shape)}")
        for axis, size in enumerate(shape):
            label = name_of(size)
            known = size if label is None else self._sizes.setdefault(label, array.shape[axis])
            if isinstance(known, int) and known >= 0 and known != array.shape[axis]:
                raise InputError(f"the input {name}: axis {axis} has size {array.shape[axis]}, must be {known}")

    def look(self, value: Value) -> np.ndarray | None:
        """The elements of a value, computed from the run's inputs; None if it does not come from them alone."""
        if not self._compute(value):
            return None
        self.read |= self._origins[value]
        return self._known[value]

    def _compute(self, value: Value) -> bool:
        stack = [value]
        while stack:
            top = stack[-1]
            if top in self._known:
                stack.pop()
                continue
            if top.data is not None:
                self._known[top], self._origins[top] = top.data, frozenset()
                continue
            if top.producer is None:
                return False
            missing = [needed for needed in top.producer.inputs if needed not in self._known]
            if missing:
                stack += missing
                continue
            origins = frozenset().union(*(self._origins[needed] for needed in top.producer.inputs))
            for result, array in zip(top.producer.outputs, apply(top.producer, self._known), strict=True):
                self._known[result], self._origins[result] = array, origins
        return True
