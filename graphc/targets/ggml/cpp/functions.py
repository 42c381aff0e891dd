"""Which regions of a program become C++ functions, and which share one.

Two regions share a function if their calls are the same: the same functions on the same operands, where a weight counts by
its place in the module and a size only by where it stands. A size that differs between the callers is written as what it
is of an operand (`x->ne[1]`), or becomes a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, Union

from graphc.targets.ggml.cpp.numbers import Number, numbers, same
from graphc.targets.ggml.cpp.ratios import Candidate, SizeOf, express
from graphc.targets.ggml.cpp.regions import Region
from graphc.targets.ggml.cpp.scopes import Path, Ref, readers, reference, split_path
from graphc.targets.ggml.cpp.weights import WeightTree
from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.program.tensor import Tensor

LARGE = 12
"""Steps from which on a module that is called once becomes a function."""

MOST_NUMBERS = 4
"""Numbers that a function takes as parameters; beyond, its callers get functions of their own."""


@dataclass(eq=False)
class Invocation:
    """A call of a generated function: what it is given, and the calls of the program whose results it returns."""

    function: Function
    body: Body

    @property
    def numbers(self) -> list[Number]:
        """The function's numbers here."""
        index = self.function.bodies.index(self.body)
        return [replace(each[index], position=-1) for each in self.function.numbers]


Step: TypeAlias = Union[int, Invocation]

Operand: TypeAlias = tuple[str, tuple[int, int] | int | Path]
"""("local", (step, result)), ("parameter", n) or ("weight", path below the module)."""


@dataclass(eq=False)
class Body:
    """One region as a function sees it."""

    region: Region
    steps: list[Step]
    base: Path | None
    """The module whose weights the function is given."""
    arguments: list[Ref] = field(default_factory=list)
    """Tensors from outside, in order of first use, but for the module's own weights."""
    positions: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Which step makes the result of a call, and as which of its results."""


Place: TypeAlias = tuple[int, int]
"""A number: which step it belongs to, and which of the step's numbers it is."""


@dataclass(eq=False)
class Function:
    """A C++ function: one body for each region that calls it; what they share is read from the first."""

    bodies: list[Body]
    type: str
    """The struct of its module's weights, "" if it reads none."""
    results: list[tuple[int, int]]
    holes: dict[Place, SizeOf | int]
    """Numbers that differ between the bodies: what they are of an operand, or which parameter they are."""
    numbers: list[list[Number]]
    """For each parameter that is a number, the number in each body."""
    name: str = ""
    parameters: list[str] = field(default_factory=list)
    """What its tensors are called, once it is written."""

    @property
    def body(self) -> Body:
        """The first body."""
        return self.bodies[0]


