"""What a `Scalar` is for many places at once, in NumPy: the meaning that every renderer must give it."""

from __future__ import annotations

import ast
import functools
import itertools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from graphc.errors import GraphcError
from graphc.ir.types import BF16, BOOL, F16, F32, FLOATS, INTEGERS
from graphc.kernels.nest import extent
from graphc.kernels.scalar import Scalar
from graphc.shapes import bind

Array = np.ndarray

COMPUTED = {F16: F32, BF16: F32}
"""The types that narrow floats are computed in."""


class KernelFault(GraphcError):
    """A kernel does what it must not: reads outside a tensor, breaks a promise, or fails a check of its own."""


def _power(a: Array, b: Array) -> Any:
    if a.dtype.kind == "f":
        return np.power(a, b)
    negative = np.where(np.abs(a) == 1, np.where((b & 1) == 1, a, 1), 0)
    return np.where(b < 0, negative, np.power(a, np.maximum(b, 0)))


def _divided(a: Array, b: Array) -> Any:
    if a.dtype.kind == "f":
        return np.divide(a, b)
    safe = np.where(b == 0, 1, b)
    whole = a // safe + ((a % safe != 0) & ((a < 0) != (safe < 0)))
    return np.where(b == 0, 0, whole)


def _rest(a: Array, b: Array) -> Array:
    return np.fmod(a, b) if a.dtype.kind == "f" else np.where(b == 0, 0, np.fmod(a, np.where(b == 0, 1, b)))


def _shifted(shift: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    none = (b < 0) | (b >= bits)
    beyond = np.where(a < 0, -1, 0).astype(a.dtype) if shift is np.right_shift else np.zeros_like(a)
    return np.where(none, beyond, shift(a, np.where(none, 0, b)))


OPERATORS: dict[str, Callable[..., Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": _divided, "rem": _rest, "**": _power,
    "//": lambda a, b: np.floor_divide(a, b) if a.dtype.kind == "f" else np.floor_divide(a, np.where(b == 0, 1, b)) * (b != 0),
    "%": lambda a, b: np.mod(a, b) if a.dtype.kind == "f" else np.mod(a, np.where(b == 0, 1, b)) * (b != 0),
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
    "<<": functools.partial(_shifted, np.left_shift), ">>": functools.partial(_shifted, np.right_shift),
    "max": np.maximum, "min": np.minimum, "neg": np.negative, "~": np.invert,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
}  # fmt: skip

_ERF = np.vectorize(math.erf, otypes=[np.float64])

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p, "sqrt": np.sqrt,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "fabs": np.abs, "pow": np.power,
    "fmod": np.fmod, "fmax": np.fmax, "fmin": np.fmin, "copysign": np.copysign, "isnan": np.isnan, "isinf": np.isinf,
    "fma": lambda a, b, c: (a.astype(np.float64) * b + c).astype(a.dtype), "fast_exp2": np.exp2,
    "fast_exp": np.exp, "fast_reciprocal": np.reciprocal,
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)), "erf": lambda x: _ERF(x).astype(x.dtype),
    "int32_t": lambda x: np.trunc(x).astype(np.int32),
}  # fmt: skip
"""C's functions, and types that numbers are converted to, which templates of `Kernel.call` name."""


@functools.lru_cache(maxsize=1000)
def parsed(template: str) -> ast.expr:
    """A template of `Kernel.call` as a tree: calls of functions without their suffix, arithmetic, numbers, and the operands
    by the names a0, a1, …. Raises KernelFault for C that is more than that."""
    text = re.sub(r"\{(\d+)\}", r"(a\1)", template.replace("{f}", ""))
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise KernelFault(f"{template} is more C than is understood here") from error


def _applied(node: ast.expr, operands: list[Array]) -> Any:
    match node:
        case ast.Name(id=name):
            return operands[int(name.removeprefix("a"))]
        case ast.Constant(value=number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_applied(operand, operands)
        case ast.BinOp(left=left, op=op, right=right):
            sides = _applied(left, operands), _applied(right, operands)
            kinds = {ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide}
            return kinds[type(op)](*sides)
        case ast.Call(func=ast.Name(id=name), args=args) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_applied(each, operands) for each in args))
    raise KernelFault(f"{ast.unparse(node)} is more C than is understood here")


def check_template(template: str) -> None:
    """Raise KernelFault for a template of which not everything is understood."""
    for node in ast.walk(parsed(template)):
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS):
            raise KernelFault(f"{ast.unparse(node)} is more C than is understood here")
        if not isinstance(node, _UNDERSTOOD):
            raise KernelFault(f"{template} is more C than is understood here")


_UNDERSTOOD = (
    ast.Name, ast.Constant, ast.UnaryOp, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Call, ast.Load,
)  # fmt: skip


