"""The functions of the C++ code, carried out as C++ does it, make the calls that Python makes."""

from __future__ import annotations

from typing import Any

import pytest
from cpp_programs import PROGRAMS

from graphc.targets.ggml.cpp.functions import Function, Functions, Invocation, _rest
from graphc.targets.ggml.cpp.numbers import numbers
from graphc.targets.ggml.cpp.regions import regions
from graphc.targets.ggml.cpp.weights import WeightTree
from graphc.targets.ggml.lowering.compose import composed
from graphc.targets.ggml.program.program import Program

STRAIGHT = [name for name, make in PROGRAMS.items() if not any(call.host for call in make().calls)]
"""Those that are one graph."""

SIZE = object()
"""A number that a function computes of an operand's sizes."""


class Made:
    """The calls that functions make, one after the other: what is called, tensors by what made them, numbers, and all else."""

    def __init__(self, functions: Functions) -> None:
        self.functions, self.calls = functions, list[tuple[Any, ...]]()
        main = functions.main
        self.results = dict(
            zip(main.results, self.carry_out(main, main.body.arguments, main.body.base, []), strict=True)
        )

    def carry_out(self, function: Function, given: list, base: tuple | None, told: list) -> list:
        """What a function returns that is given tensors, the weights of a module, and numbers. Its text is that of its first
        body, whoever calls it."""
        first, made = function.body, dict[tuple[int, int], Any]()
        paths = self.functions.tree.paths

        def tensor(ref: tuple) -> tuple:
            kind, where = self.functions.operand(first, ref)
            if kind == "weight":
                return "weight", paths.index((*base, *where))
            return made[where] if kind == "local" else given[where]

        def number(position: int, index: int, own: Any) -> Any:
            hole = function.holes.get((position, index))
            return own if hole is None else told[hole] if isinstance(hole, int) else SIZE

        for position, step in enumerate(first.steps):
            read = [tensor(ref) for ref in self.functions.reads(step)]
            values = [number(position, i, each.value) for i, each in enumerate(self.functions.numbers(step))]
            if isinstance(step, Invocation):
                inner = step.body.base
                if inner is not None and first.base is not None:
                    inner = (*base, *inner[len(first.base) :])
                found = self.carry_out(step.function, read, inner, values)
            else:
                call = self.functions.program.calls[step]
                found = [("call", len(self.calls))]
                self.calls.append((call.function, call.kernel, read, values, _rest(call)))
            made.update({(position, i): each for i, each in enumerate(found)})
        return [made[place] for place in function.results]


def order(functions: Functions, steps: list) -> list[int]:
    """The calls of a program in the order in which its regions have them."""
    return [call for step in steps for call in ([step] if isinstance(step, int) else order(functions, step.body.steps))]


@pytest.mark.parametrize("name", STRAIGHT)
def test_the_functions_make_the_calls_of_the_program(name: str) -> None:
    program: Program = composed(PROGRAMS[name]())
    functions = Functions(program, WeightTree([program], "Model"), regions(program))
    made, expected = Made(functions), order(functions, functions.main.body.steps)
    assert sorted(expected) == sorted(set(expected))
    places = {index: place for place, index in enumerate(expected)}
    for index, (function, kernel, read, values, rest) in zip(expected, made.calls, strict=True):
        call = program.calls[index]
        assert (function, kernel, rest) == (call.function, call.kernel, _rest(call))
        refs = functions.reads(index)
        assert read == [("call", places[number]) if kind == "call" else (kind, number) for kind, number in refs]
        for found, own in zip(values, numbers(call), strict=True):
            assert found is SIZE or found == own.value
    for output in program.outputs:
        place = functions.main.body.positions[output.tensor.call]
        assert made.results[place] == ("call", places[output.tensor.call])


def test_callers_that_read_other_tensors_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Functions, "_form", lambda self, body: len(body.steps))
    with pytest.raises(AssertionError):
        test_the_functions_make_the_calls_of_the_program("slopes")


def test_callers_that_have_other_numbers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.targets.ggml.cpp.functions.same", lambda values: True)
    with pytest.raises(AssertionError):
        test_the_functions_make_the_calls_of_the_program("skips")
