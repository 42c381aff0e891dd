"""The parameters that a program's weights are made of: given, or found again in the weights where recipes only move elements.

What is found so is exact, bit for bit. What was computed (a batch normalization in a convolution, numbers in a narrower type)
does not tell what it was computed from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ir.numbers import sources
from graphc.ops.base import Op
from graphc.ops.movement import Concat, Reshape, Slice, Transpose
from graphc.ops.pointwise import Cast
from graphc.targets.ggml.program.program import Program
from graphc.weights.formats.tensors import Tensors, Unreadable
from graphc.weights.recipes import Recipes, recipes_of
from graphc.weights.refit import WIDER

VIEWS = (Reshape, Slice, Transpose)


class Base:
    """A program's weights, `weight(i)` as it is stored, and their parameters; of what `given` has, those."""

    def __init__(self, program: Program, weight: Callable[[int], np.ndarray], given: Tensors | None = None) -> None:
        self.program, self.weight, self.given = program, weight, given or {}
        self._found: dict[Value, bool] = {}

    def refitted(self, weight: Callable[[int], np.ndarray], given: Tensors) -> Base:
        """Other weights, made of the parameters `given`: of these it keeps those that the weights do not tell."""
        found = Base(self.program, weight)
        found.recipes = self.recipes
        found.given = {name: each for name, each in self.given.items() if name not in given}
        lost = [
            each.parameter for each in found.recipes.parameters if each.parameter in given and not found.knows(each)
        ]
        found.given |= {name: given[name] for name in lost}
        return found

    @cached_property
    def recipes(self) -> Recipes:
        """How the weights are made. Raises EngineError if the program does not say it."""
        return recipes_of(self.program)

    @cached_property
    def readers(self) -> Mapping[Value, list[int]]:
        """The weights that are made of each parameter, without those that are stored in a narrower type."""
        found: dict[Value, list[int]] = defaultdict(list)
        for index, (weight, read) in enumerate(zip(self.program.weights, self.recipes.reads, strict=True)):
            for value in () if weight.narrow else read:
                found[value].append(index)
        return found

    def knows(self, parameter: Value) -> bool:
        """True if all elements of a parameter are given or can be found."""
        if parameter.parameter in self.given or self._whole(parameter) is not None:
            return True
        if parameter not in self._found:
            self._found[parameter] = bool(self._gathered(parameter, np.zeros(shape_of(parameter), np.bool_)).all())
        return self._found[parameter]

    def _whole(self, parameter: Value) -> int | None:
        """The weight that is the parameter as it is, if there is one."""
        return next((each for each in self.readers[parameter] if self.recipes.weights[each] is parameter), None)

    def parameter(self, parameter: Value) -> np.ndarray:
        """The elements of a parameter that it knows: where they lie, or a copy."""
        given = self.given.get(parameter.parameter)
        if given is not None:
            assert not isinstance(given, Unreadable)
            return np.asarray(given).astype(parameter.dtype, copy=False)
        whole = self._whole(parameter)
        if whole is not None:
            return self.weight(whole)
        return self._gathered(parameter, np.empty(shape_of(parameter), parameter.dtype))

    def _gathered(self, parameter: Value, canvas: np.ndarray) -> np.ndarray:
        """A parameter's elements, on a canvas of its shape; True in their places on one of bool."""
        for views, part in self._parts(parameter):
            place = canvas
            for view in views:
                (place,) = view.eval(place)
            if np.may_share_memory(place, canvas):
                place[...] = True if canvas.dtype == np.bool_ else part
        return canvas

    def _parts(self, parameter: Value) -> Iterator[tuple[list[Op], np.ndarray]]:
        for index in self.readers[parameter]:
            recipe = self.recipes.weights[index]
            assert recipe is not None
            for value, views, part in undone(recipe, self.weight(index)):
                if value is parameter:
                    yield views, part


def undone(value: Value, array: np.ndarray) -> Iterator[tuple[Value, list[Op], np.ndarray]]:
    """What the elements of a recipe's result tell: a parameter, the views that lead to a part of it, and that part's elements."""
    stack = [(value, array)]
    while stack:
        value, array = stack.pop()
        node = value.producer
        if value.parameter:
            yield value, [], array
        elif node is not None and isinstance(node.op, Slice):
            views: list[Op] = []
            while node is not None and isinstance(node.op, VIEWS):
                views.insert(0, node.op)
                value = node.inputs[0]
                node = value.producer
            if value.parameter:
                yield value, views, array
        elif node is not None and type(node.op) in INVERSE and array.size:
            stack += zip(node.inputs, INVERSE[type(node.op)](node, array), strict=False)


def _apart(node: Node, array: np.ndarray) -> list[np.ndarray]:
    assert isinstance(node.op, Concat)
    sizes = [shape_of(each)[node.op.axis] for each in node.inputs]
    return np.split(array, np.cumsum(sizes)[:-1], node.op.axis)


def _narrowed(node: Node, array: np.ndarray) -> list[np.ndarray]:
    """What was widened is what it was; what was narrowed is not known."""
    before = node.inputs[0].dtype
    return [array.astype(before)] if (before, array.dtype) in WIDER else []


INVERSE: dict[type[Op], Callable[[Node, np.ndarray], list[np.ndarray]]] = {
    Reshape: lambda node, array: [array.reshape(shape_of(node.inputs[0]))],
    Transpose: lambda node, array: [array.transpose(np.argsort(node.op.perm))],  # type: ignore[attr-defined]
    Concat: _apart,
    Cast: _narrowed,
}
"""The inputs of an operator that moves elements, of its result; none where it does not tell them."""


def compiled_from(program: Program) -> Tensors:
    """The parameters of a program that was just compiled, as the model's file has them; nothing of one that was read."""
    values = [weight.value for weight in program.weights if weight.value is not None]
    return {
        each.parameter: each.data
        for value in values
        for each in sources(value)
        if each.parameter and each.data is not None
    }


def shape_of(value: Value) -> tuple[int, ...]:
    """The sizes of a parameter or weight, which are numbers."""
    return tuple(int(size) for size in value.shape)  # type: ignore[arg-type]
