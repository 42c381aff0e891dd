"""C's functions of float as Scalars: the dialect's text of them (`dialect/functions.h`), executed with Scalars for numbers.

So every renderer computes them alike. What is understood is what that text is made of: declarations, assignments, `if`, `return`,
loops that run a known number of times, and expressions.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from graphc.ir.types import BOOL, F32, I64
from graphc.kernels.gpu.evaluate import KernelFault
from graphc.kernels.gpu.render.c_numbers import I32, U32, U64, Value, chosen, converted, operated, truth
from graphc.kernels.scalar import Scalar, constant, make

TYPES = {"float": F32, "int": I32, "unsigned": U32, "bool": BOOL, "int64_t": I64, "uint64_t": U64}
LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("<<", ">>"), ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
"""Operators, from those that bind least."""
TOKEN = re.compile(
    r"0x[\da-fA-F.]+p[+-]?\d+f?|0x[\da-fA-F]+|\d+\.\d*f?|\d+|\w+|[<>]=|[=!]=|<<|>>|&&|\|\||\+\+|--|[-+*/|&^]=|\S"
)
Places: TypeAlias = "dict[str, Value | list[Value] | Reference]"


@dataclass
class Reference:
    """A variable of a function that another may change."""

    places: Places
    name: str


@dataclass(frozen=True)
class Returned:
    """What a function returns, and what it changes through its parameters."""

    value: Value
    changed: dict[str, Value]


@dataclass(frozen=True)
class Function:
    """A function's parameters and the tokens of its body."""

    parameters: tuple[str, ...]
    types: tuple[np.dtype | None, ...]
    result: np.dtype
    body: tuple[str, ...]


class NotUnderstood(KernelFault):
    """A text is more C than is understood here."""


@functools.cache
def functions() -> dict[str, Function]:
    """The functions of the text."""
    text = files("graphc.kernels.gpu.dialect").joinpath("functions.h").read_text("utf-8")
    text = re.sub(r"//.*|^#.*", "", text, flags=re.MULTILINE)
    found = {}
    for match in re.finditer(r"DEVICE (\w+) (\w+)\((.*?)\) \{(.*?)\}\n(?=\s*(?:DEVICE|$))", text, re.DOTALL):
        result, name, parameters, body = match.groups()
        pairs = [each.strip().rpartition(" ") for each in parameters.split(",")]
        types = tuple(None if place.startswith("*") else TYPES[type] for type, _, place in pairs)
        names = tuple(place.lstrip("*") for _, _, place in pairs)
        found[name] = Function(names, types, TYPES[result], tuple(TOKEN.findall(body)))
    return found


def call(name: str, arguments: Sequence[Value | Reference]) -> Scalar:
    """What a function of the text gives. Raises NotUnderstood."""
    function = functions()[name]
    places: Places = {
        each: value if type is None or isinstance(value, Reference) else converted(value, type)
        for each, type, value in zip(function.parameters, function.types, arguments, strict=True)
    }
    found = _Run(function.body, places).block(len(function.body))
    if found is None:
        raise NotUnderstood(f"{name} returns nothing")
    for each, value in places.items():
        if isinstance(value, Reference):
            value.places[value.name] = found.changed[each]
    return converted(found.value, function.result)