class Evaluation:
    """Values of Scalars where variables have these values (arrays that broadcast), and symbols these. `tile` gives the elements
    of a tile, `element` those of a tensor at offsets, which must lie in it only where an array of bools says so (None:
    everywhere)."""

    def __init__(
        self,
        variables: Mapping[Scalar, Array],
        symbols: Mapping[str, int],
        tile: Callable[[Any], Array],
        element: Callable[[int, Array, Array | None], Array],
    ) -> None:
        self.values: dict[tuple[Scalar, int], tuple[Array, Array | None]] = {}
        self.variables, self.symbols = dict(variables), symbols
        self.tile, self.element = tile, element

    def __call__(self, node: Scalar, where: Array | None = None) -> Array:
        """The value of a node, in the type that it is computed in; it need be defined only where `where` holds."""
        key = node, 0 if where is None or node.total else id(where)
        if key not in self.values:
            with np.errstate(all="ignore"):
                found = np.asarray(getattr(self, f"_{node.kind}")(node, where))
            self.values[key] = found, where
        return self.values[key][0]

    def _constant(self, node: Scalar, where: Array | None) -> Array:
        return np.asarray(node.value, computed(node.dtype))

    def _variable(self, node: Scalar, where: Array | None) -> Array:
        return self.variables[node]

    def _size(self, node: Scalar, where: Array | None) -> Array:
        return np.asarray(bind(node.data, self.symbols), np.int64)  # type: ignore[arg-type]

    def _tile(self, node: Scalar, where: Array | None) -> Array:
        return self.tile(node.data).astype(computed(node.dtype))

    def _element(self, node: Scalar, where: Array | None) -> Array:
        found = self.element(node.data, self(node.args[0], where), where)  # type: ignore[arg-type]
        return found.astype(computed(node.dtype))

    def _operate(self, node: Scalar, where: Array | None) -> Array:
        first = self(node.args[0], where)
        if node.data in ("and", "or"):
            needed = first if node.data == "and" else ~first
            return np.asarray(OPERATORS[str(node.data)](first, self(node.args[1], both(where, needed))))
        found = OPERATORS[str(node.data)](first, *(self(arg, where) for arg in node.args[1:]))
        return found if node.dtype == BOOL else np.asarray(found).astype(computed(node.dtype))

    def _apply(self, node: Scalar, where: Array | None) -> Array:
        found = _applied(parsed(str(node.data)), [self(arg, where) for arg in node.args])
        return np.asarray(found).astype(computed(node.dtype))

    def _select(self, node: Scalar, where: Array | None) -> Array:
        condition = self(node.args[0], where)
        return np.where(
            condition, self(node.args[1], both(where, condition)), self(node.args[2], both(where, ~condition))
        )

    def _cast(self, node: Scalar, where: Array | None) -> Array:
        value = self(node.args[0], where)
        if node.dtype in INTEGERS and node.args[0].dtype in FLOATS:
            value = np.trunc(value)
        return value.astype(node.dtype).astype(computed(node.dtype))

    def _require(self, node: Scalar, where: Array | None) -> Array:
        condition = self(node.args[0], where)
        if not (condition if where is None else condition | ~where).all():
            raise KernelFault(str(node.data))
        return self(node.args[1], where)

    def _reduce(self, node: Scalar, where: Array | None) -> Array:
        kind, variables = cast("tuple[str, tuple[Scalar, ...]]", node.data)
        counts = [int(bind(extent(each), self.symbols)) for each in variables]  # type: ignore[arg-type]
        wide = np.float64 if node.dtype in FLOATS and kind in ("sum", "prod") else computed(node.dtype)
        combine = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[kind]
        total: Array = np.asarray(identity(kind, node.dtype), wide)
        for at in itertools.product(*map(range, counts)):
            places = self.variables | dict(zip(variables, map(np.asarray, at), strict=True))
            inner = Evaluation(places, self.symbols, self.tile, self.element)
            total = combine(total, inner(node.args[0], where).astype(wide))
        return np.asarray(total).astype(computed(node.dtype))


def both(first: Array | None, second: Array) -> Array:
    """Where both hold."""
    return second if first is None else first & second


def computed(dtype: np.dtype) -> np.dtype:
    """The type that numbers of a type are computed in."""
    return COMPUTED.get(dtype, dtype)


def identity(kind: str, dtype: np.dtype) -> float | int:
    """What a reduction of nothing gives."""
    if kind in ("sum", "prod"):
        return int(kind == "prod")
    if dtype in FLOATS:
        return -math.inf if kind == "max" else math.inf
    limits = np.iinfo(dtype)
    return limits.min if kind == "max" else limits.max
