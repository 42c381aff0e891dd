"""Sizes as C++: a `Dim` becomes an expression over the members of a struct `sizes`, in arithmetic that never overflows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from graphc.errors import GraphcError
from graphc.shapes import Dim, Expr, symbols
from graphc.shapes.dim import Atom, lower_bound
from graphc.targets.ggml.cpp.names import DERIVED, Names, comment, identifier, string_literal
from graphc.targets.ggml.cpp.parts import host_symbols
from graphc.targets.ggml.program.program import Program

LONGEST = 80
"""Characters of a minimum, maximum or quotient from which on a function computes it."""


@dataclass(frozen=True)
class Solution:
    """How a symbol is read from an input: axis `axis` has the size `factor * symbol + offset`."""

    symbol: Atom
    input: int
    axis: int
    factor: int
    offset: int

    @property
    def plain(self) -> bool:
        """True if the size is the symbol itself."""
        return self.factor == 1 and self.offset == 0


class SizeNames:
    """The symbols of a program and the members of `sizes` that hold them: first those that inputs give."""

    def __init__(self, program: Program) -> None:
        self.solutions = solve(program)
        names = Names(frozenset({"Sizes"}))
        given = [solution.symbol.name for solution in self.solutions]
        self.members: dict[str, str] = {
            name: names.fresh(identifier(name, "size")) for name in dict.fromkeys([*given, *host_symbols(program)])
        }
        self.derived: dict[Atom, tuple[str, str]] = {}

    def expression(self, dim: Dim) -> str:
        """The dim in C++, as an operand of any operator but a product or quotient."""
        if not isinstance(dim, Expr):
            return str(dim)
        parts = []
        for monomial, coefficient in dim.terms:
            factors, rest = [], abs(coefficient)
            for atom in monomial:
                whole = atom.kind == "symbol" and rest % atom.multiple == 0
                factors.append(self._member(atom) if whole else self._atom(atom))
                rest //= atom.multiple if whole else 1
            if rest != 1 or not factors:
                factors.insert(0, str(rest))
            parts.append((" - " if coefficient < 0 else " + ") + " * ".join(factors))
        text = "".join(parts)
        return text[3:] if text.startswith(" + ") else "-" + text[3:]

    def operand(self, dim: Dim) -> str:
        """The dim in C++, as an operand of any operator."""
        text = self.expression(dim)
        return f"({text})" if " " in text or text.startswith("-") else text

    def functions(self) -> str:
        """The functions that compute the derived sizes of which the expressions so far are made."""
        return "\n".join(
            f"/// {comment(str(atom))}\ngraphc::Size {name}(const Sizes & sizes) {{\n    return {text};\n}}\n"
            for atom, (name, text) in self.derived.items()
        )

    def _member(self, symbol: Atom) -> str:
        """The symbol's own value; where an atom stands for it, it is divided by what it is a multiple of."""
        return f"sizes.{self.members[symbol.name]}"

    def _atom(self, atom: Atom) -> str:
        """An atom; one that takes long to say is called by a name."""
        if atom not in self.derived:
            text = self._spelled(atom)
            if len(text) <= LONGEST:
                return text
            self.derived[atom] = f"{DERIVED}{len(self.derived) + 1}", text
        return f"{self.derived[atom][0]}(sizes)"

    def _spelled(self, atom: Atom) -> str:
        if atom.kind == "symbol":
            return self._member(atom) if atom.multiple == 1 else f"({self._member(atom)} / {atom.multiple})"
        left, right = atom.args
        if atom.kind in ("min", "max"):
            return f"std::{atom.kind}<graphc::Size>({self.expression(left)}, {self.expression(right)})"
        if _at_least(left, 0) and _at_least(right, 1):
            operator = "/" if atom.kind == "//" else "%"
            return f"({self.operand(left)} {operator} {self.operand(right)})"
        function = "floor_div" if atom.kind == "//" else "floor_mod"
        return f"graphc::{function}({self.expression(left)}, {self.expression(right)})"


def solve(program: Program) -> list[Solution]:
    """Where each symbol is read from, in an order that depends on the program alone.

    Raises GraphcError with the names of symbols that no input gives.
    """
    found: dict[str, Solution] = {}
    for index, declared in enumerate(program.inputs):
        for axis, dim in enumerate(declared.shape):
            solution = _linear(dim, index, axis)
            if solution is None:
                continue
            known = found.setdefault(solution.symbol.name, solution)
            if solution.plain and not known.plain:
                found[solution.symbol.name] = solution
    missing = sorted(set(symbols(*_sizes(program))) - set(found) - set(host_symbols(program)))
    if missing:
        raise GraphcError(f"no input has the size {', '.join(missing)} on an axis of its own, so it cannot be read")
    return list(found.values())


def symbol_limits(atom: Atom) -> str:
    """The C++ initializer of a `graphc::Symbol`."""
    high = "std::numeric_limits<int64_t>::max()" if atom.high is None else str(atom.high)
    parts = [string_literal(atom.name), str(atom.low), high, str(atom.multiple)]
    while len(parts) > 1 and parts[-1] == ["", "1", "std::numeric_limits<int64_t>::max()", "1"][len(parts) - 1]:
        parts.pop()
    return f"{{{', '.join(parts)}}}"


def _at_least(dim: Dim, limit: int) -> bool:
    low = lower_bound(dim)
    return low is not None and low >= limit


def _linear(dim: Dim, input: int, axis: int) -> Solution | None:
    if not isinstance(dim, Expr):
        return None
    terms: Mapping[tuple[Atom, ...], int] = dict(dim.terms)
    offset = terms.get((), 0)
    rest = [(monomial, factor) for monomial, factor in terms.items() if monomial]
    if len(rest) != 1 or len(rest[0][0]) != 1 or rest[0][0][0].kind != "symbol":
        return None
    (atom,), factor = rest[0]
    return None if factor % atom.multiple else Solution(atom, input, axis, factor // atom.multiple, offset)


def _sizes(program: Program) -> Iterable[Dim]:
    for declared in program.inputs:
        yield from declared.shape
    for output in program.outputs:
        yield from output.shape
    for call in program.calls:
        yield from call.result.ne
        yield from (arg for arg in call.args if isinstance(arg, int | Expr))
        for block in call.host.blocks if call.host else ():
            yield from _sizes(block)
    for check in program.checks:
        yield from (check.left, check.right)
