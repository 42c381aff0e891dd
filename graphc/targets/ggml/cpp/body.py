"""The text of one generated function: its head, its statements and the comments behind them."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphc.shapes import Expr
from graphc.targets.ggml.cpp.composites import composite_call
from graphc.targets.ggml.cpp.functions import Function, Functions, Invocation, Operand, Step
from graphc.targets.ggml.cpp.loops import Loop, find_loops
from graphc.targets.ggml.cpp.names import comment, identifier, singular, string_literal
from graphc.targets.ggml.cpp.numbers import may_be_empty, numbers
from graphc.targets.ggml.cpp.ratios import SizeOf
from graphc.targets.ggml.cpp.scopes import Path
from graphc.targets.ggml.cpp.shapes import ShapeComments
from graphc.targets.ggml.cpp.sizes import SizeNames
from graphc.targets.ggml.cpp.variables import Birth, Variables
from graphc.targets.ggml.program.calls import CALLS
from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.program.program import Call
from graphc.targets.ggml.program.tensor import TYPE_SIZES, Activation, Arg, Constant, ProgramError, Tensor

WIDTH = 110
INDENT = "    "
LEAST_HEADED = 3
"""Steps of a module without a function of its own from which on a comment names it."""

CONSTANT = re.compile(r"GGML_[A-Z0-9_]+", re.ASCII)


@dataclass(frozen=True)
class Needs:
    """What a function is given beside its tensors."""

    sizes: bool
    kernels: bool


@dataclass(frozen=True)
class Written:
    """A function's statements, whether they return its result, the variables of its results, and what it needs."""

    lines: list[str]
    returned: bool
    parameters: list[str]
    numbers: list[tuple[str, str]]
    results: list[str]
    legend: list[str]