class Functions:
    """The functions of a program, callees before callers; the last one is the program itself."""

    def __init__(self, program: Program, tree: WeightTree, root: Region) -> None:
        self.program = program
        self.tree = tree
        self.readers = readers(program)
        self.containers = {
            region.path for region in _all(root) if any(isinstance(item, Region) for item in region.items)
        }
        self.list: list[Function] = []
        self._steps: dict[Region, list[Step]] = {}
        for regions in _by_height(root):
            if regions != [root]:
                self._settle([self._body(region) for region in regions])
        self.main = self._function([self._body(root)])
        self.list.append(self.main)

    def tensor(self, ref: Ref) -> Tensor:
        """The tensor that a reference means."""
        kind, index = ref
        if kind == "call":
            return self.program.calls[index].result
        return self.program.weights[index].tensor if kind == "weight" else self.program.inputs[index].tensor

    def operand(self, body: Body, ref: Ref) -> Operand:
        """A tensor as the body's function names it."""
        kind, index = ref
        if kind == "call" and index in body.positions:
            return "local", body.positions[index]
        if kind == "weight" and body.base is not None and _below(self.tree.paths[index], body.base):
            return "weight", self.tree.paths[index][len(body.base) :]
        return "parameter", body.arguments.index(ref)

    def reads(self, step: Step) -> list[Ref]:
        """The tensors that a step is given, in order."""
        if isinstance(step, Invocation):
            return step.body.arguments
        return [reference(arg) for arg in self.program.calls[step].args if isinstance(arg, Tensor)]

    def makes(self, step: Step) -> list[int]:
        """The calls whose results a step returns."""
        if isinstance(step, int):
            return [step]
        return [_call_at(step.body, position) for position in step.function.results]

    def numbers(self, step: Step) -> list[Number]:
        """The numbers that a step is given."""
        return step.numbers if isinstance(step, Invocation) else numbers(self.program.calls[step])

    def _settle(self, bodies: list[Body]) -> None:
        """Decide what becomes of regions of one height: functions, or steps of their callers."""
        groups: dict[object, list[Body]] = {}
        for body in bodies:
            groups.setdefault(self._form(body), []).append(body)
        for group in groups.values():
            if len(group[0].steps) < (2 if len(group) > 1 else LARGE):
                for body in group:
                    self._steps[body.region] = body.steps
                continue
            for function in self._variants(group):
                self.list.append(function)
                for body in function.bodies:
                    self._steps[body.region] = [Invocation(function, body)]

    def _body(self, region: Region) -> Body:
        steps: list[Step] = []
        for item in region.items:
            steps += [item] if isinstance(item, int) else self._steps[item]
        path = split_path(region.path)
        used = {index for call in region.calls for index in _weights(self.program.calls[call])}
        own = any(_below(self.tree.paths[index], path) for index in used)
        body = Body(region, steps, path if own and self.tree.node(path) is not None else None)
        for position, step in enumerate(steps):
            for ref in self.reads(step):
                if self._is_argument(body, ref):
                    body.arguments.append(ref)
            body.positions.update((call, (position, index)) for index, call in enumerate(self.makes(step)))
        return body

    def _is_argument(self, body: Body, ref: Ref) -> bool:
        kind, index = ref
        if ref in body.arguments or (kind == "call" and index in body.positions):
            return False
        return not (kind == "weight" and body.base is not None and _below(self.tree.paths[index], body.base))

    def _form(self, body: Body) -> object:
        """What bodies must have in common to share a function."""
        lines: list[object] = []
        for step in body.steps:
            operands = tuple(self.operand(body, ref) for ref in self.reads(step))
            if isinstance(step, Invocation):
                base = step.body.base
                inner = base[len(body.base) :] if base is not None and body.base is not None else base
                lines.append((id(step.function), inner, operands))
            else:
                call = self.program.calls[step]
                lines.append((call.function, call.kernel, operands, _rest(call)))
        return (self.tree.type(body.base) if body.base is not None else "", tuple(lines))

    def _variants(self, bodies: list[Body]) -> list[Function]:
        """One function for all of the bodies, or several where their sizes have little in common."""
        function = self._function(bodies)
        if len(function.numbers) <= MOST_NUMBERS:
            return [function]
        alike: dict[object, list[Body]] = {}
        for body in bodies:
            alike.setdefault(tuple(tuple(map(repr, self.numbers(step))) for step in body.steps), []).append(body)
        return [self._function(group) for group in alike.values()]

    def _function(self, bodies: list[Body]) -> Function:
        first = bodies[0]
        type = self.tree.type(first.base) if first.base is not None else ""
        results = sorted({body.positions[call] for body in bodies for call in body.region.results})
        function = Function(bodies, type, results, {}, [])
        for position in range(len(first.steps)):
            columns = [self.numbers(body.steps[position]) for body in bodies]
            for index, column in enumerate(zip(*columns, strict=True)):
                if not same([number.value for number in column]):
                    function.holes[position, index] = self._hole(function, position, list(column))
        return function

    def _hole(self, function: Function, position: int, column: list[Number]) -> SizeOf | int:
        """What a number that differs is of an operand at hand, else the parameter that it is."""
        sizes = [number.value for number in column if number.is_size and not isinstance(number.value, float)]
        axis = column[0].axis
        found = express(sizes, self._candidates(function, position), axis) if len(sizes) == len(column) else None
        if found is not None:
            return found
        for index, known in enumerate(function.numbers):
            if all(same([a.value, b.value]) and a.name == b.name for a, b in zip(known, column, strict=True)):
                return index
        function.numbers.append(column)
        return len(function.numbers) - 1

    def _candidates(self, function: Function, position: int) -> list[Candidate]:
        """The operands of a step and the function's own, with their sizes in each body."""
        found: list[Candidate] = []
        refs = [self.reads(body.steps[position]) for body in function.bodies]
        for index in range(len(refs[0])):
            operand = self.operand(function.body, refs[0][index])
            found.append((operand, [self.tensor(each[index]).ne for each in refs]))
        for index in range(len(function.body.arguments)):
            shapes = [self.tensor(body.arguments[index]).ne for body in function.bodies]
            found.append((("parameter", index), shapes))
        return found


def _all(root: Region) -> Iterator[Region]:
    yield root
    for item in root.items:
        if isinstance(item, Region):
            yield from _all(item)


def _rest(call: Call) -> tuple[str, ...]:
    """What a call is given beside tensors and numbers."""
    apart = {number.position for number in numbers(call)}
    return tuple(
        "" if isinstance(arg, Tensor) or position in apart else repr(arg) for position, arg in enumerate(call.args)
    )


def _weights(call: Call) -> Iterator[int]:
    for arg in call.args:
        if isinstance(arg, Tensor) and arg.weight >= 0:
            yield arg.weight


def _below(path: Sequence[str], base: Path) -> bool:
    return tuple(path[: len(base)]) == base


def _call_at(body: Body, position: tuple[int, int]) -> int:
    return next(call for call, place in body.positions.items() if place == position)


def _by_height(root: Region) -> list[list[Region]]:
    """Every region, those without regions inside first; in each list, as the program has them."""
    heights: dict[Region, int] = {}
    order: list[Region] = []

    def visit(region: Region) -> int:
        order.append(region)
        inner = [visit(item) for item in region.items if isinstance(item, Region)]
        heights[region] = 1 + max(inner, default=0)
        return heights[region]

    visit(root)
    levels: Mapping[int, list[Region]] = {height: [] for height in range(1, heights[root] + 1)}
    for region in order:
        levels[heights[region]].append(region)
    return list(levels.values())