class _Run:
    """Executes tokens, `at` the next one, in a function's places."""

    def __init__(
        self, tokens: Sequence[str], places: Places, at: int = 0, changed: Mapping[str, Value] = MappingProxyType({})
    ) -> None:
        self.tokens, self.places, self.at, self.changed = tokens, places, at, dict(changed)

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if expected is not None and token != expected:
            raise NotUnderstood(f"{token!r} stands where {expected!r} is expected")
        self.at += 1
        return token

    def took(self, token: str) -> bool:
        """True if the next token is this one, which is behind then."""
        if self.peek() != token:
            return False
        self.at += 1
        return True

    # Statements

    def block(self, end: int) -> Returned | None:
        """Statements up to a place; what is returned, or None."""
        while self.at < end:
            if self.took("if"):
                self.take("(")
                condition = self.expression()
                self.take(")")
                begin, after = self.at, self.end_of_statement()
                places = {name: list(each) if isinstance(each, list) else each for name, each in self.places.items()}
                returned = _Run(self.tokens, places, begin, self.changed).block(after)
                self.at = after
                if returned is not None:
                    rest = self.block(end)
                    assert rest is not None
                    names = returned.changed.keys() & rest.changed.keys()
                    changed = {name: chosen(condition, returned.changed[name], rest.changed[name]) for name in names}
                    return Returned(chosen(condition, returned.value, rest.value), changed)
                self.merge(condition, places)
            else:
                returned = self.statement()
                if returned is not None:
                    return returned
        return None

    def merge(self, condition: Value, changed: Places) -> None:
        """What a branch has changed is so where its condition holds."""
        for name, before in self.places.items():
            after = changed[name]
            if isinstance(before, list) and isinstance(after, list):
                before[:] = [b if a is b else chosen(condition, a, b) for a, b in zip(after, before, strict=True)]
            elif (
                after is not before
                and not isinstance(before, list | Reference)
                and not isinstance(after, list | Reference)
            ):
                self.places[name] = chosen(condition, after, before)

    def end_of_statement(self) -> int:
        """The place behind a statement."""
        at = self.at
        while self.tokens[at] in ("for", "if"):
            depth = 0
            while True:
                at += 1
                depth += {"(": 1, ")": -1}.get(self.tokens[at], 0)
                if depth == 0:
                    break
            at += 1
        depth = 0
        while True:
            token = self.tokens[at]
            depth += {"{": 1, "}": -1}.get(token, 0)
            at += 1
            if depth == 0 and token in (";", "}"):
                return at

    def statement(self) -> Returned | None:
        """One statement; what it returns, or None."""
        token = self.peek()
        if self.took("{"):
            self.at -= 1
            end = self.end_of_statement()
            self.at += 1
            found = self.block(end - 1)
            self.at = end
            return found
        if self.took("return"):
            value = self.expression()
            self.take(";")
            return Returned(value, dict(self.changed))
        if self.took("for"):
            self.loop()
        elif token in ("const", "constexpr") or token in TYPES:
            self.declarations()
        else:
            self.assignment()
            self.take(";")
        return None

    def declarations(self) -> None:
        while self.peek() in ("const", "constexpr"):
            self.take()
        dtype = TYPES[self.take()]
        while True:
            name = self.take()
            self.places[name] = 0
            if self.took("["):
                self.take()
                self.take("]")
                self.take("=")
                self.take("{")
                values: list[Value] = [self.expression()]
                while self.took(","):
                    values.append(self.expression())
                self.take("}")
                self.places[name] = [converted(each, dtype) for each in values]
            elif self.took("="):
                value = self.expression()
                self.places[name] = value if not isinstance(value, Scalar) and dtype != F32 else converted(value, dtype)
            if not self.took(","):
                break
        self.take(";")

    def assignment(self) -> None:
        target = self.take()
        if target == "*":
            name = self.take()
            self.take("=")
            self.changed[name] = self.expression()
            return
        if self.took("["):
            number = self.expression()
            self.take("]")
            self.take("=")
            values = self.places[target]
            assert isinstance(values, list)
            assert isinstance(number, int)
            values[number] = self.expression()
            return
        operator, before = self.take(), self.places[target]
        assert not isinstance(before, list | Reference)
        if operator in ("++", "--"):
            self.places[target] = operated(operator[0], before, 1)
        elif operator == "=":
            self.places[target] = self.expression()
        else:
            self.places[target] = operated(operator[0], before, self.expression())

    def loop(self) -> None:
        """A loop whose conditions are known."""
        self.take("(")
        self.declarations()
        condition = self.at
        while True:
            self.at = condition
            holds = truth(self.expression())
            if not isinstance(holds, bool):
                raise NotUnderstood("a loop runs as often as its numbers say")
            self.take(";")
            step = self.at
            while not self.took(")"):
                self.at += 1
            begin, end = self.at, self.end_of_statement()
            if not holds:
                self.at = end
                return
            self.block(end)
            self.at = step
            self.assignment()
            self.at = begin

    # Expressions

    def expression(self) -> Value:
        condition = self.level(0)
        if not self.took("?"):
            return condition
        first = self.expression()
        self.take(":")
        return chosen(condition, first, self.expression())

    def level(self, number: int) -> Value:
        if number == len(LEVELS):
            return self.unary()
        left = self.level(number + 1)
        while self.peek() in LEVELS[number]:
            operator = self.take()
            left = operated(operator, left, self.level(number + 1))
        return left

    def unary(self) -> Value:
        if self.took("-"):
            value = self.unary()
            return -value
        if self.took("!"):
            holds = truth(self.unary())
            return int(not holds) if isinstance(holds, bool) else holds.not_()
        if self.took("("):
            if self.peek() in TYPES:
                dtype = TYPES[self.take()]
                self.take(")")
                return converted(self.unary(), dtype)
            value = self.expression()
            self.take(")")
            return value
        return self.primary(self.take())

    def primary(self, token: str) -> Value:
        if token[0].isdigit():
            return _number(token)
        if token in ("INFINITY", "NAN"):
            return constant(float(token[:3]), F32)
        if self.took("("):
            arguments: list[Value | Reference] = []
            while not self.took(")"):
                arguments.append(Reference(self.places, self.take()) if self.took("&") else self.expression())
                self.took(",")
            return applied(token, arguments)
        found = self.places[token]
        if self.took("["):
            number = self.expression()
            self.take("]")
            assert isinstance(found, list)
            assert isinstance(number, int)
            return found[number]
        assert not isinstance(found, list | Reference)
        return found


def _number(token: str) -> Value:
    if "p" in token or "." in token:
        text = token.removesuffix("f")
        return constant(float.fromhex(text) if text.startswith("0x") else float(text), F32)
    return int(token, 0)


def applied(name: str, arguments: Sequence[Value | Reference]) -> Scalar:
    """A function of the text, or one that the device has."""
    if name in functions():
        return call(name, arguments)
    given = f"graphc_{name}"
    if given in functions() and name not in INSTRUCTIONS:
        return call(given, arguments)
    values = [
        converted(each, U32 if name == "float_of" else F32) for each in arguments if not isinstance(each, Reference)
    ]
    if name == "copysignf":
        size, sign = (make("apply", U32, (each,), "bits_of") for each in values)
        return make("apply", F32, ((size & 0x7FFFFFFF) | (sign & 0x80000000),), "float_of")
    if name not in INSTRUCTIONS:
        raise NotUnderstood(f"{name} is no function of the dialect's text")
    return make("apply", U32 if name == "bits_of" else F32, tuple(values), INSTRUCTIONS[name])


INSTRUCTIONS = {
    "fmaf": "fma", "sqrtf": "sqrt", "rintf": "rint", "truncf": "trunc", "floorf": "floor", "ceilf": "ceil", "fabsf": "fabs",
    "bits_of": "bits_of", "float_of": "float_of",
}  # fmt: skip
"""What devices do by an instruction; the names that nodes of kind `apply` have then."""