class BodyWriter:
    """Writes the statements of one function."""

    def __init__(
        self,
        functions: Functions,
        function: Function,
        sizes: SizeNames,
        kernels: Sequence[str],
        needs: Mapping[Function, Needs],
        taken: Iterable[str],
    ) -> None:
        self.returns = function is not functions.main
        self.functions, self.function, self.taken = functions, function, tuple(taken)
        self.sizes, self.kernels, self.needs = sizes, kernels, needs

    def write(self) -> Written:
        """The statements of the function, in order; written twice, for the first time shows what becomes of each variable."""
        self._write((), {})
        return self._write(self.variables.streams(), self.variables.at_last())

    def _write(self, streams: Collection[Birth], at_last: Mapping[Birth, str]) -> Written:
        self.variables = Variables(self.functions, self.function, self.taken, streams, at_last)
        self.shapes = ShapeComments()
        self.lines: list[str] = []
        self.depth = 1
        self._headed = False
        loops = {loop.start: loop for loop in find_loops(self.functions, self.function)}
        position = 0
        while position < len(self.function.body.steps):
            loop = loops.get(position)
            if loop is None:
                self._step(position)
            else:
                self._loop(loop)
            position = position + 1 if loop is None else loop.end
        results = [self.variables.of["local", result] for result in self.function.results]
        variables = self.variables
        types = [column[0].type for column in self.function.numbers]
        numbers = list(zip(types, variables.numbers, strict=True))
        self.function.parameters = variables.parameters
        returned = any(line.lstrip().startswith("return ") for line in self.lines)
        return Written(self.lines, returned, variables.parameters, numbers, results, self.shapes.legend())

    def _step(self, position: int) -> None:
        step = self.function.body.steps[position]
        self._heading(position)
        operands = self._operands(step)
        text = self._call(position, step, [self._operand(operand) for operand in operands])
        count = len(self.functions.makes(step))
        if count == 1:
            name, new = self.variables.result(position, operands)
            left = f"ggml_tensor * {name} =" if new else f"{name} ="
        else:
            left = f"auto [{', '.join(self.variables.new(position, index) for index in range(count))}] ="
        if self.returns and self.function.results == [(position, 0)] and position + 1 == len(self.function.body.steps):
            left = "return"
        self._line(left, text, self._shapes(position))

    def _loop(self, loop: Loop) -> None:
        """A run of one function over an array."""
        step = self.function.body.steps[loop.start]
        assert isinstance(step, Invocation)
        self._heading(loop.start)
        texts = [self._operand(operand) for operand in self._operands(step)]
        for argument, result in loop.fed:
            texts[argument] = self._fed_variable(loop, argument, result)
        indent = INDENT * self.depth
        head, weights = self._loop_head(loop, step.function.type)
        self.lines.append(indent + head)
        self.depth += 1
        call = self._invocation(loop.start, step, texts, weights)
        shapes = self._shapes(loop.end - 1)
        if len(step.function.results) == 1:
            self._line(f"{texts[loop.fed[0][0]]} =", call, shapes)
        else:
            self._fed_results(loop, call, texts, shapes, len(step.function.results))
        self.depth -= 1
        self.lines.append(indent + "}")

    def _fed_variable(self, loop: Loop, argument: int, result: int) -> str:
        """The variable that carries a result from round to round; it starts as the argument of the first round."""
        variables = self.variables
        operands = self._operands(self.function.body.steps[loop.start])
        operand = operands[argument]
        if variables.is_free(operand, loop.start) and operands.count(operand) == 1:
            name = variables.of[operand]
        else:
            source = self._operand(operand)
            name, new = variables.named(loop.start, result)
            self._line(f"ggml_tensor * {name} =" if new else f"{name} =", (source, []), "")
        for position in range(loop.start, loop.end):
            variables.hold(name, ("local", (position, result)))
        return name

    def _loop_head(self, loop: Loop, type: str) -> tuple[str, str]:
        """The head of a loop, and the weights of one round."""
        array, names = self._weights(loop.path), self.variables.names
        if loop.whole:
            element = names.fresh(identifier(f"{singular(loop.path[-1])}_weights"))
            return f"for (const {type} & {element} : {array}) {{", element
        i, last = names.fresh("i"), loop.first + loop.end - loop.start
        return f"for (size_t {i} = {loop.first}; {i} < {last}; ++{i}) {{", f"{array}[{i}]"

    def _fed_results(
        self, loop: Loop, call: tuple[str, list[str]], texts: Sequence[str], shapes: str, count: int
    ) -> None:
        """The results of a round, and their way into the variables of the next."""
        fed = {result: texts[argument] for argument, result in loop.fed}
        names = [self.variables.names.fresh(f"next_{fed.get(result, 'result')}") for result in range(count)]
        self._line(f"auto [{', '.join(names)}] =", call, shapes)
        for result, name in enumerate(names):
            if result in fed:
                self.lines.append(f"{INDENT * self.depth}{fed[result]} = {name};")
            else:
                self.variables.hold(name, ("local", (loop.end - 1, result)))

    def _heading(self, position: int) -> None:
        """A comment where the calls of a child module without a function of its own begin, a blank line where they end."""
        child = self._child(position)
        if position > 0 and self._child(position - 1) == child:
            return
        size, steps = 0, self.function.body.steps
        while child is not None and position + size < len(steps) and self._child(position + size) == child:
            size += 1
        headed = size >= LEAST_HEADED
        if self.lines and (headed or self._headed):
            self.lines.append("")
        if headed:
            name = f"module {child}" if str(child).isdigit() else str(child)
            self.lines.append(f"{INDENT * self.depth}// {comment(name)}")
        self._headed = headed

    def _child(self, position: int) -> str | None:
        """The child module whose calls stand here; not that of a function of its own."""
        step = self.function.body.steps[position]
        depth = len(self.function.body.region.path)
        own = isinstance(step, Invocation)
        scope = step.body.region.path if isinstance(step, Invocation) else self.functions.program.calls[step].scope
        return scope[depth] if len(scope) > depth + own else None

    def _operands(self, step: Step) -> list[Operand]:
        return [self.functions.operand(self.function.body, ref) for ref in self.functions.reads(step)]

    def _operand(self, operand: Operand) -> str:
        if operand[0] == "weight":
            base = self.function.body.base or ()
            return self._weights((*base, *operand[1]))  # type: ignore[misc]
        return self.variables.of[operand]

    def _weights(self, path: Path) -> str:
        """A weight or a module below this function's, as an expression."""
        access = self.functions.tree.access
        return "weights" + access[path].removeprefix(access[self.function.body.base or ()])

    def _call(self, position: int, step: Step, operands: list[str]) -> tuple[str, list[str]]:
        if isinstance(step, Invocation):
            base = step.body.base
            return self._invocation(position, step, operands, "" if base is None else self._weights(base))
        call = self.functions.program.calls[step]
        if call.kernel >= 0:
            type, numbers = f"GGML_TYPE_{call.result.type}", self._numbers(position)
            listed = [f"{{{', '.join(each)}}}" for each in (numbers[:4], operands, numbers[4:])]
            return "kernels.call", ["ctx", self.kernels[call.kernel], type, *listed[: 3 if numbers[4:] else 2]]
        if call.launches is not None:
            (constant,) = (arg.name for arg in call.args if isinstance(arg, Constant))
            numbers = self._numbers(position)
            listed = [f"{{{', '.join(each)}}}" for each in (numbers[:4], operands, numbers[4:])]
            return "kernels.launch", ["ctx", constant, type_constant(call.result), *listed]
        function, args = checked_function(call), ["ctx", *self._arguments(position, call, operands)]
        if function in COMPOSITES:
            function, args = composite_call(call, args)
        if not may_be_empty(call):
            return function, args
        ne = ", ".join(self._numbers(position)[-4:])
        make = f"[&] {{ return {function}({', '.join(args)}); }}"
        return "graphc::unless_empty", ["ctx", type_constant(call.result), f"{{{ne}}}", make]

    def _arguments(self, position: int, call: Call, operands: list[str]) -> list[str]:
        tensors = iter(operands)
        texts = [next(tensors) if isinstance(arg, Tensor) else literal(arg, self.sizes) for arg in call.args]
        for number, text in zip(numbers(call), self._numbers(position), strict=True):
            if number.position >= 0:
                texts[number.position] = text
        return texts

    def _invocation(self, position: int, step: Invocation, operands: list[str], weights: str) -> tuple[str, list[str]]:
        needs = self.needs[step.function]
        given = ["ctx", *(["kernels"] if needs.kernels else []), *(["sizes"] if needs.sizes else [])]
        given += [weights] if weights else []
        return step.function.name, [*given, *operands, *self._numbers(position)]

    def _numbers(self, position: int) -> list[str]:
        """The numbers that a step is given."""
        texts = []
        for index, number in enumerate(self.functions.numbers(self.function.body.steps[position])):
            hole = self.function.holes.get((position, index))
            if isinstance(hole, SizeOf):
                texts.append(hole.text(self._operand(hole.operand)))
            else:
                texts.append(literal(number.value, self.sizes) if hole is None else self.variables.numbers[hole])
        return texts

    def _shapes(self, position: int) -> str:
        """The shapes of a step's results."""
        calls = self.functions.program.calls
        made = [self.functions.makes(body.steps[position]) for body in self.function.bodies]
        return ", ".join(
            self.shapes.shape([calls[each[index]].result.shape for each in made]) for index in range(len(made[0]))
        )

    def _line(self, left: str, call: tuple[str, list[str]], shapes: str) -> None:
        function, args = call
        indent = INDENT * self.depth
        prefix = f"{indent}{left} {function}"
        lines = wrapped(f"{prefix}(", args, ");", indent + INDENT) if args else [f"{prefix};"]
        lines[-1] += f"  // {shapes}" if shapes else ""
        self.lines += lines


