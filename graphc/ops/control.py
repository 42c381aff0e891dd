"""What the host does between two graphs of a backend: a number becomes a size, a branch is taken, a body is repeated.

The types of a result may hold symbols that get their values there: such an operator `binds` them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphc.errors import InputError, ShapeError
from graphc.ir.graph import Graph
from graphc.ir.interp import sizes_of, trace
from graphc.ir.types import BOOL, I64, TensorType
from graphc.ops.base import Op
from graphc.shapes import Dim, bind, integer, only_symbol, symbols
from graphc.shapes.ranges import range_of

FOREVER = np.int64(np.iinfo(np.int64).max)
"""The trip count of a loop that only its condition ends."""


class Control(Op):
    """An operator that the host computes."""

    def __str__(self) -> str:
        shown = {name: item for name, item in vars(self).items() if name not in ("results", "binds")}
        return f"{self.name}[{', '.join(f'{name}={item}' for name, item in shown.items())}]"

    @property
    def bodies(self) -> tuple[Body, ...]:
        """The graphs that it may run."""
        return tuple(item for item in vars(self).values() if isinstance(item, Body))

    def bound(self, binding: Mapping[str, int]) -> Control:
        """The same operator whose bodies know these sizes; its results' own are not known yet."""
        fields = {name: item.bound(binding) if isinstance(item, Body) else item for name, item in vars(self).items()}
        return type(self)(**fields)

    @property
    def told(self) -> dict[str, Any]:
        """What the host is told beside the types of its arguments and the bodies."""
        known = ("results", "carried", "size", "what")
        return {name: item for name, item in vars(self).items() if name in known}

    def settle(self, shapes: Sequence[tuple[Dim, ...]], arrays: Sequence[np.ndarray], binding: dict[str, int]) -> None:
        """See `Op.settle`. Raises InputError where a result has another shape than declared."""
        for shape, array in zip(shapes, arrays, strict=True):
            settle(binding, shape, array, f"a result of {self.name}")


