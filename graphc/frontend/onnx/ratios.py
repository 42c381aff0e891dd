"""Sizes divided by numbers: what a model that computes sizes in floating point means by `floor(h * 0.5)`.

A `Ratio` is a size over a positive integer, exact where a float is rounded. Only numbers are taken for which the float's
result is certainly that of exact arithmetic: multiplication by fractions of small powers of two, division by integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Any, TypeAlias

import numpy as np

from graphc.ir.types import FLOATS
from graphc.ops.base import Op
from graphc.ops.pointwise import Binary, Cast, Unary
from graphc.shapes import Dim, Expr, Undecidable, is_static, lower_bound

FINEST = 1 << 10
"""The largest denominator of a number by which a size is multiplied."""


@dataclass(frozen=True)
class Ratio:
    """`numerator / denominator`, which is not a size."""

    numerator: Dim
    denominator: int


Number: TypeAlias = "Dim | Ratio"


def ratio(numerator: Dim, denominator: int) -> Number:
    """The quotient, as a size if it is one."""
    if denominator < 0:
        numerator, denominator = -numerator, -denominator
    if numerator % denominator == 0:
        return numerator // denominator
    if not isinstance(numerator, Expr):
        common = gcd(numerator, denominator)
        return Ratio(numerator // common, denominator // common)
    return Ratio(numerator, denominator)


def numbers(array: np.ndarray) -> np.ndarray | None:
    """A float array's elements as exact numbers; None if one is not a fraction of a small power of two."""
    if array.dtype == object:
        return array
    result = np.empty(array.shape, object)
    for place, element in np.ndenumerate(array.astype(np.float64)):
        if not np.isfinite(element):
            return None
        exact = Fraction(float(element))
        if exact.denominator > FINEST:
            return None
        result[place] = ratio(exact.numerator, exact.denominator)
    return result


def _split(x: Number) -> tuple[Dim, int]:
    return (x.numerator, x.denominator) if isinstance(x, Ratio) else (x, 1)


def _add(a: Number, b: Number) -> Number:
    (n, d), (m, e) = _split(a), _split(b)
    return ratio(n * e + m * d, d * e)


def _multiply(a: Number, b: Number) -> Number:
    (n, d), (m, e) = _split(a), _split(b)
    return ratio(n * m, d * e)


def _divide(a: Number, b: Number) -> Number:
    (n, d), (m, e) = _split(a), _split(b)
    if not isinstance(m, Expr):
        if m == 0 or e != 1:
            raise Undecidable(f"the quotient of {a} and {b}")
        return ratio(n, d * m)
    above, below = n * e, m * d
    if above % below != 0:
        raise Undecidable(f"whether {below} divides {above}")
    return above // below


def _floor(x: Number) -> Number:
    n, d = _split(x)
    return n // d


def _truncate(x: Number) -> Number:
    n, d = _split(x)
    if d == 1:
        return n
    least = lower_bound(n)
    if least is None or least < 0:
        raise Undecidable(f"whether {n} is negative")
    return n // d


def _negate(x: Number) -> Number:
    n, d = _split(x)
    return ratio(-n, d)


FUNCTIONS: dict[Op, Callable[..., Number]] = {
    Unary("Floor"): _floor,
    Unary("Ceil"): lambda x: _negate(_floor(_negate(x))),
    Unary("Neg"): _negate,
    Unary("Identity"): lambda x: x,
    Binary("Add"): _add,
    Binary("Sub"): lambda a, b: _add(a, _negate(b)),
    Binary("Mul"): _multiply,
    Binary("Div"): _divide,
}


def evaluate(op: Op, arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """A function of floats that stand for sizes, element by element; None if `op` is none of these.

    Raises Undecidable where the result depends on more than is known of the symbols.
    """
    function: Any = FUNCTIONS.get(op)
    if isinstance(op, Cast):
        function = _truncate if op.dtype not in FLOATS else FUNCTIONS[Unary("Identity")]
    exact = [None if array is None else numbers(array) for array in arrays]
    if function is None or any(array is None for array in exact):
        return None
    return np.asarray(np.frompyfunc(function, len(exact), 1)(*exact), object)


def is_size(x: object) -> bool:
    """True if an element is an integer or a `Dim`."""
    return not isinstance(x, Ratio)


def is_known(x: Any) -> bool:
    """True if an element is a plain number."""
    return not isinstance(x, Ratio) and is_static(x)
