"""Kernels that differ in numbers alone are one, which is given the numbers.

Two uses of an operator share a kernel if their loops, or their calls of a routine, are the same but for sizes and float
constants. What all of them have in common stays written out. A number that differs is what it is of a tensor (`dst->ne[0]`),
or else an argument. It is shared only where the compiler makes nothing of knowing it: not what an innermost index is multiplied
with or divided by, nor how often a reduction runs, so that the innermost loops stay as fast as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import combinations
from typing import Any, TypeAlias, Union

import numpy as np

from graphc.ir.types import F32, F64, I64
from graphc.kernels.lanes import reductions_by_lanes, variables_of
from graphc.kernels.nest import Nest, extent, name
from graphc.kernels.scalar import COMPARISONS, Scalar, make, variable
from graphc.kernels.use import KernelUse
from graphc.ops.base import Routine
from graphc.records import dataclass
from graphc.shapes import Dim, Expr, lower_bound, product, symbol

Number: TypeAlias = Union[Dim, float]
Form: TypeAlias = Union[Nest, Routine]

READ_ALONE = frozenset({"+", "-", "*", "/", "maximum", "minimum", "max", "min", *COMPARISONS})
"""Operators of floats for which it makes no difference to a loop whether it knows a constant operand."""

NAMES = frozenset(
    {"alpha", "beta", "gamma", "lambd", "bias", "epsilon", "slope", "strength", "exponent", "low", "high"}
)
"""Attributes of operators whose numbers a kernel calls as they do."""

LARGEST_RANK = 4
"""Axes that a tensor has in memory; of those with more, the leading ones are merged."""


@dataclass(frozen=True)
class Place:
    """Where a kernel finds a number: an argument by its number, or the sizes of axes of a tensor (the result's number is -1), in
    the order that they have in memory, the innermost first."""

    argument: int = -1
    tensor: int = -1
    axes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Shared:
    """One kernel: its form, in which symbols (`@1`, …) and nodes of kind `number` stand for what differs, where it finds each of
    these sizes and numbers, and for each use what it is given."""

    form: Form
    uses: tuple[int, ...]
    sizes: dict[str, Place]
    numbers: dict[str, Place]
    arguments: tuple[tuple[Number, ...], ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """What the arguments are called, in order."""
        places = {**self.sizes, **self.numbers}
        found = {place.argument: name for name, place in places.items() if place.argument >= 0}
        return tuple(found[argument].replace("@", "size") for argument in sorted(found))


@dataclass(frozen=True)
class _Found:
    """A number of a form, and whether it may differ."""

    value: Number
    free: bool


def share(uses: Sequence[KernelUse], forms: Sequence[Form]) -> list[Shared]:
    """The kernels of uses, in the order of the first that each is for."""
    groups: dict[Hashable, list[int]] = {}
    taken = [_taken_apart(form) for form in forms]
    for index, (key, numbers) in enumerate(taken):
        fixed = tuple(None if each.free else repr(each.value) for each in numbers)
        types = tuple(dtype for dtype, _ in uses[index].inputs), uses[index].dtype
        empty = index if any(size == 0 for size in uses[index].shape) else None
        groups.setdefault((_name(uses[index]), types, key, fixed, empty), []).append(index)
    found = []
    for group in groups.values():
        columns = list(zip(*(([each.value for each in taken[index][1]]) for index in group), strict=True))
        shared = _shared([uses[index] for index in group], forms[group[0]], columns)
        same = isinstance(shared.form, Routine) or len(reductions_by_lanes(shared.form)) == _lanes(forms[group[0]])
        if same:
            found.append(replace(shared, uses=tuple(group)))
        else:
            found += [Shared(forms[index], (index,), {}, {}, ((),)) for index in group]
    return sorted(found, key=lambda each: each.uses[0])


def _lanes(form: Form) -> int:
    return 0 if isinstance(form, Routine) else len(reductions_by_lanes(form))


def _name(use: KernelUse) -> str:
    return use.op.name  # type: ignore[attr-defined, no-any-return]


def _shared(uses: Sequence[KernelUse], form: Form, columns: Sequence[Sequence[Number]]) -> Shared:
    """The kernel of uses whose forms have these numbers, column by column."""
    sizes: dict[str, Place] = {}
    numbers: dict[str, Place] = {}
    known: dict[Hashable, Number | str] = {}
    arguments: list[Sequence[Number]] = []
    filled: list[Number | str] = []
    for column in columns:
        key = tuple(map(repr, column))
        if len(set(key)) == 1:
            filled.append(column[0])
            continue
        if key not in known:
            floats = isinstance(column[0], float)
            place = None if floats else _of_tensor(uses, column)
            if place is None:
                place = Place(argument=len(arguments))
                arguments.append(column)
            if floats:
                label = _setting(uses, column)
                label = label if label in NAMES and label not in numbers else f"number{1 + len(numbers)}"
                numbers[label], known[key] = place, label
            else:
                label = f"@{1 + len(sizes)}"
                sizes[label], known[key] = place, symbol(label)
        filled.append(known[key])
    given = tuple(zip(*arguments, strict=True)) if arguments else ((),) * len(uses)
    return Shared(_put_together(form, filled), (), sizes, numbers, given)


def _setting(uses: Sequence[KernelUse], column: Sequence[Number]) -> str:
    """The attribute of the operators that has these numbers; "" if none has."""
    for field in fields(uses[0].op):  # type: ignore[arg-type]
        values = [getattr(use.op, field.name) for use in uses]
        if all(isinstance(a, float) and np.float32(a) == b for a, b in zip(values, column, strict=True)):
            return field.name
    return ""


def _of_tensor(uses: Sequence[KernelUse], column: Sequence[Number]) -> Place | None:
    """What sizes are of the result, or of all elements of what is read, which may have lain in memory by other axes."""
    for tensor in range(-1, len(uses[0].inputs)):
        shapes = [use.shape if tensor < 0 else use.inputs[tensor][1] for use in uses]
        if all(product(shape) == size for shape, size in zip(shapes, column, strict=True)):
            return Place(tensor=tensor, axes=tuple(range(LARGEST_RANK)))
    if max(len(use.shape) for use in uses) > LARGEST_RANK:
        return None
    kept = [(*reversed(use.shape), 1, 1, 1, 1)[:LARGEST_RANK] for use in uses]
    for first, last in combinations(range(LARGEST_RANK + 1), 2):
        if all(product(ne[first:last]) == size for ne, size in zip(kept, column, strict=True)):
            return Place(axes=tuple(range(first, last)))
    return None


def _taken_apart(form: Form) -> tuple[Hashable, list[_Found]]:
    """A form without its numbers, and these."""
    found: list[_Found] = []

    def number(value: Number, free: bool) -> Number:
        found.append(_Found(value, free))
        return value

    rebuilt = _Rebuilt(number)
    key = rebuilt.routine(form)[0] if isinstance(form, Routine) else rebuilt.nest(form)[0]
    return key, found


def _put_together(form: Form, numbers: Sequence[Number | str]) -> Form:
    """A form with other numbers; texts are names of arguments."""
    given: Iterator[Number | str] = iter(numbers)
    rebuilt = _Rebuilt(lambda value, free: next(given))
    return rebuilt.routine(form)[1] if isinstance(form, Routine) else rebuilt.nest(form)[1]


class _Rebuilt:
    """Goes through a form in an order that depends on nothing but what is alike in forms that share a kernel, and rebuilds it
    with what `number` gives for each number and whether it may differ."""

    def __init__(self, number: Callable[[Number, bool], Number | str]) -> None:
        self.number = number
        self.done: dict[Scalar, tuple[int, Scalar]] = {}
        self.keys: list[Hashable] = []
        self.inner: frozenset[Scalar] = frozenset()

    def routine(self, routine: Routine) -> tuple[Hashable, Routine]:
        """The key of a routine's call, and the call with its numbers replaced."""
        made: list[Any] = []
        for each in routine.numbers:
            items = [self._dim(item) for item in (each if isinstance(each, tuple) else (each,))]
            made.append(tuple(items) if isinstance(each, tuple) else items[0])
        fixed = [
            len(each) if isinstance(each, tuple) else each if isinstance(each, str | bool) else None
            for each in routine.numbers
        ]
        key = (routine.subject, routine.function, routine.types, tuple(fixed), routine.faults)
        return key, replace(routine, numbers=tuple(made))

    def nest(self, loops: Nest) -> tuple[Hashable, Nest]:
        """The key of loops, and the loops with their numbers replaced."""
        reduced = (node for node in _reductions(loops.body))
        self.inner = frozenset({*loops.axes[-1:], *(each for node in reduced for each in variables_of(node))})
        axes = []
        for axis in loops.axes:
            size = self.number(extent(axis), _is_positive(extent(axis)))
            made = variable(name(axis), size)  # type: ignore[arg-type]
            self.done[axis] = len(self.done), made
            axes.append(made)
        body, place = self._arg(None, loops.body), self._arg(None, loops.place)
        key = (len(loops.axes), tuple(self.keys), body[0], place[0])
        return key, Nest(tuple(axes), body[1], place[1])

    def _dim(self, value: Dim | str) -> Dim | str:
        if isinstance(value, str | bool):
            return value
        return self.number(value, _is_positive(value))  # type: ignore[return-value]

    def _arg(self, parent: Scalar | None, node: Scalar) -> tuple[Hashable, Scalar]:
        """An operand: its number among the nodes, or what kind of number it is; and what takes its place."""
        if node.dim is not None:
            made = self.number(node.dim, _is_positive(node.dim) and self._is_outer(parent, node))
            if isinstance(made, Expr):
                return "size", make("size", I64, (), made)
            return "size", node
        if node.kind == "constant" and node.dtype in (F32, F64) and np.isfinite(node.value):
            free = parent is not None and (parent.kind == "select" or parent.data in READ_ALONE)
            number = self.number(float(node.value), free)
            return f"number {node.dtype}", make("number", node.dtype, (), number) if isinstance(number, str) else node
        return self._node(node)

    def _node(self, node: Scalar) -> tuple[int, Scalar]:
        """A node that is not a number: how many were seen before it first, and what takes its place."""
        if node in self.done:
            return self.done[node]
        data: Hashable = node.data
        if node.kind == "reduce":
            for each in variables_of(node):
                self.number(extent(each), False)
                self.done[each] = len(self.done), each
            data = (node.data[0], tuple(map(name, variables_of(node))))  # type: ignore[index]
        parts = [self._arg(node, arg) for arg in node.args]
        made = make(node.kind, node.dtype, tuple(each for _, each in parts), node.data)
        self.keys.append((node.kind, node.dtype, data, tuple(key for key, _ in parts)))
        self.done[node] = len(self.done), made
        return self.done[node]

    def _is_outer(self, parent: Scalar | None, node: Scalar) -> bool:
        """True if no innermost index is multiplied with a number, or divided by it."""
        if parent is None or parent.kind != "operate":
            return False
        if parent.data in ("+", "-") or parent.data in COMPARISONS:
            return True
        return parent.data in ("*", "//", "%") and not parent.free & self.inner


def _is_positive(dim: Dim) -> bool:
    low = lower_bound(dim)
    return low is not None and low > 0


def _reductions(*roots: Scalar) -> list[Scalar]:
    """The reductions of expressions."""
    found, stack, seen = [], list(roots), set[Scalar]()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        found += [node] if node.kind == "reduce" else []
        stack += node.args
    return found
