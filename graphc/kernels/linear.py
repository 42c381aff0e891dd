"""Index arithmetic in normal form: sums of sizes times what varies. It makes offsets short and proves conditions.

Indices do not overflow, so these forms are exact for them. Integers that a model computes may wrap around; they come from
loads, about whose values nothing is assumed here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

from graphc.ir.types import I64
from graphc.kernels.scalar import Scalar, constant, make
from graphc.records import dataclass
from graphc.shapes import Dim, Expr, dim_max, dim_min, lower_bound, upper_bound

ARITHMETIC = frozenset({"+", "-", "*", "neg", "//", "%"})


@dataclass(frozen=True)
class Linear:
    """`constant` plus each term: a scalar that is not itself such a sum, times its coefficient (not 0)."""

    terms: Mapping[Scalar, Dim]
    constant: Dim

    def plus(self, other: Linear, factor: Dim = 1) -> Linear:
        """`self + factor * other`."""
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            terms[atom] = terms.get(atom, 0) + factor * coefficient
        return _normal(terms, self.constant + factor * other.constant)

    @property
    def low(self) -> Dim | None:
        """A size that the value is never below, as far as that is known."""
        return _extreme(self, False)

    @property
    def high(self) -> Dim | None:
        """A size that the value never exceeds, as far as that is known."""
        return _extreme(self, True)

    def scalar(self, depth: Callable[[Scalar], int] = lambda atom: 0) -> Scalar:
        """The sum as an expression; terms of the outermost loops come first, so that a prefix can leave the inner loops."""
        parts = sorted(self.terms, key=lambda atom: (depth(atom), _is_negative(self.terms[atom]), repr(atom)))
        outermost = [atom for atom in parts if depth(atom) == depth(parts[0])]
        first = _sum(None, [(atom, self.terms[atom]) for atom in outermost], self.constant)
        return _sum(first, [(atom, self.terms[atom]) for atom in parts[len(outermost) :]], 0)


@functools.lru_cache(maxsize=10_000)
def linear(index: Scalar) -> Linear:
    """The normal form of an int64 scalar."""
    dim = index.dim
    if dim is not None:
        return Linear({}, dim)
    if index.kind != "operate" or index.data not in ARITHMETIC:
        return Linear({index: 1}, 0)
    left = linear(index.args[0])
    if index.data == "neg":
        return ZERO.plus(left, -1)
    right = linear(index.args[1])
    match index.data:
        case "+":
            return left.plus(right)
        case "-":
            return left.plus(right, -1)
        case "*" if not right.terms:
            return ZERO.plus(left, right.constant)
        case "*" if not left.terms:
            return ZERO.plus(right, left.constant)
        case "//" | "%" if not right.terms and is_positive(right.constant):
            return _divided(left, right.constant, str(index.data))
    return Linear({make("operate", I64, (left.scalar(), right.scalar()), index.data): 1}, 0)


ZERO = Linear({}, 0)


def is_positive(dim: Dim) -> bool:
    """True if the size is proven to be at least 1."""
    low = lower_bound(dim)
    return low is not None and low > 0


def compare(operator: str, left: Scalar, right: Scalar) -> bool | None:
    """What a comparison of indices always gives, or None if that is not known."""
    sides = linear(left), linear(right)
    if any(side.low is None or side.high is None for side in sides):
        return None
    difference = sides[1].plus(sides[0], -1)
    low, high = difference.low, difference.high
    least = None if low is None else lower_bound(low)
    most = None if high is None else upper_bound(high)
    below = least is not None and least > 0
    not_below = most is not None and most <= 0
    not_above = least is not None and least >= 0
    above = most is not None and most < 0
    truth = {
        "<": (below, not_below),
        ">=": (not_below, below),
        "<=": (not_above, above),
        ">": (above, not_above),
        "==": (not_above and not_below, below or above),
        "!=": (below or above, not_above and not_below),
    }
    true, false = truth[operator]
    return True if true else False if false else None


def nonnegative(index: Scalar) -> bool:
    """True if the index is proven to be at least 0."""
    low = linear(index).low
    least = None if low is None else lower_bound(low)
    return least is not None and least >= 0


def _extreme(sum: Linear, largest: bool) -> Dim | None:
    total: Dim = sum.constant
    for atom, coefficient in sum.terms.items():
        low, high = bounds(atom)
        if (lower_bound(coefficient) or 0) > 0:
            end = high if largest else low
        elif (upper_bound(coefficient) or 0) < 0:
            end = low if largest else high
        else:
            return None
        if end is None:
            return None
        total = total + coefficient * end
    return total


def bounds(atom: Scalar) -> tuple[Dim | None, Dim | None]:
    """Sizes between which a term lies, both included; None where there is no bound."""
    if atom.kind == "variable":
        return 0, atom.data[1] - 1  # type: ignore[index]
    if atom.kind == "operate" and atom.data in ("max", "min"):
        return _bounds_of_choice(atom)
    if atom.kind != "operate" or atom.data not in ("//", "%"):
        return None, None
    left, right = (linear(arg) for arg in atom.args)
    if right.terms or not is_positive(right.constant):
        return None, None
    if atom.data == "%":
        return 0, right.constant - 1
    low, high = left.low, left.high
    return None if low is None else low // right.constant, None if high is None else high // right.constant


def _bounds_of_choice(atom: Scalar) -> tuple[Dim | None, Dim | None]:
    """Bounds of a maximum or minimum: of the one bound that holds for either operand, and of both."""
    first, second = (linear(arg) for arg in atom.args)
    lows = [low for low in (first.low, second.low) if low is not None]
    highs = [high for high in (first.high, second.high) if high is not None]
    if atom.data == "max":
        low = functools.reduce(dim_max, lows) if lows else None
        return low, dim_max(*highs) if len(highs) == 2 else None
    high = functools.reduce(dim_min, highs) if highs else None
    return dim_min(*lows) if len(lows) == 2 else None, high


def _divided(value: Linear, by: Dim, operator: str) -> Linear:
    """The quotient or the rest of a division. What divides exactly is taken out if that leaves no division: a partial
    quotient would hide that `(x // 4) // 3` and `x // 12` are one."""
    if value.low is not None and value.high is not None:
        quotient = _exact_quotient(value, by)
        if quotient is not None:
            return quotient if operator == "//" else value.plus(quotient, -by)
        factor = _common_factor(value, by)
        if factor > 1:
            return _divided_by_factor(value, by, operator, factor)
    inner = value.scalar()
    if operator == "//" and inner.kind == "operate" and inner.data == "//":
        first = inner.args[1].dim
        if first is not None and is_positive(first) and _fits(first * by):
            inner, by = inner.args[0], first * by
            quotient = _exact_quotient(linear(inner), by)
            if quotient is not None:
                return quotient
    return Linear({make("operate", I64, (inner, _size(by)), operator): 1}, 0)


def _common_factor(value: Linear, by: Dim) -> int:
    """The largest number that divides a size and all terms."""
    sizes = [by, *value.terms.values()]
    return (
        math.gcd(*(size for size in sizes if isinstance(size, int)))
        if all(map(_is_number, [*sizes, value.constant]))
        else 1
    )


def _is_number(dim: Dim) -> bool:
    return isinstance(dim, int)


def _divided_by_factor(value: Linear, by: Dim, operator: str, factor: int) -> Linear:
    """The quotient or the rest, where what is less than a common factor changes no quotient: (8x + 3) // 16 is x // 2."""
    rest = value.constant % factor
    smaller = Linear({atom: each // factor for atom, each in value.terms.items()}, value.constant // factor)
    if operator == "//":
        return _divided(smaller, by // factor, operator)
    return Linear({}, rest).plus(_divided(smaller, by // factor, operator), factor)


def _exact_quotient(value: Linear, by: Dim) -> Linear | None:
    """The quotients of the terms that a size divides, and of the constant rounded down, if what is left is proven to be less."""
    exact = {atom: coefficient // by for atom, coefficient in value.terms.items() if _divides(by, coefficient)}
    static = not isinstance(by, Expr) and not isinstance(value.constant, Expr)
    quotient = Linear(exact, value.constant // by if static or _divides(by, value.constant) else 0)
    return quotient if _within(value.plus(quotient, -by), by) else None


def _divides(by: Dim, dim: Dim) -> bool:
    """True if a size is proven to divide another. No number but 0 is a multiple of a size that is free."""
    return dim == 0 if isinstance(dim, int) and isinstance(by, Expr) else dim % by == 0


def _fits(dim: Dim) -> bool:
    return isinstance(dim, Expr) or dim < 2**63


def _within(value: Linear, by: Dim) -> bool:
    """True if the value is proven to be at least 0 and below a size."""
    low, high = value.low, value.high
    least = None if low is None else lower_bound(low)
    return least is not None and least >= 0 and high is not None and is_positive(by - high)


def _normal(terms: dict[Scalar, Dim], constant: Dim) -> Linear:
    """The sum without zero terms, where `c*b*(x // b) + c*(x % b)` has become `c*x`."""
    terms = {atom: coefficient for atom, coefficient in terms.items() if coefficient != 0}
    for rest, coefficient in terms.items():
        by = rest.args[1].dim if rest.kind == "operate" and rest.data == "%" else None
        if by is None or not is_positive(by):
            continue
        whole = linear(rest.args[0])
        quotient = _divided(whole, by, "//")
        if all(terms.get(atom) == coefficient * by * factor for atom, factor in quotient.terms.items()):
            others = {atom: c for atom, c in terms.items() if atom is not rest and atom not in quotient.terms}
            shift = constant - coefficient * by * quotient.constant
            return Linear(others, shift).plus(whole, coefficient)
    return Linear(terms, constant)


def _is_negative(dim: Dim) -> bool:
    high = upper_bound(dim)
    return high is not None and high < 0


def _sum(total: Scalar | None, terms: Sequence[tuple[Scalar, Dim]], constant: Dim) -> Scalar:
    """A sum as a person writes it: `3 - x`, not `x * -1 + 3`."""
    if total is None and constant != 0 and (not terms or _is_negative(terms[0][1])):
        total, constant = _size(constant), 0
    for atom, coefficient in terms:
        if total is None:
            total = -atom if coefficient == -1 else atom * _size(coefficient)
        elif _is_negative(coefficient):
            total = total - atom * _size(-coefficient)
        else:
            total = total + atom * _size(coefficient)
    if total is None or constant == 0:
        return _size(constant) if total is None else total
    return total - _size(-constant) if _is_negative(constant) else total + _size(constant)


def _size(dim: Dim) -> Scalar:
    """A size as a scalar; what does not fit wraps around, as the arithmetic of the model's integers does."""
    return make("size", I64, (), dim) if isinstance(dim, Expr) else constant((dim + 2**63) % 2**64 - 2**63, I64)