def wrapped(prefix: str, parts: Sequence[str], suffix: str, indent: str) -> list[str]:
    """The parts with commas between them, on as many lines as they need."""
    lines, line = [], prefix
    for index, part in enumerate(parts):
        text = part + ("," if index + 1 < len(parts) else suffix)
        if line.strip() and len(line) + len(text) + 1 > WIDTH and index:
            lines.append(line.rstrip())
            line = indent
        line += text + (" " if index + 1 < len(parts) else "")
    return [*lines, line]


def literal(arg: Arg, sizes: SizeNames) -> str:
    """An argument that is not a tensor, in C++. Raises ProgramError for a constant that is not a name of ggml's."""
    match arg:
        case None:
            return "nullptr"
        case bool():
            return "true" if arg else "false"
        case float():
            return float_literal(arg)
        case Activation(name, settings):
            return f"ctx.activation({', '.join([string_literal(name), *map(float_literal, settings)])})"
        case Constant(name):
            if not CONSTANT.fullmatch(name):
                raise ProgramError(f"{name!r} is not a constant of ggml")
            return name
    assert isinstance(arg, int | Expr)
    return sizes.expression(arg)


def float_literal(number: float) -> str:
    """The float32 nearest to the number, as a C++ literal of the same bits."""
    with np.errstate(over="ignore"):
        value = np.float32(number)
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = str(value)
    return text + ("f" if any(mark in text for mark in ".e") else ".0f")


def checked_function(call: Call) -> str:
    """The call's function, which must be one that programs may call."""
    if call.function not in CALLS:
        raise ProgramError(f"{call.function} is not a call that a program may make")
    return call.function


def type_constant(tensor: Tensor) -> str:
    """ggml's name of the tensor's type."""
    assert tensor.type in TYPE_SIZES
    return f"GGML_TYPE_{tensor.type}"