@dataclass(frozen=True)
class Body:
    """A graph that an operator runs, and the values of the size symbols around it."""

    graph: Graph
    binding: tuple[tuple[str, int], ...] = ()

    def bound(self, binding: Mapping[str, int]) -> Body:
        """The same graph where these symbols have values."""
        return Body(self.graph, tuple(sorted(binding.items())))

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for inputs in order, by the reference interpreter."""
        given = {value.name: array for value, array in zip(self.graph.inputs, arrays, strict=True)}
        known = dict(trace(self.graph, given, dict(self.binding)))
        return [known[value] for value in self.graph.outputs]

    def __str__(self) -> str:
        return self.graph.name


@dataclass(frozen=True)
class Measure(Control):
    """A whole number that is a size from there on: `size` is a symbol that gets its value, or an expression over other
    symbols, which the number must be equal to. `what` names the number in messages."""

    size: Dim
    what: str

    @property
    def binds(self) -> tuple[str, ...]:
        """See `Op.binds`."""
        alone = only_symbol(self.size)
        return () if alone is None else (alone.name,)

    @property
    def asserts(self) -> bool:
        """See `Op.asserts`."""
        return not self.binds

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """One int64 -> itself."""
        (x,) = inputs
        if x.dtype != I64 or x.size != 1:
            raise ShapeError(f"Measure takes one int64, not {x}")
        return (x,)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """The number."""
        return inputs

    def settle(self, shapes: Sequence[tuple[Dim, ...]], arrays: Sequence[np.ndarray], binding: dict[str, int]) -> None:
        """See `Op.settle`. Raises InputError for a number that the size cannot be."""
        measured(self.size, self.what, int(arrays[0].item()), binding)


@dataclass(frozen=True)
class If(Control):
    """condition, captured... -> what `then_body` or `else_body` gives for the captured values."""

    then_body: Body
    else_body: Body
    results: tuple[TensorType, ...]
    binds: tuple[str, ...] = ()

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """A condition of one element."""
        condition = inputs[0]
        if condition.dtype != BOOL or condition.size != 1:
            raise ShapeError(f"If takes one bool, not {condition}")
        for body in self.bodies:
            check_body(body, inputs[1:], len(self.results))
        return self.results

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """The branch that is taken."""
        body = self.then_body if inputs[0].item() else self.else_body
        return tuple(body(inputs[1:]))


@dataclass(frozen=True)
class Loop(Control):
    """trips, going, carried..., captured... -> carried..., collected...

    `body` maps step number, going, carried..., captured... to going, carried..., collected...; it runs while going and not
    more than `trips` times. What it collects is stacked along a new first axis. `carried` is the number of carried values.
    """

    body: Body
    carried: int
    results: tuple[TensorType, ...]
    binds: tuple[str, ...] = ()

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """A trip count and a condition of one element each."""
        trips, going, *given = inputs
        if (trips.dtype, going.dtype) != (I64, BOOL) or (trips.size, going.size) != (1, 1):
            raise ShapeError(f"Loop takes one int64 and one bool, not {trips} and {going}")
        scalar = (TensorType(I64, ()), TensorType(BOOL, ()))
        check_body(self.body, (*scalar, *given), 1 + len(self.results))
        return self.results

    def bound(self, binding: Mapping[str, int]) -> Loop:
        """See `Control.bound`; what a loop collects in no step still has sizes."""
        return replace(self, body=self.body.bound(binding), results=partly_bound(self.results, binding))

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """Step by step."""
        return tuple(iterate(self.body, inputs, self.carried, self.results))


def iterate(
    body: Callable[[Sequence[np.ndarray]], list[np.ndarray]],
    args: Sequence[np.ndarray],
    carried: int,
    results: Sequence[TensorType],
) -> list[np.ndarray]:
    """What a loop gives for its arguments; see `Loop`."""
    trips, going = int(args[0].item()), bool(args[1].item())
    state, captured = list(args[2 : 2 + carried]), args[2 + carried :]
    collected: list[list[np.ndarray]] = [[] for _ in results[carried:]]
    step = 0
    while going and step < trips:
        found = body([np.array(step, np.int64), np.array(going), *state, *captured])
        going, state = bool(found[0].item()), found[1 : 1 + carried]
        for column, array in zip(collected, found[1 + carried :], strict=True):
            column.append(array)
        step += 1
    return [*state, *map(stacked, collected, results[carried:])]


def bodies(graph: Graph) -> list[Body]:
    """The graphs that nodes of a graph may run."""
    return [body for node in graph.nodes if isinstance(node.op, Control) for body in node.op.bodies]


def check_body(body: Body, given: Sequence[TensorType], results: int) -> None:
    """Raise ShapeError unless a body takes values of these types; a size of its own symbols may be any."""
    expected = [value.type for value in body.graph.inputs]
    fits = len(expected) == len(given) and len(body.graph.outputs) == results
    if not fits or any(a.dtype != b.dtype or a.rank != b.rank for a, b in zip(expected, given, strict=True)):
        raise ShapeError(f"the body {body.graph.name} does not take these values")


def stacked(arrays: Sequence[np.ndarray], type: TensorType) -> np.ndarray:
    """Arrays of one shape along a new first axis. Raises InputError if their shapes differ; without any, sizes that are not
    known are 0."""
    if not arrays:
        return np.zeros([size if isinstance(size, int) else 0 for size in (0, *type.shape[1:])], type.dtype)
    if len({array.shape for array in arrays}) > 1:
        raise InputError("a loop collects tensors of different shapes")
    return np.stack(arrays)


def partly_bound(types: Sequence[TensorType], binding: Mapping[str, int]) -> tuple[TensorType, ...]:
    """The same types, with the sizes that are known."""

    def known(size: Dim) -> Dim:
        return bind(size, binding) if symbols(size).keys() <= binding.keys() else size

    return tuple(TensorType(type.dtype, tuple(map(known, type.shape))) for type in types)


def settle(binding: dict[str, int], shape: Sequence[Dim], array: np.ndarray, what: str) -> None:
    """Give the symbols that stand alone in a shape the array's sizes. Raises InputError where a size is another."""
    if array.shape == shape:
        return
    sizes_of(shape, array, binding)
    for dim, size in zip(shape, array.shape, strict=True):
        if integer(dim, binding) != size:
            expected = ", ".join(str(integer(dim, binding)) for dim in shape)
            raise InputError(f"{what} has the shape {list(array.shape)}, must have [{expected}]")


def measured(size: Dim, what: str, number: int, binding: dict[str, int]) -> None:
    """Give a measured symbol its value. Raises InputError if it cannot have it."""
    atom = only_symbol(size)
    if atom is None or atom.name in binding:
        known = integer(size, binding)
        wanted = "" if known == number else str(known) if str(known) == str(size) else f"{known} ({size})"
    else:
        wanted = range_of(atom).misfit(number)
    if wanted:
        raise InputError(f"{what} is {number}, must be {wanted}")
    if atom is not None:
        binding[atom.name] = number
