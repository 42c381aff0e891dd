"""Numbers of C's expressions: Scalars, or Python's integers where they are known, with C's conversions between types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, Union

import numpy as np

from graphc.ir.types import BOOL, F32, I64
from graphc.kernels.scalar import Kernel, Scalar, constant

I32, U32, U64 = np.dtype("int32"), np.dtype("uint32"), np.dtype("uint64")
RANK = (BOOL, I32, U32, I64, U64, F32)
"""Of two types, the one of an operator's result is the later one."""
NO_INPUTS = Kernel(())

Value: TypeAlias = "Union[Scalar, int]"
"""A number: one of `int` is known."""


def converted(value: Value, dtype: np.dtype) -> Scalar:
    """A number in another type."""
    if not isinstance(value, Scalar):
        return constant(value & 0xFFFFFFFF if dtype == U32 else value, dtype)
    return NO_INPUTS.cast(value, dtype)


def truth(value: Value) -> Scalar | bool:
    """True if a number is not 0; a bool where that is known."""
    if not isinstance(value, Scalar):
        return bool(value)
    if value.dtype != BOOL:
        value = value.ne(0)
    return bool(value.value) if value.kind == "constant" else value


def operated(operator: str, left: Value, right: Value) -> Value:
    """An operator of C's, in the type that it has for these operands."""
    if not isinstance(left, Scalar) and not isinstance(right, Scalar):
        return int(PYTHON[operator](left, right))
    if operator in ("&&", "||"):
        first, second = truth(left), truth(right)
        if isinstance(first, bool):
            return second if first == (operator == "&&") else int(first)
        second = constant(second, BOOL) if isinstance(second, bool) else second
        return first.and_(second) if operator == "&&" else first.or_(second)
    ranks = [RANK.index(each.dtype) for each in (left, right) if isinstance(each, Scalar)]
    dtype = RANK[max(*ranks, 1 if any(isinstance(each, int) for each in (left, right)) else 0)] if ranks else I32
    if operator in ("<<", ">>") and isinstance(left, Scalar):
        dtype = left.dtype
    a, b = converted(left, dtype), converted(right, dtype)
    found: Scalar = (
        {"==": a.eq, "!=": a.ne}[operator](b) if operator in ("==", "!=") else getattr(a, METHODS[operator])(b)
    )
    return found


METHODS = {
    "|": "__or__", "^": "__xor__", "&": "__and__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__",
    "<<": "__lshift__", ">>": "__rshift__", "+": "__add__", "-": "__sub__", "*": "__mul__", "/": "__truediv__",
    "%": "__mod__",
}  # fmt: skip
PYTHON: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: a or b, "&&": lambda a, b: a and b, "|": int.__or__, "^": int.__xor__, "&": int.__and__,
    "==": int.__eq__, "!=": int.__ne__, "<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__,
    "<<": int.__lshift__, ">>": int.__rshift__, "+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__,
    "%": int.__mod__,
}  # fmt: skip


def chosen(condition: Value, first: Value, second: Value) -> Value:
    """One of two numbers."""
    holds = truth(condition)
    if isinstance(holds, bool):
        return first if holds else second
    dtypes = [each.dtype if isinstance(each, Scalar) else I32 for each in (first, second)]
    dtype = max(dtypes, key=RANK.index)
    return NO_INPUTS.select(holds, converted(first, dtype), converted(second, dtype))
