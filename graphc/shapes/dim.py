"""`Dim`: an integer, or a polynomial over symbols.

A size that the exporter named stays a symbol through every stage. A `Dim` is a plain Python `int` wherever it can be
(so static models pay nothing), else an `Expr`: a sum of monomials with integer coefficients. A monomial is a product of
atoms; an atom is a named symbol, or a function (`//`, `%`, `min`, `max`) of other dims that does not simplify.
Sizes are proven to agree by `==`, which compares canonical forms: `(h - 1)//2 + 1` is `(h + 1)//2`, however it was written.

Symbols stand for sizes: integers of at least 1 unless declared otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd, inf, prod
from numbers import Integral
from operator import attrgetter, floordiv, mod
from typing import TypeAlias, Union
from zlib import crc32


class Undecidable(Exception):
    """A comparison of symbolic sizes whose answer depends on their values."""


@dataclass(frozen=True, order=True)
class Atom:
    """A symbol (`kind == "symbol"`), or a function of dims that stays unevaluated.

    `low` and `high` bound a symbol (`high` is None when unbounded). A symbol that is known to be a multiple of some number
    is written as that number times its quotient, and the atom stands for the quotient: so `(h - 1) // 4` of an `h` that
    is a multiple of 8 is `2 * (h // 8) - 1` without further ado.
    """

    kind: str
    name: str
    args: tuple[Dim, ...] = ()
    low: int = 1
    high: int | None = None
    multiple: int = 1

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self._fields)

    @property
    def _fields(self) -> tuple[object, ...]:
        return self.kind, self.name, self.args, self.low, self.high, self.multiple

    def __reduce__(self) -> tuple[object, ...]:
        return Atom, self._fields  # without what is kept: hashes of strings are others in another process

    @cached_property
    def text(self) -> str:
        """How it is written; also what orders atoms, wherefore it is kept."""
        if self.kind == "symbol":
            return self.name if self.multiple == 1 else f"({self.name}//{self.multiple})"
        left, right = self.args
        if self.kind in ("min", "max"):
            return f"{self.kind}({left}, {right})"
        return f"({_parenthesized(left)}{self.kind}{_parenthesized(right)})"

    @cached_property
    def samples(self) -> tuple[int, ...]:
        """Its values for some values of the symbols. Raises ZeroDivisionError."""
        if self.kind == "symbol":
            first = -(-self.low // self.multiple)
            room = SAMPLED if self.high is None else min(SAMPLED, self.high // self.multiple - first + 1)
            return tuple(first + crc32(f"{self.name} {index}".encode()) % max(room, 1) for index in range(SAMPLES))
        return tuple(FUNCTIONS[self.kind](*(_sample(arg, index) for arg in self.args)) for index in range(SAMPLES))


Monomial: TypeAlias = tuple[Atom, ...]  # sorted, repeated for powers


SAMPLES = 2
"""How many values of symbols are tried, to tell polynomials apart."""

SAMPLED = 1 << 20
"""Values of a symbol from its least on, among which those are."""

FUNCTIONS: Mapping[str, Callable[[int, int], int]] = {"//": floordiv, "%": mod, "min": min, "max": max}


class Expr:
    """A sum of monomials: `{(h, h): 2, (w,): 1, (): 3}` is 2*h*h + w + 3. Immutable."""

    __slots__ = ("_canonical", "_hash", "_samples", "only", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        found = tuple(terms.items())
        if len(found) > 1:
            found = tuple(sorted(found, key=lambda item: (-len(item[0]), _key(item[0]))))
        self.terms: tuple[tuple[Monomial, int], ...] = found
        self.only = _only(found)
        """The symbol that it is, if it is nothing else."""
        self._canonical: Dim | None = None
        self._samples: tuple[int, ...] | None = None
        self._hash: int | None = None

    @property
    def samples(self) -> tuple[int, ...]:
        """Its values for some values of the symbols, by which most polynomials that differ are told apart; none, where one of its
        divisors is 0 there."""
        if self._samples is None:
            try:
                self._samples = tuple(_sample(self, index) for index in range(SAMPLES))
            except ZeroDivisionError:
                self._samples = ()
        return self._samples

    @property
    def canonical(self) -> Dim:
        """What all ways of writing this polynomial have in common, as far as it is known."""
        if self._canonical is None:
            functions = any(atom.kind != "symbol" for monomial, _ in self.terms for atom in monomial)
            found = _rewritten(_plain(self), _split) if functions else self
            if isinstance(found, Expr):
                found._canonical = found
            self._canonical = found
        return self._canonical

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.samples)
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Expr) or self.samples != other.samples:
            return False
        if self.terms == other.terms:
            return True
        left, right = self.canonical, other.canonical
        return left.terms == right.terms if isinstance(left, Expr) and isinstance(right, Expr) else left == right

    def __add__(self, other: Dim) -> Dim:
        if not _is_dim(other):
            return NotImplemented
        return _number_if_one(_sum((self, 1), (other, 1)))

    def __sub__(self, other: Dim) -> Dim:
        if not _is_dim(other):
            return NotImplemented
        return _number_if_one(_sum((self, 1), (other, -1)))

    def __rsub__(self, other: Dim) -> Dim:
        return _number_if_one(_sum((other, 1), (self, -1)))

    def __mul__(self, other: Dim) -> Dim:
        if not _is_dim(other):
            return NotImplemented
        if not isinstance(other, Expr):
            return _normal({monomial: a * int(other) for monomial, a in self.terms})
        result: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in _terms(other):
                monomial = tuple(sorted(left + right, key=attrgetter("text")))
                result[monomial] = result.get(monomial, 0) + a * b
        return _normal(result)

    def __neg__(self) -> Dim:
        return _number_if_one(self * -1)

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return _number_if_one(_floordiv(self, other)) if _is_dim(other) else NotImplemented

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _number_if_one(_floordiv(other, self))

    def __mod__(self, other: Dim) -> Dim:
        return _number_if_one(_mod(self, other)) if _is_dim(other) else NotImplemented

    def __rmod__(self, other: Dim) -> Dim:
        return _number_if_one(_mod(other, self))

    def __lt__(self, other: Dim) -> bool:
        return decide(other - self, "positive") if _is_dim(other) else NotImplemented

    def __gt__(self, other: Dim) -> bool:
        return decide(self - other, "positive") if _is_dim(other) else NotImplemented

    def __le__(self, other: Dim) -> bool:
        return not self > other if _is_dim(other) else NotImplemented

    def __ge__(self, other: Dim) -> bool:
        return not self < other if _is_dim(other) else NotImplemented

    def __bool__(self) -> bool:
        if lower_bound(self) is not None and lower_bound(self) > 0:  # type: ignore[operator]
            return True
        raise Undecidable(f"whether {self} is zero")

    def __str__(self) -> str:
        parts: list[str] = []
        for monomial, coefficient in self.terms:
            rest, factors = abs(coefficient), []
            for atom in monomial:
                whole = atom.kind == "symbol" and rest % atom.multiple == 0
                rest //= atom.multiple if whole else 1
                factors.append(atom.name if whole else str(atom))
            if not factors or rest != 1:
                factors.insert(0, str(rest))
            sign = "-" if coefficient < 0 else "+"
            parts.append(f" {sign} " + "*".join(factors))
        text = "".join(parts)
        return text[3:] if text.startswith(" + ") else "-" + text[3:]

    __repr__ = __str__


Dim: TypeAlias = Union[int, Expr]


def _is_dim(other: object) -> bool:
    """False for what has its own arithmetic with sizes, which then decides."""
    return isinstance(other, Expr | int | Integral)


def _key(monomial: Monomial) -> tuple[str, ...]:
    """An order on monomials that does not depend on how they were built."""
    return tuple(atom.text for atom in monomial)


def symbol(name: str, low: int = 1, high: int | None = None, multiple: int = 1) -> Expr:
    """A named size between `low` and `high` (inclusive) that is a multiple of `multiple`."""
    return Expr({(Atom("symbol", name, (), low, high, multiple),): multiple})


def is_static(*dims: Dim) -> bool:
    """True if every dim is a plain integer."""
    return all(not isinstance(dim, Expr) for dim in dims)


def is_polynomial(dim: Dim) -> bool:
    """True if there are no functions in the dim, but symbols alone."""
    return all(atom.kind == "symbol" for monomial, _ in _terms(dim) for atom in monomial)


def static_shape(shape: Iterable[Dim]) -> tuple[int, ...] | None:
    """The shape as plain integers, or None if a size is symbolic."""
    dims = tuple(shape)
    return tuple(int(dim) for dim in dims if not isinstance(dim, Expr)) if is_static(*dims) else None


def product(dims: Iterable[Dim]) -> Dim:
    """The product of sizes; 1 if there are none."""
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def ceil_div(a: Dim, b: Dim) -> Dim:
    """The quotient rounded up."""
    return -((-a) // b)


def dim_min(a: Dim, b: Dim) -> Dim:
    """The smaller of two sizes."""
    return _number_if_one(_choose("min", a, b))


def dim_max(a: Dim, b: Dim) -> Dim:
    """The larger of two sizes."""
    return _number_if_one(_choose("max", a, b))


def symbols(*dims: Dim) -> dict[str, Atom]:
    """Every named symbol that occurs in the dims, by name."""
    found: dict[str, Atom] = {}

    def visit(dim: Dim) -> None:
        if isinstance(dim, Expr):
            for monomial, _ in dim.terms:
                for atom in monomial:
                    if atom.kind == "symbol":
                        found[atom.name] = atom
                    for arg in atom.args:
                        visit(arg)

    for dim in dims:
        visit(dim)
    return found


def only_symbol(dim: Dim) -> Atom | None:
    """The symbol that a size is, if it is nothing else."""
    return dim.only if isinstance(dim, Expr) else None


def _only(terms: Sequence[tuple[Monomial, int]]) -> Atom | None:
    if len(terms) != 1 or len(terms[0][0]) != 1:
        return None
    ((atom,), coefficient) = terms[0]
    return atom if atom.kind == "symbol" and atom.multiple == coefficient else None


def bind(dim: Dim, binding: Mapping[str, Dim]) -> Dim:
    """The dim with symbols replaced; an `int` when all of them have integer values.

    Raises KeyError with the symbol's name if one is missing.
    """
    if not isinstance(dim, Expr):
        return dim
    total: Dim = 0
    for monomial, coefficient in dim.terms:
        total = total + coefficient * product(_bind_atom(atom, binding) for atom in monomial)
    return total


def bind_known(dim: Dim, values: Mapping[str, int]) -> Dim:
    """The size with the symbols that have a value; the others stay."""
    free: dict[str, Dim] = {name: _atom(atom) for name, atom in symbols(dim).items()}
    return bind(dim, {**free, **values})


def integer(dim: Dim, binding: Mapping[str, int]) -> int:
    """The dim's value where every symbol has one. Raises KeyError with a missing symbol's name, and ZeroDivisionError."""
    if not isinstance(dim, Expr):
        return dim
    if (only := dim.only) is not None and only.multiple == 1:
        return binding[only.name]
    total = 0
    for monomial, coefficient in dim.terms:
        for atom in monomial:
            if atom.kind == "symbol":
                coefficient *= binding[atom.name] // atom.multiple
            else:
                left, right = atom.args
                coefficient *= FUNCTIONS[atom.kind](integer(left, binding), integer(right, binding))
        total += coefficient
    return total


class Values:
    """The values of dims where every symbol has one, as `integer` gives them: each is computed when it is asked for first."""

    def __init__(self, binding: Mapping[str, int]) -> None:
        self._binding = binding
        self._found: dict[int, tuple[Dim, int]] = {}

    def __getitem__(self, dim: Dim) -> int:
        if not isinstance(dim, Expr):
            return dim
        found = self._found.get(id(dim))
        if found is None:
            found = self._found[id(dim)] = dim, integer(dim, self._binding)
        return found[1]


def lower_bound(dim: Dim) -> int | None:
    """The largest integer that the dim is proven never to be below, or None."""
    return _least(dim, RELAXED)


def upper_bound(dim: Dim) -> int | None:
    """The smallest integer that the dim is proven never to exceed, or None."""
    least = _least(-dim, RELAXED)
    return None if least is None else -least


def divisible(dim: Dim, factor: int) -> bool:
    """True if `factor` is proven to divide the dim."""
    return dim % factor == 0


def decide(dim: Dim, question: str) -> bool:
    """True if a dim is positive. Raises Undecidable where that depends on symbols."""
    low = lower_bound(dim)
    if low is not None and low > 0:
        return True
    high = upper_bound(dim)
    if high is not None and high <= 0:
        return False
    raise Undecidable(f"whether {dim} is {question}")


def _parenthesized(dim: Dim) -> str:
    return f"({dim})" if isinstance(dim, Expr) and _only_atom(dim) is None else str(dim)


def _atom(atom: Atom) -> Expr:
    return Expr({(atom,): 1})


def _terms(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    return dim.terms if isinstance(dim, Expr) else (((), int(dim)),)


def _normal(terms: dict[Monomial, int]) -> Dim:
    terms = {monomial: coefficient for monomial, coefficient in terms.items() if coefficient}
    if not terms:
        return 0
    if len(terms) == 1 and () in terms:
        return terms[()]
    return Expr(terms)


def _sum(*parts: tuple[Dim, int]) -> Dim:
    result: dict[Monomial, int] = {}
    for dim, sign in parts:
        for monomial, coefficient in _terms(dim):
            result[monomial] = result.get(monomial, 0) + sign * coefficient
    return _normal(result)


def _divide_exactly(dim: Dim, by: Dim) -> Dim | None:
    """The quotient if `by` divides `dim` as a polynomial, else None: long division, from the leading terms on."""
    leading, scale = _terms(by)[0]
    if len(_terms(by)) == 1:
        parts = [_divide_term(monomial, coefficient, leading, scale) for monomial, coefficient in _terms(dim)]
        return None if None in parts else _normal(dict(part for part in parts if part is not None))
    quotient: Dim = 0
    while dim != 0:
        part = _divide_term(*_terms(dim)[0], leading, scale)
        if part is None:
            return None
        step = _normal(dict([part]))
        quotient, dim = quotient + step, dim - by * step
    return quotient


def _exact_quotient(dim: Dim, by: Dim) -> Dim | None:
    """As `_divide_exactly`, also where remainders and quotients have to be written in another way."""
    exact = _divide_exactly(dim, by)
    if exact is None and isinstance(dim, Expr) and dim.samples:
        numbers = zip(dim.samples, by.samples if isinstance(by, Expr) else SAMPLES * (by,), strict=False)
        if all(right and left % right == 0 for left, right in numbers):
            exact = _divide_exactly(_plain(dim), by)
            return _divide_exactly(dim.canonical, by) if exact is None else exact
    return exact


def _divide_term(monomial: Monomial, coefficient: int, by: Monomial, scale: int) -> tuple[Monomial, int] | None:
    rest = list(monomial)
    for atom in by:
        if atom not in rest:
            return None
        rest.remove(atom)
    return None if coefficient % scale else (tuple(rest), coefficient // scale)


def _floordiv(a: Dim, b: Dim) -> Dim:
    if is_static(a, b):
        return int(a) // int(b)  # type: ignore[arg-type]
    if b == 1 or a == 0:
        return a
    exact = _exact_quotient(a, b)
    if exact is not None and (_divide_exactly(a, b) is not None or len(str(exact)) <= len(str(a))):
        return exact
    if not isinstance(b, Expr):
        # (k*q + r) // k is q + r // k for integers, whatever their signs.
        whole = {m: c // b for m, c in _terms(a) if c % b == 0}
        rest = _normal({m: c for m, c in _terms(a) if c % b})
        if whole:
            return _normal(whole) + _floordiv(rest, b)
        common = gcd(b, *(c for _, c in _terms(a)))
        if common > 1:
            return _floordiv(_normal({m: c // common for m, c in _terms(a)}), b // common)
        low, high = _interval(a)
        if low is not None and high is not None and low // b == high // b:
            return low // b
        inner = _only_atom(a)
        if inner is not None and inner.kind == "//" and not isinstance(inner.args[1], Expr) and b > 0:
            return _floordiv(inner.args[0], inner.args[1] * b)
    return _atom(Atom("//", "", (a, b)))


def _mod(a: Dim, b: Dim) -> Dim:
    if is_static(a, b):
        return int(a) % int(b)  # type: ignore[arg-type]
    if a == 0 or _exact_quotient(a, b) is not None:
        return 0
    if not isinstance(b, Expr):
        rest = _normal({m: c % b for m, c in _terms(a)})
        if not isinstance(rest, Expr):
            return rest % b
        low, high = _interval(rest)
        if low is not None and high is not None and low >= 0 and high < b:
            return rest
        a = rest
    return _atom(Atom("%", "", (a, b)))


def _sample(dim: Dim, index: int) -> int:
    """The value for some values of the symbols. Raises ZeroDivisionError."""
    if not isinstance(dim, Expr):
        return int(dim)
    return sum(coefficient * prod(atom.samples[index] for atom in monomial) for monomial, coefficient in dim.terms)


def _number_if_one(dim: Dim) -> Dim:
    """The number, where a polynomial is one however its functions are written."""
    if not isinstance(dim, Expr) or len({*dim.samples}) > 1:
        return dim
    return dim if isinstance(dim.canonical, Expr) else dim.canonical


def _rewritten(dim: Dim, rule: Callable[[Atom], Dim]) -> Dim:
    """The polynomial with something else for each of its atoms."""
    total: Dim = 0
    for monomial, coefficient in _terms(dim):
        term: Dim = coefficient
        for atom in monomial:
            term = rule(atom) * term
        total = _sum((total, 1), (term, 1))
    return total


def _plain(dim: Dim) -> Dim:
    """The same polynomial without remainders, and with each quotient as `_plain_quotient` has it."""
    return _rewritten(dim, _plain_atom)


@lru_cache(maxsize=1 << 14)
def _plain_atom(atom: Atom) -> Dim:
    if atom.kind == "symbol":
        return _atom(atom)
    left, right = (_plain(arg) for arg in atom.args)
    if atom.kind == "max":
        return _largest([left, right])
    if atom.kind == "min":
        return _largest([left * -1, right * -1]) * -1
    if right == 0:
        return _atom(atom)
    if isinstance(right, Expr):
        exact = _divide_exactly(left, right)
        quotient = _atom(Atom("//", "", (left, right))) if exact is None else exact
    else:
        quotient = _plain_quotient(left if right > 0 else left * -1, abs(right))
    return quotient if atom.kind == "//" else _sum((left, 1), (right * quotient, -1))


def _plain_quotient(dim: Dim, by: int) -> Dim:
    """`dim // by` of a plain dim and a positive number: no coefficient is negative or reaches `by`, the first one is at most half
    of it, and a quotient that is divided again is one quotient."""
    whole = _normal({monomial: c // by for monomial, c in _terms(dim)})
    rest = {monomial: c % by for monomial, c in _terms(dim) if c % by}
    constant = rest.pop((), 0)
    if not rest:
        return whole
    common = gcd(by, *rest.values())
    by, constant, rest = by // common, constant // common, {monomial: c // common for monomial, c in rest.items()}
    left = _normal({**rest, (): constant})
    if by == 1:
        return _sum((whole, 1), (left, 1))
    low, high = _interval(left)
    if low is not None and high is not None and low // by == high // by:
        return _sum((whole, 1), (low // by, 1))
    order = sorted(rest, key=_key)
    for atom in (monomial[0] for monomial in order if rest[monomial] == len(monomial) == 1):
        if atom.kind == "//" and not isinstance(atom.args[1], Expr):
            numerator, divisor = atom.args
            others = _sum((left, 1), (_atom(atom), -1))
            merged = _plain_quotient(_sum((numerator, 1), (others * divisor, 1)), atom.args[1] * by)
            return _sum((whole, 1), (merged, 1))
    if [rest[each] for each in order] > [by - rest[each] for each in order]:
        turned = _normal({**{monomial: by - c for monomial, c in rest.items()}, (): by - 1 - constant})
        return _sum((whole, 1), (_normal(dict.fromkeys(rest, 1)), 1), (_plain_quotient(turned, by), -1))
    return _sum((whole, 1), (_atom(Atom("//", "", (left, by))), 1))


MOST_CHOICES = 8
"""Among how many dims the largest is looked for."""


def _largest(dims: Sequence[Dim]) -> Dim:
    """The largest of plain dims, as one of them and how much another is above it: `max(8, h)` and `max(h - 8, 0)` are `8 + x`
    and `x`. None of them is a sum with a largest one, or never above another."""
    choices: list[Dim] = []
    waiting = [*dims]
    while waiting:
        dim = waiting.pop()
        inner = next((m[0] for m, c in _terms(dim) if c == len(m) == 1 and m[0].kind == "max"), None)
        if inner is not None and len(choices) + len(waiting) < MOST_CHOICES:
            waiting += [_sum((dim, 1), (_atom(inner), -1), (arg, 1)) for arg in inner.args]
        elif not any(_never_above(dim, other) for other in (*choices, *waiting)):
            choices = [*(other for other in choices if not _never_above(other, dim)), dim]
    first, *others = sorted(choices, key=str)
    if len(others) == 1:
        difference = _sum((others[0], 1), (first, -1))
        if _terms(difference)[0][1] < 0:
            first, difference = others[0], _sum((first, 1), (others[0], -1))
        return _sum((first, 1), (_atom(Atom("max", "", (0, difference))), 1))
    for other in others:
        first = _atom(Atom("max", "", (first, other)))
    return first


def _never_above(dim: Dim, other: Dim) -> bool:
    high = _interval(_sum((dim, 1), (other, -1)))[1]
    return high is not None and high <= 0


PARTS = (2, 3, 5, 7)
"""The numbers of parts for which a quotient is what a coarser one leaves of the others."""


def _split(atom: Atom) -> Dim:
    """By Hermite's identity, `x//2 + (x + 1)//2` is `x`, the last of several quotients in the others."""
    left, by = atom.args if atom.kind == "//" else (0, 0)
    if isinstance(by, Expr) or by == 0:
        return _atom(atom)
    constant = dict(_terms(left)).get((), 0)
    for count in (each for each in PARTS if by % each == 0 and constant >= by - by // each):
        step = by // count
        first = _sum((left, 1), (step - by, 1))
        others = (_plain_quotient(_sum((first, 1), (place * step, 1)), by) for place in range(count - 1))
        return _rewritten(_sum((_plain_quotient(first, step), 1), *((each, -1) for each in others)), _split)
    return _atom(atom)


def _choose(kind: str, a: Dim, b: Dim) -> Dim:
    if a == b:
        return a
    smaller, larger = (a, b) if kind == "min" else (b, a)
    low, high = lower_bound(a - b), upper_bound(a - b)
    if high is not None and high <= 0:
        return smaller
    if low is not None and low >= 0:
        return larger
    common = gcd(*(coefficient for dim in (a, b) for _, coefficient in _terms(dim)))
    if common > 1:
        a, b = (_normal({monomial: coefficient // common for monomial, coefficient in _terms(dim)}) for dim in (a, b))
    return common * _atom(Atom(kind, "", tuple(sorted((a, b), key=str))))


def _only_atom(dim: Dim) -> Atom | None:
    terms = _terms(dim)
    return terms[0][0][0] if len(terms) == 1 and len(terms[0][0]) == 1 and terms[0][1] == 1 else None


def _bind_atom(atom: Atom, binding: Mapping[str, Dim]) -> Dim:
    if atom.kind == "symbol":
        return binding[atom.name] // atom.multiple
    left, right = (bind(arg, binding) for arg in atom.args)
    if atom.kind in ("min", "max"):
        return _choose(atom.kind, left, right)
    return left // right if atom.kind == "//" else left % right


RELAXED = 3
"""How many functions of an expression are replaced by what bounds them, to prove a bound of the whole."""


@lru_cache(maxsize=1 << 16)
def _least(dim: Dim, depth: int) -> int | None:
    """A lower bound: that of the interval, or a better one where `h - min(h, w)` is at least `h - h`, or where all terms have a
    factor that is never negative."""
    bounds = [_interval(dim)[0]]
    terms = _terms(dim) if depth else ()
    for monomial, coefficient in terms:
        if len(monomial) == 1:
            rest = dim - coefficient * _atom(monomial[0])
            for below, divisor in _below(monomial[0], coefficient):
                deeper = (
                    depth if len(below) == 2 and depth == RELAXED else depth - 1
                )  # a choice between two loses nothing
                leasts = [_least(divisor * rest + term, deeper) for term in below]
                known = [-(-least // divisor) for least in leasts if least is not None]
                bounds.append(min(known) if len(known) == len(leasts) else None)
    for atom in dict.fromkeys(terms[0][0]) if len(terms) > 1 else ():
        factor = _atom(atom)
        quotient = _divide_exactly(dim, factor)
        if quotient is not None and _at_least(factor, 0) and _not_negative(_least(quotient, depth - 1)):
            bounds.append(0)
    return max((bound for bound in bounds if bound is not None), default=None)


def _below(atom: Atom, coefficient: int) -> Iterable[tuple[tuple[Dim, ...], int]]:
    """What `coefficient * atom` is never below: the least of simpler dims, to be divided by a number."""
    if atom.kind == "symbol":
        return
    left, right = atom.args
    if atom.kind in ("min", "max"):
        sides = coefficient * left, coefficient * right
        if atom.kind == ("min" if coefficient < 0 else "max"):  # it is the larger of the two
            yield sides[:1], 1
            yield sides[1:], 1
        else:
            yield sides, 1
    elif atom.kind == "//" and not isinstance(right, Expr) and right > 0:
        yield ((coefficient * left if coefficient < 0 else coefficient * (left - right + 1)),), right
    elif atom.kind == "%" and coefficient < 0 and _at_least(left, 0) and _at_least(right, 1):
        yield (coefficient * left,), 1


def _not_negative(bound: int | None) -> bool:
    return bound is not None and bound >= 0


def _at_least(dim: Dim, bound: int) -> bool:
    low = _interval(dim)[0]
    return low is not None and low >= bound


Interval: TypeAlias = tuple[int | None, int | None]


def _interval(dim: Dim) -> Interval:
    low: int | None = 0
    high: int | None = 0
    for monomial, coefficient in _terms(dim):
        term: Interval = (coefficient, coefficient)
        for atom in monomial:
            term = _multiply(term, _atom_interval(atom))
        low = None if low is None or term[0] is None else low + term[0]
        high = None if high is None or term[1] is None else high + term[1]
    return low, high


def _multiply(a: Interval, b: Interval) -> Interval:
    """Interval product."""
    ends = [(-inf if low is None else low, inf if high is None else high) for low, high in (a, b)]
    corners = [0 if 0 in (x, y) else x * y for x in ends[0] for y in ends[1]]
    low, high = min(corners), max(corners)
    return (None if low == -inf else int(low)), (None if high == inf else int(high))


def _atom_interval(atom: Atom) -> Interval:
    if atom.kind == "symbol":
        return -(-atom.low // atom.multiple), None if atom.high is None else atom.high // atom.multiple
    left, right = atom.args
    (a_low, a_high), (b_low, b_high) = _interval(left), _interval(right)
    if atom.kind == "%":
        return (0, b_high - 1 if b_high is not None else None) if b_low is not None and b_low > 0 else (None, None)
    if atom.kind == "//":
        return _divide_interval((a_low, a_high), b_low, b_high)
    lows, highs = [x for x in (a_low, b_low) if x is not None], [x for x in (a_high, b_high) if x is not None]
    if atom.kind == "min":
        return (min(lows) if len(lows) == 2 else None), (min(highs) if highs else None)
    return (max(lows) if lows else None), (max(highs) if len(highs) == 2 else None)


def _divide_interval(a: Interval, b_low: int | None, b_high: int | None) -> Interval:
    """What a quotient, rounded down, of numbers in these ranges lies between; the divisor must be positive."""
    if b_low is None or b_low <= 0:
        return None, None
    low, high = a
    if low is not None:
        low = low // b_low if low < 0 else low // b_high if b_high is not None else 0
    if high is not None:
        high = high // b_low if high >= 0 else high // b_high if b_high is not None else -1
    return low, high
